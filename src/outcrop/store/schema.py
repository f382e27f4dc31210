"""Create the database schema and keep it up to date.

`migrations/NNNN_name.sql` are applied in order, each once; the table `migrations` lists the applied versions.
The first line of each, `-- compatible_from: N`, states the lowest version whose programs still work on the
schema after it. So programs of two versions can run side by side during an upgrade. The job queue's tables
belong to procrastinate and are migrated along with ours (`runs.jobs.migrate`).
"""

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from outcrop.domain.errors import OperatorError
from outcrop.store.db import Connection, fetch_single_row
from outcrop.store.locks import AdvisoryLock
from outcrop.store.runs import jobs

_MIN_SERVER_VERSION = 150000  # as `server_version_num` counts
RECORDS_SETTINGS = 12  # the version that added the columns `compatible_from` and `keep_secrets`


class _Migration(NamedTuple):
    """A migration file of this program."""

    name: str
    compatible_from: int
    sql: str


async def migrate(db: Connection) -> list[str]:
    """Apply all missing migrations in one transaction; return their names.

    Do nothing if a newer program has migrated the database and this one still works on it. Raise
    OperatorError if it does not.
    """
    await _check_server(db)
    async with db.transaction():
        await _lock_schema(db)
        if await is_newer(db):
            await check_compatibility(db)
            return []
        applied = await _apply_migrations(db, newest_version())
        await jobs.migrate(db)
    return applied


async def check_compatibility(db: Connection) -> None:
    """Raise OperatorError if a newer program has made the schema one that this program does not work on."""
    own = newest_version()
    (lowest,) = await fetch_single_row(
        db,
        """SELECT coalesce(max(coalesce(compatible_from, version)), 0) FROM migrations
           WHERE version > %s""",
        [own],
    )
    if lowest > own:
        raise _too_new()


async def create_schema(db: Connection, version: int) -> None:
    """Create the schema of an older or the current version in an empty database, in the caller's transaction.

    Every process migrates before it uses a database. So no process uses this one yet, and a process that
    starts meanwhile waits for the migration lock until the caller's transaction ends.
    """
    await _check_server(db)
    await _lock_schema(db)
    (used,) = await fetch_single_row(
        db,
        """SELECT EXISTS (
               SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
                 AND NOT EXISTS (
                   SELECT FROM pg_depend d
                   WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))""",
    )
    if used:
        raise OperatorError(
            "the database is not empty: restore into a new one"
            " (another OUTCROP_DATA_DIR or OUTCROP_DATABASE_URL)"
        )
    await _apply_migrations(db, version)


async def read_version(db: Connection) -> int | None:
    """Return the version of the database's schema; None if there is none. Raise if this program is older."""
    if not await _has_migrations_table(db):
        return None
    if (version := await select_version(db)) > newest_version():
        raise _too_new()
    return version


async def select_version(db: Connection) -> int:
    """Return the version of the database's schema, also a newer one than this program's; 0 if it is empty."""
    (version,) = await fetch_single_row(db, "SELECT coalesce(max(version), 0) FROM migrations")
    return int(version)


def newest_version() -> int:
    """Return the version of the newest migration that this program has."""
    return max(_read_migrations())


def list_versions() -> list[int]:
    """Return the versions of the migrations that this program has, in order."""
    return sorted(_read_migrations())


async def pending_migrations(db: Connection) -> list[str]:
    """Return the names of the migrations that `migrate` would apply."""
    done = await _applied_versions(db) if await _has_migrations_table(db) else set()
    return [found.name for version, found in sorted(_read_migrations().items()) if version not in done]


async def is_newer(db: Connection) -> bool:
    """Whether a newer program has migrated the database."""
    return await _has_migrations_table(db) and await select_version(db) > newest_version()


async def _lock_schema(db: Connection) -> None:
    """Take the migration lock until the transaction ends."""
    await db.execute("SELECT pg_advisory_xact_lock(%s)", [AdvisoryLock.MIGRATION])


async def _apply_migrations(db: Connection, last_version: int) -> list[str]:
    """Apply the missing migrations up to `last_version`; return their names."""
    known = _read_migrations()
    applied = []
    await db.execute(
        """CREATE TABLE IF NOT EXISTS migrations
           (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz(0) NOT NULL)"""
    )
    done = await _applied_versions(db)
    for version in sorted(version for version in known.keys() - done if version <= last_version):
        migration = known[version]
        await db.execute(migration.sql.encode())
        await db.execute("INSERT INTO migrations VALUES (%s, %s, now())", [version, migration.name])
        applied.append(migration.name)
    if applied and last_version >= RECORDS_SETTINGS:
        await db.execute(
            """UPDATE migrations m SET compatible_from = known.compatible_from
               FROM unnest(%s::int[], %s::int[]) AS known (version, compatible_from)
               WHERE m.version = known.version AND m.compatible_from IS NULL""",
            [list(known), [migration.compatible_from for migration in known.values()]],
        )
    return applied


async def _has_migrations_table(db: Connection) -> bool:
    """Whether the database has a schema of Outcrop."""
    (exists,) = await fetch_single_row(db, "SELECT to_regclass('migrations') IS NOT NULL")
    return bool(exists)


async def _applied_versions(db: Connection) -> set[int]:
    """Return the versions of the migrations that were applied to the database."""
    cursor = await db.execute("SELECT version FROM migrations")
    return {version for (version,) in await cursor.fetchall()}


@cache
def _read_migrations() -> dict[int, _Migration]:
    """Return the migrations of this program by version."""
    migrations = {}
    for file in files("outcrop.store").joinpath("migrations").iterdir():
        if match := re.fullmatch(r"(\d{4})_\w+\.sql", file.name):
            text = file.read_text("utf-8")
            stated = re.match(r"-- compatible_from: (\d+)\n", text)
            assert stated, f"{file.name} does not state compatible_from"  # noqa: S101
            migrations[int(match[1])] = _Migration(file.name.removesuffix(".sql"), int(stated[1]), text)
    return migrations


def _too_new() -> OperatorError:
    """Return the error for a database whose schema is newer than this program."""
    return OperatorError("the database's schema is newer than this version of Outcrop: upgrade this one")


async def _check_server(db: Connection) -> None:
    """Raise OperatorError unless the database is UTF8 and the server is PostgreSQL 15 or newer."""
    encoding, version = await fetch_single_row(
        db, "SELECT current_setting('server_encoding'), current_setting('server_version_num')::int"
    )
    if encoding != "UTF8":
        raise OperatorError(f"the database's encoding is {encoding}: Outcrop needs a UTF8 database")
    if version < _MIN_SERVER_VERSION:
        raise OperatorError(f"the database is PostgreSQL {version // 10000}: Outcrop needs 15 or newer")
