"""Insert or update many findings at once, through a temporary table that is filled by COPY.

1. Create the temporary table in the transaction (`create_batch_table`, or `open_bulk_import` for many
   batches).
2. Write each batch (`upsert_batch`).
3. During a long import, flush the search index, count what is new and discard old plans now and then
   (`flush_search_index`, `count_new`, `discard_plans`).
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from psycopg import AsyncCursor, sql
from psycopg.types.json import Jsonb

from outcrop.store.db import Connection, fetch_single_row
from outcrop.store.findings import rollups, rows, suppressions
from outcrop.store.findings.record import FindingRecord

_OPTIONAL_COLUMNS = (
    "fingerprint",
    "verdict_key",
    "identity",
    "secret_box",
    "excerpt_box",
    "source",
    "source_path",
    "media_type",
    "last_scan_id",
    "new_scan_id",
    "score_detail",
)
# Columns of a finding's fields whose stored value stays if the finding has none.
_KEPT_COLUMNS = {"rule", "commit_id", *_OPTIONAL_COLUMNS}
_COLUMNS = (*rows.WRITTEN_COLUMN_TYPES, *_OPTIONAL_COLUMNS)
_BATCH_COLUMNS = (*_COLUMNS, "search_text", "keep_first_seen", "keep_last_seen")
_VACUUM_FROM = 1_000  # records
_TYPES = rows.COLUMN_TYPES | {
    "fingerprint": "bytea",
    "verdict_key": "bytea",
    "identity": "bytea",
    "secret_box": "bytea",
    "excerpt_box": "bytea",
    "source_path": "bytea",
    "last_scan_id": "uuid",
    "new_scan_id": "uuid",
    "score_detail": "jsonb",
    "keep_first_seen": "bool",
    "keep_last_seen": "bool",
}
# What is counted of new findings: migrations/0041_import_counts.sql fills and reads it.
_CREATE_NEW_FINDINGS = """
    CREATE TEMP TABLE new_findings (
        account_id integer, incident_id uuid, facet smallint, composite_score float8,
        first_seen_at timestamptz(0), last_seen_at timestamptz(0), updated_at timestamptz(0),
        pattern_secret_type text, source_visibility text, rule text, repo text, author text,
        new_scan_id uuid, context text, assignee text, source text) ON COMMIT DROP"""
_BATCH_TYPES = [_TYPES.get(name, "text") for name in _BATCH_COLUMNS]


@asynccontextmanager
async def open_bulk_import(db: Connection) -> AsyncIterator[None]:
    """Run the block in one transaction for many batches; then fold the rollups.

    During the block temporary tables `rollup_deltas` and `incident_changes` hide the real ones, because they
    come first in the session's search path. The triggers of every batch write to them. New findings are
    counted by `count_new`, many together. At the end the first table is folded into the rollups, and the
    distinct rows of the second are added to the real table.
    """
    (schema,) = await fetch_single_row(
        db, "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'incident_changes'::regclass"
    )
    async with db.transaction():
        await db.execute("SET LOCAL work_mem = '128MB'")
        await create_batch_table(db)
        await db.execute(
            """CREATE TEMP TABLE incident_changes (account_id integer, id uuid, moved_to uuid)
               ON COMMIT DROP"""
        )
        await db.execute(_CREATE_NEW_FINDINGS)
        await db.execute("SELECT set_config('outcrop.counts_later', 'on', true)")
        async with rollups.collect_deltas(db):
            yield
            await count_new(db)
        await db.execute(
            sql.SQL("""INSERT INTO {}.incident_changes (account_id, id, moved_to)
                       SELECT DISTINCT account_id, id, moved_to
                       FROM pg_temp.incident_changes""").format(sql.Identifier(str(schema)))
        )
    await rollups.fold_deltas(db)


async def count_new(db: Connection) -> None:
    """Count what `open_bulk_import` has inserted since the last call; do nothing outside of it."""
    await db.execute(
        """SELECT count_new_findings() WHERE current_setting('outcrop.counts_later', true) = 'on'"""
    )


@asynccontextmanager
async def open_small_import(db: Connection) -> AsyncIterator[None]:
    """Run the block in one transaction for a few batches. The rollups are not folded afterwards."""
    async with db.transaction():
        await create_batch_table(db)
        yield


async def vacuum_tables(db: Connection, *, records: int) -> None:
    """Vacuum and analyze the tables of findings after an import of many records, outside of a transaction.

    The time it takes follows the size of the tables. After a small import it is left to autovacuum.
    """
    if records >= _VACUUM_FROM:
        await db.execute(
            "VACUUM (ANALYZE) findings, finding_search, finding_services, rollups, rollup_deltas"
        )


async def create_batch_table(db: Connection) -> None:
    """Create the temporary table `batch` for `upsert_batch`, until this transaction ends."""
    await db.execute("""
        CREATE TEMP TABLE batch ON COMMIT DROP AS
        SELECT f.*, ''::text AS search_text, false AS keep_first_seen, false AS keep_last_seen
        FROM findings f WITH NO DATA;
        ALTER TABLE batch DROP COLUMN account_id, DROP COLUMN facet""")


async def upsert_batch(db: Connection, account_id: int, records: Sequence[FindingRecord]) -> int:
    """Insert or update findings and their search texts; return how many findings are new.

    Suppression rules hide new findings that they match.
    Each finding may be in the batch only once.
    """
    cursor = db.cursor()
    await _copy_records(cursor, records)
    if any(record.keep_first_seen or record.keep_last_seen for record in records):
        # A subquery per row, which cannot become a join with all findings.
        await cursor.execute(
            f"""UPDATE batch b SET (first_seen_at, last_seen_at) = (
                    SELECT coalesce(min(f.first_seen_at) FILTER (WHERE b.keep_first_seen), b.first_seen_at),
                           coalesce(min(f.last_seen_at) FILTER (WHERE b.keep_last_seen), b.last_seen_at)
                    FROM findings f WHERE {rows.OF_ACCOUNT} AND f.id = b.id)""".encode(),
            [account_id],
        )
    # The search texts are joined with the rows that were just written, and not with all findings.
    await cursor.execute(
        sql.SQL("""
            WITH written AS (
                INSERT INTO findings AS f (account_id, sighted_at, {columns})
                SELECT %s, clock_timestamp(), {columns} FROM batch
                ON CONFLICT (account_id, id) DO UPDATE SET sighted_at = excluded.sighted_at, {assignments}
                RETURNING id, facet, composite_score, first_seen_at, xmax = 0 AS is_new),
            searched AS (
                INSERT INTO finding_search AS s
                SELECT %s, id, b.search_text, w.facet, w.composite_score, w.first_seen_at
                FROM written w JOIN batch b USING (id)
                ON CONFLICT (account_id, id) DO UPDATE SET text = excluded.text
                WHERE s.text <> excluded.text)
            SELECT coalesce(array_agg(id), '{{}}') FROM written WHERE is_new""").format(
            columns=_join_identifiers(_COLUMNS),
            assignments=sql.SQL(", ").join(_build_assignment(name) for name in _COLUMNS if name != "id"),
        ),
        [account_id, account_id],
    )
    row = await cursor.fetchone()
    await cursor.execute("TRUNCATE batch")
    new_ids = row[0] if row else []
    if new_ids:
        await suppressions.hide_new(db, account_id, new_ids)
    return len(new_ids)


async def select_records(
    db: Connection, account_id: int, ids: Sequence[UUID], *, lock: bool
) -> dict[UUID, FindingRecord]:
    """Return the findings with these ids, with fingerprint and parts of the score, by id.

    With `lock`, their rows are locked until the transaction ends.
    """
    cursor = await db.execute(
        f"""SELECT fingerprint, score_detail, {rows.COLUMNS} FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")} ORDER BY id
            {"FOR NO KEY UPDATE" if lock else ""}""".encode(),
        [account_id, list(ids)],
    )
    records = [
        FindingRecord(rows.build_finding(row[2:]), fingerprint=row[0], score_detail=row[1])
        for row in await cursor.fetchall()
    ]
    return {record.finding.id: record for record in records}


async def flush_search_index(db: Connection) -> None:
    """Move the pending entries of the search index into its main part.

    Otherwise the writer that makes the pending list too long has to do it, and that may be a person's triage.
    """
    await db.execute("SELECT gin_clean_pending_list('finding_search_text')")


async def discard_plans(db: Connection) -> None:
    """Discard the plans of this session, also those of triggers: they were made for smaller tables."""
    await db.execute("DISCARD PLANS")


async def _copy_records(cursor: AsyncCursor[Any], records: Sequence[FindingRecord]) -> None:
    """Fill the temporary table with the records by a binary COPY."""
    statement = sql.SQL("COPY batch ({}) FROM STDIN (FORMAT binary)").format(
        _join_identifiers(_BATCH_COLUMNS)
    )
    async with cursor.copy(statement) as copy:
        copy.set_types(_BATCH_TYPES)
        for record in records:
            await copy.write_row(_build_row(record))


def _join_identifiers(names: Sequence[str]) -> sql.Composed:
    """Return the quoted names, separated by commas."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _build_assignment(column_name: str) -> sql.Composed:
    """Return a column's assignment in the update of a finding; NULL keeps an optional column's value."""
    column = sql.Identifier(column_name)
    if column_name == "score_detail":  # the parts of another score do not explain this one
        return sql.SQL("""score_detail = coalesce(excluded.score_detail,
                              CASE WHEN f.composite_score = excluded.composite_score
                              THEN f.score_detail END)""").format()
    if column_name in _KEPT_COLUMNS:
        return sql.SQL("{c} = coalesce(excluded.{c}, f.{c})").format(c=column)
    return sql.SQL("{c} = excluded.{c}").format(c=column)


def _build_row(record: FindingRecord) -> tuple[Any, ...]:
    """Return the record's values in the order of _BATCH_COLUMNS."""
    finding = record.finding
    return (
        *rows.build_row(finding),
        *(getattr(record, name) for name in _OPTIONAL_COLUMNS[:-1]),
        None if record.score_detail is None else Jsonb(record.score_detail),
        _build_search_text(finding.source_url, finding.file_path, finding.repo_full_name),
        record.keep_first_seen,
        record.keep_last_seen,
    )


def _build_search_text(url: str | None, *others: str | None) -> str:
    """Return the case-folded URL, and on a line each of the other texts that the URL does not contain.

    Search terms contain no newline, so that no term matches across two texts. The URL mostly contains the
    path and the repository; repeating them would find nothing new.
    """
    text = (url or "").casefold()
    for other in others:
        if other and (folded := other.casefold()) not in text:
            text += "\n" + folded
    return text
