"""Read, lock and update single findings; find findings by fingerprint or identity."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.finding import Finding, Status
from outcrop.domain.paging import FindingQuery
from outcrop.store.db import Connection
from outcrop.store.findings import rows
from outcrop.store.findings.conditions import add_finding_conditions, build_where, row_conditions
from outcrop.store.findings.facets import list_matching_facets


async def select(db: Connection, account_id: int, finding_id: UUID) -> Finding | None:
    """Return one finding of the account."""
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS} FROM findings WHERE {rows.BY_ID}".encode(),
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else rows.build_finding(row)


async def lock_with_secret(
    db: Connection, account_id: int, finding_id: UUID
) -> tuple[Finding, bytes | None] | None:
    """Lock a finding for an update; return the finding and its encrypted credential."""
    cursor = await db.execute(
        f"""SELECT {rows.COLUMNS}, secret_box FROM findings WHERE {rows.BY_ID}
            FOR NO KEY UPDATE""".encode(),
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else (rows.build_finding(row[:-1]), row[-1])


async def lock_matching(
    db: Connection, account_id: int, finding_ids: Sequence[UUID], query: FindingQuery
) -> list[UUID]:
    """Lock findings in the order of their ids; return those that meet the query's filters now."""
    await db.execute(
        f"""SELECT FROM findings WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")}
            ORDER BY id FOR NO KEY UPDATE""".encode(),
        [account_id, list(finding_ids)],
    )
    where = build_where(account_id, query, list_matching_facets(query))
    add_finding_conditions(where, query)
    for condition, values in row_conditions(query):
        where.add(condition, *values)
    # OFFSET 0 keeps the filters out of the lookup: by outdated statistics the planner may take them for the
    # better way in, and read the whole account.
    cursor = await db.execute(
        f"""SELECT f.id FROM unnest(%s::uuid[]) AS batch (finding_id) CROSS JOIN LATERAL (
                SELECT * FROM findings WHERE {rows.OF_ACCOUNT} AND id = batch.finding_id OFFSET 0) f
            WHERE {where.sql}""".encode(),
        [list(finding_ids), account_id, *where.values],
        prepare=False,
    )
    return [finding_id for (finding_id,) in await cursor.fetchall()]


async def select_valid(db: Connection, account_id: int, finding_ids: Sequence[UUID]) -> list[Finding]:
    """Return those of these findings whose credential is valid, the highest score first."""
    cursor = await db.execute(
        f"""SELECT {rows.COLUMNS} FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")} AND validation_status = 'valid'
            ORDER BY composite_score DESC, id""".encode(),
        [account_id, list(finding_ids)],
    )
    return [rows.build_finding(row) for row in await cursor.fetchall()]


async def select_statuses(db: Connection, account_id: int, finding_ids: Sequence[UUID]) -> dict[UUID, Status]:
    """Return the status of each of these findings, by id."""
    cursor = await db.execute(
        f"SELECT id, status FROM findings WHERE {rows.OF_ACCOUNT} AND {rows.one_of('id')}".encode(),
        [account_id, list(finding_ids)],
    )
    return {finding_id: Status(status) for finding_id, status in await cursor.fetchall()}


async def was_sighted_since(
    db: Connection, account_id: int, finding_id: UUID, moment: datetime | None
) -> bool:
    """Whether a scan or a report has seen the finding's credential since `moment`; False without one.

    The time of the sighting is that of the database's clock.
    """
    cursor = await db.execute(
        f"SELECT FROM findings WHERE {rows.BY_ID} AND sighted_at >= %s".encode(),
        [account_id, finding_id, moment],
    )
    return await cursor.fetchone() is not None


async def select_same_credential(
    db: Connection, account_id: int, finding_id: UUID, limit: int
) -> list[Finding]:
    """Return the other findings with the finding's credential, highest score first."""
    cursor = await db.execute(
        f"""SELECT {rows.COLUMNS} FROM findings
            WHERE account_id = %s AND id <> %s
              AND fingerprint = (SELECT fingerprint FROM findings WHERE account_id = %s AND id = %s)
            ORDER BY composite_score DESC, id LIMIT %s""".encode(),
        [account_id, finding_id, account_id, finding_id, limit],
    )
    return [rows.build_finding(row) for row in await cursor.fetchall()]


async def select_rule(db: Connection, account_id: int, finding_id: UUID) -> str | None:
    """Return the id of the rule that found the finding; None if the finding was imported."""
    cursor = await db.execute(
        f"SELECT rule FROM findings WHERE {rows.BY_ID}".encode(), [account_id, finding_id]
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def select_excerpt(
    db: Connection, account_id: int, finding_id: UUID
) -> tuple[int | None, bytes] | None:
    """Return the finding's line number and its encrypted excerpt; None if it has no excerpt."""
    cursor = await db.execute(
        f"""SELECT line_number, excerpt_box FROM findings
            WHERE {rows.BY_ID} AND excerpt_box IS NOT NULL""".encode(),
        [account_id, finding_id],
    )
    return await cursor.fetchone()


async def update_triage(db: Connection, account_id: int, finding: Finding) -> None:
    """Save status, resolution, suppression and current lines: what a triage or a run can change."""
    evidence = finding.resolution_evidence
    await db.execute(
        f"""UPDATE findings SET status = %s, resolved_at = %s, resolution_note = %s, auto_resolved = %s,
                               resolved_by = %s, current_line = %s, current_lines = %s,
                               suppressed_by = CASE WHEN suppressed_at IS NOT DISTINCT FROM %s
                                                    THEN suppressed_by END,
                               suppressed_at = %s
            WHERE {rows.BY_ID}""".encode(),
        [
            finding.status,
            finding.resolved_at,
            finding.resolution_note,
            None if evidence is None else evidence.auto_resolved,
            None if evidence is None else evidence.resolved_by,
            finding.current_line,
            list(finding.current_lines),
            finding.suppressed_at,
            finding.suppressed_at,
            account_id,
            finding.id,
        ],
    )


async def set_new_scan(db: Connection, account_id: int, finding_id: UUID, scan_id: UUID) -> None:
    """Save the run that reports a finding as new."""
    await db.execute(
        f"UPDATE findings SET new_scan_id = %s WHERE {rows.BY_ID}".encode(), [scan_id, account_id, finding_id]
    )


async def lock_with_score(
    db: Connection, account_id: int, finding_id: UUID
) -> tuple[Finding, dict[str, Any] | None] | None:
    """Lock a finding for an update; return the finding and the parts of its score."""
    cursor = await db.execute(
        f"""SELECT {rows.COLUMNS}, score_detail FROM findings WHERE {rows.BY_ID}
            FOR NO KEY UPDATE""".encode(),
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else (rows.build_finding(row[:-1]), row[-1])


async def select_with_score(
    db: Connection, account_id: int, finding_id: UUID
) -> tuple[Finding, dict[str, Any] | None] | None:
    """Return a finding and the parts of its score."""
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS}, score_detail FROM findings WHERE {rows.BY_ID}".encode(),
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else (rows.build_finding(row[:-1]), row[-1])


async def update_validation(
    db: Connection, account_id: int, finding: Finding, score_detail: dict[str, Any] | None
) -> None:
    """Save verdict and score of a finding: what a validation can change."""
    await db.execute(
        f"""UPDATE findings SET validation_status = %s, validation_confidence = %s, validation_detail = %s,
                               composite_score = %s, score_detail = %s
            WHERE {rows.BY_ID}""".encode(),
        [
            finding.validation_status,
            finding.validation_confidence,
            Jsonb(finding.validation_detail),
            finding.composite_score,
            None if score_detail is None else Jsonb(score_detail),
            account_id,
            finding.id,
        ],
    )


async def erase_secrets(db: Connection, *, closed_before: datetime | None, limit: int) -> list[int]:
    """Erase at most `limit` stored credentials of all accounts; return the account id of each.

    With `closed_before`, only those of findings that were closed before that time. Locked findings are
    skipped.
    """
    closed = "true" if closed_before is None else "closed_at < %s"
    cursor = await db.execute(
        f"""UPDATE findings f SET secret_box = NULL FROM (
                SELECT account_id, id FROM findings WHERE secret_box IS NOT NULL AND {closed}
                LIMIT %s FOR NO KEY UPDATE SKIP LOCKED) old
            WHERE f.account_id = old.account_id AND f.id = old.id RETURNING f.account_id""".encode(),
        [*([] if closed_before is None else [closed_before]), limit],
    )
    return [account_id for (account_id,) in await cursor.fetchall()]


async def select_fingerprints(
    db: Connection, account_id: int, finding_ids: Sequence[UUID]
) -> dict[UUID, bytes | None]:
    """Return the fingerprints of those of the ids that findings have; None for one without a credential."""
    cursor = await db.execute(
        f"SELECT id, fingerprint FROM findings WHERE {rows.OF_ACCOUNT} AND {rows.one_of('id')}".encode(),
        [account_id, list(finding_ids)],
    )
    return dict(await cursor.fetchall())


async def select_ids_by_identity(
    db: Connection, account_id: int, identities: Sequence[bytes]
) -> dict[bytes, UUID]:
    """Return the ids of the findings with these identities, by identity."""
    cursor = await db.execute(
        f"""SELECT identity, id FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("identity", "bytea")}""".encode(),
        [account_id, list(identities)],
    )
    return dict(await cursor.fetchall())


async def select_secret_boxes(
    db: Connection, account_id: int, finding_ids: Sequence[UUID]
) -> dict[UUID, bytes]:
    """Return the encrypted credentials by finding id; findings that have none are left out."""
    cursor = await db.execute(
        f"""SELECT id, secret_box FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")} AND secret_box IS NOT NULL""".encode(),
        [account_id, list(finding_ids)],
    )
    return dict(await cursor.fetchall())


async def select_secret_types(
    db: Connection, account_id: int, fingerprints: Sequence[bytes]
) -> dict[bytes, str]:
    """Return the type of each credential that the account has a finding of, by fingerprint."""
    cursor = await db.execute(
        f"""SELECT DISTINCT ON (fingerprint) fingerprint, pattern_secret_type FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("fingerprint", "bytea")}""".encode(),
        [account_id, list(fingerprints)],
    )
    return dict(await cursor.fetchall())
