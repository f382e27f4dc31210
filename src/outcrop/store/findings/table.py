"""Findings one at a time, and whole batches written at once."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import sql
from psycopg.types.json import Jsonb

from outcrop.domain.finding import Finding
from outcrop.store.db import Connection
from outcrop.store.findings import rollups, rows


async def select(db: Connection, account_id: int, finding_id: UUID) -> Finding | None:
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS} FROM findings WHERE account_id = %s AND id = %s".encode(),
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else rows.build_finding(row)


async def lock_with_secret(
    db: Connection, account_id: int, finding_id: UUID
) -> tuple[Finding, bytes | None] | None:
    """Lock a finding; give it with its encrypted credential."""
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS}, secret_box FROM findings WHERE account_id = %s AND id = %s FOR NO KEY UPDATE".encode(),
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else (rows.build_finding(row[:-1]), row[-1])


async def select_same_credential(
    db: Connection, account_id: int, finding_id: UUID, limit: int
) -> list[Finding]:
    """Give the other findings of the same credential, highest score first."""
    cursor = await db.execute(
        f"""SELECT {rows.COLUMNS} FROM findings
            WHERE account_id = %s AND id <> %s AND fingerprint = (SELECT fingerprint FROM findings WHERE account_id = %s AND id = %s)
            ORDER BY composite_score DESC, id LIMIT %s""".encode(),
        [account_id, finding_id, account_id, finding_id, limit],
    )
    return [rows.build_finding(row) for row in await cursor.fetchall()]


async def select_rule(db: Connection, account_id: int, finding_id: UUID) -> str | None:
    """Give the rule that found it; None where it was imported."""
    cursor = await db.execute(
        "SELECT rule FROM findings WHERE account_id = %s AND id = %s", [account_id, finding_id]
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def select_excerpt(
    db: Connection, account_id: int, finding_id: UUID
) -> tuple[int | None, bytes] | None:
    """Give the finding's line with its encrypted excerpt; None where there is none."""
    cursor = await db.execute(
        "SELECT line_number, excerpt_box FROM findings WHERE account_id = %s AND id = %s AND excerpt_box IS NOT NULL",
        [account_id, finding_id],
    )
    return await cursor.fetchone()


async def update_triage(db: Connection, account_id: int, finding: Finding) -> None:
    """Save what triage, or a run that finds it gone, can change."""
    evidence = finding.resolution_evidence
    await db.execute(
        """UPDATE findings SET status = %s, resolved_at = %s, resolution_note = %s, auto_resolved = %s, resolved_by = %s,
                               suppressed_at = %s, current_line = %s
           WHERE account_id = %s AND id = %s""",
        [
            finding.status,
            finding.resolved_at,
            finding.resolution_note,
            None if evidence is None else evidence.auto_resolved,
            None if evidence is None else evidence.resolved_by,
            finding.suppressed_at,
            finding.current_line,
            account_id,
            finding.id,
        ],
    )


async def lock_with_score(
    db: Connection, account_id: int, finding_id: UUID
) -> tuple[Finding, dict[str, Any] | None] | None:
    """Lock a finding; give it with what its score is made of."""
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS}, score_detail FROM findings WHERE account_id = %s AND id = %s FOR NO KEY UPDATE".encode(),
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else (rows.build_finding(row[:-1]), row[-1])


async def select_with_score(
    db: Connection, account_id: int, finding_id: UUID
) -> tuple[Finding, dict[str, Any] | None] | None:
    """Give a finding with what its score is made of."""
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS}, score_detail FROM findings WHERE account_id = %s AND id = %s".encode(),
        [account_id, finding_id],
    )
    row = await cursor.fetchone()
    return None if row is None else (rows.build_finding(row[:-1]), row[-1])


async def erase_secrets(db: Connection, *, closed_before: datetime | None, most: int) -> list[int]:
    """Erase credentials, of findings closed before a moment or of all, whatever account they are of; give the account of each."""
    closed = "true" if closed_before is None else "closed_at < %s"
    cursor = await db.execute(
        f"""UPDATE findings f SET secret_box = NULL FROM (
                SELECT account_id, id FROM findings WHERE secret_box IS NOT NULL AND {closed} LIMIT %s FOR NO KEY UPDATE SKIP LOCKED) old
            WHERE f.account_id = old.account_id AND f.id = old.id RETURNING f.account_id""".encode(),
        [*([] if closed_before is None else [closed_before]), most],
    )
    return [account_id for (account_id,) in await cursor.fetchall()]


async def update_validation(
    db: Connection, account_id: int, finding: Finding, score_detail: dict[str, Any] | None
) -> None:
    """Save what a check can change."""
    await db.execute(
        """UPDATE findings SET validation_status = %s, validation_confidence = %s, validation_detail = %s, composite_score = %s,
                               score_detail = %s
           WHERE account_id = %s AND id = %s""",
        [
            *(
                finding.validation_status,
                finding.validation_confidence,
                Jsonb(finding.validation_detail),
                finding.composite_score,
            ),
            *(None if score_detail is None else Jsonb(score_detail), account_id, finding.id),
        ],
    )


async def lock_outdated_scores(
    db: Connection, version: int, most: int
) -> list[tuple[int, Finding, bytes | None, dict[str, Any]]]:
    """Lock findings whose score another version has made, of whatever account; what another process holds is left to it."""
    cursor = await db.execute(
        f"""SELECT account_id, fingerprint, score_detail, {rows.COLUMNS} FROM findings
            WHERE score_detail IS NOT NULL AND (score_detail ->> 'version')::int <> %s LIMIT %s FOR NO KEY UPDATE SKIP LOCKED""".encode(),
        [version, most],
    )
    return [(row[0], rows.build_finding(row[3:]), row[1], row[2]) for row in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class FindingRecord:
    """A finding as it is written: with what identifies and protects its credential, where that is known."""

    finding: Finding
    fingerprint: bytes | None = None
    identity: bytes | None = None
    secret_box: bytes | None = None
    excerpt_box: bytes | None = None
    source: str | None = None
    source_path: bytes | None = None
    rule: str | None = None
    commit_id: str | None = None
    media_type: str | None = None
    last_scan_id: UUID | None = None
    score_detail: dict[str, Any] | None = None
    keep_first_seen: bool = False  # where the finding is there already, these times are better known there
    keep_last_seen: bool = False


# A record that says nothing of these takes nothing away.
_KEPT = (
    "fingerprint",
    "identity",
    "secret_box",
    "excerpt_box",
    "source",
    "source_path",
    "rule",
    "commit_id",
    "media_type",
    "last_scan_id",
    "score_detail",
)
_WRITTEN = (*(name.strip() for name in rows.COLUMNS.split(",")), *_KEPT)


async def select_ids_by_identity(
    db: Connection, account_id: int, identities: Sequence[bytes]
) -> dict[bytes, UUID]:
    """Give the findings that stand at these places already."""
    cursor = await db.execute(
        "SELECT identity, id FROM findings WHERE account_id = %s AND identity = ANY(%s)",
        [account_id, list(identities)],
    )
    return dict(await cursor.fetchall())


async def select_secret_boxes(
    db: Connection, account_id: int, finding_ids: Sequence[UUID]
) -> dict[UUID, bytes]:
    """Give the encrypted credentials of those that are there and have one."""
    cursor = await db.execute(
        "SELECT id, secret_box FROM findings WHERE account_id = %s AND id = ANY(%s) AND secret_box IS NOT NULL",
        [account_id, list(finding_ids)],
    )
    return dict(await cursor.fetchall())


async def select_secret_types(
    db: Connection, account_id: int, fingerprints: Sequence[bytes]
) -> dict[bytes, str]:
    """Give the types of the account's credentials among these."""
    cursor = await db.execute(
        "SELECT DISTINCT ON (fingerprint) fingerprint, pattern_secret_type FROM findings WHERE account_id = %s AND fingerprint = ANY(%s)",
        [account_id, list(fingerprints)],
    )
    return dict(await cursor.fetchall())


@asynccontextmanager
async def open_bulk_import(db: Connection) -> AsyncIterator[None]:
    """One transaction for many batches, after which the indexes answer alone again.

    The temporary `rollup_deltas` stands before the real one on this session's search path, so the triggers
    of every batch write to it; at the end its sum, which is far smaller, goes to the real one.
    """
    schema = sql.Identifier(await _schema(db))
    async with db.transaction():
        await db.execute("SET LOCAL work_mem = '128MB'")
        await create_batch_table(db)
        await db.execute("CREATE TEMP TABLE rollup_deltas (LIKE rollup_deltas) ON COMMIT DROP")
        yield
        await db.execute(
            sql.SQL("""INSERT INTO {}.rollup_deltas
                       SELECT account_id, kind, service, bucket, facet, sum(n) FROM pg_temp.rollup_deltas
                       GROUP BY 1, 2, 3, 4, 5 HAVING sum(n) <> 0""").format(schema)
        )
    await rollups.fold_deltas(db)
    await db.execute("VACUUM (ANALYZE) findings, finding_search, finding_services, rollups, rollup_deltas")


async def create_batch_table(db: Connection) -> None:
    """Make room for `upsert_batch` in this transaction."""
    await db.execute("""
        CREATE TEMP TABLE batch ON COMMIT DROP AS
        SELECT f.*, ''::text AS search_text, false AS keep_first_seen, false AS keep_last_seen FROM findings f WITH NO DATA;
        ALTER TABLE batch DROP COLUMN account_id, DROP COLUMN facet""")


async def _schema(db: Connection) -> str:
    cursor = await db.execute(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'rollup_deltas'::regclass"
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return str(row[0])


async def upsert_batch(db: Connection, account_id: int, records: Sequence[FindingRecord]) -> int:
    """Write a batch of different findings; give how many of them are new."""
    columns = sql.SQL(", ").join(map(sql.Identifier, _WRITTEN))
    copy = sql.SQL(
        "COPY batch ({}, search_text, keep_first_seen, keep_last_seen) FROM STDIN (FORMAT binary)"
    ).format(columns)
    cursor = db.cursor()
    async with cursor.copy(copy) as stream:
        stream.set_types(_TYPES)
        for record in records:
            await stream.write_row(_row(record))
    replaced = sql.SQL(", ").join(_replacement(name) for name in _WRITTEN if name != "id")
    if any(record.keep_first_seen or record.keep_last_seen for record in records):
        await cursor.execute(
            """UPDATE batch b SET first_seen_at = CASE WHEN keep_first_seen THEN f.first_seen_at ELSE b.first_seen_at END,
                                  last_seen_at = CASE WHEN keep_last_seen THEN f.last_seen_at ELSE b.last_seen_at END
               FROM findings f WHERE f.account_id = %s AND f.id = b.id""",
            [account_id],
        )
    await cursor.execute(
        sql.SQL("""
            INSERT INTO findings AS f (account_id, {columns}) SELECT %s, {columns} FROM batch
            ON CONFLICT (account_id, id) DO UPDATE SET {replaced}
            RETURNING (xmax = 0)""").format(columns=columns, replaced=replaced),
        [account_id],
    )
    new = sum(1 for (inserted,) in await cursor.fetchall() if inserted)
    await cursor.execute(
        """INSERT INTO finding_search AS s
           SELECT account_id, f.id, b.search_text, f.facet, f.composite_score, f.first_seen_at
           FROM batch b JOIN findings f ON f.account_id = %s AND f.id = b.id
           ON CONFLICT (account_id, id) DO UPDATE SET text = excluded.text WHERE s.text <> excluded.text""",
        [account_id],
    )
    await cursor.execute("TRUNCATE batch")
    return new


async def flush_search_index(db: Connection) -> None:
    """Bring the search index up to date with the batches written so far."""
    await db.execute("SELECT gin_clean_pending_list('finding_search_text')")


def _replacement(name: str) -> sql.Composed:
    column = sql.Identifier(name)
    if name in _KEPT:
        return sql.SQL("{c} = coalesce(excluded.{c}, f.{c})").format(c=column)
    return sql.SQL("{c} = excluded.{c}").format(c=column)


_TYPES = [  # of the columns above, then of search_text and the two flags
    *(
        "uuid",
        "text",
        "text",
        "text",
        "jsonb",
        "float8",
        "text",
        "text",
        "text",
        "text",
        "text",
        "int4",
        "text",
        "text",
        "text",
    ),
    *(
        "timestamptz",
        "timestamptz",
        "int4",
        "timestamptz",
        "text",
        "bool",
        "text",
        "timestamptz",
        "int4",
        "bool",
    ),
    *("bytea", "bytea", "bytea", "bytea", "text", "bytea", "text", "text", "text", "uuid", "jsonb"),
    *("text", "bool", "bool"),
]


def _row(record: FindingRecord) -> tuple[Any, ...]:
    f, evidence = record.finding, record.finding.resolution_evidence
    return (
        f.id,
        f.status.value,
        f.validation_status.value,
        f.validation_confidence.value,
        Jsonb(f.validation_detail),
        f.composite_score,
        f.source_type.value,
        f.source_visibility.value,
        f.source_url,
        f.repo_full_name,
        f.file_path,
        f.line_number,
        f.matched_text,
        f.pattern_name,
        f.pattern_secret_type,
        f.first_seen_at,
        f.last_seen_at,
        f.seen_count,
        f.resolved_at,
        f.resolution_note,
        None if evidence is None else evidence.auto_resolved,
        None if evidence is None else evidence.resolved_by,
        f.suppressed_at,
        f.current_line,
        f.allowed_in_source,
        *(getattr(record, name) for name in _KEPT[:-1]),
        None if record.score_detail is None else Jsonb(record.score_detail),
        _search_text(f.source_url, f.file_path, f.repo_full_name),
        record.keep_first_seen,
        record.keep_last_seen,
    )


def _search_text(url: str | None, *others: str | None) -> str:
    """Join the fields by a character no term contains, so that no term matches across two of them.

    What the address holds already, as it mostly does the path and the repository, is not said again: a term
    in it is in the address.
    """
    text = (url or "").casefold()
    for other in others:
        if other and (folded := other.casefold()) not in text:
            text += "\n" + folded
    return text
