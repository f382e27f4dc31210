"""Store the issuers' verdicts about an account's credentials, and find the credentials to validate again."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from outcrop.domain.finding import Confidence, Validation
from outcrop.store.db import Connection, fetch_single_row
from outcrop.store.findings import rows
from outcrop.store.keyring import FINGERPRINT_BYTES
from outcrop.store.locks import AdvisoryLock

NEVER_CHECKED = datetime(1970, 1, 1, tzinfo=UTC)  # the time of a verdict for which no issuer was asked
_AFTER_ALL_COMPANIONS = b"\xff" * 17  # sorts after every digest of companions
_BEFORE_ALL = datetime(1, 1, 2, tzinfo=UTC)
_COLUMNS = "status, confidence, reason, services, asked, test_mode, canary, checked_at"


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """A verdict about a credential, and its time."""

    status: Validation
    confidence: Confidence
    reason: str
    services: tuple[str, ...]
    asked: bool  # the issuer was also asked which services the credential gives access to
    test_mode: bool
    canary: bool
    checked_at: datetime


# A verdict is stored by the fingerprint of the credential and a digest of the companions that were sent
# with it (`Keyring.compute_verdict_key`): the same value beside another host is another check.
_IN_USE = """EXISTS (SELECT FROM findings f
                     WHERE f.account_id = v.account_id AND f.fingerprint = substr(v.fingerprint, 1, %(size)s)
                       AND coalesce(f.verdict_key, f.fingerprint) = v.fingerprint AND f.status = 'active')"""


def choose_verdict(verdicts: Iterable[StoredVerdict]) -> StoredVerdict:
    """Return the verdict that counts of those on one value: `valid` wins, otherwise the newest.

    An `unvalidated` one counts only if there is no other.
    """
    return max(
        verdicts,
        key=lambda verdict: (
            verdict.status is Validation.VALID,
            verdict.status is not Validation.UNVALIDATED,
            verdict.checked_at,
        ),
    )


def group_by_fingerprint(verdicts: Mapping[bytes, StoredVerdict]) -> dict[bytes, StoredVerdict]:
    """Return the verdict that counts for each value, by fingerprint; `verdicts` is by verdict key."""
    groups: dict[bytes, list[StoredVerdict]] = {}
    for key, verdict in verdicts.items():
        groups.setdefault(key[:FINGERPRINT_BYTES], []).append(verdict)
    return {fingerprint: choose_verdict(group) for fingerprint, group in groups.items()}


async def select(db: Connection, account_id: int, keys: Collection[bytes]) -> dict[bytes, StoredVerdict]:
    """Return the verdicts with these keys, and all others on the same values, by verdict key.

    A verdict whose place is closed does not count, and is left out unless its key is given: it is not checked
    any more.
    """
    cursor = await db.execute(
        f"""SELECT fingerprint, {_COLUMNS}
            FROM unnest(%(fingerprints)s::bytea[]) AS wanted (value) CROSS JOIN LATERAL (
                SELECT * FROM verdicts v
                WHERE v.account_id = %(account)s
                  AND v.fingerprint >= wanted.value AND v.fingerprint < wanted.value || %(end)s
                  AND (v.fingerprint = ANY(%(keys)s) OR {_IN_USE})
                OFFSET 0) found""".encode(),
        {
            "account": account_id,
            "keys": list(keys),
            "fingerprints": list({key[:FINGERPRINT_BYTES] for key in keys}),
            "end": _AFTER_ALL_COMPANIONS,
            "size": FINGERPRINT_BYTES,
        },
    )
    return {
        row[0]: StoredVerdict(
            Validation(row[1]), Confidence(row[2]), row[3], tuple(row[4]), row[5], row[6], row[7], row[8]
        )
        for row in await cursor.fetchall()
    }


async def save(db: Connection, account_id: int, verdicts: Mapping[bytes, StoredVerdict]) -> None:
    """Insert verdicts by verdict key, or replace stored ones that are not newer."""
    async with db.cursor() as cursor:
        await cursor.executemany(
            f"""INSERT INTO verdicts (account_id, fingerprint, {_COLUMNS})
                VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
                ON CONFLICT (account_id, fingerprint) DO UPDATE
                SET status = excluded.status, confidence = excluded.confidence, reason = excluded.reason,
                    services = excluded.services, asked = excluded.asked, test_mode = excluded.test_mode,
                    canary = excluded.canary, checked_at = excluded.checked_at
                WHERE verdicts.checked_at <= excluded.checked_at""".encode(),
            [
                [
                    account_id,
                    key,
                    verdict.status,
                    verdict.confidence,
                    verdict.reason,
                    list(verdict.services),
                    verdict.asked,
                    verdict.test_mode,
                    verdict.canary,
                    verdict.checked_at,
                ]
                for key, verdict in sorted(verdicts.items())
            ],
        )


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """A stored credential, encrypted, and one finding that has it."""

    account_id: int
    finding_id: UUID
    fingerprint: bytes
    verdict_key: bytes
    box: bytes
    rule: str | None
    secret_type: str


@dataclass(frozen=True, slots=True)
class DueCredential(StoredCredential):
    """A stored credential whose verdict is old."""

    status: Validation
    checked_at: datetime


async def select_due(
    db: Connection,
    *,
    before: datetime,
    undecided_before: datetime,
    after: DueCredential | None,
    limit: int,
) -> list[DueCredential]:
    """Return credentials of active findings of all accounts that are due for a new verdict, oldest first.

    A verdict is due if it is older than `before`; one that left the question open (`error`, `unreachable`)
    if it is older than `undecided_before`. `after` is the last credential of the previous call. Each
    credential is returned once, even if several findings have it.
    """
    last_key = (
        (_BEFORE_ALL, 0, b"") if after is None else (after.checked_at, after.account_id, after.verdict_key)
    )
    cursor = await db.execute(
        """SELECT f.account_id, f.id, f.fingerprint, v.fingerprint, f.secret_box, f.rule,
                  f.pattern_secret_type, v.status, v.checked_at
           FROM verdicts v CROSS JOIN LATERAL (
               SELECT * FROM findings f
               WHERE f.account_id = v.account_id AND f.fingerprint = substr(v.fingerprint, 1, %s)
                 AND coalesce(f.verdict_key, f.fingerprint) = v.fingerprint
                 AND f.status = 'active' AND f.secret_box IS NOT NULL AND f.rule IS NOT NULL
               ORDER BY f.id LIMIT 1) f
           WHERE v.checked_at < %s AND (v.checked_at < %s OR v.status IN ('error', 'unreachable'))
             AND (v.checked_at, v.account_id, v.fingerprint) > (%s, %s, %s)
           ORDER BY v.checked_at, v.account_id, v.fingerprint LIMIT %s""",
        [FINGERPRINT_BYTES, undecided_before, before, *last_key, limit],
    )
    return [
        DueCredential(row[0], row[1], row[2], row[3], row[4], row[5], row[6], Validation(row[7]), row[8])
        for row in await cursor.fetchall()
    ]


async def select_credential(db: Connection, account_id: int, finding_id: UUID) -> StoredCredential | None:
    """Return the finding's stored credential; None if none is stored or the finding does not exist."""
    cursor = await db.execute(
        f"""SELECT account_id, id, fingerprint, coalesce(verdict_key, fingerprint), secret_box, rule,
                   pattern_secret_type FROM findings
            WHERE {rows.BY_ID} AND secret_box IS NOT NULL AND fingerprint IS NOT NULL""".encode(),
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else StoredCredential(*row)


async def select_unvalidated(
    db: Connection, account_id: int, finding_ids: Sequence[UUID]
) -> list[StoredCredential]:
    """Return the stored credentials of those findings that have no verdict yet, each credential once."""
    cursor = await db.execute(
        f"""SELECT DISTINCT ON (coalesce(verdict_key, fingerprint))
                   account_id, id, fingerprint, coalesce(verdict_key, fingerprint), secret_box, rule,
                   pattern_secret_type FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")} AND validation_status = 'unvalidated'
              AND secret_box IS NOT NULL AND fingerprint IS NOT NULL AND rule IS NOT NULL""".encode(),
        [account_id, list(finding_ids)],
    )
    return [StoredCredential(*row) for row in await cursor.fetchall()]


async def try_lock_revalidation(db: Connection) -> bool:
    """Whether this connection got the lock that only one revalidating process may hold, without waiting."""
    (locked,) = await fetch_single_row(db, "SELECT pg_try_advisory_lock(%s)", [AdvisoryLock.REVALIDATION])
    return bool(locked)


async def unlock_revalidation(db: Connection) -> None:
    """Release the lock of `try_lock_revalidation`."""
    await db.execute("SELECT pg_advisory_unlock(%s)", [AdvisoryLock.REVALIDATION])


async def select_finding_ids(db: Connection, account_id: int, fingerprint: bytes) -> list[UUID]:
    """Return the ids of the account's findings that have this credential, in order."""
    cursor = await db.execute(
        f"SELECT id FROM findings WHERE {rows.OF_ACCOUNT} AND fingerprint = %s ORDER BY id".encode(),
        [account_id, fingerprint],
    )
    return [row[0] for row in await cursor.fetchall()]


async def select_without_key(db: Connection, account_id: int, fingerprint: bytes) -> list[tuple[UUID, bytes]]:
    """Return (finding id, encrypted credential) of the findings of a credential that have no verdict key."""
    cursor = await db.execute(
        f"""SELECT id, secret_box FROM findings
            WHERE {rows.OF_ACCOUNT} AND fingerprint = %s AND verdict_key IS NULL
              AND secret_box IS NOT NULL""".encode(),
        [account_id, fingerprint],
    )
    return await cursor.fetchall()


async def set_keys(db: Connection, account_id: int, keys: Mapping[UUID, bytes]) -> None:
    """Save verdict keys by finding id, row by row: a join with all keys would read the whole account."""
    async with db.cursor() as cursor:
        await cursor.executemany(
            f"UPDATE findings SET verdict_key = %s WHERE {rows.BY_ID}".encode(),
            [(key, account_id, finding_id) for finding_id, key in keys.items()],
        )
