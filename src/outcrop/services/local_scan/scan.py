"""`outcrop scan` without an account: targets in, findings and gaps out, no database."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.domain.errors import OperatorError, OutcropError
from outcrop.domain.line import one_line
from outcrop.scanner.engine.scan import scan_stream
from outcrop.services.local_scan.findings import LocalFinding, describe_findings
from outcrop.services.local_scan.options import (
    IGNORE_FILE,
    ScanOptions,
    TargetInfo,
    TargetType,
    ignoring,
    nothing,
)
from outcrop.sources import files
from outcrop.sources.git.repository import find_git_folder, has_missing_git_folder
from outcrop.sources.located import (
    LocatedHit,
    ProgressCallback,
    ScanOutcome,
    hits_at_path,
    member_path,
    printable_path,
)


@dataclass(slots=True)
class ScanReport:
    """What all targets gave."""

    findings: list[LocalFinding] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # targets that could not be read at all
    files: int = 0
    size: int = 0
    commits: int = 0


def scan(targets: list[str], options: ScanOptions, progress: ProgressCallback) -> ScanReport:
    """Scan targets one after the other. One that cannot be read at all is told in `failures`; the rest is still scanned."""
    report = ScanReport()
    known = Counter(options.baseline)
    for target in targets:
        try:
            for outcome, place in _scan_target(target, options, progress, report):
                report.gaps += outcome.gaps
                report.files += outcome.files
                report.size += outcome.size
                report.commits += outcome.commits
                report.findings += describe_findings(outcome.located, place, known)
        except OutcropError as error:
            report.failures.append(one_line(error.message))
        except (
            OSError
        ) as error:  # a full disk, no more processes: what is true of this target need not be of the next
            report.failures.append(_failed(target, error))
    return report


def _scan_target(
    target: str, options: ScanOptions, progress: ProgressCallback, report: ScanReport
) -> Iterator[tuple[ScanOutcome, TargetInfo]]:
    if not target:  # a variable of a script that was not set: it would be the current folder
        raise OperatorError("a target has an empty name")
    kind = "elsewhere" if _is_elsewhere(target) else options.type or _guess(target)
    if kind == "stdin":
        yield _scan_stdin(options), TargetInfo("-")
    elif kind == "git":
        from outcrop.services.local_scan.repository import scan_git  # noqa: PLC0415 - a scan of files needs none of it

        yield scan_git(target, options, progress)
    elif options.staged or (options.since and kind == "folder"):
        name = printable_path(os.fsencode(target))
        raise OperatorError(
            f"{name}: is not a git repository on this machine, so there is nothing staged and no history"
        )
    elif kind == "elsewhere":
        from outcrop.services.local_scan.remote import scan_remote_target  # noqa: PLC0415

        yield from scan_remote_target(target, options, progress, report.gaps)
    else:
        yield _scan_folder(target, options, progress)


def _failed(target: str, error: OSError) -> str:
    return f"{printable_path(os.fsencode(target))}: {(error.strerror or 'cannot be read').lower()}"


def _is_elsewhere(target: str) -> bool:
    return target.startswith(("https://", "http://", "github:", "gists:"))


def _guess(target: str) -> TargetType:
    if target == "-":
        return "stdin"
    if "://" in target or target.startswith("git@"):
        raise OperatorError(f"{_without_user(target)}: only https addresses can be cloned")
    try:
        path = Path(target)
        return "git" if path.is_dir() and find_git_folder(path) else "folder"
    except OSError as error:  # a name that is too long
        raise OperatorError(_failed(target, error)) from None


def _scan_stdin(options: ScanOptions) -> ScanOutcome:
    size = 0

    def read(count: int) -> bytes:
        nonlocal size
        data = options.stdin.read(count) if options.stdin else b""
        size += len(data)
        return data

    found = scan_stream(options.ruleset, read, options.floor)
    outcome = ScanOutcome(
        located=[LocatedHit(hit, member_path(b"-", inner)) for inner, hit in hits_at_path(found, b"-")],
        files=1,
        size=size,
    )
    for reason in found.gaps:
        outcome.gap("-", reason)
    return outcome


def _scan_folder(
    target: str, options: ScanOptions, progress: ProgressCallback
) -> tuple[ScanOutcome, TargetInfo]:
    path = Path(target)
    try:
        path.stat()
    except OSError as error:
        raise OperatorError(_failed(target, error)) from None
    own = ignoring(path / IGNORE_FILE) if path.is_dir() else None
    work = files.FolderScan(
        path,
        options.ruleset,
        options.floor,
        options.jobs,
        own.ignores if own else nothing,
        gitignore=options.gitignore,
    )
    outcome = files.scan_folder(work, progress)
    if has_missing_git_folder(path):
        outcome.gap(".git", "names a git folder that is not there: files are read, their history is not")
    return outcome, TargetInfo(os.path.realpath(path))


def _without_user(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
