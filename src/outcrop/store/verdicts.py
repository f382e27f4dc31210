"""What issuers have said of an account's credentials, by fingerprint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.domain.finding import Confidence, Validation
from outcrop.store.db import Connection

_COLUMNS = "status, confidence, reason, services, asked, test_mode, canary, checked_at"


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict, and when it was given."""

    status: Validation
    confidence: Confidence
    reason: str
    services: tuple[str, ...]
    asked: bool
    test_mode: bool
    canary: bool
    checked_at: datetime


async def select(db: Connection, account_id: int, fingerprints: Sequence[bytes]) -> dict[bytes, Said]:
    cursor = await db.execute(
        f"SELECT fingerprint, {_COLUMNS} FROM verdicts WHERE account_id = %s AND fingerprint = ANY(%s)".encode(),
        [account_id, list(fingerprints)],
    )
    return {
        row[0]: Said(Validation(row[1]), Confidence(row[2]), row[3], tuple(row[4]), row[5], row[6], row[7], row[8])
        for row in await cursor.fetchall()
    }


async def save(db: Connection, account_id: int, said: Mapping[bytes, Said]) -> None:
    """Keep verdicts; a newer one replaces an older one."""
    async with db.cursor() as cursor:
        await cursor.executemany(
            f"""INSERT INTO verdicts (account_id, fingerprint, {_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
                ON CONFLICT (account_id, fingerprint) DO UPDATE SET status = excluded.status, confidence = excluded.confidence,
                    reason = excluded.reason, services = excluded.services, asked = excluded.asked, test_mode = excluded.test_mode,
                    canary = excluded.canary, checked_at = excluded.checked_at
                WHERE verdicts.checked_at <= excluded.checked_at""".encode(),
            [
                [account_id, fingerprint, s.status, s.confidence, s.reason, list(s.services), s.asked, s.test_mode, s.canary, s.checked_at]
                for fingerprint, s in sorted(said.items())
            ],
        )


@dataclass(frozen=True, slots=True)
class Due:
    """A credential whose verdict is old, with one finding that holds it."""

    account_id: int
    finding_id: UUID
    fingerprint: bytes
    box: bytes
    rule: str
    secret_type: str


async def due(db: Connection, *, before: datetime, most: int) -> list[Due]:
    """Give credentials of active findings that were last checked before a moment, of whatever account, each once."""
    cursor = await db.execute(
        """SELECT DISTINCT ON (f.account_id, f.fingerprint) f.account_id, f.id, f.fingerprint, f.secret_box, f.rule, f.pattern_secret_type
           FROM verdicts v JOIN findings f ON f.account_id = v.account_id AND f.fingerprint = v.fingerprint
           WHERE v.checked_at < %s AND f.status = 'active' AND f.secret_box IS NOT NULL AND f.rule IS NOT NULL
           ORDER BY f.account_id, f.fingerprint, f.id LIMIT %s""",
        [before, most],
    )
    return [Due(*row) for row in await cursor.fetchall()]


async def finding_ids(db: Connection, account_id: int, fingerprint: bytes) -> list[UUID]:
    """Give the findings that hold a credential."""
    cursor = await db.execute("SELECT id FROM findings WHERE account_id = %s AND fingerprint = %s ORDER BY id", [account_id, fingerprint])
    return [row[0] for row in await cursor.fetchall()]
