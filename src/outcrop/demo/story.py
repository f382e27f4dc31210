"""What happens while the service runs: the first scans, a little while later the second ones, and people who triage."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from outcrop.demo.account import BY
from outcrop.demo.report import REPOSITORY
from outcrop.demo.stand_ins import StandIns
from outcrop.domain.account import Account
from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import TriageAction, cut_note
from outcrop.domain.paging import FindingQuery
from outcrop.domain.scan import ScanRun, ScanStatus, Trigger
from outcrop.domain.target import Target
from outcrop.domain.webhook import DeliveryState
from outcrop.runtime import CommandSession
from outcrop.services import findings, scans, targets, webhooks
from outcrop.services.pipeline.enqueue import start_run

Show = Callable[[str], None]
_PATIENCE = 180.0  # seconds for all runs; they take a few
_SENT_WITHIN = 20.0
_EVERY = 0.2
_UNDER_WAY = {DeliveryState.WAITING, DeliveryState.SENDING}
_AT_ONCE = 200

# Which finding, by where it stands and of what type it is; what somebody does, and with which note.
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


async def tell_story(
    session: CommandSession, account: Account, again: Sequence[Target], stand_ins: StandIns, show: Show
) -> None:
    """Let everything happen once; `again` are targets of a story that was interrupted, which nothing else starts."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    every = await targets.list_targets(session.db, account)
    earlier = {run.id for run in await _runs(session, account)} if again else set()
    await _start(session, account, again)
    show("scan   the schedule starts a run for each target")
    await _follow(session, account, earlier, len(every), deadline=deadline, show=show)
    show("change keys are taken out of the shop, the gist and the site; somebody commits another one")
    await asyncio.to_thread(stand_ins.publish, _now(), later=True)
    earlier = {run.id for run in await _runs(session, account)}
    reachable = [target for target in every if REPOSITORY not in target.spec.name]
    await _start(session, account, reachable)
    await _follow(session, account, earlier, len(reachable), deadline=deadline, show=show)
    await _triage(session, account)
    await all_sent(session, account)


async def _start(session: CommandSession, account: Account, chosen: Sequence[Target]) -> None:
    async with session.db.transaction():
        for target in chosen:
            await start_run(
                session.db,
                account.id,
                target.spec,
                trigger=Trigger.CLI,
                target_id=target.id,
                moment=_now(),
                by=BY,
            )


async def _runs(session: CommandSession, account: Account) -> list[ScanRun]:
    return (await scans.list_scans(session.db, account.id, type_=None, page=1, per_page=100)).items


async def _follow(
    session: CommandSession, account: Account, earlier: set[UUID], count: int, *, deadline: float, show: Show
) -> None:
    """Wait until so many runs that were not there before have ended."""
    told: set[UUID] = set()
    while len(told) < count:
        for run in await _runs(session, account):
            if run.id not in earlier | told and run.finished_at is not None:
                told.add(run.id)
                show(f"scan   {ended(run)}")
        if asyncio.get_running_loop().time() > deadline:
            raise OperatorError(f"the scans of the example have not ended within {_PATIENCE:g} seconds")
        await asyncio.sleep(_EVERY)


def ended(run: ScanRun) -> str:
    """Write in one line how a run ended."""
    if run.status is not ScanStatus.COMPLETED:
        meant = ", as is meant: its host has been away for weeks" if REPOSITORY in run.target else ""
        return f"{run.target}: {run.status}{meant}: {(run.error or '').rpartition(': ')[2]}"
    looked = [f"{run.progress[name]} {name}" for name in ("commits", "pages") if run.progress[name]]
    counts = f"{run.findings_new} new, {run.findings_seen} seen, {run.findings_resolved} resolved"
    return f"{run.target}: {', '.join(looked) or 'unchanged'}: {counts}"


async def _triage(session: CommandSession, account: Account) -> None:
    page = await findings.list_findings(session.db, account.id, FindingQuery(per_page=_AT_ONCE))
    for path, secret_type, move, note, by in TRIAGE:
        chosen = [
            one.id
            for one in page.items
            if one.file_path == path and one.pattern_secret_type.startswith(secret_type)
        ]
        async with session.db.transaction():
            await findings.triage(
                session.db, session.keys, account.id, chosen, move, note=cut_note(note), by=by, now=_now()
            )


async def all_sent(session: CommandSession, account: Account) -> None:
    """Wait until no event waits any more; one that cannot be sent is told in the portal, and keeps nobody here."""
    end = asyncio.get_running_loop().time() + _SENT_WITHIN
    while asyncio.get_running_loop().time() < end:
        sent = await webhooks.list_deliveries(session.db, account.id, limit=_AT_ONCE)
        if not any(one.state in _UNDER_WAY for one in sent):
            return
        await asyncio.sleep(_EVERY)


async def total(session: CommandSession, account: Account) -> int:
    return (await findings.list_findings(session.db, account.id, FindingQuery(per_page=1))).total


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
