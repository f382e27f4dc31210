"""What issuers have said of an account's credentials, by fingerprint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from outcrop.domain.finding import Confidence, Validation
from outcrop.store.db import Connection, fetch_single_row

NEVER_CHECKED = datetime(1970, 1, 1, tzinfo=UTC)  # when a credential was checked that nobody has asked about
_BEGINNING = datetime(1, 1, 2, tzinfo=UTC)
_LOCK_ASKING = 7_264_005
_COLUMNS = "status, confidence, reason, services, asked, test_mode, canary, checked_at"


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """A verdict, and when it was given."""

    status: Validation
    confidence: Confidence
    reason: str
    services: tuple[str, ...]
    asked: bool
    test_mode: bool
    canary: bool
    checked_at: datetime


async def select(
    db: Connection, account_id: int, fingerprints: Sequence[bytes]
) -> dict[bytes, StoredVerdict]:
    cursor = await db.execute(
        f"SELECT fingerprint, {_COLUMNS} FROM verdicts WHERE account_id = %s AND fingerprint = ANY(%s)".encode(),
        [account_id, list(fingerprints)],
    )
    return {
        row[0]: StoredVerdict(
            Validation(row[1]), Confidence(row[2]), row[3], tuple(row[4]), row[5], row[6], row[7], row[8]
        )
        for row in await cursor.fetchall()
    }


async def save(db: Connection, account_id: int, said: Mapping[bytes, StoredVerdict]) -> None:
    """Keep verdicts; a newer one replaces an older one."""
    async with db.cursor() as cursor:
        await cursor.executemany(
            f"""INSERT INTO verdicts (account_id, fingerprint, {_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
                ON CONFLICT (account_id, fingerprint) DO UPDATE SET status = excluded.status, confidence = excluded.confidence,
                    reason = excluded.reason, services = excluded.services, asked = excluded.asked, test_mode = excluded.test_mode,
                    canary = excluded.canary, checked_at = excluded.checked_at
                WHERE verdicts.checked_at <= excluded.checked_at""".encode(),
            [
                [
                    account_id,
                    fingerprint,
                    s.status,
                    s.confidence,
                    s.reason,
                    list(s.services),
                    s.asked,
                    s.test_mode,
                    s.canary,
                    s.checked_at,
                ]
                for fingerprint, s in sorted(said.items())
            ],
        )


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """A credential that is kept, with one finding that holds it."""

    account_id: int
    finding_id: UUID
    fingerprint: bytes
    box: bytes
    rule: str | None
    secret_type: str


@dataclass(frozen=True, slots=True)
class DueCredential(StoredCredential):
    """One whose verdict is old."""

    status: Validation
    checked_at: datetime


async def select_due(
    db: Connection, *, before: datetime, undecided_before: datetime, after: DueCredential | None, most: int
) -> list[DueCredential]:
    """Give credentials of active findings that were last checked before a moment, of whatever account, each once, the oldest first.

    What nobody could tell is due sooner than what an issuer has said. `after` is the last of those given
    before.
    """
    place = (_BEGINNING, 0, b"") if after is None else (after.checked_at, after.account_id, after.fingerprint)
    cursor = await db.execute(
        """SELECT f.account_id, f.id, f.fingerprint, f.secret_box, f.rule, f.pattern_secret_type, v.status, v.checked_at
           FROM verdicts v CROSS JOIN LATERAL (
               SELECT * FROM findings f
               WHERE f.account_id = v.account_id AND f.fingerprint = v.fingerprint
                 AND f.status = 'active' AND f.secret_box IS NOT NULL AND f.rule IS NOT NULL
               ORDER BY f.id LIMIT 1) f
           WHERE v.checked_at < %s AND (v.checked_at < %s OR v.status IN ('error', 'unreachable'))
             AND (v.checked_at, v.account_id, v.fingerprint) > (%s, %s, %s)
           ORDER BY v.checked_at, v.account_id, v.fingerprint LIMIT %s""",
        [undecided_before, before, *place, most],
    )
    return [
        DueCredential(row[0], row[1], row[2], row[3], row[4], row[5], Validation(row[6]), row[7])
        for row in await cursor.fetchall()
    ]


async def select_credential(db: Connection, account_id: int, finding_id: UUID) -> StoredCredential | None:
    """Give the credential of a finding; None where it is not kept, or there is no such finding."""
    cursor = await db.execute(
        """SELECT account_id, id, fingerprint, secret_box, rule, pattern_secret_type FROM findings
           WHERE account_id = %s AND id = %s AND secret_box IS NOT NULL AND fingerprint IS NOT NULL""",
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else StoredCredential(*row)


async def try_lock_revalidation(db: Connection) -> bool:
    """Be the only one who asks again, for as long as this connection lives; False where another is."""
    (held,) = await fetch_single_row(db, f"SELECT pg_try_advisory_lock({_LOCK_ASKING})")
    return bool(held)


async def unlock_revalidation(db: Connection) -> None:
    await db.execute(f"SELECT pg_advisory_unlock({_LOCK_ASKING})".encode())


async def select_finding_ids(db: Connection, account_id: int, fingerprint: bytes) -> list[UUID]:
    """Give the findings that hold a credential."""
    cursor = await db.execute(
        "SELECT id FROM findings WHERE account_id = %s AND fingerprint = %s ORDER BY id",
        [account_id, fingerprint],
    )
    return [row[0] for row in await cursor.fetchall()]
