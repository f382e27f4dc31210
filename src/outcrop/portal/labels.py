"""Labels of statuses, kinds, options and actions, as the portal shows them."""

from collections.abc import Mapping
from math import floor
from typing import Any

from outcrop.domain.account import Plan, Role
from outcrop.domain.finding import (
    FindingContext,
    Severity,
    SourceType,
    Status,
    TriageAction,
    Validation,
    Visibility,
    severity_of,
)
from outcrop.domain.incident import IncidentOrder, IncidentStatus
from outcrop.domain.paging import OrderBy
from outcrop.domain.push import HookHost
from outcrop.domain.scan import FailureKind, ScanStatus, Trigger
from outcrop.domain.target import Schedule, TargetKind, TargetState

STATUS = {
    Status.ACTIVE: "Active",
    Status.STALE: "Stale",
    Status.RESOLVED: "Resolved",
    Status.CUSTOMER_RESTRICTED: "Restricted",
    Status.FALSE_POSITIVE: "False positive",
}
VALIDATION = {
    Validation.VALID: "Valid",
    Validation.INVALID: "Invalid",
    Validation.UNVALIDATED: "Not checked",
    Validation.ERROR: "Check failed",
    Validation.UNREACHABLE: "Unreachable",
}
SOURCE = {
    SourceType.REPO: "Repository",
    SourceType.GIST: "Gist",
    SourceType.COMMIT: "Git history",
    SourceType.ENDPOINT: "Web endpoint",
    SourceType.JS_BUNDLE: "JavaScript bundle",
}
SEVERITY = {
    Severity.CRITICAL: "Critical",
    Severity.HIGH: "High",
    Severity.MEDIUM: "Medium",
    Severity.LOW: "Low",
}
ORDER = {
    OrderBy.COMPOSITE_SCORE: "Score",
    OrderBy.FIRST_SEEN_AT: "First seen",
    OrderBy.LAST_SEEN_AT: "Last seen",
    OrderBy.UPDATED_AT: "Last changed",
}
INCIDENT = {IncidentStatus.OPEN: "Open", IncidentStatus.CLOSED: "Closed"}
INCIDENT_ORDER = {
    IncidentOrder.COMPOSITE_SCORE: "Score",
    IncidentOrder.FIRST_SEEN_AT: "First seen",
    IncidentOrder.LAST_SEEN_AT: "Last seen",
    IncidentOrder.DUE_AT: "Due date",
}
CONTEXT = {
    FindingContext.PRODUCTION: "Production",
    FindingContext.TEST: "Test",
    FindingContext.EXAMPLE: "Example",
    FindingContext.DOCUMENTATION: "Documentation",
    FindingContext.VENDORED: "Vendored code",
}
VISIBILITY = {
    Visibility.PUBLIC: "Public",
    Visibility.INTERNAL: "Internal",
    Visibility.PRIVATE: "Private",
    Visibility.UNKNOWN: "Unknown",
}
SCAN = {
    ScanStatus.QUEUED: "Queued",
    ScanStatus.RUNNING: "Running",
    ScanStatus.COMPLETED: "Completed",
    ScanStatus.FAILED: "Failed",
    ScanStatus.INTERRUPTED: "Interrupted",
}
SCHEDULE = {
    Schedule.OFF: "Only manually",
    Schedule.HOURLY: "Every hour",
    Schedule.DAILY: "Every day",
    Schedule.WEEKLY: "Every week",
}
TARGET = {
    TargetKind.OWNER: "Organisation, group or user",
    TargetKind.REPOSITORY: "Repository",
    TargetKind.GISTS: "Gists of a user",
    TargetKind.GIST: "Gist",
    TargetKind.COMMIT: "Commit",
    TargetKind.SITE: "Web site",
    TargetKind.PAGE: "Single page",
}
TARGET_STATE = {
    TargetState.FAILING: "Failing",
    TargetState.NEVER: "Never scanned",
    TargetState.WAITING: "Interrupted",
    TargetState.LATE: "Late",
    TargetState.GAPS: "Partly scanned",
    TargetState.RUNNING: "Running",
    TargetState.GOOD: "Healthy",
}
# Titles of the states of targets.
TARGET_STATE_HINT = {
    TargetState.FAILING: "Its last run has failed: its findings may be out of date.",
    TargetState.NEVER: "Nobody knows what is there: run it.",
    TargetState.WAITING: "Its run has lost its worker and waits for another one.",
    TargetState.LATE: "Its last completed run is older than two intervals of its schedule.",
    TargetState.GAPS: "Its last run has ended, and has skipped something.",
    TargetState.RUNNING: "A run has begun, or waits for a worker.",
    TargetState.GOOD: "Its last run has scanned everything.",
}
# The filters of the list of findings, with the labels of values that are not shown as they are.
FILTER: dict[str, tuple[str, Mapping[Any, str]]] = {
    "q": ("Search", {}),
    "status": ("Status", STATUS | {"all": "All", "suppressed": "Suppressed"}),
    "validation": ("Validity", VALIDATION),
    "severity": ("Severity", SEVERITY),
    "source_type": ("Source", SOURCE),
    "secret_type": ("Type", {}),
    "issuer": ("Issuer", {}),
    "repo": ("Repository", {}),
    "target": ("Target", {}),
    "visibility": ("Visibility", VISIBILITY),
    "context": ("Context", CONTEXT),
    "assignee": ("Assignee", {"me": "Me", "none": "Nobody"}),
    "author": ("Author", {}),
    "scan": ("New in the run", {}),
    "service": ("Grants access to", {}),
    "min_score": ("Score at least", {}),
    "date_from": ("First seen from", {}),
    "date_to": ("First seen until", {}),
}
# What to do about a failure, of a run or of a test of access.
FAILURE_ADVICE = {
    FailureKind.UNAUTHORISED: (
        "The credential is missing, wrong or expired. Make a new token at the host, and enter it in "
        "the form of the target."
    ),
    FailureKind.FORBIDDEN: (
        "The host knows the credential, but does not allow this. Give the token read access to the "
        "repositories, and approve it for the organisation if the host asks for that (SSO)."
    ),
    FailureKind.NOT_FOUND: (
        "Check the spelling of the target. Hosts also answer so for what a token may not see: then "
        "use a token with read access."
    ),
    FailureKind.LIMITED: (
        "The host allows no more requests for now. Wait a while and try again; with a credential of "
        "its own a target has a limit of its own."
    ),
    FailureKind.UNAVAILABLE: (
        "The host does not answer, or answers with an error of its own. Try again later; the schedule"
        " does so by itself."
    ),
    FailureKind.MALFORMED: (
        "What answers there is not the code host that was expected. Check the address; a sign-in page"
        " or a proxy may be in between."
    ),
    FailureKind.NO_ADDRESS: (
        "Nobody knows the name of this host. Check its spelling, or the DNS of the machine that "
        "Outcrop runs on."
    ),
    FailureKind.NOT_ALLOWED: (
        "The operator's rules for outbound connections do not allow this host. Ask the operator about"
        " the settings OUTCROP_EGRESS_*."
    ),
    FailureKind.ROBOTS: (
        "The site asks programs not to read it. If it is yours, turn off “Honour robots.txt” in the "
        "target, or let Outcrop in."
    ),
    FailureKind.TOO_LARGE: (
        "The source is larger than one source may be. Exclude parts of it in the target, or ask the "
        "operator about the limits."
    ),
    FailureKind.WORKER: (
        "The process that scanned has died, often for want of memory. Run the target again; if it "
        "happens again, the operator finds the reason in the log of the worker."
    ),
    FailureKind.OTHER: (
        "Run the target again. If that does not help, the operator finds more in the log of the worker."
    ),
}
HOOK_HOST = {
    HookHost.GITHUB: "GitHub",
    HookHost.GITLAB: "GitLab",
    HookHost.GITEA: "Gitea or Forgejo",
    HookHost.BITBUCKET: "Bitbucket",
    HookHost.AZUREDEVOPS: "Azure DevOps",
}
TRIGGER = {
    Trigger.PORTAL: "a person",
    Trigger.SCHEDULE: "schedule",
    Trigger.CLI: "command line",
    Trigger.PUSH: "push",
}
ROLE = {Role.OWNER: "Owner", Role.ADMIN: "Admin", Role.MEMBER: "Member"}
PLAN = {Plan.STARTER: "Starter", Plan.GROWTH: "Growth", Plan.ENTERPRISE: "Enterprise"}
OPTION = {
    "forks": "Forks",
    "archived": "Archived repositories",
    "wikis": "Wikis",
    "gists": "Gists of the same name",
    "discussions": "Issues, merge or pull requests and comments",
    "poll": "Ask the host for pushes, where no push hook is possible",
    "pr_status": "Set a commit status on pull requests that are pushed to",
    "pr_comment": "Comment on pull requests that have credentials",
    "depth": "Link depth",
    "pages": "Maximum number of pages",
    "leak_places": "Paths that often leak (/.env, /.git …)",
    "robots": "Honour robots.txt",
}
# Labels of audit actions; an action without a label is shown unchanged.
ACTION = {
    "finding.resolve": "Resolved",
    "finding.restrict": "Restricted",
    "finding.false_positive": "Marked as false positive",
    "incident.assign": "Incident assigned",
    "incident.comment": "Comment on an incident",
    "finding.reopen": "Reopened",
    "finding.undo": "Undone",
    "bulk.start": "Action on many findings started",
    "bulk.stop": "Action on many findings stopped",
    "finding.suppress": "Suppressed",
    "finding.unsuppress": "Shown again",
    "assignment_rule.add": "Assignment rule added",
    "assignment_rule.remove": "Assignment rule removed",
    "suppression.add": "Suppression rule added",
    "suppression.remove": "Suppression rule ended",
    "suppression.expire": "Suppression rule expired",
    "finding.new": "Found",
    "finding.resolved": "Gone from the source",
    "finding.seen": "Seen again",
    "finding.merge": "Merged with another finding",
    "finding.stale": "Not seen for a long time",
    "finding.validate": "Checked",
    "finding.revalidate": "Check requested",
}

_DOING = {
    TriageAction.RESOLVE: "Resolve {}",
    TriageAction.RESTRICT: "Restrict {}",
    TriageAction.FALSE_POSITIVE: "Mark {} as false positive",
    TriageAction.REOPEN: "Reopen {}",
    TriageAction.SUPPRESS: "Suppress {}",
    TriageAction.UNSUPPRESS: "Show {} again",
}
# Participle for the message after an action.
DONE = {
    TriageAction.RESOLVE: "resolved",
    TriageAction.RESTRICT: "restricted",
    TriageAction.FALSE_POSITIVE: "marked as false positive",
    TriageAction.REOPEN: "reopened",
    TriageAction.SUPPRESS: "suppressed",
    TriageAction.UNSUPPRESS: "shown again",
}
REASON = {
    "liveness": "Validity",
    "detection": "Confidence of detection",
    "capability": "Access it gives",
    "exposure": "Exposure",
    "still_there": "Still in the source",
    "spread": "Number of places",
    "cap": "Cap",
    "imported": "Imported",
}


def assignees(members: list[str], chosen: str | None) -> dict[str, str]:
    """Return the values of the filter by assignee with their labels; `chosen` may be no member any more."""
    listed = {"me": "Me", "none": "Nobody"} | {email: email for email in members}
    return listed if chosen is None else listed | {chosen: listed.get(chosen, chosen)}


def filters(values: Mapping[str, str], targets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return label and value of each filter of a view; `targets` are the names of targets by id."""
    return [
        (label, targets.get(values[name], names.get(values[name], values[name])))
        for name, (label, names) in FILTER.items()
        if name in values
    ]


def action(triage: TriageAction, what: str = "") -> str:
    """Return what an action does to `what`, as the beginning of a sentence."""
    return " ".join(_DOING[triage].format(what).split())


def closing_title(triage: TriageAction, total: int, valid: int) -> str:
    """Return the question before findings are closed, some of them with a valid credential."""
    if total == 1:
        return f"{action(triage, 'a credential that is valid')}?"
    return f"{action(triage, f'{total:,} findings')}, {valid:,} of them valid?"


def level(score: float) -> str:
    """Return the severity of a score."""
    return severity_of(score).value


def score(value: float) -> str:
    """Return a score as text, cut to one digit after the point.

    A score that is below a limit is never shown as the limit.
    """
    return f"{floor(value * 10) / 10:g}"


def browser(agent: str) -> str:
    """Return browser and system from a User-Agent header; the header itself if they are unknown."""
    # Chrome also claims to be Safari, and Edge to be Chrome, so the order matters.
    named = {"Edg/": "Edge", "OPR/": "Opera", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari"}
    systems = {
        "Android": "Android",
        "iPhone": "iPhone",
        "iPad": "iPad",
        "Windows": "Windows",
        "Mac OS X": "macOS",
        "Linux": "Linux",
    }
    name = next((shown for sign, shown in named.items() if sign in agent), None)
    system = next((shown for sign, shown in systems.items() if sign in agent), None)
    return (f"{name} on {system}" if system else name) if name else agent or "Unknown browser"


def size(count: int) -> str:
    """Return a number of bytes with a unit."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def place(repo: str | None, path: str | None, url: str | None) -> str:
    """Return the place of a finding in short: repository or host, and path."""
    host = None if repo or url is None else url.partition("://")[2].partition("/")[0]
    return " · ".join(part for part in (repo or host, path) if part) or "unknown place"


def duration(hours: int) -> str:
    """Return a time in whole hours, from three days on in days."""
    if hours < 72:
        return f"{hours} h" if hours else "under 1 h"
    return f"{hours // 24:,} days"


def share(part: int, total: int) -> str:
    """Return a part as a percentage, rounded down: 100% is all."""
    return f"{100 * part // total}%" if total else "–"


def person(author: str) -> str:
    """Return the name of a commit's author without the e-mail address, if there is a name."""
    return author.partition(" <")[0] or author


def sentence(message: str) -> str:
    """Capitalise the first letter, unless the message begins with an address or the name of a host."""
    is_name = any(sign in message.split(" ", 1)[0] for sign in "@:.")
    return message if is_name else message[:1].upper() + message[1:]


def line_links(url: str | None, lines: tuple[int, ...]) -> list[tuple[int, str | None]]:
    """Return each line with its address, which is that of the finding with another line; None if unknown."""
    base, mark, line = (url or "").rpartition("#L")
    is_line = bool(mark) and line.isdecimal()
    return [(number, f"{base}#L{number}" if is_line else None) for number in lines]
