"""The worker: what has to happen without anyone asking for it."""

import asyncio
from contextlib import suppress

import structlog

from outcrop.runtime import Runtime
from outcrop.store import rollups
from outcrop.store.db import UNAVAILABLE

FOLD_EVERY = 2.0  # seconds; a list sums a few more rows meanwhile

log = structlog.get_logger()


async def work(runtime: Runtime, stop: asyncio.Event) -> None:
    """Keep house until told to stop; a database that is away is waited for."""
    while not stop.is_set():
        try:
            async with runtime.pool.connection() as db:
                if folded := await rollups.fold(db):
                    log.debug("rollups_folded", deltas=folded)
        except UNAVAILABLE as error:
            log.warning("database_unavailable", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), FOLD_EVERY)
