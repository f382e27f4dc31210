"""The host's API and the credential for it, as one run uses them."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from outcrop.domain.secret import Secret
from outcrop.services.pipeline.context import RunContext, SourceKey
from outcrop.sources.hosts.github import GitHub
from outcrop.store.db import Pool
from outcrop.store.runs import scans, sources, targets


async def credential(tools: RunContext, account_id: int, target_id: UUID | None) -> Secret | None:
    """Give a target's own credential, where it has one."""
    if target_id is None:
        return None
    async with tools.pool.connection() as db:
        box = await targets.select_credential_box(db, account_id, target_id)
    return None if box is None else tools.keys.open(box, account_id, target_id, mask_all=True)


def github(tools: RunContext, key: SourceKey, token: Secret | None) -> GitHub:
    """Give the host's API, which tells the run when it has to wait."""
    etags = _Etags(tools.pool, key.account_id)
    return GitHub(
        tools.http, tools.github_url, token or tools.github_token, etags=etags, on_wait=_waiting(tools, key)
    )


class _Etags:
    """Answers kept with the account they were given to."""

    def __init__(self, pool: Pool, account_id: int) -> None:
        self._pool = pool
        self._account_id = account_id

    async def get(self, key: str) -> tuple[str, bytes] | None:
        async with self._pool.connection() as db:
            return await sources.select_etag(db, self._account_id, key)

    async def put(self, key: str, etag: str, body: bytes) -> None:
        async with self._pool.connection() as db:
            await sources.save_etag(db, self._account_id, key, etag, body)


def _waiting(tools: RunContext, key: SourceKey) -> Callable[[float, str], None]:
    tasks: set[asyncio.Task[None]] = set()

    async def say(seconds: float, why: str) -> None:
        async with tools.pool.connection() as db:
            await scans.set_waiting(db, key.account_id, key.scan_id, f"{why}: waiting {seconds:.0f} seconds")
        await asyncio.sleep(seconds)
        async with tools.pool.connection() as db:
            await scans.set_waiting(db, key.account_id, key.scan_id, None)

    def waiting(seconds: float, why: str) -> None:
        task = asyncio.ensure_future(say(seconds, why))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return waiting
