"""Scan local and cloned repositories. A scan of local files does not import this module."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from outcrop.domain.errors import OperatorError
from outcrop.services.local_scan.address import find_address
from outcrop.services.local_scan.allowed import DETECT_SECRETS_FILE, GITLEAKS_FILE, SourceMarks
from outcrop.services.local_scan.options import (
    IGNORE_FILE,
    ScanOptions,
    TargetInfo,
    ignore_nothing,
    read_source_file,
)
from outcrop.sources.budget import SourceBudget
from outcrop.sources.git import changes
from outcrop.sources.git import scan as git_scan
from outcrop.sources.git.clone import COMMIT_REF, Remote, clone, fetch_commit
from outcrop.sources.git.objects import read_file_at_head
from outcrop.sources.git.repository import Repository, find_git_folder, open_local
from outcrop.sources.git.revisions import resolve_revision
from outcrop.sources.gitignore import IgnorePatterns
from outcrop.sources.located import ProgressCallback, ScanOutcome, printable_path
from outcrop.sources.workspace import work_folder

if TYPE_CHECKING:
    from outcrop.sources.resolve_target import ScanSource


def scan_local_repository(
    target: str, options: ScanOptions, progress: ProgressCallback
) -> tuple[ScanOutcome, TargetInfo]:
    """Scan a repository on this machine: its staged changes, the commits after a revision, or its history."""
    git_folder = find_git_folder(Path(target))
    if git_folder is None:
        raise OperatorError(f"{printable_path(os.fsencode(target))}: is not a git repository")
    with work_folder(options.work) as work, SourceBudget(options.limits).watch(work) as budget:
        quarantine = options.push.quarantine if options.push else None
        repository = open_local(git_folder, work, budget, quarantine)
        repo = find_address(Path(target)) if options.keeps_hidden else None
        found = TargetInfo(os.path.realpath(target), repo=repo)
        info = _with_marks(found, repository, options, Path(target))
        cache_key = os.fsencode(os.path.realpath(git_folder))
        scan = git_scan.GitScan(
            repository,
            options.ruleset,
            options.min_confidence,
            options.jobs,
            progress,
            options.cache,
            cache_key,
            options.selection.selects,
        )
        if options.staged:
            return changes.scan_staged(scan, git_folder, _find_index(Path(target), git_folder)), info
        return _scan_commits(scan, options), info


def _scan_commits(scan: git_scan.GitScan, options: ScanOptions) -> ScanOutcome:
    """Scan the commits that the options name: those between two revisions, after a revision, or all."""
    repository = scan.repository
    if options.push is not None:
        refs = [oid for name, oid in repository.refs.items() if name.startswith(options.push.known_refs)]
        return changes.scan_pushed(scan, options.push.tips, list(dict.fromkeys([*options.push.old, *refs])))
    if options.from_ref and options.to_ref:
        is_new = not options.from_ref.strip("0")  # how git and CI systems write that a branch did not exist
        since = None if is_new else resolve_revision(repository, options.from_ref, "--from-ref")
        return changes.scan_since(scan, since, resolve_revision(repository, options.to_ref, "--to-ref"))
    if options.since:
        return changes.scan_since(scan, resolve_revision(repository, options.since))
    return git_scan.scan_history(scan)


def list_staged_files(target: str, work_in: Path) -> set[bytes]:
    """Return the paths of the files that are staged in a working tree, relative to it.

    `work_in` is the folder for temporary files. Raise OperatorError if the target is no repository.
    """
    git_folder = find_git_folder(Path(target))
    if git_folder is None:
        raise OperatorError(f"{printable_path(os.fsencode(target))}: is not a git repository")
    with work_folder(work_in) as work:
        repository = open_local(git_folder, work)
        return changes.list_staged_paths(repository, git_folder, _find_index(Path(target), git_folder))


def _find_index(target: Path, git_folder: Path) -> Path:
    """Return the index file of the next commit.

    In a hook, git names it in GIT_INDEX_FILE: `commit -a` and `commit FILE` use a temporary one. The variable
    counts only if it belongs to this repository.
    """
    index = Path(os.environ.get("GIT_INDEX_FILE") or git_folder / "index")
    is_in_git_folder = os.path.realpath(index.parent) == os.path.realpath(git_folder)
    is_own = is_in_git_folder or os.path.realpath(target) == os.path.realpath(".")
    return index if is_own and index.is_file() else git_folder / "index"


def scan_remote_repository(
    source: "ScanSource",
    remote: Remote,
    info: TargetInfo,
    options: ScanOptions,
    progress: ProgressCallback,
) -> tuple[ScanOutcome, TargetInfo]:
    """Clone a repository and scan it: one commit, the commits after a revision, or its history.

    Return `info` with what files of the cloned HEAD leave out.
    """
    assert options.access is not None  # noqa: S101 - checked by the caller
    with work_folder(options.work) as work, SourceBudget(options.limits).watch(work) as budget:
        if source.commit:
            repository = fetch_commit(remote, source.commit, work, options.access.egress, budget)
        else:
            repository = clone(remote, work, options.access.egress, budget)
        scan = git_scan.GitScan(
            repository,
            options.ruleset,
            options.min_confidence,
            options.jobs,
            progress,
            selects=options.selection.selects,
        )
        if source.commit:
            return git_scan.scan_commit(scan, repository.refs[COMMIT_REF]), info
        return _scan_commits(scan, options), _with_marks(info, repository, options)


def _with_marks(
    info: TargetInfo, repository: Repository, options: ScanOptions, working_tree: Path | None = None
) -> TargetInfo:
    """Return `info` with what files of the source leave out, unless the options ignore that.

    Each file is read at the top of the working tree, or else at HEAD.
    """
    if options.ignore_marks:
        return info

    def read(name: str) -> bytes:
        """Return the content of a file; b"" if there is none."""
        text = read_source_file(working_tree / name) if working_tree else None
        return read_file_at_head(repository, name.encode()) if text is None else text

    text = read(IGNORE_FILE)
    return info._replace(
        is_ignored=IgnorePatterns(text).ignores_path_or_parent if text else ignore_nothing,
        marks=SourceMarks.parse(read(GITLEAKS_FILE), read(DETECT_SECRETS_FILE)),
    )
