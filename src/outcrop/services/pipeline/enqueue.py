"""Write runs and jobs for the workers, in the caller's transaction.

API and portal import this module, so it must not import what the workers need to scan.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.finding import cut_note
from outcrop.domain.push import RunPush
from outcrop.domain.scan import ScanRun, ScanStatus, Trigger
from outcrop.domain.secret import MaskedText, is_password
from outcrop.domain.target import TargetSpec
from outcrop.notes import mask_target
from outcrop.sources.code_host.targets import find_host
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.findings import table, verdicts
from outcrop.store.findings.verdicts import StoredCredential
from outcrop.store.keyring import Keyring
from outcrop.store.runs import jobs, scan_sources, scans
from outcrop.store.runs.scans import PLAN_SOURCE

# The names are stored in queued jobs, so they do not change.
PLAN_TASK, SCAN_SOURCE_TASK, VALIDATE_TASK = "plan_run", "look_at_source", "validate_finding"
REVALIDATE_ACTION = "finding.revalidate"  # audit action of the request; its result is `finding.validate`
REPORT_TASK, POLL_TASK = "report_to_pull_requests", "poll_target"
PUSHED_NAME = "pushed"  # field of a stored target: the name of the only repository that the run scans


@dataclass(frozen=True, slots=True)
class PushedRepository:
    """A repository that was pushed to."""

    digest: bytes  # as in `domain.push.Push.repository`
    place: str  # its address, or its name if the host sent no address
    push: RunPush
    heads: list[str]  # the commits that the pushes ended at


async def start_run(
    db: Connection,
    keys: Keyring,
    account_id: int,
    spec: TargetSpec,
    *,
    trigger: Trigger,
    target_id: UUID | None,
    moment: datetime,
    by: str,
    foreground: int | None = None,
    pushed: PushedRepository | None = None,
) -> ScanRun:
    """Create a queued run with its audit line and the job that plans it; return the run.

    `target_id` is None for a target that is not stored. `moment` is the current time, `by` the actor in the
    audit line. `foreground` is the advisory lock of a caller that runs the scan itself; then no job is
    written. With `pushed`, the run scans that repository of the target only.
    """
    shown = spec.shown if pushed is None else pushed.push.repository
    push = None if pushed is None else pushed.push
    run = ScanRun(
        *(uuid4(), spec.scan_type, ScanStatus.QUEUED, trigger, shown, moment),
        host=find_host(spec),
        push=push,
    )
    fields = spec_as_json(spec)
    if pushed is not None:
        fields |= {PUSHED_NAME: pushed.place, scans.HEADS: pushed.heads}
    digest = None if pushed is None else pushed.digest
    await scans.insert(
        *(db, account_id, run),
        target_id=target_id,
        spec=fields,
        foreground=foreground,
        pushed_repository=digest,
        url_box=keys.seal_url(spec.name, account_id, run.id) if spec.has_query else None,
    )
    await scan_sources.add_sources(db, account_id, run.id, [(PLAN_SOURCE, {})])
    detail: dict[str, str] = {"trigger": trigger, "target": mask_target(spec) if pushed is None else shown}
    if target_id is not None:
        detail["target_id"] = str(target_id)
    await audit.append(db, account_id, audit.AuditLine(moment, by, "scan.start", str(run.id), detail=detail))
    if foreground is None:
        await enqueue_source(db, account_id, run.id, PLAN_SOURCE, lane_of(trigger, fields))
    return run


def spec_as_json(spec: TargetSpec) -> dict[str, Any]:
    """Return a target as it is stored with its run; `host` is the name of its code host, if that is known."""
    fields = asdict(spec)
    del fields["host_url"]
    return fields | {"name": spec.stored_name, "host": find_host(spec)}


def lane_of(trigger: Trigger, spec: dict[str, Any]) -> jobs.Lane:
    """Return the lane of a run's jobs; `spec` are the stored fields of its target."""
    if trigger is not Trigger.PUSH:
        return jobs.SCHEDULED
    return jobs.PUSHED if PUSHED_NAME in spec else jobs.COMPARED


async def enqueue_source(
    db: Connection, account_id: int, scan_id: UUID, source: str, lane: jobs.Lane = jobs.SCHEDULED
) -> None:
    """Write the job that plans a run (source PLAN_SOURCE) or scans one of its sources.

    Jobs for the same source of an account share a lock, so only one of them runs at a time.
    """
    arguments = {"account_id": account_id, "scan_id": str(scan_id)}
    if source == PLAN_SOURCE:
        await jobs.defer_jobs(db, PLAN_TASK, [(f"plan {scan_id}", arguments)], lane)
    else:
        scan = [(f"{account_id} {source}", arguments | {"source": source})]
        await jobs.defer_jobs(db, SCAN_SOURCE_TASK, scan, lane)


async def enqueue_report(db: Connection, account_id: int, scan_id: UUID) -> None:
    """Write the job that reports the result of a push's run to the pull requests of its commits."""
    arguments = {"account_id": account_id, "scan_id": str(scan_id)}
    await jobs.defer_jobs(db, REPORT_TASK, [(f"report {scan_id}", arguments)], jobs.PUSHED)


async def request_validation(
    db: Connection,
    keys: Keyring,
    account_id: int,
    finding_id: UUID,
    *,
    note: MaskedText | None,
    by: str,
    moment: datetime,
) -> None:
    """Write an audit line and, unless one is waiting already, the job that checks a finding's credential.

    The audit line has the actor `by`, the time `moment` and the note, in which the credential is masked.
    Raise NotFoundError if there is no such finding, BadInputError if its credential is not stored.
    """
    stored = await get_stored_credential(db, account_id, finding_id)
    if note is not None:
        secret = keys.open(
            stored.box, account_id, stored.finding_id, mask_all=is_password(stored.secret_type)
        )
        note = cut_note(secret.masked_within(note))
    detail = {} if note is None else {"note": note}
    line = audit.AuditLine(moment, by, REVALIDATE_ACTION, str(finding_id), detail=detail)
    await audit.append(db, account_id, line)
    lock = f"validate {account_id} {finding_id}"
    if not await jobs.is_queued(db, lock):
        arguments = {"account_id": account_id, "finding_id": str(finding_id), "by": by}
        await jobs.defer_jobs(db, VALIDATE_TASK, [(lock, arguments)], jobs.INTERACTIVE)


async def get_stored_credential(db: Connection, account_id: int, finding_id: UUID) -> StoredCredential:
    """Return a finding's encrypted credential.

    Raise NotFoundError if there is no such finding, BadInputError if its credential is not stored.
    """
    if (stored := await verdicts.select_credential(db, account_id, finding_id)) is not None:
        return stored
    if await table.select(db, account_id, finding_id) is None:
        raise NotFoundError("no such finding")
    raise BadInputError(
        "its credential is not stored: it never was, or was erased after the finding was closed"
    )
