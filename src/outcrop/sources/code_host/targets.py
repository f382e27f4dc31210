"""Read what a user types as a target: the forms of all code hosts, and what `domain/target.py` knows.

An address that looks like a code host never becomes a web site silently.
"""

from typing import NamedTuple
from urllib.parse import urlsplit

from outcrop.domain.errors import BadInputError
from outcrop.domain.target import (
    TargetKind,
    TargetSpec,
    check_target_text,
    parse_target,
    parse_web_url,
)
from outcrop.domain.target import identity as identity_of_name
from outcrop.lazy_regex import regex
from outcrop.limits import TARGET_LENGTH
from outcrop.sources.code_host.host import HostType, PathTarget
from outcrop.sources.code_host.registry import find_host_type, host_types

_WEB = {TargetKind.SITE, TargetKind.PAGE}
_PREFIX = regex(r"([A-Za-z]{2,20}):(?!//)(.*)")
# The first part of the name of a host on which code is usually kept, with the software that it names.
_LABELS = {
    "gitlab": "gitlab", "gitea": "gitea", "forgejo": "gitea", "codeberg": "gitea", "gogs": "gitea",
    "bitbucket": "bitbucket", "stash": "bitbucket", "github": "github", "ghe": "github",
    "azuredevops": "azuredevops", "tfs": "azuredevops", "git": None, "code": None, "scm": None,
}  # fmt: skip
# Names of software, which also stand within a name, as in `my-gitlab2.example.com`.
_SOFTWARE = regex(r"(?:^|[.-])(?:gitlab|gitea|forgejo|gogs|bitbucket|github|azuredevops)[0-9]*(?=[.-]|$)")
# Parts of addresses that only code hosts have.
_CODE_PATH = regex(r"/-/(?:tree|blob|commit|merge_requests|issues)\b|/_git/|/src/(?:branch|commit|tag)/"
                        r"|/(?:projects|users)/[^/]+/repos/|/scm/[^/]+/[^/]+|^/(?:gitlab|gitea|forgejo|bitbucket)/"
                        r"|^/[^/]+/[^/]+/(?:(?:blob|tree)/[^/]+/|pulls?/[0-9]+/)")  # fmt: skip
_PATHS = (("/_git/", "azuredevops"), ("/scm/", "bitbucket"), ("/repos/", "bitbucket"), ("/-/", "gitlab"))


class TargetName(NamedTuple):
    """A target as it is stored."""

    kind: TargetKind
    name: str
    host_url: str | None = None  # the address of a self-hosted code host


def read_target(
    text: str, kind: TargetKind | None = None, *, host_url: str | None = None, web_host: str = "github.com"
) -> TargetName:
    """Read a target as a user types it; raise BadInputError if it is none.

    `kind` overrides the guess. `host_url` is the address of a self-hosted code host; `web_host` is the host
    of the operator's GitHub instance.
    """
    text = check_target_text(text)
    base = None if host_url is None or not host_url.strip() else read_host_url(host_url)
    if base is not None and kind in _WEB:
        raise BadInputError("the address of a code host is not for a site or a page")
    found = _read_prefix(text, kind, base) or _read_address(text, kind, base, web_host)
    if found is None:
        found = _read_other(text, kind, base, web_host)
    if kind is not None and found.kind is not kind:
        raise BadInputError(f"this target is of kind {found.kind}, not {kind}")
    if len(found.name) + len(found.host_url or "") >= TARGET_LENGTH:
        raise BadInputError(f"a target must have at most {TARGET_LENGTH:,} characters")
    return found


def is_remote(text: str) -> bool:
    """Whether a target begins with the prefix of a code host, so that it is no path on this machine."""
    match = _PREFIX.fullmatch(text)
    return match is not None and (match[1].lower() == "gists" or find_host_type(match[1].lower()) is not None)


def read_host_url(text: str) -> str:
    """Return the address of a self-hosted code host in its normal form: https, without a final slash."""
    text = check_target_text(text)
    if not text.lower().startswith("https://"):
        raise BadInputError("the address of a code host is an https address")
    url = parse_web_url(text)
    if url.raw_query_string or url.raw_fragment:
        raise BadInputError("the address of a code host has no query")
    return f"{url.origin()}{url.raw_path.rstrip('/')}"


def find_host(spec: TargetSpec, *, web_host: str = "github.com") -> str | None:
    """Return the name of the kind of code host of a target; None for a site, and if it is not known."""
    if spec.kind in _WEB or spec.kind is TargetKind.FOLDER:
        return None
    prefix, colon, rest = spec.name.partition(":")
    if colon and not rest.startswith("//"):
        return "github" if prefix == "gists" else prefix
    host = (urlsplit(spec.name).hostname or "").removeprefix("gist.")
    if host == web_host or spec.host_url is not None:  # only GitHub has addresses on a self-hosted instance
        return "github"
    return find_public_host(host)


def find_public_host(name: str) -> str | None:
    """Return the kind of the public code host with this host name; None if it is none that we know."""
    return next((type_.name for type_ in host_types() if type_.public(name) is not None), None)


def identity(spec: TargetSpec, *, web_host: str = "github.com") -> tuple[TargetKind, str]:
    """Return the key by which targets are compared; names on code hosts are case-insensitive."""
    kind, name = identity_of_name(
        spec.kind, spec.name if spec.has_query else spec.stored_name, web_host=web_host
    )
    return kind, name.lower() if find_host(spec, web_host=web_host) is not None else name


def _read_prefix(text: str, kind: TargetKind | None, base: str | None) -> TargetName | None:
    """Read `HOST:NAME`; return None if there is no such prefix, and for GitHub's on the default instance."""
    match = _PREFIX.fullmatch(text)
    prefix = match[1].lower() if match else ""
    if match is None or (type_ := find_host_type("github" if prefix == "gists" else prefix)) is None:
        return None
    if type_.name == "github":
        if base is None:
            return None
        return _read_enterprise(text, kind, base)
    if base is None and type_.default_url is None:
        raise BadInputError(f"{type_.name}: give the address of the instance with --host-url")
    read = type_.read_name(match[2].strip("/"))
    if read is None:
        raise BadInputError(f"write a target on {type_.title} as {type_.name}:{type_.owner_form}")
    return _named(type_, read, kind, base)


def _named(type_: HostType, read: PathTarget, kind: TargetKind | None, base: str | None) -> TargetName:
    """Return the target that an address or a name of this kind of host means.

    An owner may be a repository where both are written alike: `kind` then decides. On a self-hosted instance
    the name keeps the prefix, which says what software it is.
    """
    if base is not None and base == type_.default_url:
        base = None
    if read.kind is TargetKind.OWNER and kind is TargetKind.REPOSITORY and "/" in read.name:
        read = PathTarget(TargetKind.REPOSITORY, read.name)
    if read.kind is TargetKind.OWNER or base is not None:
        return TargetName(read.kind, f"{type_.name}:{read.name}", base)
    return TargetName(read.kind, f"{type_.default_url}/{read.name}")


def _read_address(text: str, kind: TargetKind | None, base: str | None, web_host: str) -> TargetName | None:
    """Read an https address on a code host that is known by its name, or by `base`; None for another one."""
    if "://" not in text or kind in _WEB:
        return None
    url = parse_web_url(text)
    host, path = str(url.origin()).partition("://")[2].removeprefix("www."), url.raw_path.rstrip("/")
    if base is not None:
        return _read_self_hosted(f"{url.origin()}{path}", base, kind)
    if host in {web_host, f"gist.{web_host}"}:
        return None
    for type_ in host_types():
        instance = type_.public(host)
        if instance is None or type_.name == "github":
            continue
        if url.scheme != "https":
            raise BadInputError("repositories, gists and commits are reached over https only")
        read = type_.read_path(host, path)
        if read is None:
            raise BadInputError(f"give a group or repository on {host}, or --type page for the page itself")
        return _named(type_, read, kind, None if instance == type_.default_url else instance)
    return None


def _read_self_hosted(address: str, base: str, kind: TargetKind | None) -> TargetName:
    """Read the address of a repository or an owner on a self-hosted code host."""
    below = address.removeprefix(base)
    if not address.startswith(base) or (below and not below.startswith("/")):
        raise BadInputError("the target is not on the code host that --host-url names")
    name = _software_of(base, address)
    type_ = find_host_type(name) if name else None
    if type_ is not None and type_.name == "github":
        return _read_enterprise(f"https://{urlsplit(base).netloc}{below}", kind, base)
    read = type_.read_path(urlsplit(base).netloc, below) if type_ else None
    if type_ is not None and read is not None:
        return _named(type_, read, kind, base)
    if type_ is None and below.count("/") >= 2 and kind in {None, TargetKind.REPOSITORY}:
        return TargetName(TargetKind.REPOSITORY, address)  # cloned without an API
    raise BadInputError("write a group on a self-hosted code host with its prefix, such as gitea:ORG")


def _read_enterprise(text: str, kind: TargetKind | None, base: str) -> TargetName:
    """Read a target on the GitHub Enterprise at `base`."""
    host = urlsplit(base).netloc
    found, name = parse_target(text, kind, web_host=host)
    if found is TargetKind.REPOSITORY:
        return TargetName(found, name.replace(f"https://{host}/", "github:"), base)
    return TargetName(found, name, base)


def _software_of(base: str, address: str) -> str | None:
    """Return the kind of code host at an address, as its host name or the path of a repository shows it."""
    if type_ := next((type_ for type_ in host_types() if type_.public(urlsplit(base).netloc)), None):
        return type_.name
    path = urlsplit(address).path
    by_path = next((name for part, name in _PATHS if part in f"{path}/"), None)
    labels = urlsplit(base).netloc.lower().split(":")[0].split(".")
    return by_path or next((name for label in labels if (name := _LABELS.get(label))), None)


def _read_other(text: str, kind: TargetKind | None, base: str | None, web_host: str) -> TargetName:
    """Read a target of GitHub, a repository on another host, or a site."""
    if base is not None:
        raise BadInputError("--host-url is for targets on a code host")
    try:
        found, name = parse_target(text, kind, web_host=web_host)
    except BadInputError as error:
        if kind is TargetKind.OWNER and "github:ORG" in error.message:
            forms = ", ".join(f"{type_.name}:{type_.owner_form}" for type_ in host_types())
            raise BadInputError(f"write a target of this kind as {forms}") from None
        raise
    if kind is None and found is TargetKind.SITE and _looks_like_code_host(name):
        raise BadInputError(
            "this looks like the address of a code host: name the instance with --host-url, "
            "or give --type site or --type page for the web pages"
        )
    return TargetName(found, name)


def _looks_like_code_host(url: str) -> bool:
    """Whether the name of the host or the path of a web address is one that code hosts have."""
    parts = urlsplit(url)
    first, *labels = (parts.hostname or "").split(".")
    own = ".".join([first, *labels[:-2]])  # `docs.github.com` is a site
    is_code = first.rstrip("0123456789") in _LABELS or _SOFTWARE.search(own) is not None
    return is_code or _CODE_PATH.search(f"{parts.path.rstrip('/')}/") is not None
