"""What an address, or a name at GitHub, stands for: one repository or site after the other. A scan of files loads none of it."""

from collections.abc import Iterator

from outcrop.domain.errors import OperatorError
from outcrop.domain.line import one_line
from outcrop.domain.scan import Gap
from outcrop.domain.target import OPTIONS, TargetKind, TargetSpec, parse_target
from outcrop.services.local_scan.options import ScanOptions, TargetInfo
from outcrop.services.local_scan.repository import scan_remote
from outcrop.sources.git.clone import Remote
from outcrop.sources.located import ProgressCallback, ScanOutcome
from outcrop.sources.remote import list_sources, scan_site
from outcrop.sources.resolve_target import ScanSource


def scan_remote_target(
    target: str, options: ScanOptions, progress: ProgressCallback, told: list[tuple[str, str]]
) -> Iterator[tuple[ScanOutcome, TargetInfo]]:
    """Scan what an address, or a name at GitHub, stands for: one repository or site after the other."""
    if options.reach is None:
        raise OperatorError(f"{target}: only what is on this machine can be scanned here")
    remote = Remote.parse(target) if target.startswith("https://") else None
    kind, name = parse_target(remote.url if remote else target, options.kind, web_host=options.web_host)
    gaps: list[Gap] = []
    if remote and remote.login and kind is TargetKind.REPOSITORY:
        found_here = [
            ScanSource(
                name, "git", remote.url, html_url=name.removesuffix(".git"), full_name=_full_name(name)
            )
        ]
    else:
        found_here = list_sources(TargetSpec(kind, name, options=dict(OPTIONS[kind])), options.reach, gaps)
    told += [(one_line(gap.what), one_line(gap.why)) for gap in gaps]
    for found in found_here:
        place = TargetInfo(
            found.source, found.html_url or found.url, found.full_name, found.visibility, found.gist
        )
        if found.kind == "site":
            yield scan_site(found, options.reach, options.ruleset, options.floor, progress), place
            continue
        login = remote.login if remote else None
        try:
            yield scan_remote(
                found,
                options.reach.clone_remote(found) if login is None else Remote(found.url, login),
                place,
                options,
                progress,
            )
        except OperatorError as error:
            if len(found_here) == 1:
                raise
            told.append((one_line(found.full_name or found.url), one_line(error.message)))


def _full_name(url: str) -> str | None:
    parts = url.partition("://")[2].removesuffix("/").removesuffix(".git").split("/")[1:]
    return "/".join(parts[-2:]) if len(parts) >= 2 else None
