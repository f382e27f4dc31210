"""Find the sources of a target: the repositories, wikis, gists, folder or site that a run scans."""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Visibility
from outcrop.domain.scan import Gap
from outcrop.domain.target import TargetKind, TargetSpec, is_included
from outcrop.sources.code_host.host import CodeHost
from outcrop.sources.code_host.hosted import HostedGist, HostedRepository
from outcrop.sources.code_host.targets import find_public_host
from outcrop.sources.git.repository import read_origin_url
from outcrop.sources.repository_address import normalise_repository

PUSHED = "pushed"  # option of a source that is fetched even if its marker is unchanged


@dataclass(frozen=True, slots=True)
class ScanSource:
    """One source of a run: its identity, and how to reach it. It contains no credential.

    Runs store it as JSON with these field names (`source_as_json`). `host`, `host_url` and `host_key` are
    None for a source of GitHub's public API, which `github` marks.
    """

    source: str  # the identity, which stays the same when a repository is renamed
    kind: str  # git, commit, site, folder, discussions
    url: str
    html_url: str = ""
    full_name: str | None = None  # OWNER/NAME
    visibility: Visibility = Visibility.UNKNOWN
    changed: str | None = None  # a text of the host that differs after a push; None if the host has none
    gist: bool = False
    github: bool = False
    commit: str | None = None
    include: tuple[str, ...] = ()  # globs of paths to scan; none means all
    exclude: tuple[str, ...] = ()  # globs of paths to skip
    options: dict[str, Any] = field(default_factory=dict)
    host: str | None = None  # the kind of code host whose API listed it, such as `gitlab`
    host_url: str | None = None  # the address of a self-hosted instance
    host_key: str | None = None  # names its repository in requests to the host

    @property
    def host_name(self) -> str | None:
        """Return the kind of code host; None if the source is on no host that has an API."""
        return "github" if self.github else self.host

    @property
    def host_repository(self) -> str | None:
        """Return the name of its repository for requests to the host; None if it is not a repository."""
        return self.host_key or (self.full_name if self.github else None)


DISCUSSIONS = "/discussions"  # ends the name of the source of a repository's discussions
_NEW_FIELDS = ("host", "host_url", "host_key")


def source_as_json(source: ScanSource) -> dict[str, Any]:
    """Return a source as runs store it.

    Fields that an older release does not know are left out if they have no value: it can scan the source.
    """
    fields = asdict(source)
    return {name: value for name, value in fields.items() if name not in _NEW_FIELDS or value is not None}


def source_from_json(raw: dict[str, Any]) -> ScanSource:
    """Return the source that a run stores; `raw` has its fields as JSON."""
    patterns = {"include": tuple(raw["include"]), "exclude": tuple(raw["exclude"])}
    return ScanSource(**{**raw, **patterns, "visibility": Visibility(raw["visibility"])})


async def resolve_target(
    spec: TargetSpec, host: CodeHost, *, has_credential: bool, gaps: list[Gap]
) -> AsyncIterator[ScanSource]:
    """Yield the sources of a target; append a gap to `gaps` for what may not be scanned.

    `has_credential` is whether the target has its own credential. Without one `host` uses the operator's
    token, and only public repositories are scanned, and of a user's gists only the public ones. Raise
    HostError if `host` cannot list them, BadInputError if the target's name is not valid, and OperatorError
    for a commit on a host that is not known.
    """
    match spec.kind:
        case TargetKind.SITE | TargetKind.PAGE:
            yield _site_source(spec, has_credential=has_credential)
        case TargetKind.OWNER:
            async for source in _owner_sources(spec, host, has_credential=has_credential, gaps=gaps):
                yield source
        case TargetKind.FOLDER:
            yield _folder_source(spec)
        case TargetKind.GISTS:
            user = spec.name.partition(":")[2]
            async for source in _user_gists(user, spec, host, has_credential=has_credential, gaps=gaps):
                yield source
        case _:
            for source in await _single_source(spec, host, has_credential=has_credential, gaps=gaps):
                yield source


async def resolve_pushed(
    spec: TargetSpec, pushed: str, host: CodeHost, *, has_credential: bool, gaps: list[Gap]
) -> list[ScanSource]:
    """Return the source of the repository `pushed` (address or name), which the target covers; no wiki.

    Return [] and append a gap to `gaps` if the target's options leave the repository out, or as in
    `resolve_target`. The host's answer decides, not what a push says. Raise HostError as there.
    """
    if spec.kind is not TargetKind.OWNER:
        found = await _single_source(spec, host, has_credential=has_credential, gaps=gaps)
    else:
        path = host.path_of(pushed) if "://" in pushed else pushed
        if host.name == "bitbucket" and path.count("/") > 1:  # the clone URLs of Data Center have `/scm`
            path = path.removeprefix("scm/")
        repository = await host.repository(path)
        if not _belongs_to(repository, spec.name.partition(":")[2]) or not _is_selected(repository, spec):
            gaps.append(Gap(repository.full_name, "was pushed to, but the target leaves it out"))
            return []
        found = _with_wiki(repository, spec, host, has_credential=has_credential, gaps=gaps)
    # The marker has whole seconds, and a second push may come in the same one: the refs are always fetched.
    return [
        replace(source, options=source.options | {PUSHED: True})
        for source in found
        if source.kind != "discussions" and not source.options.get("wiki")
    ]


def _belongs_to(repository: HostedRepository, owner: str) -> bool:
    """Whether a repository is one of an owner or its groups: the host may know it by a former name."""
    below = f"{owner.lower()}/"
    path = urlsplit(normalise_repository(repository.clone_url) or "").path
    return repository.full_name.lower().startswith(below) or f"/{below}" in path


async def _owner_sources(
    spec: TargetSpec, host: CodeHost, *, has_credential: bool, gaps: list[Gap]
) -> AsyncIterator[ScanSource]:
    """Yield the selected repositories of a user, organisation or group, with wikis and gists by its options.

    Empty repositories are left out. `has_credential` and `gaps` are as in `resolve_target`.
    """
    owner = spec.name.partition(":")[2]
    async for repository in host.repositories(owner):
        if _is_selected(repository, spec):
            for source in _with_wiki(repository, spec, host, has_credential=has_credential, gaps=gaps):
                yield source
    if spec.options.get("gists"):
        async for source in _user_gists(owner, spec, host, has_credential=has_credential, gaps=gaps):
            yield source


async def _user_gists(
    owner: str, spec: TargetSpec, host: CodeHost, *, has_credential: bool, gaps: list[Gap]
) -> AsyncIterator[ScanSource]:
    """Yield the gists of the user `owner`; the secret ones only if `has_credential`.

    The operator's token may belong to that user and list secret gists. For these, one gap without their names
    is appended to `gaps`, because anybody who knows the id of a secret gist can read it.
    """
    has_secret = False
    async for gist in host.gists(owner):
        if not _is_truthful(host, gaps, gist.id, gist.html_url, gist.clone_url):
            continue
        if gist.public or has_credential:
            yield _gist_source(gist, spec, host)
        else:
            has_secret = True
    if has_secret:
        gaps.append(
            Gap(f"secret gists of {owner}", "are not public: the target needs a credential of its own")
        )


async def _single_source(
    spec: TargetSpec, host: CodeHost, *, has_credential: bool, gaps: list[Gap]
) -> list[ScanSource]:
    """Return the source of a target that is one repository (with its wiki), gist or commit.

    `has_credential` and `gaps` are as in `resolve_target`; the result is [] if the repository is empty or may
    not be scanned. A gist is returned even if it is secret. Raise OperatorError for a commit on a host that
    is not GitHub.
    """
    path = host.path_of(spec.name)
    is_gist = spec.kind is TargetKind.GIST
    is_own = "://" not in spec.name or host.is_own_host(spec.name)
    if not (is_own or (is_gist and _is_gist_host(spec.name))):
        if spec.kind is TargetKind.COMMIT:
            raise OperatorError("a single commit can be scanned on a known code host only")
        return [_other_host_source(spec, has_credential=has_credential)]
    if is_gist:
        gist = await host.gist(path.rpartition("/")[2])
        is_truthful = _is_truthful(host, gaps, gist.id, gist.html_url, gist.clone_url)
        return [_gist_source(gist, spec, host)] if is_truthful else []
    if spec.kind is TargetKind.COMMIT:
        full_name, _, sha = path.rpartition("/commit/")
        full_name = full_name.removesuffix("/-")  # as GitLab writes it
        commit = await host.commit(full_name, sha)
        if not _may_scan(commit.repository, host, has_credential=has_credential, gaps=gaps):
            return []
        return [_repository_source(commit.repository, spec, host, commit=commit.sha)]
    return _with_wiki(await host.repository(path), spec, host, has_credential=has_credential, gaps=gaps)


def _is_gist_host(url: str) -> bool:
    """Whether the host name of the URL begins with `gist.`, as that of GitHub's gists does."""
    return (urlsplit(url).hostname or "").startswith("gist.")


def _is_selected(repository: HostedRepository, spec: TargetSpec) -> bool:
    """Whether the options and patterns of an owner target select this repository.

    Forks need the option `forks`, and archived repositories are out if the option `archived` is off.
    OWNER/NAME or NAME must match an `include` pattern, if there are any, and neither may match an `exclude`
    pattern. Upper and lower case are the same.
    """
    if repository.is_wiki and not spec.options.get("wikis", True):
        return False
    if repository.fork and not spec.options.get("forks"):
        return False
    if repository.archived and not spec.options.get("archived", True):
        return False
    name = repository.full_name.lower()
    include, exclude = (
        [pattern.lower() for pattern in patterns] for patterns in (spec.include, spec.exclude)
    )
    return is_included(include, exclude, name, name.partition("/")[2], name.rpartition("/")[2])


def _with_wiki(
    repository: HostedRepository,
    spec: TargetSpec,
    host: CodeHost,
    *,
    has_credential: bool,
    gaps: list[Gap],
) -> list[ScanSource]:
    """Return the sources of a repository and, by the options of `spec`, its discussions and its wiki.

    Also an empty repository may have the last two. Return [] if it may not be scanned, which is added to
    `gaps`. `has_credential` is as in `resolve_target`.
    """
    if not _may_scan(repository, host, has_credential=has_credential, gaps=gaps):
        return []
    sources = [] if repository.empty else [_repository_source(repository, spec, host)]
    if spec.options.get("discussions") and not repository.is_wiki:
        sources.append(_discussions_source(repository, spec, host))
    if repository.has_wiki and spec.options.get("wikis", True):
        sources.append(_wiki_source(repository, spec, host))
    return sources


def _is_truthful(host: CodeHost, gaps: list[Gap], what: str, *urls: str | None) -> bool:
    """Whether a host does not say that something of its own is at another, public code host.

    Findings belong to these addresses: a false one would let the host resolve or take over the findings of
    somebody else's repository. Another name of the host itself is no public host. If not, append a gap.
    """
    for url in filter(None, urls):
        site = (urlsplit(url).hostname or "").removeprefix("gist.")
        if not host.is_own_host(f"https://{site}/") and find_public_host(site) is not None:
            gaps.append(Gap(what, f"the host says that this is at {site}, which is another host"))
            return False
    return True


def _may_scan(repository: HostedRepository, host: CodeHost, *, has_credential: bool, gaps: list[Gap]) -> bool:
    """Whether a run may scan a repository: if it is public, or if the target has its own credential.

    If not, append a gap to `gaps`: the operator's token must not be used for a repository that is not public.
    """
    addresses = repository.html_url, repository.clone_url, repository.wiki_url
    if not _is_truthful(host, gaps, repository.full_name, *addresses):
        return False
    if repository.visibility is Visibility.PUBLIC or has_credential:
        return True
    gaps.append(Gap(repository.full_name, "is not public: the target needs a credential of its own"))
    return False


def _path_patterns(spec: TargetSpec, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns, or () for an owner target, whose patterns select repositories and not paths."""
    return () if spec.kind is TargetKind.OWNER else patterns


# --- One source of each kind


def _site_source(spec: TargetSpec, *, has_credential: bool) -> ScanSource:
    """Return the source of a site, or of a page, which is a site with depth 0.

    Its URL may be one that is encrypted beside the run: then it begins with ENCRYPTED.
    Its visibility is public without a credential, and unknown with one.
    """
    parts = urlsplit(spec.shown)
    return ScanSource(
        f"{parts.scheme}://{parts.netloc}",
        "site",
        spec.name,
        html_url=spec.shown,
        visibility=Visibility.UNKNOWN if has_credential else Visibility.PUBLIC,
        include=spec.include,
        exclude=spec.exclude,
        options=spec.options | ({"depth": 0} if spec.kind is TargetKind.PAGE else {}),
    )


def _repository_source(
    repository: HostedRepository, spec: TargetSpec, host: CodeHost, commit: str | None = None
) -> ScanSource:
    """Return the source of a repository, or of the commit with the id `commit` in it.

    `spec` is the target, whose path patterns the source gets.
    """
    source = ScanSource(
        host.source_of(repository),
        "commit" if commit else "git",
        repository.clone_url,
        html_url=repository.html_url,
        full_name=repository.full_name,
        visibility=repository.visibility,
        changed=repository.change_marker,
        github=host.name == "github",
        commit=commit,
        include=_path_patterns(spec, spec.include),
        exclude=_path_patterns(spec, spec.exclude),
    )
    return _on_host(source, spec, host, repository.key or repository.full_name)


def _on_host(source: ScanSource, spec: TargetSpec, host: CodeHost, key: str | None = None) -> ScanSource:
    """Return a source with the host that lists it, unless that is GitHub's public API.

    `key` is the name of its repository for later requests; None for a wiki or a gist.
    """
    if host.name == "github" and spec.host_url is None:
        return source
    return replace(source, host=host.name, host_url=spec.host_url, host_key=key)


def _wiki_source(repository: HostedRepository, spec: TargetSpec, host: CodeHost) -> ScanSource:
    """Return the source of a repository's wiki, which is a git repository of its own.

    `spec` is the target, whose path patterns the source gets.
    """
    source = ScanSource(
        f"{host.source_of(repository)}/wiki",
        "git",
        repository.wiki_url or repository.clone_url.removesuffix(".git") + ".wiki.git",
        html_url=f"{repository.html_url}/wiki",
        full_name=repository.full_name,
        visibility=repository.visibility,
        options={"wiki": True},
        include=_path_patterns(spec, spec.include),
        exclude=_path_patterns(spec, spec.exclude),
    )
    return _on_host(source, spec, host)


def _discussions_source(repository: HostedRepository, spec: TargetSpec, host: CodeHost) -> ScanSource:
    """Return the source of a repository's issues, merge or pull requests and comments.

    Its address is no repository: a release that does not know this kind of source cannot clone it.
    """
    source = ScanSource(
        f"{host.source_of(repository)}{DISCUSSIONS}",
        "discussions",
        f"{repository.html_url}/-discussions",
        html_url=repository.html_url,
        full_name=repository.full_name,
        visibility=repository.visibility,
        github=host.name == "github",
    )
    return _on_host(source, spec, host, repository.key or repository.full_name)


def _gist_source(gist: HostedGist, spec: TargetSpec, host: CodeHost) -> ScanSource:
    """Return the source of a gist or snippet."""
    source = ScanSource(
        host.source_of_gist(gist),
        "git",
        gist.clone_url,
        html_url=gist.html_url,
        full_name=f"{gist.owner}/{gist.id}" if gist.owner else None,
        # A secret gist is not private: everybody who has its address can read it.
        visibility=Visibility.PUBLIC if gist.public else Visibility.UNKNOWN,
        changed=gist.updated_at,
        gist=True,
    )
    return _on_host(source, spec, host)


def _folder_source(spec: TargetSpec) -> ScanSource:
    """Return the source of a local folder; its identity is the URL of its remote `origin` or its path."""
    origin = read_origin_url(Path(spec.name))
    return ScanSource(
        origin or f"file://{spec.name}",
        "folder",
        spec.name,
        html_url=origin or "",
        include=spec.include,
        exclude=spec.exclude,
    )


def _other_host_source(spec: TargetSpec, *, has_credential: bool) -> ScanSource:
    """Return the source of a repository or gist on a host whose API we do not use.

    Its visibility is public without a credential, and unknown with one.
    """
    address = spec.name.removesuffix("/").removesuffix(".git")
    parts = urlsplit(address)
    name = "/".join(parts.path.strip("/").split("/")[-2:])
    return ScanSource(
        f"{parts.scheme}://{parts.netloc.lower()}{parts.path}",
        "git",
        spec.name,
        html_url=address,
        full_name=name if "/" in name else None,
        visibility=Visibility.UNKNOWN if has_credential else Visibility.PUBLIC,
        gist=spec.kind is TargetKind.GIST,
        include=_path_patterns(spec, spec.include),
        exclude=_path_patterns(spec, spec.exclude),
    )
