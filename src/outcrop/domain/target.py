"""Targets: the code hosts, repositories and sites that an account has scanned, and how often."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from uuid import UUID

from outcrop.domain.errors import BadInputError
from outcrop.domain.scan import ScanStatus, ScanType
from outcrop.lazy_regex import regex
from outcrop.limits import TARGET_LENGTH

if TYPE_CHECKING:
    from yarl import URL


ENCRYPTED = "encrypted:"  # begins the stored name of a target whose address is encrypted beside it


class TargetKind(StrEnum):
    OWNER = "owner"  # every repository of an organisation, group or user
    REPOSITORY = "repository"
    GISTS = "gists"  # of one user
    GIST = "gist"
    COMMIT = "commit"
    SITE = "site"
    PAGE = "page"  # one address and what it loads
    FOLDER = "folder"  # on the operator's own machine, from the command line only: never stored


class Schedule(StrEnum):
    OFF = "off"
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"


EVERY = {
    Schedule.HOURLY: timedelta(hours=1),
    Schedule.DAILY: timedelta(days=1),
    Schedule.WEEKLY: timedelta(weeks=1),
}


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """Description of a target: its kind and name, path filters and options."""

    kind: TargetKind
    name: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    host_url: str | None = None  # the address of a self-hosted code host; None for a public one

    @property
    def stored_name(self) -> str:
        """Return the name as the database has it, with the address of a self-hosted host behind a space.

        The address of a site with a query is stored without it, after ENCRYPTED. A release that knows none of
        both refuses this name, so it sends no token to another host, and reads no other page.
        """
        if self.has_query:
            return f"{ENCRYPTED}{self.shown}"
        return self.name if self.host_url is None else f"{self.name} {self.host_url}"

    @property
    def has_query(self) -> bool:
        """Whether the name is an address with a query, which is stored encrypted."""
        return self.kind in {TargetKind.SITE, TargetKind.PAGE} and "?" in self.name

    @property
    def shown(self) -> str:
        """Return the name without its query string, which may contain a token."""
        return self.name.partition("?")[0].removeprefix(ENCRYPTED)

    @property
    def scan_type(self) -> ScanType:
        return ScanType.SCRAPE if self.kind in {TargetKind.SITE, TargetKind.PAGE} else ScanType.GITHUB


@dataclass(frozen=True, slots=True)
class Target:
    id: UUID
    spec: TargetSpec
    schedule: Schedule
    created_at: datetime
    next_run_at: datetime | None = None
    has_credential: bool = False
    url_box: bytes | None = field(default=None, repr=False)  # the encrypted address, until it is decrypted


def split_stored_name(kind: TargetKind, stored: str) -> tuple[str, str | None]:
    """Return the name of a target and the address of its self-hosted code host, None for a public one."""
    name, space, host_url = stored.rpartition(" ")
    if kind is TargetKind.FOLDER or not space:  # the name of a folder may have spaces
        return stored, None
    return name, host_url


POLL = "poll"  # the code host is asked for pushes
PR_STATUS, PR_COMMENT = "pr_status", "pr_comment"  # what a run of a push writes to pull requests

# The options of each kind of target, with their defaults.
OPTIONS: dict[TargetKind, dict[str, bool | int]] = {
    TargetKind.OWNER: {
        "forks": False, "archived": True, "wikis": True, "gists": False, "discussions": False,
        POLL: False, PR_STATUS: False, PR_COMMENT: False,
    },
    TargetKind.REPOSITORY: {
        "wikis": True, "discussions": False, POLL: False, PR_STATUS: False, PR_COMMENT: False,
    },
    TargetKind.GISTS: {},
    TargetKind.GIST: {},
    TargetKind.COMMIT: {},
    TargetKind.SITE: {"depth": 3, "pages": 500, "leak_places": False, "robots": True},
    TargetKind.PAGE: {"robots": True},
    TargetKind.FOLDER: {},
}  # fmt: skip
RANGES = {"depth": range(21), "pages": range(1, 100_001)}

_WEB = {TargetKind.SITE, TargetKind.PAGE}
_LOGIN = r"[A-Za-z0-9_-]{1,100}"  # names on GitHub Enterprise are longer and may have underscores
_REPO = r"(?!\.{0,2}(?:\.git)?(?:/|\Z))[A-Za-z0-9._-]{1,100}?"
_GIST_ID = r"(?:[0-9a-f]{20,64}|[0-9]{1,10})"  # the oldest are plain numbers
_SHORT = regex(rf"(?i:(github|gists)):({_LOGIN})(?:/({_REPO})(?:\.git)?)?")
_ONE_PART = regex(rf"/({_LOGIN})")
_TWO_PARTS = regex(rf"/({_LOGIN}/{_REPO})(?:\.git)?")
_COMMIT = regex(rf"/({_LOGIN}/{_REPO})/commit/([0-9a-fA-F]{{7,64}})")
_GIST = regex(rf"/(?:{_LOGIN}/)?({_GIST_ID})(?:\.git)?")

_AUTHORITY = regex(r"(?:[^:/?#]*://)?([^/?#]*)")
_HOST = regex(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|[0-9a-f:.]*:[0-9a-f:.]*")

# The error never repeats the target: it may contain a password.
_EXPECTED_FORMS = (
    "a target is github:ORG, gitlab:GROUP, bitbucket:WORKSPACE, gitea:ORG, azuredevops:ORG, gists:USER "
    "or an https address"
)


def parse_target(
    text: str, kind: TargetKind | None = None, *, web_host: str = "github.com"
) -> tuple[TargetKind, str]:
    """Parse a target as typed by a user. Return its kind and its normalised name.

    `kind` overrides the guess; `web_host` is the host of the GitHub instance.
    """
    text = check_target_text(text)
    found, name = _parse(text, kind, web_host)
    if found is TargetKind.OWNER and kind is TargetKind.GISTS:
        found, name = TargetKind.GISTS, name.replace("github:", "gists:")
    if kind is not None and found is not kind:
        raise BadInputError(f"this target is of kind {found}, not {kind}")
    if len(name) > TARGET_LENGTH:  # percent-encoding made the name longer
        raise _too_long()
    return found, name


def check_target_text(text: str) -> str:
    """Return what a user typed without spaces around it; raise BadInputError if it can be no target."""
    text = text.strip()
    if len(text) > TARGET_LENGTH:
        raise _too_long()
    if not text.isprintable() or " " in text or "\\" in text:
        raise BadInputError("a target must not contain spaces, backslashes or control characters")
    if (authority := _AUTHORITY.match(text)) and "@" in authority[1]:
        raise BadInputError(
            "give the https address without user name and password; pass a credential with --credential-stdin"
        )
    return text


def _too_long() -> BadInputError:
    return BadInputError(f"a target must have at most {TARGET_LENGTH:,} characters")


def _parse(text: str, kind: TargetKind | None, web_host: str) -> tuple[TargetKind, str]:
    """Return the kind and normalised name of a target in short form (`github:ORG`) or as a URL."""
    if match := _SHORT.fullmatch(text):
        prefix, login, repository = match[1].lower(), match[2], match[3]
        if repository is None:
            return (TargetKind.OWNER if prefix == "github" else TargetKind.GISTS), f"{prefix}:{login}"
        if prefix == "github":
            return TargetKind.REPOSITORY, f"https://{web_host}/{login}/{repository}"
        raise BadInputError(_EXPECTED_FORMS)
    url = parse_web_url(text)
    origin, path = str(url.origin()), url.raw_path.rstrip("/")
    if kind not in _WEB:
        host = origin.partition("://")[2].removeprefix("www.")
        at_github = host in {web_host, f"gist.{web_host}"}
        found = (
            _parse_github_path(host, path, web_host) if at_github else _parse_other_host(origin, path, kind)
        )
        if found is not None:
            if url.scheme != "https":
                raise BadInputError("repositories, gists and commits are reached over https only")
            return found
        if at_github:
            raise BadInputError(
                f"give an owner, repository, gist or commit on {web_host}, or --type page for the page itself"
            )
    query = f"?{url.raw_query_string}" if url.raw_query_string else ""
    return kind or TargetKind.SITE, f"{origin}{url.raw_path or '/'}{query}"


def parse_web_url(text: str) -> "URL":
    """Parse an http or https URL; host and path are normalised."""
    from yarl import URL  # noqa: PLC0415 - a scan of files parses no URL

    try:
        url = URL(text)
        host = (url.raw_host or "").removesuffix(".")
        if url.scheme in {"http", "https"} and url.port and _HOST.fullmatch(host):
            return url.with_host(host)
    except ValueError:
        pass
    raise BadInputError(_EXPECTED_FORMS)


def _parse_github_path(host: str, path: str, web_host: str) -> tuple[TargetKind, str] | None:
    """Return the kind and name of a GitHub owner, repository, commit or gist; None for any other path."""
    gists = f"gist.{web_host}"
    if host == web_host != "github.com" and path.startswith(
        "/gist/"
    ):  # a GitHub Enterprise without subdomains
        host, gists, path = f"{host}/gist", f"{host}/gist", path.removeprefix("/gist")
    if host == gists:
        if match := _GIST.fullmatch(path):
            return TargetKind.GIST, f"https://{gists}/{match[1]}"
        return (TargetKind.GISTS, f"gists:{match[1]}") if (match := _ONE_PART.fullmatch(path)) else None
    if match := _COMMIT.fullmatch(path):
        return TargetKind.COMMIT, f"https://{web_host}/{match[1]}/commit/{match[2].lower()}"
    if match := _TWO_PARTS.fullmatch(path):
        return TargetKind.REPOSITORY, f"https://{web_host}/{match[1]}"
    return (TargetKind.OWNER, f"github:{match[1]}") if (match := _ONE_PART.fullmatch(path)) else None


def _parse_other_host(origin: str, path: str, kind: TargetKind | None) -> tuple[TargetKind, str] | None:
    """Parse a URL of another code host. A path that ends in `.git`, or `kind`, marks a repository."""
    if kind in {TargetKind.OWNER, TargetKind.GISTS}:
        raise BadInputError(
            f"write a target of this kind as {'github:ORG' if kind is TargetKind.OWNER else 'gists:USER'}"
        )
    if kind in {TargetKind.REPOSITORY, TargetKind.GIST} or (kind is None and path.endswith(".git")):
        if not path:
            raise BadInputError("the address of a repository must have a path")
        # Keep the ending `.git`: some hosts do not find a repository without it.
        return kind or TargetKind.REPOSITORY, f"{origin}{path}"
    if match := _COMMIT.fullmatch(path):
        return TargetKind.COMMIT, f"{origin}/{match[1]}/commit/{match[2].lower()}"
    if kind is TargetKind.COMMIT:
        raise BadInputError("the address of a commit must end with /OWNER/NAME/commit/SHA")
    return None


def identity(kind: TargetKind, name: str, *, web_host: str = "github.com") -> tuple[TargetKind, str]:
    """Return the key by which targets are compared; names on GitHub are case-insensitive."""
    at_github = name.startswith((f"https://{web_host}/", "github:", "gists:"))
    return kind, name.lower() if at_github and kind not in _WEB else name


def choose(kind: TargetKind, chosen: Mapping[str, bool | int]) -> dict[str, bool | int]:
    """Return all options of a target with defaults filled in; raise BadInputError for an invalid one."""
    for name, value in chosen.items():
        if name not in OPTIONS[kind]:
            raise BadInputError(f"a target of kind {kind} has no option {name.replace('_', '-')}")
        if name in RANGES and value not in RANGES[name]:
            raise BadInputError(f"{name} must be a number from {RANGES[name][0]} to {RANGES[name][-1]:,}")
    return OPTIONS[kind] | dict(chosen)


def scan_options(kind: TargetKind, *, discussions: bool) -> dict[str, bool | int]:
    """Return the options of a target that is scanned once; a kind without discussions ignores them."""
    has_them = discussions and "discussions" in OPTIONS[kind]
    return OPTIONS[kind] | ({"discussions": True} if has_them else {})


# --- include and exclude patterns


def matches_any(patterns: Sequence[str], *texts: str) -> bool:
    """Whether one of the glob patterns matches one of the texts. Case matters."""
    return any(fnmatchcase(text, pattern) for text in texts for pattern in patterns)


def is_included(include: Sequence[str], exclude: Sequence[str], *texts: str) -> bool:
    """Whether a pattern of `include` matches one of the texts, and no pattern of `exclude` matches any.

    Without `include` patterns, all texts are included.
    """
    return (not include or matches_any(include, *texts)) and not matches_any(exclude, *texts)


# --- the health of a target: whether it is scanned as planned

_LATE_AFTER = 2  # intervals of the schedule without a complete run


class TargetState(StrEnum):
    """The state of a target, the worst first."""

    FAILING = "failing"  # its last run has failed
    NEVER = "never"  # it was never run
    WAITING = "waiting"  # its run has lost its worker
    LATE = "late"  # its last complete run is too old for its schedule
    GAPS = "gaps"  # its last complete run has skipped something
    RUNNING = "running"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class TargetRun:
    """A run of a target, in short."""

    id: UUID
    status: ScanStatus
    created_at: datetime
    finished_at: datetime | None
    gaps: int  # the places that were skipped; at most one more than a run lists
    error: str | None


@dataclass(frozen=True, slots=True)
class TargetHealth:
    """A target with its last run, its last complete run, and the number of findings in its sources.

    Runs of a single pushed repository do not count as runs of the target.
    """

    target: Target
    last: TargetRun | None = None
    complete: TargetRun | None = None
    active: int = 0  # findings in the active view
    valid: int = 0  # of these

    def state(self, now: datetime) -> TargetState:
        """Return the state of the target at a time."""
        if self.last is None:
            return TargetState.NEVER
        if self.last.finished_at is None:
            is_lost = self.last.status is ScanStatus.INTERRUPTED
            return TargetState.WAITING if is_lost else TargetState.RUNNING
        if self.last.status is ScanStatus.FAILED or self.complete is None:
            return TargetState.FAILING
        every = EVERY.get(self.target.schedule)
        if every is not None and self.complete.created_at < now - _LATE_AFTER * every:
            return TargetState.LATE
        return TargetState.GAPS if self.complete.gaps else TargetState.GOOD
