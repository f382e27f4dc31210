"""Opens what a process needs (database, schema, keys, pool) and closes it again."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from outcrop.settings import Settings
from outcrop.store import db as database
from outcrop.store import schema
from outcrop.store.db import Connection, Pool
from outcrop.store.embedded.server import embedded_postgres
from outcrop.store.keyring import Keyring, OperatorKey, unlock_keyring


@contextmanager
def open_database(settings: Settings) -> Iterator[str]:
    """Give the address of the database: the operator's, or the embedded one for as long as it is needed."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    with embedded_postgres(settings.data_dir, settings.postgres_bin) as url:
        yield url


def operator_key(settings: Settings) -> OperatorKey:
    text = None if settings.secret_key is None else settings.secret_key.get_secret_value()
    return OperatorKey(text, settings.secret_key_file)


async def prepare_database(settings: Settings, url: str) -> Keyring:
    """Bring the schema up to date and unlock the keys: what cannot be served is told before anything is."""
    async with await database.connect(url) as db:
        await schema.migrate(db)
        return await unlock_keyring(db, operator_key(settings), os.urandom(80))


@dataclass(frozen=True, slots=True)
class CommandSession:
    """One connection to a database that is migrated and unlocked: what a command works with."""

    db: Connection
    keys: Keyring


@asynccontextmanager
async def open_session(settings: Settings) -> AsyncIterator[CommandSession]:
    async with AsyncExitStack() as stack:
        url = stack.enter_context(open_database(settings))
        db = await stack.enter_async_context(await database.connect(url))
        await schema.migrate(db)
        yield CommandSession(db, await unlock_keyring(db, operator_key(settings), os.urandom(80)))


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a server process works with."""

    pool: Pool
    keys: Keyring
    url: str = field(repr=False)


@asynccontextmanager
async def open_runtime(
    settings: Settings, *, pool_size: int, statement_timeout: float
) -> AsyncIterator[Runtime]:
    async with AsyncExitStack() as stack:
        url = stack.enter_context(open_database(settings))
        keys = await prepare_database(settings, url)
        pool = await stack.enter_async_context(
            database.open_pool(url, size=pool_size, statement_timeout=statement_timeout)
        )
        yield Runtime(pool, keys, url)
