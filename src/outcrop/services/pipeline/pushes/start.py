"""Start the runs of repositories that were pushed to, and compare repositories whose pushes were refused.

A push only says which repository to scan. The run itself is an incremental scan like every other.
"""

from collections.abc import Sequence
from uuid import UUID

from outcrop.domain.push import HookHost, ReportedPush, RunPush, decode_push, join_heads, join_pushes
from outcrop.domain.scan import Trigger
from outcrop.domain.target import Target, TargetKind
from outcrop.lazy_logger import get_logger
from outcrop.scanner.engine.masking import mask_text
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.enqueue import PushedRepository, start_run
from outcrop.sources.code_host.registry import find_host_type
from outcrop.sources.code_host.targets import find_host
from outcrop.sources.repository_address import normalise_repository, repository_name
from outcrop.store import audit, hooks
from outcrop.store.db import Connection, current_time
from outcrop.store.runs import scans, source_names, targets

ACTOR = "push"  # the actor of the audit lines of such runs
_COMPARE_BATCH_SIZE = 20  # hooks that one transaction compares

log = get_logger()


async def start_pushed_runs(context: RunContext, account_id: int, repository: bytes) -> int:
    """Start the runs of a repository for its waiting pushes; return how many runs were started.

    Pushes of a repository that no target covers are counted as ignored. A run that has not begun takes new
    pushes over. `repository` is the digest of a push.
    """
    async with context.pool.connection() as db, db.transaction():
        stored = await hooks.take_pushes(db, account_id, repository)
        if not stored:
            return 0
        pushes = [decode_push(context.keys.open_bytes(push.box, account_id, push.id)) for push in stored]
        covering = await _find_covering(db, account_id, pushes[-1])
        if not covering:
            await _ignore(db, context, account_id, stored[-1].hook_id, pushes)
            return 0
        started = 0
        for target in drop_dominated(covering):
            started += await start_run_of_pushes(db, context, account_id, target, pushes)
    return started


async def start_run_of_pushes(
    db: Connection, context: RunContext, account_id: int, target: Target, pushes: Sequence[ReportedPush]
) -> bool:
    """Start a run of the pushed repository; return False if a waiting one takes the pushes over."""
    last = pushes[-1]
    name = _name(last)
    waiting = await scans.lock_waiting_push_run(db, account_id, target.id, last.repository)
    push = _mask(context, join_pushes(pushes, name, None if waiting is None else waiting.push))
    heads = join_heads(pushes, () if waiting is None else waiting.heads)
    if waiting is not None:
        await scans.save_push(db, account_id, waiting.id, push, heads)
        return False
    await start_run(
        db,
        context.keys,
        account_id,
        target.spec,
        trigger=Trigger.PUSH,
        target_id=target.id,
        moment=await current_time(db),
        by=ACTOR,
        pushed=PushedRepository(last.repository, last.url or name, push, heads),
    )
    return True


def _name(push: ReportedPush) -> str:
    """Return the address of a repository, or its name if the host sent no address."""
    return push.addresses[0] if push.addresses else push.full_name or ""


def _mask(context: RunContext, push: RunPush) -> RunPush:
    """Return a push with the credentials in its texts masked."""

    def mask(text: str | None) -> str | None:
        return None if text is None else mask_text(context.ruleset, text)

    branches = tuple(mask_text(context.ruleset, branch) for branch in push.branches)
    return RunPush(
        push.host, push.repository, mask(push.branch), mask(push.author), push.commit, branches, push.pushes
    )


async def _ignore(
    db: Connection, context: RunContext, account_id: int, hook_id: UUID, pushes: Sequence[ReportedPush]
) -> None:
    """Count pushes to a repository that no target covers, and log them."""
    name = mask_text(context.ruleset, _name(pushes[-1]))
    moment = await current_time(db)
    await hooks.count_ignored(db, account_id, hook_id, name, pushes=len(pushes), now=moment)
    log.info("push_ignored", account=account_id, hook=str(hook_id), repository=name, pushes=len(pushes))


# --- which targets cover a repository


async def _find_covering(db: Connection, account_id: int, push: ReportedPush) -> list[Target]:
    """Return the targets of an account that cover the repository of a push."""
    known = [
        target
        for target in await targets.select_all(db, account_id)
        if target.spec.kind in {TargetKind.OWNER, TargetKind.REPOSITORY}
    ]
    covering = [target for target in known if covers(target, push)]
    singles = {
        address: target
        for target in known
        if target.spec.kind is TargetKind.REPOSITORY and target not in covering
        if (address := normalise_repository(target.spec.name)) is not None
    }
    if singles and push.addresses:  # a target may have another address of the same source
        sources = await source_names.resolve_aliases(db, account_id, {*singles, *push.addresses})
        pushed = {sources[address] for address in push.addresses if address in sources}
        covering += [target for address, target in singles.items() if sources.get(address) in pushed]
    return covering


def covers(target: Target, push: ReportedPush) -> bool:
    """Whether a target names the repository of a push, or its owner or a group above it."""
    spec = target.spec
    full_name = (push.full_name or "").lower()
    if spec.kind is TargetKind.OWNER:
        prefix, _, owner = spec.name.lower().partition(":")
        if prefix != push.host:
            return False
        base = spec.host_url or (type_.default_url if (type_ := find_host_type(prefix)) else None)
        # The operator's GitHub may have another address than the public one.
        if base is None or not push.addresses or (prefix == HookHost.GITHUB and spec.host_url is None):
            return full_name.startswith(f"{owner}/")
        # Bitbucket Data Center has `/scm` in its clone URLs.
        below = tuple(f"{normalise_repository(f'{base}{part}/{owner}')}/" for part in ("", "/scm"))
        return any(address.startswith(below) for address in push.addresses)
    if spec.kind is not TargetKind.REPOSITORY:
        return False
    if push.addresses:
        return normalise_repository(spec.name) in push.addresses
    return (repository_name(spec.name) or "").lower() == full_name


def drop_dominated(covering: Sequence[Target]) -> list[Target]:
    """Return the targets whose runs together read everything of a repository that all of them cover.

    A target of the single repository without path patterns is enough, if it has a credential or none of the
    others has one.
    """
    needs_credential = any(target.has_credential for target in covering)
    for target in covering:
        has_patterns = bool(target.spec.include or target.spec.exclude)
        is_single = target.spec.kind is TargetKind.REPOSITORY
        if is_single and not has_patterns and (target.has_credential or not needs_credential):
            return [target]
    return list(covering)


# --- pushes that were refused


async def compare_refused(context: RunContext) -> int:
    """Start a run of each target on the host of a hook that refused deliveries; return how many.

    A run is not started while one like it waits: that one compares everything too.
    """
    started = 0
    async with context.pool.connection() as db, db.transaction():
        for account_id, hook_id, host in await hooks.lock_behind(db, limit=_COMPARE_BATCH_SIZE):
            moment = await current_time(db)
            known = await targets.select_all(db, account_id)
            count = 0
            for target in (target for target in known if _is_on(target, host)):
                if await scans.has_unplanned_comparison(db, account_id, target.id):
                    continue
                await start_run(
                    *(db, context.keys, account_id, target.spec),
                    trigger=Trigger.PUSH,
                    target_id=target.id,
                    moment=moment,
                    by=ACTOR,
                )
                count += 1
            line = audit.AuditLine(moment, ACTOR, "hook.compare", str(hook_id), detail={"runs": count})
            await audit.append(db, account_id, line)
            started += count
    return started


def _is_on(target: Target, host: HookHost) -> bool:
    """Whether a target may have repositories on the host of a hook."""
    kind = target.spec.kind
    if kind not in {TargetKind.OWNER, TargetKind.REPOSITORY}:
        return False
    known = find_host(target.spec)
    return known == host or (known is None and kind is TargetKind.REPOSITORY)
