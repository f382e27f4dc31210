"""Scan runs: one scan of one target, on a code host or on the web."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from outcrop.domain.push import RunPush, push_fields


class ScanType(StrEnum):
    GITHUB = "github"
    SCRAPE = "scrape"


class ScanStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # its worker died; another worker will continue it


class Trigger(StrEnum):
    PORTAL = "portal"
    SCHEDULE = "schedule"
    CLI = "cli"
    PUSH = "push"


COUNTERS = ("targets", "commits", "blobs", "pages", "bytes")


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that a scan skipped, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class ScanRun:
    id: UUID
    type: ScanType
    status: ScanStatus
    trigger: Trigger
    target: str
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    findings_new: int = 0
    findings_seen: int = 0
    findings_resolved: int = 0
    resolved_valid: int = 0  # of `findings_resolved`, those whose credential was still valid
    coverage_gaps: tuple[Gap, ...] = ()
    error: str | None = None
    host: str | None = None  # the kind of code host; None for web sites, and if it is not known
    waiting: str | None = None  # reason why the run makes no progress at the moment
    push: RunPush | None = None  # that the run scans


class SourceState(StrEnum):
    """Progress of one source of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


def public_fields(run: ScanRun) -> dict[str, Any]:
    """Return the run as the API returns it: plain JSON values, every key present."""
    return {
        "id": str(run.id),
        "type": run.type,
        "status": run.status,
        "trigger": run.trigger,
        "target": run.target,
        "created_at": run.created_at.isoformat(),
        "started_at": None if run.started_at is None else run.started_at.isoformat(),
        "finished_at": None if run.finished_at is None else run.finished_at.isoformat(),
        "progress": dict.fromkeys(COUNTERS, 0) | run.progress,
        "findings_new": run.findings_new,
        "findings_seen": run.findings_seen,
        "findings_resolved": run.findings_resolved,
        "coverage_gaps": [{"what": gap.what, "why": gap.why} for gap in run.coverage_gaps],
        "error": run.error,
        "waiting": run.waiting,
        "host": run.host,
        "push": push_fields(run.push),
    }


# --- why a run has failed


class FailureKind(StrEnum):
    """The kinds of failures of a run or a request, by what a person can do about them."""

    UNAUTHORISED = "unauthorised"  # the credential is missing, wrong or expired
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    LIMITED = "limited"  # a rate limit of the host
    UNAVAILABLE = "unavailable"
    MALFORMED = "malformed"  # the answer is not that of a code host
    NO_ADDRESS = "no_address"  # the name of the host is not known
    NOT_ALLOWED = "not_allowed"  # by the operator's rules for outbound connections
    ROBOTS = "robots"  # the site does not want to be read
    TOO_LARGE = "too_large"
    WORKER = "worker"  # the process that scanned has died
    OTHER = "other"


# The first kind whose words are in the message. Runs store only the message, also those of earlier releases.
_FAILURE_WORDS = (
    (FailureKind.ROBOTS, ("robots\\.txt", "bot challenge")),
    (
        FailureKind.LIMITED,
        ("rate limit", "asks for a pause", "still refuses requests", "(answered|error:) 429"),
    ),
    (FailureKind.NO_ADDRESS, ("the name has no address", "could not resolve host")),
    (FailureKind.NOT_ALLOWED, ("outcrop_egress", "address that is not public", "proxy")),
    (
        FailureKind.UNAUTHORISED,
        ("(answered|error:) 401", "authentication failed", "could not read username", "is not public"),
    ),
    (FailureKind.FORBIDDEN, ("(answered|error:) (403|451)",)),
    (
        FailureKind.NOT_FOUND,
        ("(answered|error:) (404|410)", "not found", "no longer exists", "there is no group or user"),
    ),
    (
        FailureKind.WORKER,
        ("worker has died", "process ended before", "command that ran it has died", "scanning failed \\("),
    ),
    (FailureKind.TOO_LARGE, ("too many", "too large", "longer than an hour", "larger than", "more than")),
    (
        FailureKind.UNAVAILABLE,
        ("(answered|error:) 5", "no complete response", "not answered", "connect", "timed out"),
    ),
    (FailureKind.MALFORMED, ("not that of a git host", "the response", "redirects")),
)


def kind_of_failure(message: str) -> FailureKind:
    """Return the kind of a failure from its message, which Outcrop, git or a host has written."""
    text = message.lower()
    return next(
        (kind for kind, words in _FAILURE_WORDS if re.search("|".join(words), text)), FailureKind.OTHER
    )
