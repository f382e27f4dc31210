"""Open a code host for a run: with the target's credential, stored ETags, and waits shown in the run."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import TargetSpec
from outcrop.limits import UNSEEN_WAIT_SECONDS
from outcrop.services.pipeline.context import RunContext, SourceKey
from outcrop.sources.code_host.host import CodeHost, HostAccess, ignore_gap
from outcrop.sources.code_host.options import ApiOptions, PlanStart
from outcrop.sources.code_host.registry import open_host
from outcrop.sources.code_host.targets import find_host
from outcrop.sources.resolve_target import ScanSource
from outcrop.store.db import Pool
from outcrop.store.runs import host_limits, scans, sources, targets


async def load_credential(context: RunContext, account_id: int, target_id: UUID | None) -> Secret | None:
    """Return a target's own credential; None if the target has none, or the run has no stored target."""
    if target_id is None:
        return None
    async with context.pool.connection() as db:
        box = await targets.select_credential_box(db, account_id, target_id)
    return None if box is None else context.keys.open(box, account_id, target_id, mask_all=True)


def open_host_of(
    context: RunContext,
    key: SourceKey,
    place: TargetSpec | ScanSource,
    token: Secret | None,
    *,
    on_gap: Callable[[Gap], None] = ignore_gap,
    start: PlanStart | None = None,
) -> CodeHost:
    """Return a client for the code host of a target or source, with the target's own `token`.

    If that is None, the operator's token is used, for GitHub only; the operator may have no token either.
    A place on no known host is opened as GitHub, which knows that the place is not its own. Waits for a rate
    limit are shown in the run of `key`, and responses with an ETag are stored per account. `start` is where a
    plan goes on.
    """
    on_wait = _show_waits(context, key)
    options = ApiOptions(on_wait=on_wait, retry_delays=context.limits.retry_delays, start=start)
    name, access = _access(context, key.account_id, place, token, options)
    etags = _EtagStore(context.pool, key.account_id)
    return open_host(name, replace(access, etags=etags, on_gap=on_gap))


def open_host_without_run(
    context: RunContext, account_id: int, spec: TargetSpec, token: Secret | None
) -> CodeHost:
    """Return a client for the code host of a target, for requests that belong to no run.

    No response is stored. A wait of more than UNSEEN_WAIT_SECONDS seconds is an error.
    """
    options = ApiOptions(max_wait=UNSEEN_WAIT_SECONDS, retry_delays=context.limits.retry_delays)
    return open_host(*_access(context, account_id, spec, token, options))


def _access(
    context: RunContext,
    account_id: int,
    place: TargetSpec | ScanSource,
    token: Secret | None,
    options: ApiOptions,
) -> tuple[str, HostAccess]:
    """Return the kind of code host of a target or source, and how it is opened, with its token.

    Its rate limit is shared by all workers: by the runs of the account, or by those of all accounts that use
    the operator's token on a public host.
    """
    name = (place.host if isinstance(place, ScanSource) else find_host(place)) or "github"
    is_operators = name == "github" and place.host_url is None
    owner = account_id if token is not None or place.host_url is not None else 0
    used = token or (context.github_token if is_operators else None)
    address = context.github_url if is_operators else place.host_url
    limited = f"{owner} {name} {address} {'' if used is None else reveal(used)}"
    shared = StoredLimit(context.pool, context.keys.compute_fingerprint(Secret(limited, mask_all=True)))
    return name, HostAccess(
        http=context.http,
        token=used,
        url=place.host_url,
        api_url=context.github_url if is_operators else None,
        options=replace(options, shared_limit=shared),
    )


class StoredLimit:
    """The rate limit that all workers know under one key."""

    def __init__(self, pool: Pool, key: bytes) -> None:
        self._pool = pool
        self._key = key

    async def read(self) -> tuple[float, str] | None:
        """Return the seconds for which requests are blocked, and why; None if they are not."""
        async with self._pool.connection() as db:
            return await host_limits.select(db, self._key)

    async def block(self, seconds: float, reason: str) -> None:
        """Block requests for so many seconds."""
        async with self._pool.connection() as db:
            await host_limits.block(db, self._key, seconds=seconds, reason=reason)


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
