"""Read, lock and assign single incidents; read their places."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from outcrop.domain.finding import Confidence, CredentialPattern, Finding, Validation
from outcrop.domain.incident import Incident
from outcrop.store.db import Connection, fetch_single_row
from outcrop.store.findings import rows

COLUMNS = """i.id, i.places, i.open_places, i.composite_score, i.validation_status, i.validation_confidence,
    i.validation_detail, i.matched_text, i.pattern_name, i.pattern_secret_type, i.first_seen_at,
    i.last_seen_at, i.closed_at, i.due_at"""


def build_incident(row: tuple[Any, ...]) -> Incident:
    """Return the incident of a row whose columns are COLUMNS and the assignee."""
    values = [*row[:8], CredentialPattern(row[8], row[9]), *row[10:]]
    values[4:6] = Validation(row[4]), Confidence(row[5])
    return Incident(*values)


async def select(db: Connection, account_id: int, incident_id: UUID) -> Incident | None:
    """Return an incident as its findings are now."""
    cursor = await db.execute(
        f"""SELECT {COLUMNS}, (SELECT assignee FROM incidents s
                               WHERE s.account_id = i.account_id AND s.id = i.id)
            FROM incident_states i WHERE i.{rows.BY_ID}""".encode(),
        [account_id, incident_id],
    )
    row = await cursor.fetchone()
    return None if row is None else build_incident(row)


async def select_place_ids(db: Connection, account_id: int, incident_id: UUID) -> list[UUID]:
    """Return the ids of all findings of an incident, in order."""
    cursor = await db.execute(
        f"SELECT id FROM findings WHERE {rows.OF_ACCOUNT} AND incident_id = %s ORDER BY id".encode(),
        [account_id, incident_id],
    )
    return [finding_id for (finding_id,) in await cursor.fetchall()]


async def select_places(
    db: Connection, account_id: int, incident_id: UUID, *, offset: int, limit: int
) -> list[Finding]:
    """Return findings of an incident: open ones first, then by score."""
    cursor = await db.execute(
        f"""SELECT {rows.COLUMNS} FROM findings WHERE {rows.OF_ACCOUNT} AND incident_id = %s
            ORDER BY status NOT IN ('active', 'stale'), composite_score DESC, id
            OFFSET %s LIMIT %s""".encode(),
        [account_id, incident_id, offset, limit],
    )
    return [rows.build_finding(row) for row in await cursor.fetchall()]


async def select_recent_place_ids(
    db: Connection, account_id: int, incident_id: UUID, limit: int
) -> list[UUID]:
    """Return the ids of the findings of an incident that changed last, the latest first."""
    cursor = await db.execute(
        f"""SELECT id FROM findings WHERE {rows.OF_ACCOUNT} AND incident_id = %s
            ORDER BY updated_at DESC, id LIMIT %s""".encode(),
        [account_id, incident_id, limit],
    )
    return [finding_id for (finding_id,) in await cursor.fetchall()]


async def select_oldest_place(db: Connection, account_id: int, incident_id: UUID) -> Finding | None:
    """Return the finding of an incident that has the oldest commit; None if no commit has a date."""
    cursor = await db.execute(
        f"""SELECT {rows.COLUMNS} FROM findings
            WHERE {rows.OF_ACCOUNT} AND incident_id = %s AND committed_at IS NOT NULL
            ORDER BY committed_at, id LIMIT 1""".encode(),
        [account_id, incident_id],
    )
    row = await cursor.fetchone()
    return None if row is None else rows.build_finding(row)


async def lock_places(db: Connection, account_id: int, incident_ids: Sequence[UUID]) -> None:
    """Lock the findings of incidents in the order of their ids, as every triage does."""
    await db.execute(
        f"""SELECT FROM findings WHERE {rows.OF_ACCOUNT} AND {rows.one_of("incident_id")}
            ORDER BY id FOR NO KEY UPDATE""".encode(),
        [account_id, list(incident_ids)],
    )


async def assign(db: Connection, account_id: int, incident_ids: Sequence[UUID], assignee: str | None) -> int:
    """Save the assignee of incidents and of their findings; return how many incidents have changed.

    The caller holds the lock of the incidents and those of the findings.
    """
    cursor = await db.execute(
        f"""UPDATE incidents SET assignee = %s
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")} AND assignee IS DISTINCT FROM %s""".encode(),
        [assignee, account_id, list(incident_ids), assignee],
    )
    await db.execute(
        f"""UPDATE findings SET assignee = %s WHERE {rows.OF_ACCOUNT} AND {rows.one_of("incident_id")}
            AND assignee IS DISTINCT FROM %s""".encode(),
        [assignee, account_id, list(incident_ids), assignee],
    )
    return cursor.rowcount


async def select_authors(db: Connection, account_id: int, incident_id: UUID, limit: int) -> list[str]:
    """Return the authors of the commits of an incident's places, the earliest first."""
    cursor = await db.execute(
        f"""SELECT author FROM findings
            WHERE {rows.OF_ACCOUNT} AND incident_id = %s AND author IS NOT NULL
            GROUP BY author ORDER BY min(committed_at), author LIMIT %s""".encode(),
        [account_id, incident_id, limit],
    )
    return [author for (author,) in await cursor.fetchall()]


async def exists(db: Connection, account_id: int, incident_id: UUID) -> bool:
    """Whether the account has a finding of this incident."""
    (found,) = await fetch_single_row(
        db,
        f"SELECT EXISTS (SELECT FROM findings WHERE {rows.OF_ACCOUNT} AND incident_id = %s)",
        [account_id, incident_id],
    )
    return bool(found)
