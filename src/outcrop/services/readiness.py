"""Find out whether the database answers and can write, for load balancers."""

import asyncio
import time
from enum import StrEnum

from outcrop.lazy_logger import get_logger
from outcrop.store import disk
from outcrop.store.db import UNAVAILABLE, Connection, Pool, fetch_single_row

MIN_FREE_BYTES = 100 << 20
PROBE_INTERVAL = 5.0  # seconds; anybody may ask, so not every question writes
_CONNECTION_TIMEOUT = 2.0  # seconds

log = get_logger()


class Readiness(StrEnum):
    """Whether requests can be served."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    DISK_FULL = "disk_full"


class ReadinessCheck:
    """Checks the database of a process; whether it can write is checked every PROBE_INTERVAL seconds."""

    def __init__(self, pool: Pool, min_free_bytes: int = MIN_FREE_BYTES) -> None:
        """Check the database of `pool`, whose volume must have `min_free_bytes` free."""
        self._pool = pool
        self._min_free_bytes = min_free_bytes
        self._lock = asyncio.Lock()
        self._can_write, self._checked_at = True, -PROBE_INTERVAL

    async def run(self) -> Readiness:
        """Return whether the database answers, and whether it can write."""
        try:
            async with self._pool.connection(timeout=_CONNECTION_TIMEOUT) as db:
                await fetch_single_row(db, "SELECT 1")
                async with self._lock:
                    if time.monotonic() - self._checked_at >= PROBE_INTERVAL:
                        self._can_write = await self._check_disk(db)
                        self._checked_at = time.monotonic()
        except UNAVAILABLE:
            return Readiness.UNAVAILABLE
        return Readiness.OK if self._can_write else Readiness.DISK_FULL

    async def _check_disk(self, db: Connection) -> bool:
        """Whether the volume has enough room, as far as this process can see, and a small write succeeds."""
        folder = await disk.find_data_folder(db)
        free = None if folder is None else disk.count_free_bytes(folder)
        if free is not None and free < self._min_free_bytes:
            log.error("disk_full", free_mb=free >> 20)
            return False
        if (error := await disk.find_write_error(db)) is not None:
            log.error("disk_full", error=error)
        return error is None
