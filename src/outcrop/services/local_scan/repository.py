"""Repositories, on this machine and cloned from elsewhere. A scan of files loads none of it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from outcrop.domain.errors import OperatorError
from outcrop.services.local_scan.options import IGNORE_FILE, ScanOptions, TargetInfo, ignoring, nothing
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


def scan_git(target: str, options: ScanOptions, progress: ProgressCallback) -> tuple[ScanOutcome, TargetInfo]:
    git_folder = find_git_folder(Path(target))
    if git_folder is None:
        raise OperatorError(f"{printable_path(os.fsencode(target))}: is not a git repository")
    with work_folder(options.work) as work:
        repository = open_local(git_folder, work)
        own = ignoring(Path(target) / IGNORE_FILE)
        place = TargetInfo(
            os.path.realpath(target),
            ignored=own.ignores_path_or_parent if own else _ignoring_at_head(repository),
        )
        key = os.fsencode(os.path.realpath(git_folder))
        run = git_scan.GitScan(
            repository, options.ruleset, options.floor, options.jobs, progress, options.cache, key
        )
        if options.staged:
            return git_scan.scan_staged(run, git_folder, _index(Path(target), git_folder)), place
        if options.since:
            return git_scan.scan_since(run, resolve_revision(repository, options.since)), place
        return git_scan.scan_history(run), place


def _index(target: Path, git_folder: Path) -> Path:
    """Give the index of the next commit: in a hook git names it, and of `commit -a` or `commit FILE` it is another than the usual one."""
    named = Path(os.environ.get("GIT_INDEX_FILE") or git_folder / "index")
    ours = os.path.realpath(named.parent) == os.path.realpath(git_folder) or os.path.realpath(
        target
    ) == os.path.realpath(".")
    return named if ours and named.is_file() else git_folder / "index"


def scan_remote(
    found: "ScanSource", remote: Remote, place: TargetInfo, options: ScanOptions, progress: ProgressCallback
) -> tuple[ScanOutcome, TargetInfo]:
    assert options.reach is not None  # noqa: S101 - asked before
    with work_folder(options.work) as work:
        if found.commit:
            repository = fetch_commit(remote, found.commit, work, options.reach.egress)
            run = git_scan.GitScan(repository, options.ruleset, options.floor, options.jobs, progress)
            return git_scan.scan_commit(run, repository.refs[COMMIT_REF]), place
        repository = clone(remote, work, options.reach.egress)
        run = git_scan.GitScan(repository, options.ruleset, options.floor, options.jobs, progress)
        outcome = (
            git_scan.scan_since(run, resolve_revision(repository, options.since))
            if options.since
            else git_scan.scan_history(run)
        )
        return outcome, place._replace(ignored=_ignoring_at_head(repository))


def _ignoring_at_head(repository: Repository) -> Callable[[bytes], bool]:
    text = read_file_at_head(repository, IGNORE_FILE.encode())
    return IgnorePatterns(text).ignores_path_or_parent if text else nothing
