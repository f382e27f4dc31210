"""Open the GitHub API for a run: with the target's credential, stored ETags, and waits shown in the run."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from outcrop.domain.secret import Secret
from outcrop.services.pipeline.context import RunContext, SourceKey
from outcrop.sources.hosts.github import GitHub
from outcrop.store.db import Pool
from outcrop.store.runs import scans, sources, targets


async def load_credential(context: RunContext, account_id: int, target_id: UUID | None) -> Secret | None:
    """Return a target's own credential; None if the target has none, or the run has no stored target."""
    if target_id is None:
        return None
    async with context.pool.connection() as db:
        box = await targets.select_credential_box(db, account_id, target_id)
    return None if box is None else context.keys.open(box, account_id, target_id, mask_all=True)


def open_github(context: RunContext, key: SourceKey, token: Secret | None) -> GitHub:
    """Return a GitHub client with the target's own `token`; with the operator's token if that is None.

    The operator may have no token either. Waits for a rate limit are shown in the run of `key`, and responses
    with an ETag are stored per account.
    """
    return GitHub(
        context.http,
        context.github_url,
        token or context.github_token,
        etags=_EtagStore(context.pool, key.account_id),
        on_wait=_show_waits(context, key),
        retry_delays=context.limits.retry_delays,
    )


class _EtagStore:
    """Stores responses and their ETags per account, since a response depends on the token."""

    def __init__(self, pool: Pool, account_id: int) -> None:
        self._pool = pool
        self._account_id = account_id

    async def get(self, key: str) -> tuple[str, bytes] | None:
        """Return the stored ETag and body for the request `key`; None if nothing is stored."""
        async with self._pool.connection() as db:
            return await sources.select_etag(db, self._account_id, key)

    async def put(self, key: str, etag: str, body: bytes) -> None:
        """Store the ETag and body of the response to the request `key`."""
        async with self._pool.connection() as db:
            await sources.save_etag(db, self._account_id, key, etag, body)


def _show_waits(context: RunContext, key: SourceKey) -> Callable[[float, str], None]:
    """Return a callback that gets seconds and a reason, and shows the reason in the run for that time."""
    tasks: set[asyncio.Task[None]] = set()  # asyncio itself keeps only weak references to tasks

    async def show(seconds: float, reason: str) -> None:
        """Show the reason in the run for `seconds`, then remove it."""
        text = f"{reason}: waiting {seconds:.0f} seconds"
        async with context.pool.connection() as db:
            await scans.set_waiting(db, key.account_id, key.scan_id, text)
        await asyncio.sleep(seconds)
        async with context.pool.connection() as db:
            await scans.set_waiting(db, key.account_id, key.scan_id, None)

    def on_wait(seconds: float, reason: str) -> None:
        """Start a task that shows the reason for `seconds`, and return at once."""
        task = asyncio.ensure_future(show(seconds, reason))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return on_wait
