"""Bitbucket Cloud and Bitbucket Data Center: how targets on them are written, and which one an address is."""

import re
from urllib.parse import quote

from outcrop.domain.target import TargetKind
from outcrop.lazy_regex import regex
from outcrop.sources.code_host.host import CodeHost, HostAccess, HostType, PathTarget
from outcrop.sources.hosts.bitbucket_cloud import BitbucketCloud
from outcrop.sources.hosts.bitbucket_fields import FULL_NAME, NAME, OWNER, PUBLIC, SHA
from outcrop.sources.hosts.bitbucket_server import BitbucketServer

_COMMIT = regex(rf"({NAME}/{NAME})/commits?/({SHA.pattern})", re.IGNORECASE)
_PAGE_OF_REPOSITORY = regex(rf"({NAME}/{NAME})/(?!commits?/).*")
_SERVER_PATH = regex(rf"(?:projects/({NAME})|users/({NAME}))(?:/repos/({NAME})(/.*)?)?")
_NO_OWNERS = {"account", "blog", "dashboard", "product", "repo", "rest", "scm", "site", "support"}


def _open(access: HostAccess) -> CodeHost:
    """Open Bitbucket Cloud, or the Data Center at the address."""
    return BitbucketCloud(access) if access.url is None else BitbucketServer(access)


def _read_name(name: str) -> PathTarget | None:
    """Read `WORKSPACE` or `WORKSPACE/NAME`; on a Data Center `PROJECT` or `PROJECT/SLUG`."""
    if match := FULL_NAME.fullmatch(name):
        return PathTarget(TargetKind.REPOSITORY, f"{match[1]}/{match[2]}")
    return PathTarget(TargetKind.OWNER, name) if OWNER.fullmatch(name) else None


def _read_path(host: str, path: str) -> PathTarget | None:
    """Read the path of a workspace, a project, a repository, a page of one, or a commit."""
    path = path.strip("/")
    if host != "bitbucket.org":
        return _read_server_path(path)
    first, _, rest = path.partition("/")
    if first in _NO_OWNERS:
        return None
    if rest.split("/")[0] == "workspace":
        return _read_name(first)
    if match := _COMMIT.fullmatch(path):
        return PathTarget(TargetKind.COMMIT, f"{match[1]}/commit/{match[2].lower()}")
    match = _PAGE_OF_REPOSITORY.fullmatch(path)
    return _read_name(match[1] if match else path)


def _read_server_path(path: str) -> PathTarget | None:
    """Read the path of a project, a repository, a page of one, or a clone address of a Data Center."""
    if path.startswith("scm/"):
        return _read_name(path.removeprefix("scm/"))
    match = _SERVER_PATH.fullmatch(path)
    if match is None:
        return None
    owner = match[1] or f"~{match[2]}"
    if match[3] is None:
        return PathTarget(TargetKind.OWNER, owner)
    repository = f"{owner}/{match[3]}"
    commit = re.fullmatch(rf"/commits/({SHA.pattern})", match[4] or "")
    if commit is not None:
        return PathTarget(TargetKind.COMMIT, f"{repository}/commit/{commit[1].lower()}")
    return PathTarget(TargetKind.REPOSITORY, repository)


def _line_url(base: str, commit: str, path: bytes | None, line: int) -> str:
    """Return the address of a line, or of a commit."""
    if path is None:
        return f"{base}/commits/{commit}"
    if "/repos/" in base:
        return f"{base}/browse/{quote(path)}?at={commit}#{line}"
    return f"{base}/src/{commit}/{quote(path)}#lines-{line}"


HOST_TYPE = HostType(
    name="bitbucket",
    title="Bitbucket",
    read_name=_read_name,
    read_path=_read_path,
    open=_open,
    public=lambda host: PUBLIC if host == "bitbucket.org" else None,
    default_url=PUBLIC,
    line_url=_line_url,
    owner_form="WORKSPACE",
    advice="an access token, or your e-mail address and an API token as EMAIL:TOKEN, with read access "
    "to repositories",
)
