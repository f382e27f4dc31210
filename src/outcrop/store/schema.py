"""The schema: brought up to date by numbered files, each applied once, and procrastinate's own beside them."""

import re
from importlib.resources import files

from outcrop.domain.errors import OperatorError
from outcrop.store.db import Connection, fetch_single_row
from outcrop.store.runs import jobs

_LOCK_MIGRATE = 7_264_001  # advisory locks: any number, but always the same one
_OLDEST_SERVER = 150000


async def migrate(db: Connection) -> list[str]:
    """Bring the database to this version's schema; give the names of what was applied."""
    await _refuse_unfit(db)
    async with db.transaction():
        await _lock(db)
        applied = await _apply(db, newest_version())
        await jobs.migrate(db)
    return applied


async def create_schema(db: Connection, version: int) -> None:
    """Make the schema as it was at a version, in the caller's transaction and in a database that holds nothing.

    Whoever runs on a database has brought its schema there: so nobody runs on this one, and who would begin to waits for its end.
    """
    await _refuse_unfit(db)
    await _lock(db)
    (used,) = await fetch_single_row(
        db,
        """SELECT EXISTS (
               SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND NOT EXISTS (
                   SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))""",
    )
    if used:
        raise OperatorError(
            "the database is not empty: restore into a new one (another OUTCROP_DATA_DIR or OUTCROP_DATABASE_URL)"
        )
    await _apply(db, version)


async def read_version(db: Connection) -> int | None:
    """Give the version of the schema that is there; None where there is none."""
    (table,) = await fetch_single_row(db, "SELECT to_regclass('migrations') IS NOT NULL")
    if not table:
        return None
    (version,) = await fetch_single_row(db, "SELECT max(version) FROM migrations")
    if version > newest_version():
        raise _too_new()
    return int(version)


def newest_version() -> int:
    """Give the version of the schema that this program knows."""
    return max(_read_migrations())


async def _lock(db: Connection) -> None:
    await db.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_MIGRATE])


async def _apply(db: Connection, upto: int) -> list[str]:
    known = _read_migrations()
    applied = []
    await db.execute(
        "CREATE TABLE IF NOT EXISTS migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz(0) NOT NULL)"
    )
    done = {version for (version,) in await (await db.execute("SELECT version FROM migrations")).fetchall()}
    if done - known.keys():
        raise _too_new()
    for version in sorted(version for version in known.keys() - done if version <= upto):
        name, text = known[version]
        await db.execute(text.encode())
        await db.execute("INSERT INTO migrations VALUES (%s, %s, now())", [version, name])
        applied.append(name)
    return applied


def _too_new() -> OperatorError:
    return OperatorError("the database was written by a newer version of Outcrop: upgrade this one")


async def pending_migrations(db: Connection) -> list[str]:
    """Name what `migrate` would apply."""
    (table,) = await fetch_single_row(db, "SELECT to_regclass('migrations') IS NOT NULL")
    done = (
        {v for (v,) in await (await db.execute("SELECT version FROM migrations")).fetchall()}
        if table
        else set()
    )
    return [name for version, (name, _) in sorted(_read_migrations().items()) if version not in done]


def _read_migrations() -> dict[int, tuple[str, str]]:
    found = {}
    for file in files("outcrop.store").joinpath("migrations").iterdir():
        if match := re.fullmatch(r"(\d{4})_\w+\.sql", file.name):
            found[int(match[1])] = (file.name.removesuffix(".sql"), file.read_text("utf-8"))
    return found


async def _refuse_unfit(db: Connection) -> None:
    encoding, version = await fetch_single_row(
        db, "SELECT current_setting('server_encoding'), current_setting('server_version_num')::int"
    )
    if encoding != "UTF8":
        raise OperatorError(f"the database's encoding is {encoding}: Outcrop needs a UTF8 database")
    if version < _OLDEST_SERVER:
        raise OperatorError(f"the database is PostgreSQL {version // 10000}: Outcrop needs 15 or newer")
