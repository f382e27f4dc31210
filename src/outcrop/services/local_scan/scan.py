"""Scan targets and collect their findings and gaps, without a database."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.domain.errors import OperatorError, OutcropError
from outcrop.domain.line import one_line
from outcrop.scanner.engine.scan import scan_stream
from outcrop.services.local_scan.address import find_address
from outcrop.services.local_scan.allowed import DETECT_SECRETS_FILE, GITLEAKS_FILE, SourceMarks
from outcrop.services.local_scan.findings import LocalFinding, describe_findings
from outcrop.services.local_scan.options import (
    IGNORE_FILE,
    ScanOptions,
    TargetInfo,
    TargetType,
    read_ignore_file,
    read_source_file,
)
from outcrop.services.local_scan.selection import Selection
from outcrop.sources import files
from outcrop.sources.budget import SourceBudget
from outcrop.sources.git.repository import find_git_folder, has_missing_git_folder
from outcrop.sources.gitignore import IgnorePatterns
from outcrop.sources.located import (
    LocatedHit,
    ProgressCallback,
    ScanOutcome,
    applicable_hits,
    member_path,
    printable_path,
)

STDIN_PATH = b"-"


@dataclass(slots=True)
class ScanReport:
    """The findings, gaps and counts of all targets."""

    findings: list[LocalFinding] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)  # what was skipped, and the reason
    unprinted: list[LocalFinding] = field(default_factory=list)  # hidden or filtered; a report has them
    failures: list[str] = field(default_factory=list)  # messages of targets that could not be read at all
    files: int = 0
    size: int = 0
    commits: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # findings, by what leaves them out


def scan(targets: list[str], options: ScanOptions, progress: ProgressCallback) -> ScanReport:
    """Scan targets in order. A target that cannot be read at all is added to `failures`."""
    report = ScanReport()
    baseline = Counter(options.baseline)
    for target in targets:
        try:
            for outcome, info in _scan_target(target, options, progress, report.gaps):
                outcome.located = [hit for hit in outcome.located if _is_selected(hit, options)]
                outcome.limit(options.limits.findings)
                report.gaps += outcome.gaps
                report.files += outcome.files
                report.size += outcome.size
                report.commits += outcome.commits
                for finding in describe_findings(outcome.located, info, options, baseline, report.left_out):
                    (report.unprinted if finding.is_hidden else report.findings).append(finding)
        except OutcropError as error:
            report.failures.append(one_line(error.message))
        except OSError as error:  # such as a full disk, which need not affect the next target
            report.failures.append(_os_error_message(target, error))
    return report


def _is_selected(located: LocatedHit, options: ScanOptions) -> bool:
    """Whether the options select the path and the rule of a hit. Standard input has no path to select."""
    is_file = located.file_path != STDIN_PATH
    return options.selection.selects_rule(located.hit.rule.id) and (
        not is_file or options.selection.selects(located.file_path)
    )


def _scan_target(
    target: str, options: ScanOptions, progress: ProgressCallback, gaps: list[tuple[str, str]]
) -> Iterator[tuple[ScanOutcome, TargetInfo]]:
    """Scan one target; yield the outcome of each of its sources. Skipped remote sources go to `gaps`."""
    if not target:  # an unset variable in a script; Path("") would be the current folder
        raise OperatorError("a target has an empty name")
    type_ = "remote" if _is_remote(target) else options.type or _guess_type(target)
    if type_ == "stdin":
        yield _scan_stdin(options), TargetInfo("-")
    elif type_ == "git":
        # Imported late, because a scan of files must start fast.
        from outcrop.services.local_scan.repository import scan_local_repository  # noqa: PLC0415

        yield scan_local_repository(target, options, progress)
    elif options.staged or (options.needs_history and type_ == "folder"):
        name = printable_path(os.fsencode(target))
        raise OperatorError(
            f"{name}: is not a git repository on this machine, so there is nothing staged and no history"
        )
    elif type_ == "remote":
        from outcrop.services.local_scan.remote import scan_remote_target  # noqa: PLC0415

        yield from scan_remote_target(target, options, progress, gaps)
    else:
        yield _scan_folder(target, options, progress)


def _os_error_message(target: str, error: OSError) -> str:
    """Return the message of a target that the operating system cannot read."""
    return f"{printable_path(os.fsencode(target))}: {(error.strerror or 'cannot be read').lower()}"


def _is_remote(target: str) -> bool:
    """Whether a target is a web address, or the name of an owner on a code host."""
    if target.startswith(("https://", "http://")):
        return True
    if ":" not in target:
        return False
    from outcrop.sources.code_host.targets import is_remote  # noqa: PLC0415 - a scan of files starts fast

    return is_remote(target)


def _guess_type(target: str) -> TargetType:
    """Return the type of a local target: standard input, a git repository, or a folder or file."""
    if target == "-":
        return "stdin"
    if "://" in target or target.startswith("git@"):
        raise OperatorError(f"{_without_user(target)}: only https addresses can be cloned")
    try:
        path = Path(target)
        return "git" if path.is_dir() and find_git_folder(path) else "folder"
    except OSError as error:  # a name that is too long
        raise OperatorError(_os_error_message(target, error)) from None


def _scan_stdin(options: ScanOptions) -> ScanOutcome:
    """Scan standard input as one file, named `-`."""
    size = 0

    def read(count: int) -> bytes:
        """Read up to `count` bytes of standard input and count them."""
        nonlocal size
        data = options.stdin.read(count) if options.stdin else b""
        size += len(data)
        return data

    content = scan_stream(options.ruleset, read, options.min_confidence)
    outcome = ScanOutcome(
        located=[
            LocatedHit(hit, member_path(STDIN_PATH, inner), inner=inner)
            for inner, hit in applicable_hits(content, STDIN_PATH)
        ],
        files=1,
        size=size,
    )
    for reason in content.gaps:
        outcome.gap("-", reason)
    return outcome


def _scan_folder(
    target: str, options: ScanOptions, progress: ProgressCallback
) -> tuple[ScanOutcome, TargetInfo]:
    """Scan a file, or the files of a folder that its ignore file does not exclude."""
    path = Path(target)
    try:
        path.stat()
    except OSError as error:
        raise OperatorError(_os_error_message(target, error)) from None
    has_marks = path.is_dir() and not options.ignore_marks
    patterns = read_ignore_file(path / IGNORE_FILE) if has_marks else None
    folder = files.FolderScan(
        path,
        options.ruleset,
        options.min_confidence,
        options.jobs,
        _path_filter(None if options.keeps_hidden else patterns, options.selection),
        gitignore=options.gitignore,
        listed=None if options.selection.files is None else sorted(options.selection.files),
    )
    with SourceBudget(options.limits).watch() as budget:
        outcome = files.scan_folder(folder._replace(budget=budget), progress)
    if has_missing_git_folder(path):
        outcome.gap(
            ".git", "names a git folder that does not exist: the files are scanned, not their history"
        )
    info = TargetInfo(os.path.realpath(path))
    if options.keeps_hidden:
        info = info._replace(repo=find_address(path))
        if patterns is not None:
            info = info._replace(is_ignored=patterns.ignores_path_or_parent)
    if has_marks:
        files_of_others = (
            read_source_file(path / name) or b"" for name in (GITLEAKS_FILE, DETECT_SECRETS_FILE)
        )
        info = info._replace(marks=SourceMarks.parse(*files_of_others))
    return outcome, info


def _path_filter(patterns: IgnorePatterns | None, selection: Selection) -> Callable[[bytes], bool]:
    """Return the function that says which paths are skipped; those of folders end with a slash."""
    if patterns is None:
        return selection.skips
    return lambda path: patterns.ignores(path) or selection.skips(path)


def _without_user(url: str) -> str:
    """Return a URL without user name and password."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
