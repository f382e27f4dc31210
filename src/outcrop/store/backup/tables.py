"""The whole database, table by table: read at one moment while others go on writing, and filled again."""

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
    "targets",
    "sources",
    "etags",
    "scans",
    "scan_sources",
    "occurrences",
    "verdicts",
    "webhooks",
    "outbox",
    "second_factors",
    "recovery_codes",
    "views",
)
EXCLUDED_TABLES = {
    "keyring": "stands in the head of the file, where it is looked at before anything is restored",
    "migrations": "written as the schema is made",
    "job_migrations": "written as the schema is made",
    "sessions": "who was signed out since would be signed in again",
    "links": "one that was used since would work again",
    "sign_in_attempts": "count for 15 minutes",
    "rate_windows": "count for a minute",
    # Which jobs have been done since is not known; runs that had not ended end with the restore.
    "procrastinate_jobs": "the queue of the moment",
    "procrastinate_events": "the queue of the moment",
    "procrastinate_workers": "the queue of the moment",
    "procrastinate_periodic_defers": "the queue of the moment",
}

# Times, numbers and bytes are written in one way whatever the server is set to, and however long it takes.
_SESSION = """
    SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex';
    SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0
"""
_BREATH = 0.001  # seconds
_FORMAT = sql.SQL("FORMAT text, ENCODING 'UTF8'")


@dataclass(frozen=True, slots=True)
class TableColumns:
    name: str
    columns: list[str]  # those that are not computed from others


@dataclass(frozen=True, slots=True)
class DatabaseContents:
    """What there is to back up, at one moment."""

    schema: int
    tables: list[TableColumns]
    sequences: dict[str, int]


@asynccontextmanager
async def read_snapshot(db: Connection) -> AsyncIterator[DatabaseContents]:
    """Let everything that is read inside be of one moment; others go on writing meanwhile, but for changes of the schema."""
    there = await _there(db)
    if not there:
        raise OperatorError("there is nothing to back up: the database is empty")
    async with snapshot(db):
        await db.execute(_SESSION)
        # The moment is that of the first query, and comes after the locks: so no table has another form than the one it had then.
        await db.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(_names(there)))
        version = await schema.read_version(db)
        if version is None or await _there(db) != there:
            raise OperatorError("the schema is being changed at this moment: try again")
        yield DatabaseContents(version, await _tables(db, there), await _sequences(db, there))


async def copy_table_out(
    db: Connection, table: TableColumns, take: Callable[[bytes | bytearray | memoryview], None]
) -> int:
    """Give a table's rows in pieces, and how many there were."""
    async with db.cursor() as cursor:
        statement = sql.SQL("COPY {} ({}) TO STDOUT ({})")
        async with cursor.copy(
            statement.format(sql.Identifier(table.name), _names(table.columns), _FORMAT)
        ) as rows:
            async for piece in rows:
                take(piece)
        return cursor.rowcount


@asynccontextmanager
async def create_bare_tables(db: Connection, version: int) -> AsyncIterator[dict[str, TableColumns]]:
    """Make the schema of a version, in the caller's transaction, and give its tables to be filled.

    Triggers, references and indexes that are no constraints come back when all is there: rows are copies, about which nothing is to
    be counted or noted anew, references would be looked up row by row, and an index is made quicker than it is kept.
    """
    await db.execute(_SESSION)
    await schema.create_schema(db, version)
    there = await _there(db)
    off, on = await _fittings(db, there)
    for statement in off:
        await db.execute(statement)
    yield {table.name: table for table in await _tables(db, there)}
    for statement in on:
        await db.execute(statement)
    await db.execute(sql.SQL("ANALYZE {}").format(_names(there)))


async def copy_table_in(db: Connection, table: TableColumns, pieces: Iterable[bytes]) -> int:
    """Take a table's rows in pieces; give how many there were. They are frozen, as nobody has seen the table: no vacuum goes over them."""
    async with db.cursor() as cursor:
        statement = sql.SQL("COPY {} ({}) FROM STDIN ({}, FREEZE)")
        async with cursor.copy(
            statement.format(sql.Identifier(table.name), _names(table.columns), _FORMAT)
        ) as rows:
            for piece in pieces:
                await rows.write(piece)
                # Else what the server has not taken yet is gathered in memory, however much it is.
                while db.pgconn.flush():  # noqa: ASYNC110 - libpq has no event for it
                    await asyncio.sleep(_BREATH)
        return cursor.rowcount


async def set_sequences(db: Connection, sequences: dict[str, int]) -> None:
    """Let no number be given out that was given out before."""
    known = await _sequences(db, await _there(db))
    for name in known.keys() & sequences.keys():
        table, _, column = name.partition(".")
        await db.execute(
            "SELECT setval(pg_get_serial_sequence(%s, %s), %s, false)", [table, column, sequences[name]]
        )


async def _there(db: Connection) -> list[str]:
    cursor = await db.execute(
        "SELECT name FROM unnest(%s::text[]) AS t (name) WHERE to_regclass(name) IS NOT NULL", [list(TABLES)]
    )
    return [name for (name,) in await cursor.fetchall()]


async def _tables(db: Connection, names: Sequence[str]) -> list[TableColumns]:
    tables = []
    for name in names:
        cursor = await db.execute(
            """SELECT attname FROM pg_attribute
               WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum""",
            [name],
        )
        tables.append(TableColumns(name, [column for (column,) in await cursor.fetchall()]))
    return tables


async def _sequences(db: Connection, names: Sequence[str]) -> dict[str, int]:
    """Give what each sequence would give next. They are of no moment, but read after it, so never behind the rows."""
    cursor = await db.execute(
        """SELECT t.name || '.' || attname, pg_get_serial_sequence(t.name, attname)
           FROM unnest(%s::text[]) AS t (name) JOIN pg_attribute ON attrelid = to_regclass(t.name)
           WHERE attidentity <> '' AND NOT attisdropped""",
        [list(names)],
    )
    found = {}
    for name, sequence in await cursor.fetchall():
        query = f"SELECT last_value + CASE WHEN is_called THEN 1 ELSE 0 END FROM {sequence}"
        row = await (await db.execute(query.encode())).fetchone()
        found[name] = int(row[0]) if row else 1
    return found


async def _fittings(db: Connection, names: Sequence[str]) -> tuple[list[bytes], list[bytes]]:
    """Give the statements that take off what is not needed while tables are filled, and those that put it on again."""
    cursor = await db.execute(
        """SELECT format('ALTER TABLE %%s DROP CONSTRAINT %%I', conrelid::regclass, conname),
                  format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', conrelid::regclass, conname, pg_get_constraintdef(oid))
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
    found = await cursor.fetchall()
    return [off.encode() for off, _ in found], [on.encode() for _, on in found]


def _names(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
