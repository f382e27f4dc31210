"""The product's words as people read them."""

from outcrop.domain.account import Plan, Role
from outcrop.domain.finding import SourceType, Status, Validation, Visibility
from outcrop.domain.scan import ScanStatus
from outcrop.domain.target import Schedule, TargetKind

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
    SourceType.COMMIT: "History",
    SourceType.ENDPOINT: "Web endpoint",
    SourceType.JS_BUNDLE: "JavaScript bundle",
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
    Schedule.OFF: "Only by hand",
    Schedule.HOURLY: "Every hour",
    Schedule.DAILY: "Every day",
    Schedule.WEEKLY: "Every week",
}
TARGET = {
    TargetKind.OWNER: "GitHub organisation or user",
    TargetKind.REPOSITORY: "Repository",
    TargetKind.GISTS: "Gists of a user",
    TargetKind.GIST: "Gist",
    TargetKind.COMMIT: "Commit",
    TargetKind.SITE: "Web site",
    TargetKind.PAGE: "Single page",
}
ROLE = {Role.OWNER: "Owner", Role.ADMIN: "Admin", Role.MEMBER: "Member"}
PLAN = {Plan.STARTER: "Starter", Plan.GROWTH: "Growth", Plan.ENTERPRISE: "Enterprise"}
OPTION = {
    "forks": "Forks",
    "archived": "Archived repositories",
    "wikis": "Wikis",
    "gists": "Gists of the same name",
    "depth": "Depth",
    "pages": "Pages at most",
    "leak_places": "Places where things leak (/.env, /.git …)",
    "robots": "Honour robots.txt",
}
# What the audit trail's actions are called; an action that is not here is shown as it is.
ACTION = {
    "finding.resolve": "Resolved",
    "finding.restrict": "Restricted",
    "finding.false_positive": "Marked as false positive",
    "finding.reopen": "Reopened",
    "finding.suppress": "Suppressed",
    "finding.unsuppress": "Shown again",
    "finding.new": "Found",
    "finding.resolved": "Gone from the source",
    "finding.seen": "Seen again",
    "finding.stale": "Not seen for long",
    "finding.validate": "Checked",
    "finding.revalidate": "Asked to check again",
}


REASON = {
    "liveness": "Alive",
    "detection": "Surely a credential",
    "capability": "What it opens",
    "exposure": "Who can see it",
    "still_there": "Still there",
    "spread": "In how many places",
    "cap": "Cap",
    "imported": "Imported",
}


def level(score: float) -> str:
    """Name how much a score asks for attention."""
    return "critical" if score >= 80 else "high" if score >= 60 else "medium" if score >= 40 else "low"


def browser(agent: str) -> str:
    """Name a browser and its system from what it says of itself; what cannot be told is shown as it is."""
    # Chrome calls itself Safari too, and Edge calls itself Chrome: the first that is named counts.
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
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def place(repo: str | None, path: str | None, url: str | None) -> str:
    """Name where a finding stands, as short as it can be told apart."""
    host = None if repo or url is None else url.partition("://")[2].partition("/")[0]
    return " · ".join(part for part in (repo or host, path) if part) or "unknown place"


def sentence(message: str) -> str:
    """Begin with a capital letter, unless it is an e-mail address that begins."""
    return message if "@" in message.split(" ", 1)[0] else message[:1].upper() + message[1:]
