"""Copy every table of the database out, from one snapshot, and copy tables into an empty database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from psycopg import sql

from outcrop.domain.errors import OperatorError
from outcrop.store import schema
from outcrop.store.db import Connection, snapshot

TABLES = (
    "accounts",
    "members",
    "api_keys",
    "audit",
    "findings",
    "finding_search",
    "finding_services",
    "rollups",
    "rollup_deltas",
    "incidents",
    "incident_changes",
    "incident_comments",
    "mentions",
    "due_days",
    "targets",
    "sources",
    "source_names",
    "source_aliases",
    "etags",
    "scans",
    "scan_sources",
    "target_sources",
    "occurrences",
    "verdicts",
    "webhooks",
    "hooks",
    "pull_requests",
    "outbox",
    "second_factors",
    "recovery_codes",
    "views",
    "suppression_rules",
    "assignment_rules",
    "imports",
)
EXCLUDED_TABLES = {  # table -> why it is not in a backup
    "keyring": "is in the archive's header, where it is checked before anything is restored",
    "migrations": "is written when the schema is created",
    "job_migrations": "is written when the schema is created",
    "sessions": "a session that was ended after the backup would be valid again",
    "links": "a link that was used after the backup would be valid again",
    "source_locks": "belongs to the scans of the moment",
    "sign_in_attempts": "counts 15 minutes only",
    "rate_windows": "counts a minute only",
    "hook_windows": "counts a minute only",
    "hook_deliveries": "a repeated delivery starts one more run, which changes nothing",
    "bulk_triages": "belongs to the jobs of the moment",
    "undoable_triages": "counts 30 seconds only",
    "host_limits": "belongs to the hosts of the moment",
    "polls": "belongs to the hosts of the moment; the first poll after a restore compares nothing",
    "pushes": "belongs to the jobs of the moment",
    "import_batches": "belongs to the jobs of the moment",
    "import_news": "belongs to the jobs of the moment",
    # Jobs may have been done after the backup. Unfinished runs are ended by the restore.
    "procrastinate_jobs": "is the queue of the moment",
    "procrastinate_events": "is the queue of the moment",
    "procrastinate_workers": "is the queue of the moment",
    "procrastinate_periodic_defers": "is the queue of the moment",
}

# The text format of values does not depend on the server's settings, and there is no time limit.
_SESSION = """
    SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; SET LOCAL extra_float_digits = 1;
    SET LOCAL bytea_output = 'hex'; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0
"""
_FLUSH_POLL_SECONDS = 0.001
_COPY_FORMAT = sql.SQL("FORMAT text, ENCODING 'UTF8'")


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table and its columns, without generated ones."""

    name: str
    columns: list[str]


@dataclass(frozen=True, slots=True)
class DatabaseContents:
    """The schema version, the tables and the next values of the sequences, at one moment."""

    schema: int
    tables: list[TableColumns]
    sequences: dict[str, int]  # `table.column` -> next value


@asynccontextmanager
async def read_snapshot(db: Connection) -> AsyncIterator[DatabaseContents]:
    """Run the block in one snapshot of the whole database; yield what there is to back up.

    Others can write meanwhile, but not change the schema.
    """
    existing = await _select_existing_tables(db)
    if not existing:
        raise OperatorError("there is nothing to back up: the database is empty")
    async with snapshot(db):
        await db.execute(_SESSION)
        # The snapshot is taken by the first query after the locks. So no table can change its form between
        # the snapshot and its lock.
        await db.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(_join_identifiers(existing)))
        version = await schema.read_version(db)
        if version is None or await _select_existing_tables(db) != existing:
            raise OperatorError("the schema is being changed at this moment: try again")
        yield DatabaseContents(
            version, await _select_columns(db, existing), await _select_next_values(db, existing)
        )


async def copy_table_out(
    db: Connection, table: TableColumns, write: Callable[[bytes | bytearray | memoryview], None]
) -> int:
    """Call `write` with each piece of the table's rows in COPY's text format; return the number of rows."""
    async with db.cursor() as cursor:
        statement = sql.SQL("COPY {} ({}) TO STDOUT ({})").format(
            sql.Identifier(table.name), _join_identifiers(table.columns), _COPY_FORMAT
        )
        async with cursor.copy(statement) as copy:
            async for piece in copy:
                write(piece)
        return cursor.rowcount


@asynccontextmanager
async def create_bare_tables(db: Connection, version: int) -> AsyncIterator[dict[str, TableColumns]]:
    """Create the schema of a version in an empty database, and yield its tables by name, to be filled.

    Everything runs in the caller's transaction. Triggers, foreign keys and indexes that belong to no
    constraint are dropped first and created again after the block: the triggers must not count the copied
    rows a second time, foreign keys would be checked row by row, and creating an index takes less time than
    updating it.
    """
    await db.execute(_SESSION)
    await schema.create_schema(db, version)
    existing = await _select_existing_tables(db)
    drops, creates = await _select_drop_and_create_statements(db, existing)
    for statement in drops:
        await db.execute(statement)
    yield {table.name: table for table in await _select_columns(db, existing)}
    for statement in creates:
        await db.execute(statement)
    await db.execute(sql.SQL("ANALYZE {}").format(_join_identifiers(existing)))


async def copy_table_in(db: Connection, table: TableColumns, pieces: Iterable[bytes]) -> int:
    """Fill a table with the pieces of its rows; return the number of rows.

    The table was created in this transaction, so the rows can be frozen at once, which saves a later vacuum.
    """
    async with db.cursor() as cursor:
        statement = sql.SQL("COPY {} ({}) FROM STDIN ({}, FREEZE)").format(
            sql.Identifier(table.name), _join_identifiers(table.columns), _COPY_FORMAT
        )
        async with cursor.copy(statement) as copy:
            for piece in pieces:
                await copy.write(piece)
                # Otherwise libpq buffers everything that the server has not received yet, without limit.
                while db.pgconn.flush():  # noqa: ASYNC110 - libpq has no event for it
                    await asyncio.sleep(_FLUSH_POLL_SECONDS)
        return cursor.rowcount


async def set_sequences(db: Connection, sequences: dict[str, int]) -> None:
    """Set the next values of the known sequences, so that no number is assigned a second time."""
    known = await _select_next_values(db, await _select_existing_tables(db))
    for name in known.keys() & sequences.keys():
        table, _, column = name.partition(".")
        await db.execute(
            "SELECT setval(pg_get_serial_sequence(%s, %s), %s, false)", [table, column, sequences[name]]
        )


async def _select_existing_tables(db: Connection) -> list[str]:
    """Return the names in TABLES that exist in the database, in that order."""
    cursor = await db.execute(
        "SELECT name FROM unnest(%s::text[]) AS t (name) WHERE to_regclass(name) IS NOT NULL", [list(TABLES)]
    )
    return [name for (name,) in await cursor.fetchall()]


async def _select_columns(db: Connection, names: Sequence[str]) -> list[TableColumns]:
    """Return the tables with their columns, without generated ones."""
    tables = []
    for name in names:
        cursor = await db.execute(
            """SELECT attname FROM pg_attribute
               WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
               ORDER BY attnum""",
            [name],
        )
        tables.append(TableColumns(name, [column for (column,) in await cursor.fetchall()]))
    return tables


async def _select_next_values(db: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return the next value of each identity column of the tables, by `table.column`.

    Sequences are not part of a snapshot. They are read after it was taken, so they are never behind the rows.
    """
    cursor = await db.execute(
        """SELECT t.name || '.' || attname, pg_get_serial_sequence(t.name, attname)
           FROM unnest(%s::text[]) AS t (name) JOIN pg_attribute ON attrelid = to_regclass(t.name)
           WHERE attidentity <> '' AND NOT attisdropped""",
        [list(names)],
    )
    next_values = {}
    for name, sequence in await cursor.fetchall():
        query = f"SELECT last_value + CASE WHEN is_called THEN 1 ELSE 0 END FROM {sequence}"
        row = await (await db.execute(query.encode())).fetchone()
        next_values[name] = int(row[0]) if row else 1
    return next_values


async def _select_drop_and_create_statements(
    db: Connection, names: Sequence[str]
) -> tuple[list[bytes], list[bytes]]:
    """Return the statements that drop the tables' foreign keys, indexes and triggers, and create them again.

    Indexes of primary keys and other constraints are not included.
    """
    cursor = await db.execute(
        """SELECT format('ALTER TABLE %%s DROP CONSTRAINT %%I', conrelid::regclass, conname),
                  format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', conrelid::regclass, conname,
                         pg_get_constraintdef(oid))
           FROM pg_constraint WHERE contype = 'f' AND conrelid = ANY(%(names)s::text[]::regclass[])
           UNION ALL
           SELECT format('DROP INDEX %%s', indexrelid::regclass), pg_get_indexdef(indexrelid)
           FROM pg_index WHERE indrelid = ANY(%(names)s::text[]::regclass[])
             AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype <> 'f')
           UNION ALL
           SELECT format('DROP TRIGGER %%I ON %%s', tgname, tgrelid::regclass), pg_get_triggerdef(oid)
           FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = ANY(%(names)s::text[]::regclass[])""",
        {"names": list(names)},
    )
    statements = await cursor.fetchall()
    return [drop.encode() for drop, _ in statements], [create.encode() for _, create in statements]


def _join_identifiers(names: Sequence[str]) -> sql.Composed:
    """Return the quoted names, separated by commas."""
    return sql.SQL(", ").join(map(sql.Identifier, names))
