"""Open the database, migrate it, unlock the keyring and open the pool; close everything at the end."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from outcrop import metrics
from outcrop.domain.errors import OperatorError
from outcrop.lazy_logger import get_logger
from outcrop.settings import Settings
from outcrop.store import db as database
from outcrop.store import schema, secret_policy
from outcrop.store.db import WORKER_IDLE_TIMEOUT, Connection, Pool
from outcrop.store.embedded.server import embedded_postgres
from outcrop.store.keyring import Keyring
from outcrop.store.operator_key import OperatorKey, unlock_keyring
from outcrop.tracing import is_tracing, stop_tracing

CHECK_SCHEMA_EVERY = 60.0  # seconds
RECORD_POOL_EVERY = 1.0  # seconds
_FIRST_RETRY_DELAY = 0.5  # seconds; doubled after each attempt to reach the database

log = get_logger()


@contextmanager
def open_database(settings: Settings, *, watch: bool = False) -> Iterator[str]:
    """Yield the URL of the operator's database; without one, run the embedded server until the block ends.

    With `watch`, an embedded server that dies is started again.
    """
    if settings.database_url is not None:
        yield settings.database_url
        return
    with embedded_postgres(settings.data_dir, settings.postgres_bin, watch=watch) as url:
        yield url


def operator_key(settings: Settings) -> OperatorKey:
    """Return where the operator's key is read from, by the settings."""
    text = None if settings.secret_key is None else settings.secret_key.get_secret_value()
    return OperatorKey(text, settings.secret_key_file)


async def prepare_database(settings: Settings, url: str) -> Keyring:
    """Migrate the schema, unlock the keyring and compare the settings that all processes must share.

    So a problem is reported before anything is served.
    """
    async with await database.connect(url) as db:
        await schema.migrate(db)
        keys = await unlock_keyring(db, operator_key(settings), os.urandom(80))
        await secret_policy.settle(db, settings.keep_secrets)
        return keys


@dataclass(frozen=True, slots=True)
class CommandSession:
    """A command's one connection to the migrated database, and the keyring."""

    db: Connection
    keys: Keyring
    now: datetime  # when the session was opened, by the database's clock


@asynccontextmanager
async def open_session(settings: Settings) -> AsyncIterator[CommandSession]:
    """Open the database, migrate it, unlock the keyring, and yield one connection for a command."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(open_database(settings))
        db = await stack.enter_async_context(await database.connect(url))
        await schema.migrate(db)
        keys = await unlock_keyring(db, operator_key(settings), os.urandom(80))
        if settings.keep_secrets is not None:
            await secret_policy.settle(db, settings.keep_secrets)
        yield CommandSession(db, keys, await database.current_time(db))


@dataclass(frozen=True, slots=True)
class Runtime:
    """The pool, the keyring and the database URL of a server or worker process."""

    pool: Pool
    keys: Keyring
    url: str = field(repr=False)
    idle_timeout: float = WORKER_IDLE_TIMEOUT  # seconds that a session may be idle in a transaction
    outdated: asyncio.Event = field(default_factory=asyncio.Event)  # set when this program no longer fits


@asynccontextmanager
async def open_runtime(
    settings: Settings,
    *,
    pool_size: int,
    statement_timeout: float,
    idle_timeout: float = WORKER_IDLE_TIMEOUT,
    max_retry_delay: float | None = None,
    check_schema_every: float = CHECK_SCHEMA_EVERY,
) -> AsyncIterator[Runtime]:
    """Open and prepare the database, and yield a pool of connections to it.

    Every `check_schema_every` seconds it is checked whether this program still works on the schema. The
    server ends a session after `idle_timeout` idle seconds in a transaction. If the database cannot be
    reached, raise DatabaseUnavailableError. With `max_retry_delay`, try again without limit instead, with
    pauses that grow to that many seconds; an embedded server that dies is then started again.
    """
    async with AsyncExitStack() as stack:
        url = stack.enter_context(open_database(settings, watch=max_retry_delay is not None))
        keys = (
            await prepare_database(settings, url)
            if max_retry_delay is None
            else await _prepare_when_available(settings, url, max_retry_delay)
        )
        pool = await stack.enter_async_context(
            database.open_pool(
                url, size=pool_size, statement_timeout=statement_timeout, idle_timeout=idle_timeout
            )
        )
        runtime = Runtime(pool, keys, url, idle_timeout)
        tasks = [asyncio.create_task(_watch_schema(runtime, check_schema_every))]
        if metrics.is_recording():
            tasks.append(asyncio.create_task(_record_pool(pool)))
        try:
            yield runtime
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if is_tracing():  # nothing runs any more that could record a span
                await asyncio.to_thread(stop_tracing)


async def _record_pool(pool: Pool) -> None:
    """Record every second how many connections of the pool are used, idle and not opened."""
    while True:
        stats = pool.get_stats()
        size, idle = stats.get("pool_size", 0), stats.get("pool_available", 0)
        metrics.set_pool_connections(
            used=max(0, size - idle), idle=idle, unopened=max(0, pool.max_size - size)
        )
        await asyncio.sleep(RECORD_POOL_EVERY)


async def _watch_schema(runtime: Runtime, interval: float) -> None:
    """Set `runtime.outdated` when a newer program has made the schema one that this program does not know."""
    while not runtime.outdated.is_set():
        await asyncio.sleep(interval)
        try:
            async with runtime.pool.connection() as db:
                await schema.check_compatibility(db)
        except database.UNAVAILABLE:
            continue
        except OperatorError as error:
            log.error("schema_too_new", reason=error.message)  # noqa: TRY400
            runtime.outdated.set()


async def _prepare_when_available(settings: Settings, url: str, max_delay: float) -> Keyring:
    """Prepare the database; while it is unavailable, log each attempt and try again."""
    for attempt in count(1):
        delay = min(_FIRST_RETRY_DELAY * 2 ** min(attempt - 1, 16), max_delay)
        try:
            return await prepare_database(settings, url)
        except database.UNAVAILABLE as error:
            reason = database.describe_unavailability(error)
            log.warning("database_unavailable", attempt=attempt, reason=reason, retry_in=delay)
        await asyncio.sleep(delay)
    raise AssertionError  # `count` does not end
