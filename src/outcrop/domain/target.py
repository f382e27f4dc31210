"""A target: where an account has us look, and how often."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from outcrop.domain.errors import BadInputError
from outcrop.domain.scan import ScanType

if TYPE_CHECKING:
    from yarl import URL


class TargetKind(StrEnum):
    OWNER = "owner"  # every repository of a GitHub organisation or user
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
class Spec:
    """What to look at, and how: what a run is made from."""

    kind: TargetKind
    name: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """Give the name without a query, which may hold a token."""
        return self.name.partition("?")[0]

    @property
    def scan_type(self) -> ScanType:
        return ScanType.SCRAPE if self.kind in {TargetKind.SITE, TargetKind.PAGE} else ScanType.GITHUB


@dataclass(frozen=True, slots=True)
class Target:
    id: UUID
    spec: Spec
    schedule: Schedule
    created_at: datetime
    next_run_at: datetime | None = None
    has_credential: bool = False


# What may be chosen for a kind, with what holds where nothing is.
OPTIONS: dict[TargetKind, dict[str, bool | int]] = {
    TargetKind.OWNER: {"forks": False, "archived": True, "wikis": True, "gists": False},
    TargetKind.REPOSITORY: {"wikis": True},
    TargetKind.GISTS: {},
    TargetKind.GIST: {},
    TargetKind.COMMIT: {},
    TargetKind.SITE: {"depth": 3, "pages": 500, "leak_places": False, "robots": True},
    TargetKind.PAGE: {"robots": True},
    TargetKind.FOLDER: {},
}
RANGES = {"depth": range(21), "pages": range(1, 100_001)}
LONGEST = 2_000

_WEB = {TargetKind.SITE, TargetKind.PAGE}
_LOGIN = r"[A-Za-z0-9_-]{1,100}"  # an enterprise's names are longer and hold underscores
_REPO = r"(?!\.{0,2}(?:\.git)?(?:/|\Z))[A-Za-z0-9._-]{1,100}?"
_GIST_ID = r"(?:[0-9a-f]{20,64}|[0-9]{1,10})"  # the oldest are plain numbers
_SHORT = re.compile(rf"(?i:(github|gists)):({_LOGIN})(?:/({_REPO})(?:\.git)?)?")
_ONE_PART = re.compile(rf"/({_LOGIN})")
_TWO_PARTS = re.compile(rf"/({_LOGIN}/{_REPO})(?:\.git)?")
_COMMIT = re.compile(rf"/({_LOGIN}/{_REPO})/commit/([0-9a-fA-F]{{7,64}})")
_GIST = re.compile(rf"/(?:{_LOGIN}/)?({_GIST_ID})(?:\.git)?")

_AUTHORITY = re.compile(r"(?:[^:/?#]*://)?([^/?#]*)")
_HOST = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|[0-9a-f:.]*:[0-9a-f:.]*")

# A target that cannot be read is not repeated: it may hold a password.
_FORMS = "a target is github:ORG, github:ORG/NAME, gists:USER or an https address"


def parse_target(
    text: str, kind: TargetKind | None = None, *, web_host: str = "github.com"
) -> tuple[TargetKind, str]:
    """Read what an operator gives as a target: its kind, and its name in the one form that is stored."""
    text = text.strip()
    if len(text) > LONGEST:
        raise _too_long()
    if not text.isprintable() or " " in text or "\\" in text:
        raise BadInputError("a target holds no spaces, backslashes or control characters")
    if (authority := _AUTHORITY.match(text)) and "@" in authority[1]:
        raise BadInputError(
            "give the https address without a name or password: the credential of a target comes by --credential-stdin"
        )
    found, name = _read(text, kind, web_host)
    if found is TargetKind.OWNER and kind is TargetKind.GISTS:
        found, name = TargetKind.GISTS, name.replace("github:", "gists:")
    if kind is not None and found is not kind:
        raise BadInputError(f"this is a target of kind {found}, not {kind}")
    if len(name) > LONGEST:  # signs that are written in three or more characters
        raise _too_long()
    return found, name


def _too_long() -> BadInputError:
    return BadInputError(f"a target has at most {LONGEST:,} characters")


def _read(text: str, kind: TargetKind | None, web_host: str) -> tuple[TargetKind, str]:
    if match := _SHORT.fullmatch(text):
        prefix, login, repository = match[1].lower(), match[2], match[3]
        if repository is None:
            return (TargetKind.OWNER if prefix == "github" else TargetKind.GISTS), f"{prefix}:{login}"
        if prefix == "github":
            return TargetKind.REPOSITORY, f"https://{web_host}/{login}/{repository}"
        raise BadInputError(_FORMS)
    url = _address(text)
    origin, path = str(url.origin()), url.raw_path.rstrip("/")
    if kind not in _WEB:
        host = origin.partition("://")[2].removeprefix("www.")
        at_github = host in {web_host, f"gist.{web_host}"}
        found = _at_github(host, path, web_host) if at_github else _elsewhere(origin, path, kind)
        if found is not None:
            if url.scheme != "https":
                raise BadInputError("repositories, gists and commits are reached over https only")
            return found
        if at_github:
            raise BadInputError(
                f"give an owner, a repository, a gist or a commit of {web_host}, or --type page for the page itself"
            )
    query = f"?{url.raw_query_string}" if url.raw_query_string else ""
    return kind or TargetKind.SITE, f"{origin}{url.raw_path or '/'}{query}"


def _address(text: str) -> "URL":
    """Read an address of the web; its host and path then have one spelling."""
    from yarl import URL  # noqa: PLC0415 - a scan of files reads none

    try:
        url = URL(text)
        host = (url.raw_host or "").removesuffix(".")
        if url.scheme in {"http", "https"} and url.port and _HOST.fullmatch(host):
            return url.with_host(host)
    except ValueError:
        pass
    raise BadInputError(_FORMS)


def _at_github(host: str, path: str, web_host: str) -> tuple[TargetKind, str] | None:
    gists = f"gist.{web_host}"
    if host == web_host != "github.com" and path.startswith("/gist/"):  # a server without subdomains
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


def _elsewhere(origin: str, path: str, kind: TargetKind | None) -> tuple[TargetKind, str] | None:
    """Read an address of another host, whose repositories are told by their ending or by the kind that is given."""
    if kind in {TargetKind.OWNER, TargetKind.GISTS}:
        raise BadInputError(
            f"give {'github:ORG' if kind is TargetKind.OWNER else 'gists:USER'} for this kind of target"
        )
    if kind in {TargetKind.REPOSITORY, TargetKind.GIST} or (kind is None and path.endswith(".git")):
        if not path:
            raise BadInputError("a repository's address has a path")
        return (
            kind or TargetKind.REPOSITORY,
            f"{origin}{path}",
        )  # with its ending: not every host knows it without
    if match := _COMMIT.fullmatch(path):
        return TargetKind.COMMIT, f"{origin}/{match[1]}/commit/{match[2].lower()}"
    if kind is TargetKind.COMMIT:
        raise BadInputError("a commit's address ends with /OWNER/NAME/commit/SHA")
    return None


def identity(kind: TargetKind, name: str, *, web_host: str = "github.com") -> tuple[TargetKind, str]:
    """Give what tells targets apart: GitHub's names are the same in capitals."""
    at_github = name.startswith((f"https://{web_host}/", "github:", "gists:"))
    return kind, name.lower() if at_github and kind not in _WEB else name


def choose(kind: TargetKind, chosen: Mapping[str, bool | int]) -> dict[str, bool | int]:
    """Give the options of a target, or say which does not belong to its kind."""
    for name, value in chosen.items():
        if name not in OPTIONS[kind]:
            raise BadInputError(f"a target of kind {kind} has no option {name.replace('_', '-')}")
        if name in RANGES and value not in RANGES[name]:
            raise BadInputError(f"{name} is a number from {RANGES[name][0]} to {RANGES[name][-1]:,}")
    return OPTIONS[kind] | dict(chosen)
