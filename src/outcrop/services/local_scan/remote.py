"""Scan the repositories or the site of a remote target. A scan of local files does not import this module."""

from collections.abc import Iterator

from outcrop.domain.errors import OperatorError
from outcrop.domain.line import one_line
from outcrop.domain.scan import Gap
from outcrop.domain.target import TargetKind, TargetSpec, scan_options
from outcrop.services.local_scan.options import ScanOptions, TargetInfo
from outcrop.services.local_scan.repository import scan_remote_repository
from outcrop.sources.code_host.targets import read_target
from outcrop.sources.git.clone import Remote
from outcrop.sources.located import ProgressCallback, ScanOutcome
from outcrop.sources.remote import RemoteAccess, list_sources, scan_discussions, scan_site
from outcrop.sources.resolve_target import ScanSource


def scan_remote_target(
    target: str, options: ScanOptions, progress: ProgressCallback, gaps: list[tuple[str, str]]
) -> Iterator[tuple[ScanOutcome, TargetInfo]]:
    """Scan all sources of an address or a GitHub name; yield the outcome of each.

    A source that cannot be scanned becomes a gap. If it is the only one, its error is raised.
    """
    if options.access is None:
        raise OperatorError(f"{target}: only files on this machine can be scanned here")
    remote = Remote.parse(target) if target.startswith("https://") else None
    login = remote.login if remote else None
    sources = _list_sources(target, remote, options, options.access, gaps)
    for source in sources:
        info = TargetInfo(
            source.source,
            source.html_url or source.url,
            source.full_name,
            source.visibility,
            source.gist,
            host=source.host_name,
            repo=None if source.kind == "site" else source.html_url or source.url,
        )
        if source.kind == "discussions":
            yield (
                scan_discussions(source, options.access, options.ruleset, options.min_confidence, progress),
                info,
            )
            continue
        if source.kind == "site":
            access = options.access
            yield scan_site(source, access, options.ruleset, options.min_confidence, progress), info
            continue
        clone_url = options.access.clone_remote(source) if login is None else Remote(source.url, login)
        try:
            scanned = scan_remote_repository(source, clone_url, info, options, progress)
        except OperatorError as error:
            if len(sources) == 1:
                raise
            gaps.append((one_line(source.full_name or source.url), one_line(error.message)))
        else:
            yield scanned


def _list_sources(
    target: str,
    remote: Remote | None,
    options: ScanOptions,
    access: RemoteAccess,
    gaps: list[tuple[str, str]],
) -> list[ScanSource]:
    """Return the sources of a target; append those that may not be scanned to `gaps`.

    The address of a repository with a user name and password is cloned as it is, without the host's API.
    """
    kind, name, host_url = read_target(
        remote.url if remote else target, options.kind, host_url=options.host_url, web_host=options.web_host
    )
    if remote and remote.login and kind is TargetKind.REPOSITORY:
        html_url = name.removesuffix(".git")
        return [ScanSource(name, "git", remote.url, html_url=html_url, full_name=_full_name(name))]
    skipped: list[Gap] = []
    spec = TargetSpec(
        kind, name, options=scan_options(kind, discussions=options.discussions), host_url=host_url
    )
    sources = list_sources(spec, access, skipped)
    gaps += [(one_line(gap.what), one_line(gap.why)) for gap in skipped]
    return sources


def _full_name(url: str) -> str | None:
    """Return the last two parts of an address's path, OWNER/NAME; None if it has fewer."""
    parts = url.partition("://")[2].removesuffix("/").removesuffix(".git").split("/")[1:]
    return "/".join(parts[-2:]) if len(parts) >= 2 else None
