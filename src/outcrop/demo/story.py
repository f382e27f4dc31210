"""The demo's story: first scans, changes, second scans, and people who triage findings."""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from outcrop.demo.account import BY
from outcrop.demo.push import call_hook
from outcrop.demo.report import REPOSITORY
from outcrop.demo.stand_ins import StandIns
from outcrop.domain.account import Account
from outcrop.domain.clock import now
from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import TriageAction, cut_note
from outcrop.domain.paging import FindingQuery
from outcrop.domain.push import HookHost
from outcrop.domain.scan import ScanRun, ScanStatus, Trigger
from outcrop.domain.target import Target
from outcrop.domain.webhook import DeliveryState
from outcrop.runtime import CommandSession
from outcrop.services import findings, scans, targets, webhooks
from outcrop.services.hooks.manage import create_hook
from outcrop.services.pipeline.enqueue import start_run

Show = Callable[[str], None]
_RUNS_TIMEOUT = 180.0  # seconds for all runs, which take a few seconds
_DELIVERY_TIMEOUT = 20.0
_POLL_SECONDS = 0.2
_UNFINISHED = {DeliveryState.WAITING, DeliveryState.SENDING}
_MAX_LISTED = 200

# Path and type of a finding, the triage action, the note, and the person.
TRIAGE: list[tuple[str, str, TriageAction, str | None, str]] = [
    (
        "tools/release.py",
        "github",
        TriageAction.RESOLVE,
        "Was revoked in spring; the log shows no use of it.",
        "sam@acme.example",
    ),
    (
        "docker/login.sh",
        "docker",
        TriageAction.RESOLVE,
        "Rotated, and the pipeline has its own now.",
        "sam@acme.example",
    ),
    (
        "tests/test_payments.py",
        "stripe",
        TriageAction.FALSE_POSITIVE,
        "A key of nobody, for the recorded answers.",
        "jo@acme.example",
    ),
    (
        "tests/fixtures/login.json",
        "",
        TriageAction.FALSE_POSITIVE,
        "The password of a fixture.",
        "jo@acme.example",
    ),
    (
        "android/app/src/main/res/values/keys.xml",
        "google",
        TriageAction.RESTRICT,
        "Bound to our app and to the Maps API.",
        "kim@acme.example",
    ),
    (
        "ios/Config.xcconfig",
        "google",
        TriageAction.RESTRICT,
        "Bound to our app and to the Maps API.",
        "kim@acme.example",
    ),
    ("monitoring/agent.yaml", "datadog", TriageAction.SUPPRESS, None, "sam@acme.example"),
    ("ios/Config.xcconfig", "mapbox", TriageAction.SUPPRESS, None, "kim@acme.example"),
]


async def play_story(
    session: CommandSession,
    account: Account,
    existing: Sequence[Target],
    stand_ins: StandIns,
    *,
    base_url: str,
    show: Show,
) -> None:
    """Play the whole story once.

    `existing` are the targets of an interrupted story. They are not due, so their runs are started here.
    """
    deadline = asyncio.get_running_loop().time() + _RUNS_TIMEOUT
    all_targets = await targets.list_targets(session.db, session.keys, account)
    earlier = {run.id for run in await _runs(session, account)} if existing else set()
    await _start(session, account, existing)
    show("scan   the schedule starts a run for each target")
    await _follow(session, account, earlier, len(all_targets), deadline=deadline, show=show)
    show("change keys are removed from the shop, the gist and the site; another key is committed")
    await asyncio.to_thread(stand_ins.publish, now(), later=True)
    earlier = {run.id for run in await _runs(session, account)}
    reachable = [target for target in all_targets if REPOSITORY not in target.spec.name]
    await _start(session, account, reachable)
    await _follow(session, account, earlier, len(reachable), deadline=deadline, show=show)
    await _triage(session, account)
    await _push(session, account, stand_ins, base_url=base_url, deadline=deadline, show=show)
    await all_sent(session, account)


async def _push(
    session: CommandSession,
    account: Account,
    stand_ins: StandIns,
    *,
    base_url: str,
    deadline: float,
    show: Show,
) -> None:
    """Push a commit with a key, and wait until the run that the push hook has started ends."""
    show("push   a key is committed and pushed to acme/mobile-app; the code host calls the push hook")
    async with session.db.transaction():
        hook = await create_hook(
            session.db, session.keys, account, HookHost.GITHUB, base_url=base_url, by=BY, now=now()
        )
    earlier = {run.id for run in await _runs(session, account)}
    await asyncio.to_thread(stand_ins.push, now())
    began = asyncio.get_running_loop().time()
    await asyncio.to_thread(call_hook, hook)
    await _follow(session, account, earlier, 1, deadline=deadline, show=show)
    seconds = asyncio.get_running_loop().time() - began
    show(f"push   found and validated {seconds:.1f} s after the push")


async def _start(session: CommandSession, account: Account, chosen: Sequence[Target]) -> None:
    """Start a run of each target."""
    async with session.db.transaction():
        for target in chosen:
            await start_run(
                session.db,
                session.keys,
                account.id,
                target.spec,
                trigger=Trigger.CLI,
                target_id=target.id,
                moment=now(),
                by=BY,
            )


async def _runs(session: CommandSession, account: Account) -> list[ScanRun]:
    return (await scans.list_scans(session.db, account.id, type_=None, page=1, per_page=100)).items


async def _follow(
    session: CommandSession, account: Account, earlier: set[UUID], count: int, *, deadline: float, show: Show
) -> None:
    """Wait until `count` runs that are not in `earlier` have ended; print each result."""
    finished: set[UUID] = set()
    while len(finished) < count:
        for run in await _runs(session, account):
            if run.id not in earlier | finished and run.finished_at is not None:
                finished.add(run.id)
                show(f"scan   {describe_result(run)}")
        if asyncio.get_running_loop().time() > deadline:
            raise OperatorError(f"the scans of the example did not end within {_RUNS_TIMEOUT:g} seconds")
        await asyncio.sleep(_POLL_SECONDS)


def describe_result(run: ScanRun) -> str:
    """Return the result of a run as one line."""
    if run.status is not ScanStatus.COMPLETED:
        expected = " (expected: its host is down)" if REPOSITORY in run.target else ""
        return f"{run.target}: {run.status}{expected}: {(run.error or '').rpartition(': ')[2]}"
    amounts = [f"{run.progress[name]} {name}" for name in ("commits", "pages") if run.progress[name]]
    counts = f"{run.findings_new} new, {run.findings_seen} seen, {run.findings_resolved} resolved"
    return f"{run.target}: {', '.join(amounts) or 'unchanged'}: {counts}"


async def _triage(session: CommandSession, account: Account) -> None:
    """Apply the triage actions of the story."""
    page = await findings.list_findings(session.db, account.id, FindingQuery(per_page=_MAX_LISTED))
    for path, secret_type, action, note, by in TRIAGE:
        chosen = [
            finding.id
            for finding in page.items
            if finding.file_path == path and finding.pattern.secret_type.startswith(secret_type)
        ]
        async with session.db.transaction():
            await findings.triage(
                session.db, session.keys, account.id, chosen, action, note=cut_note(note), by=by, now=now()
            )


async def all_sent(session: CommandSession, account: Account) -> None:
    """Wait until no event is waiting, for at most _DELIVERY_TIMEOUT seconds."""
    deadline = asyncio.get_running_loop().time() + _DELIVERY_TIMEOUT
    while asyncio.get_running_loop().time() < deadline:
        deliveries = await webhooks.list_deliveries(session.db, account.id, limit=_MAX_LISTED)
        if not any(delivery.state in _UNFINISHED for delivery in deliveries):
            return
        await asyncio.sleep(_POLL_SECONDS)


async def total(session: CommandSession, account: Account) -> int:
    return (await findings.list_findings(session.db, account.id, FindingQuery(per_page=1))).total
