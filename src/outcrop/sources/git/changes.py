"""Scan what changes a git repository: the commits between two revisions, or what is staged.

Only new values are reported. The steps are those of `scan`; then values that the changed or moved files had
before are dropped (`renames`).
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.sources.git import attribution, command, renames
from outcrop.sources.git.attribution import Places, attribute_blobs, attribute_messages
from outcrop.sources.git.cat_file import find_existing, find_ids_at
from outcrop.sources.git.locate import add_commit_info, find_tip_blobs, list_gaps, locate_hits
from outcrop.sources.git.repository import Repository
from outcrop.sources.git.revisions import RefTips, find_tips, list_commits
from outcrop.sources.git.scan import GitScan, add_repository_gaps, scan_batches
from outcrop.sources.located import ScanOutcome


def scan_since(scan: GitScan, since: bytes | None, tip: bytes | None = None) -> ScanOutcome:
    """Scan blobs and messages of the commits after `since`, up to `tip`.

    `since` is the id of a commit; None means that the history is scanned from its beginning. Without `tip`,
    HEAD is the end, or all refs if HEAD has no commit. Only new values are reported: a value is not new if
    the same file had it at `since`, or if the value has moved with its file.
    """
    head = tip or scan.repository.head
    gaps: list[str] = []
    tips = [head] if head else find_tips(scan.repository, gaps).commits
    return _scan_range(scan, tips, [since] if since else [], since, gaps)


def scan_pushed(scan: GitScan, tips: Sequence[bytes], known: Sequence[bytes]) -> ScanOutcome:
    """Scan blobs and messages of the commits that `tips` reach and none of the `known` objects does.

    A value is not new if the same file had it at the first of the known commits.
    """
    existing = find_existing(scan.repository, [*known])
    old = [oid for oid in known if oid in existing]
    return _scan_range(scan, tips, old, old[0] if old else None, [])


def _scan_range(
    scan: GitScan, tips: Sequence[bytes], excluded: Sequence[bytes], since: bytes | None, gaps: list[str]
) -> ScanOutcome:
    """Scan what `tips` reach and `excluded` do not, without values that a file had at `since`."""
    repository = scan.repository
    outcome = ScanOutcome()
    commits = list_commits(repository, tips, gaps, excluded=excluded)
    outcome.commits = len(commits)
    places = attribute_blobs(repository, commits, attribution.AllBlobs(), scan.jobs, gaps)
    attribute_messages(repository, RefTips(), commits, commits, places)
    results = scan_batches(scan, _selected_blobs(scan, places), outcome)
    paths = sorted({path for oid in results for path in places.get(oid, ())})
    located = locate_hits(results, places, find_tip_blobs(repository, results, places), scan.selects)
    old_values: renames.PathsByValue = {}
    renames.add_old_values(old_values, repository, scan.ruleset, _find_files(repository, since, paths))
    located = renames.drop_old_values(located, old_values)
    if located:
        origins = {renames.origin_id(hit) for hit in located}
        deleted = attribution.list_deleted_files(repository, [oid for oid in commits if oid in origins])
        deleted_paths = sorted({path for files in deleted.values() for path in files} - {*paths})
        deleted_files = _find_files(repository, since, deleted_paths)
        renames.add_old_values(old_values, repository, scan.ruleset, deleted_files)
        located = renames.drop_moved_values(located, deleted, old_values)
    outcome.located = located
    add_commit_info(repository, outcome.located)
    outcome.gaps += list_gaps(results, places, scan.selects)
    outcome.gaps += [("history", gap) for gap in sorted(set(gaps))]
    add_repository_gaps(repository, outcome)
    return outcome


def _selected_blobs(scan: GitScan, places: Places) -> list[list[bytes]]:
    """Return one batch of the blobs and messages that have a selected path; no batch if there are none."""
    blobs = sorted(oid for oid, paths in places.items() if any(map(scan.selects, paths)))
    return [blobs] if blobs else []


def _find_files(repository: Repository, commit: bytes | None, paths: list[bytes]) -> dict[bytes, bytes]:
    """Return path -> object id for those of the paths that `commit` has; none if it is None."""
    if commit is None or not paths:
        return {}
    ids = find_ids_at(repository, commit, paths)
    return {path: oid for path, oid in zip(paths, ids, strict=True) if oid}


def scan_staged(scan: GitScan, git_folder: Path, index: Path) -> ScanOutcome:
    """Scan the files in a git index that differ from HEAD.

    `git_folder` is the folder of the repository, and `index` the index file; a copy is read. Only new values
    are reported: a value is not new if the file had it in HEAD, or if the value has moved with its file.
    Raise OperatorError if the index cannot be read.
    """
    repository = scan.repository
    outcome = ScanOutcome()
    staged = _read_staged(repository, git_folder, index)
    results = scan_batches(scan, _selected_blobs(scan, staged.places), outcome)
    old_values: renames.PathsByValue = {}
    if results:
        renames.add_old_values(old_values, repository, scan.ruleset, staged.replaced)
    located = locate_hits(results, staged.places, set(), scan.selects)
    located = renames.drop_old_values(located, old_values)
    if located and staged.deleted:
        renames.add_old_values(old_values, repository, scan.ruleset, staged.deleted)
        located = renames.drop_moved_values(located, {b"": staged.deleted}, old_values)
    for hit in located:
        hit.origin, hit.at_tip = None, True
    outcome.located = located
    outcome.gaps += list_gaps(results, staged.places, scan.selects)
    if repository.head is None:  # then every staged file counts as new, and the user needs to know why
        add_repository_gaps(repository, outcome)
    return outcome


def list_staged_paths(repository: Repository, git_folder: Path, index: Path) -> set[bytes]:
    """Return the paths of the files that a git index adds to HEAD or changes."""
    staged = _read_staged(repository, git_folder, index)
    return {path for paths in staged.places.values() for path in paths}


@dataclass(frozen=True, slots=True)
class _StagedFiles:
    """The differences between HEAD and an index."""

    places: Places = field(default_factory=dict)  # staged blobs and their paths
    replaced: dict[bytes, bytes] = field(default_factory=dict)  # path of a changed file -> its blob in HEAD
    deleted: dict[bytes, bytes] = field(default_factory=dict)  # path of a deleted file -> its blob in HEAD


def _read_staged(repository: Repository, git_folder: Path, index: Path) -> _StagedFiles:
    """Return the differences between HEAD, or the empty tree if there is no HEAD, and the file `index`.

    The index files, and the empty tree if it is needed, are written to our repository. Raise OperatorError if
    the index or the commit of HEAD cannot be read.
    """
    head = repository.head.decode() if repository.head else _write_empty_tree(repository)
    arguments = ["diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", head]
    is_copied = _copy_index(repository, git_folder, index)
    code, out = command.run(repository.folder, *arguments) if is_copied else (1, b"")
    if code:
        raise OperatorError("--staged: the index, or the commit that HEAD names, cannot be read")
    staged = _StagedFiles()
    for fields, path in attribution.parse_raw_diff(out.split(b"\0")):
        if path is not None:
            old, new, is_deleted = attribution.parse_index_change(fields)
            if old:
                (staged.deleted if is_deleted else staged.replaced)[path] = old
            if new:
                staged.places.setdefault(new, {})[path] = (0, b"")
    return staged


def _copy_index(repository: Repository, git_folder: Path, index: Path) -> bool:
    """Copy `index` and the shared index files of `git_folder` to our repository; return False if that fails.

    Otherwise return True. A missing index file is no failure: then nothing is staged.
    """
    try:
        shared = [(file, file.name) for file in git_folder.glob("sharedindex.*")]
        for file, name in [(index, "index"), *shared]:
            if file.is_file():
                shutil.copyfile(file, repository.folder / name)
    except OSError:
        return False
    return True


def _write_empty_tree(repository: Repository) -> str:
    """Write the empty tree to our repository and return its hexadecimal id."""
    _, out = command.run(repository.folder, "hash-object", "-t", "tree", "-w", "--stdin")
    return out.strip().decode()
