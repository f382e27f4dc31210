"""Run periodic tasks of a worker on a real database, without a worker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from outcrop.services.pipeline.context import RunContext
from outcrop.store import db as database
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend

T = TypeVar("T")


class PoolContext:
    """The part of a run's context that the periodic tasks need."""

    def __init__(self, pool: database.Pool, keys: Keyring) -> None:
        self.pool = pool
        self.keys = keys
        self.source_timeout = 60.0


def run_all(backend: Backend, *tasks: Callable[[RunContext], Awaitable[T]]) -> list[T]:
    """Run tasks at the same time, as several workers would; return their results."""

    async def main() -> list[T]:
        assert backend.settings.database_url is not None
        async with database.open_pool(
            backend.settings.database_url, size=len(tasks), statement_timeout=30
        ) as pool:
            context = cast("RunContext", PoolContext(pool, backend.keys))
            return list(await asyncio.gather(*(task(context) for task in tasks)))

    return asyncio.run(main())
