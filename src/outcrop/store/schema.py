"""The schema: brought up to date by numbered files, each applied once, and procrastinate's own beside them."""

import re
from importlib.resources import files

from outcrop.domain.errors import OperatorError
from outcrop.store import jobs
from outcrop.store.db import Connection, one

_LOCK_MIGRATE = 7_264_001  # advisory locks: any number, but always the same one
_OLDEST_SERVER = 150000


async def migrate(db: Connection) -> list[str]:
    """Bring the database to this version's schema; give the names of what was applied."""
    await _refuse_unfit(db)
    applied = []
    known = _migrations()
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_MIGRATE])
        await db.execute(
            "CREATE TABLE IF NOT EXISTS migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz(0) NOT NULL)"
        )
        done = {version for (version,) in await (await db.execute("SELECT version FROM migrations")).fetchall()}
        if done - known.keys():
            raise OperatorError("the database was written by a newer version of Outcrop: upgrade this one")
        for version in sorted(known.keys() - done):
            name, text = known[version]
            await db.execute(text.encode())
            await db.execute("INSERT INTO migrations VALUES (%s, %s, now())", [version, name])
            applied.append(name)
        await jobs.migrate(db)
    return applied


async def pending_migrations(db: Connection) -> list[str]:
    """Name what `migrate` would apply."""
    (table,) = await one(db, "SELECT to_regclass('migrations') IS NOT NULL")
    done = {v for (v,) in await (await db.execute("SELECT version FROM migrations")).fetchall()} if table else set()
    return [name for version, (name, _) in sorted(_migrations().items()) if version not in done]


def _migrations() -> dict[int, tuple[str, str]]:
    found = {}
    for file in files("outcrop.store").joinpath("migrations").iterdir():
        if match := re.fullmatch(r"(\d{4})_\w+\.sql", file.name):
            found[int(match[1])] = (file.name.removesuffix(".sql"), file.read_text("utf-8"))
    return found


async def _refuse_unfit(db: Connection) -> None:
    encoding, version = await one(db, "SELECT current_setting('server_encoding'), current_setting('server_version_num')::int")
    if encoding != "UTF8":
        raise OperatorError(f"the database's encoding is {encoding}: Outcrop needs a UTF8 database")
    if version < _OLDEST_SERVER:
        raise OperatorError(f"the database is PostgreSQL {version // 10000}: Outcrop needs 15 or newer")
