"""What a target consists of: the repositories, gists and sites that a run looks at."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Visibility
from outcrop.domain.scan import Gap
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.sources.git.repository import origin_of
from outcrop.sources.hosts.github import GitHub
from outcrop.sources.hosts.hosted import HostedGist, HostedRepository


@dataclass(frozen=True, slots=True)
class ScanSource:
    """A source of a run: what identifies it, and how to reach it. It holds no credential."""

    source: str
    kind: str  # git, commit, site, folder
    url: str
    html_url: str = ""
    full_name: str | None = None
    visibility: Visibility = Visibility.UNKNOWN
    changed: str | None = None  # the host's word for "may have changed since"
    gist: bool = False
    github: bool = False
    commit: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


async def resolve_target(
    spec: TargetSpec, host: GitHub, *, has_credential: bool, gaps: list[Gap]
) -> AsyncIterator[ScanSource]:
    """Give what a target consists of. `has_credential`: it has a credential of its own, so that what is not public may be looked at."""
    match spec.kind:
        case TargetKind.SITE | TargetKind.PAGE:
            yield _site(spec, has_credential=has_credential)
        case TargetKind.OWNER:
            async for found in _of_owner(spec, host, has_credential=has_credential, gaps=gaps):
                yield found
        case TargetKind.FOLDER:
            yield _folder(spec)
        case TargetKind.GISTS:
            async for found in _of_gists(
                spec.name.removeprefix("gists:"), host, has_credential=has_credential, gaps=gaps
            ):
                yield found
        case _:
            for found in await _single(spec, host, has_credential=has_credential, gaps=gaps):
                yield found


async def _of_owner(
    spec: TargetSpec, host: GitHub, *, has_credential: bool, gaps: list[Gap]
) -> AsyncIterator[ScanSource]:
    owner = spec.name.removeprefix("github:")
    async for repository in host.repositories(owner):
        for found in _wanted(repository, spec, has_credential=has_credential, gaps=gaps):
            yield found
    if spec.options.get("gists"):
        async for found in _of_gists(owner, host, has_credential=has_credential, gaps=gaps):
            yield found


async def _of_gists(
    owner: str, host: GitHub, *, has_credential: bool, gaps: list[Gap]
) -> AsyncIterator[ScanSource]:
    """Give a user's gists. The operator's token may be that user's: what is shown to it alone is not even named, as a name opens it."""
    hidden = False
    async for gist in host.gists(owner):
        if gist.public or has_credential:
            yield _gist(gist)
        else:
            hidden = True
    if hidden:
        gaps.append(
            Gap(f"secret gists of {owner}", "are not public: the target needs a credential of its own")
        )


async def _single(
    spec: TargetSpec, host: GitHub, *, has_credential: bool, gaps: list[Gap]
) -> list[ScanSource]:
    path = urlsplit(spec.name).path.strip("/").removesuffix(".git")
    if not (host.is_own_host(spec.name) or (spec.kind is TargetKind.GIST and is_gist_host(spec.name))):
        if spec.kind is TargetKind.COMMIT:
            raise OperatorError("a single commit is looked at on GitHub only")
        return [_plain(spec, has_credential=has_credential)]
    if spec.kind is TargetKind.GIST:
        return [_gist(await host.gist(path.rpartition("/")[2]))]
    if spec.kind is TargetKind.COMMIT:
        full_name, _, sha = path.partition("/commit/")
        commit = await host.commit(full_name, sha)
        return (
            [_repository(commit.repository, spec, commit=commit.sha)]
            if _may_see(commit.repository, has_credential=has_credential, gaps=gaps)
            else []
        )
    return _wanted(await host.repository(path), spec, has_credential=has_credential, gaps=gaps)


def is_gist_host(address: str) -> bool:
    return (urlsplit(address).hostname or "").startswith("gist.")


def _site(spec: TargetSpec, *, has_credential: bool) -> ScanSource:
    parts = urlsplit(spec.name)
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


def _wanted(
    repository: HostedRepository, spec: TargetSpec, *, has_credential: bool, gaps: list[Gap]
) -> list[ScanSource]:
    """Give a repository and its wiki, where the target wants them and may see them."""
    if spec.kind is TargetKind.OWNER and (
        (repository.fork and not spec.options.get("forks"))
        or (repository.archived and not spec.options.get("archived", True))
        or not _named(repository.full_name, spec)
    ):
        return []
    if not _may_see(repository, has_credential=has_credential, gaps=gaps) or repository.empty:
        return []
    found = [_repository(repository, spec)]
    if repository.has_wiki and spec.options.get("wikis", True):
        found.append(_wiki(repository, spec))
    return found


def _may_see(repository: HostedRepository, *, has_credential: bool, gaps: list[Gap]) -> bool:
    """Tell whether a run may look at a repository: the operator's token is for public ones only."""
    if repository.visibility is Visibility.PUBLIC or has_credential:
        return True
    gaps.append(Gap(repository.full_name, "is not public: the target needs a credential of its own"))
    return False


def _named(full_name: str, spec: TargetSpec) -> bool:
    """Match patterns against OWNER/NAME or NAME alone."""
    names = (full_name.lower(), full_name.lower().partition("/")[2])

    def matches(patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(name, pattern.lower()) for name in names for pattern in patterns)

    return (not spec.include or matches(spec.include)) and not matches(spec.exclude)


def _over_paths(spec: TargetSpec, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Give the patterns over paths: those of an owner are over repositories."""
    return () if spec.kind is TargetKind.OWNER else patterns


def _repository(repository: HostedRepository, spec: TargetSpec, commit: str | None = None) -> ScanSource:
    host = urlsplit(repository.html_url).netloc.lower()
    return ScanSource(
        f"{host}/repositories/{repository.id}",
        "commit" if commit else "git",
        repository.clone_url,
        html_url=repository.html_url,
        full_name=repository.full_name,
        visibility=repository.visibility,
        changed=repository.pushed_at and f"{repository.pushed_at} {repository.default_branch}",
        github=True,
        commit=commit,
        include=_over_paths(spec, spec.include),
        exclude=_over_paths(spec, spec.exclude),
    )


def _wiki(repository: HostedRepository, spec: TargetSpec) -> ScanSource:
    host = urlsplit(repository.html_url).netloc.lower()
    return ScanSource(
        f"{host}/repositories/{repository.id}/wiki",
        "git",
        repository.clone_url.removesuffix(".git") + ".wiki.git",
        html_url=f"{repository.html_url}/wiki",
        full_name=repository.full_name,
        visibility=repository.visibility,
        options={"wiki": True},
        include=_over_paths(spec, spec.include),
        exclude=_over_paths(spec, spec.exclude),
    )


def _gist(gist: HostedGist) -> ScanSource:
    host = urlsplit(gist.html_url).netloc.lower()
    return ScanSource(
        f"{host}/gists/{gist.id}",
        "git",
        gist.clone_url,
        html_url=gist.html_url,
        full_name=f"{gist.owner}/{gist.id}" if gist.owner else None,
        # A secret gist is open to everybody who has its address.
        visibility=Visibility.PUBLIC if gist.public else Visibility.UNKNOWN,
        changed=gist.updated_at,
        gist=True,
    )


def _folder(spec: TargetSpec) -> ScanSource:
    """Give a folder on this machine: what identifies it is where it was cloned from, else its path."""
    origin = origin_of(Path(spec.name))
    return ScanSource(
        origin or f"file://{spec.name}",
        "folder",
        spec.name,
        html_url=origin or "",
        include=spec.include,
        exclude=spec.exclude,
    )


def _plain(spec: TargetSpec, *, has_credential: bool) -> ScanSource:
    """Give a repository, or a gist-like one, on a host whose API is not asked."""
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
        include=_over_paths(spec, spec.include),
        exclude=_over_paths(spec, spec.exclude),
    )
