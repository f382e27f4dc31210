"""Store API keys, and authenticate and count each API request in one statement."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from outcrop.domain.account import REQUESTS_PER_MINUTE, ApiKey, Caller, Plan
from outcrop.store.db import Connection

_KEY = "k.id, k.name, k.hint, k.created_at, k.created_by, k.expires_at, k.revoked_at, w.used_at"
_UNLIMITED = 2**31 - 1


async def insert(db: Connection, account_id: int, key: ApiKey, digest: bytes) -> None:
    """Insert a key. Of its text only the SHA-256 digest is stored."""
    await db.execute(
        """INSERT INTO api_keys (id, account_id, name, hint, digest, created_at, created_by, expires_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s)""",
        [key.id, account_id, key.name, key.hint, digest, key.created_at, key.created_by, key.expires_at],
    )


async def select_all(db: Connection, account_id: int) -> list[ApiKey]:
    """Return the account's keys, oldest first, also revoked ones."""
    cursor = await db.execute(
        f"""SELECT {_KEY} FROM api_keys k LEFT JOIN rate_windows w ON w.key_id = k.id
            WHERE k.account_id = %s ORDER BY k.created_at, k.id""".encode(),
        [account_id],
    )
    return [ApiKey(*row) for row in await cursor.fetchall()]


async def revoke(db: Connection, key_id: UUID, *, now: datetime) -> tuple[int, str, bool] | None:
    """Revoke a key; return (account id, name, whether this call revoked it), or None if it is unknown."""
    cursor = await db.execute(
        "SELECT account_id, name, revoked_at IS NULL FROM api_keys WHERE id = %s FOR UPDATE", [key_id]
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    if row[2]:
        await db.execute(
            "UPDATE api_keys SET revoked_at = %s WHERE account_id = %s AND id = %s", [now, row[0], key_id]
        )
    return row[0], row[1], row[2]


class KeyRefusal(StrEnum):
    """The reason why a request is not admitted."""

    INVALID = "invalid_token"
    REVOKED = "revoked_token"
    PLAN = "plan_required"
    RATE = "rate_limited"


@dataclass(frozen=True, slots=True)
class RateWindow:
    """The minute in which the request was counted."""

    limit: int
    remaining: int
    reset: int  # seconds until the window ends, at least 1


_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Admission:
    """The caller of a request or the reason for a refusal; without a rate limit the window is None."""

    caller: Caller | None
    refusal: KeyRefusal | None = None
    window: RateWindow | None = None
    moment: datetime = _NEVER  # of the admission, by the database's clock


# A window starts with its first request and lasts 60 s of the database's clock. The row lock of the upsert
# makes the count exact with many processes. A refused request changes nothing. A plan without API access
# has no limit in this statement (`cap` is NULL) and so is not counted.
_ADMIT = """
WITH k AS (
    SELECT k.id, k.account_id, coalesce(k.created_by, a.email) AS email, a.plan,
           k.revoked_at IS NOT NULL AS revoked,
           coalesce(k.expires_at <= clock_timestamp(), false) AS expired,
           CASE WHEN k.revoked_at IS NULL AND coalesce(k.expires_at > clock_timestamp(), true)
                THEN CASE a.plan WHEN 'growth' THEN %(growth)s::int
                                 WHEN 'enterprise' THEN %(enterprise)s::int END END AS cap
    FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE k.digest = %(digest)s
), hit AS (
    INSERT INTO rate_windows AS w (key_id, started_at, used, used_at)
    SELECT id, clock_timestamp(), 1, clock_timestamp() FROM k WHERE cap IS NOT NULL
    ON CONFLICT (key_id) DO UPDATE SET
        started_at = CASE WHEN w.started_at <= clock_timestamp() - interval '60 s' THEN clock_timestamp()
                          ELSE w.started_at END,
        used = CASE WHEN w.started_at <= clock_timestamp() - interval '60 s' THEN 1 ELSE w.used + 1 END,
        used_at = clock_timestamp()
    WHERE w.used < (SELECT cap FROM k) OR w.started_at <= clock_timestamp() - interval '60 s'
    RETURNING used, started_at
)
SELECT k.account_id, k.id, k.email, k.plan, k.revoked, k.expired, k.cap, hit.used,
       ceil(extract(epoch FROM coalesce(hit.started_at, w.started_at)
                               + interval '60 s' - clock_timestamp()))::int,
       date_trunc('second', clock_timestamp())
FROM k LEFT JOIN hit ON true LEFT JOIN rate_windows w ON w.key_id = k.id
"""


async def admit_request(db: Connection, digest: bytes, *, limit: int | None) -> Admission:
    """Authenticate a request by the digest of its key and count it, in one statement.

    `limit` replaces the plan's requests per minute; 0 means no limit.
    """
    caps = {
        plan.value: limit or cap if limit != 0 else _UNLIMITED for plan, cap in REQUESTS_PER_MINUTE.items()
    }
    cursor = await db.execute(_ADMIT, {"digest": digest, **caps})
    row = await cursor.fetchone()
    if row is None:
        return Admission(None, KeyRefusal.INVALID)
    account_id, key_id, email, plan, revoked, expired, cap, used, seconds_left, moment = row
    if revoked:
        return Admission(None, KeyRefusal.REVOKED)
    if expired:
        return Admission(None, KeyRefusal.INVALID)
    if Plan(plan) not in REQUESTS_PER_MINUTE:
        return Admission(None, KeyRefusal.PLAN)
    # If another request started the window after this statement's snapshot, the snapshot shows the old
    # window, which is over. The new one ends in at most a minute.
    fallback = 60 if used is None else 1
    reset = seconds_left if seconds_left is not None and seconds_left >= 1 else fallback
    if used is None:
        return Admission(None, KeyRefusal.RATE, RateWindow(cap, 0, reset))
    window = None if limit == 0 else RateWindow(cap, cap - used, reset)
    return Admission(Caller(account_id, key_id, email), None, window, moment)
