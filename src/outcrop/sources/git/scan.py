"""Scan a git repository: its whole history, the commits since a revision, one commit, or the index.

Each scan has the same steps:

1. List the objects to scan (`enumerate_objects.list_objects`, `revisions`, `attribution`).
2. Scan them in several processes (`_scan_batches`).
3. Find the path and the oldest commit of each object with hits (`attribution`).
4. Merge the hits to one per path and value (`locate.locate_hits`), and add author and date of the commit.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources.fork_pool import run_in_processes
from outcrop.sources.git import attribution, command, objects, renames
from outcrop.sources.git.attribution import Places, attribute_blobs, attribute_messages, place_at_tips
from outcrop.sources.git.cat_file import find_existing, find_ids_at
from outcrop.sources.git.enumerate_objects import DAMAGED_STORE, list_objects
from outcrop.sources.git.id_sets import IdSet, RowFile
from outcrop.sources.git.known_secrets import EarlierScan, is_reachable
from outcrop.sources.git.locate import add_commit_info, find_tip_blobs, list_gaps, locate_hits
from outcrop.sources.git.objects import ResultsById, make_object_scanner
from outcrop.sources.git.repository import Repository, digest_objects, digest_refs
from outcrop.sources.git.revisions import (
    RefTips,
    find_tips,
    list_commits,
    list_new_blobs,
    list_new_commits,
    note_missing_objects,
)
from outcrop.sources.git.scan_cache import ScanCache, load_cache
from outcrop.sources.located import ProgressCallback, ScanOutcome

# Cached objects per batch: enough that neighbours in a pack share their bases, few enough for all processes.
_RESCAN_BATCH = 100
_SCAN_BATCH = 2_000  # objects per batch in a continued scan
_MAX_CHECKED_COMMITS = 1_000  # newest commits that a continued scan checks for missing objects


@dataclass(frozen=True, slots=True)
class GitScan:
    """The parameters of one scan of one repository."""

    repository: Repository
    ruleset: RuleSet
    floor: Confidence  # hits below this confidence are dropped
    jobs: int  # processes
    progress: ProgressCallback
    cache_folder: Path | None = None
    cache_key: bytes = b""  # identifies the repository in the cache


def scan_history(scan: GitScan) -> ScanOutcome:
    """Scan all blobs and messages of a repository; attribute each hit to the oldest commit that has it.

    With a cache, scan only new objects and those that had hits. If objects and refs are unchanged, take paths
    and commits from the cache; if they have changed, save the cache. Hits in objects that no ref reaches are
    reported too. `scan.progress` is called with the outcome so far.
    """
    outcome = ScanOutcome()
    repository = scan.repository
    objects_digest, refs_digest = digest_objects(repository), digest_refs(repository)
    version = f"{scan.ruleset.version}-{scan.floor}"
    with closing(RowFile(repository.folder)) as scanned:
        cache = load_cache(
            scan.cache_folder, scan.cache_key, version, scanned, objects=objects_digest, refs=refs_digest
        )
        has_new_objects, has_new_refs = cache.objects != objects_digest, cache.refs != refs_digest
        batches: Iterable[list[bytes]]
        if has_new_objects:
            batches = list_objects(repository, IdSet(scanned), scanned.add, scan.jobs)
        else:
            batches = _split(cache.with_hits if has_new_refs else cache.reported, _RESCAN_BATCH)
        results = _scan_batches(scan, batches, outcome)
        if has_new_objects or has_new_refs:
            _attribute_results(scan, results, cache, outcome)
        outcome.located = locate_hits(results, cache.places, cache.tip_blobs)
        outcome.gaps += list_gaps(results, cache.places)
        if has_new_objects or has_new_refs:
            cache.refs = refs_digest
            cache.objects = objects_digest if _is_complete(repository, cache, outcome) else ""
            cache.with_hits = list(results)
            reported = {blob for hit in outcome.located for blob in (hit.first_blob, hit.tip_blob)}
            cache.reported = [oid for oid, result in results.items() if oid in reported or result.gaps]
            cache.save(repository.folder.parent)
    add_commit_info(repository, outcome.located)
    repository.gaps.extend(cache.gaps)
    _add_repository_gaps(repository, outcome)
    return outcome


def _split(oids: list[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the ids in lists of `size` ids; the last list may be shorter."""
    return (oids[at : at + size] for at in range(0, len(oids), size))


def _scan_batches(scan: GitScan, batches: Iterable[list[bytes]], outcome: ScanOutcome) -> ResultsById:
    """Scan batches of objects in processes; return the results of objects with hits or gaps.

    The numbers of scanned blobs and bytes are added to `outcome`, which is passed to `scan.progress` after
    each report of a process. If the budget is cut short, return the results until then.
    """
    results = ResultsById(scan.ruleset.rules)
    worker = make_object_scanner(scan.repository, scan.ruleset, scan.floor)
    budget = scan.repository.budget
    try:
        for report in run_in_processes(batches, worker, scan.jobs, budget=budget):
            outcome.files += report.blobs
            outcome.size += report.size
            budget.explain(objects=report.objects, new_bytes=report.new_bytes)
            results.add(report)
            scan.progress(outcome)
    except OperatorError:  # a process that lists objects may have been killed
        if budget.reason is None:
            raise
    return results


def _attribute_results(scan: GitScan, results: ResultsById, cache: ScanCache, outcome: ScanOutcome) -> None:
    """Find paths and oldest commits of the objects in `results`; store them and the gaps in `cache`.

    Also store in `cache` which blobs are at the tip, and in `outcome` the number of commits, and call
    `scan.progress`.
    """
    repository, cuts = scan.repository, scan.repository.budget.cuts
    gaps: list[str] = []
    tips = find_tips(repository, gaps)
    commits = list_commits(repository, tips.commits, gaps) if results else tips.commits
    outcome.commits = len(commits)
    scan.progress(outcome)
    cache.places = {}
    missing = None
    if results:  # only then the commits are read, which also shows what they miss
        wanted = attribution.WantedOrMissing(set(results), IdSet(cache.scanned))
        cache.places = attribute_blobs(
            repository, commits, wanted, scan.jobs, gaps, max_paths=attribution.MAX_PATHS
        )
        missing = cache.places.keys() - results.keys()
        for oid in missing:
            del cache.places[oid]
    if repository.budget.cuts > cuts:
        place_at_tips(repository, tips.commits, results, cache.places)
    attribute_messages(repository, tips, commits, results, cache.places)
    note_missing_objects(repository, tips.objects, gaps, missing=missing)
    cache.tip_blobs = find_tip_blobs(repository, results, cache.places)
    cache.gaps = sorted(set(gaps))


def _is_complete(repository: Repository, cache: ScanCache, outcome: ScanOutcome) -> bool:
    """Whether no gap of `repository`, `cache` or `outcome` means that an object could not be read.

    If one does, the next scan tries again, even if nothing has changed.
    """
    any_unread = any(reason in objects.READ_GAPS for _, reason in outcome.gaps)
    return not (
        any_unread
        or repository.budget.reason
        or DAMAGED_STORE in repository.gaps
        or attribution.READ_GAPS.intersection(cache.gaps)
    )


def _add_repository_gaps(repository: Repository, outcome: ScanOutcome) -> None:
    """Add the gaps of the repository itself to the outcome as ("repository", gap), each once.

    The first is the limit that cut the scan short, if one has.
    """
    if repository.budget.reason:
        repository.gaps.insert(0, repository.budget.reason)
    outcome.gaps += [("repository", gap) for gap in dict.fromkeys(repository.gaps)]


@dataclass(frozen=True, slots=True)
class ContinuedScan:
    """The result of a scan that continued an earlier one. Its hits are those of a full scan."""

    outcome: ScanOutcome
    tips: tuple[bytes, ...]
    known_present: list[bool]  # for each known secret: whether a ref still reaches it at its path
    is_complete: bool  # no object was missing, so a secret that was not found does not exist


def continue_scan(scan: GitScan, earlier: EarlierScan) -> ContinuedScan:
    """Scan the objects that no tip of the earlier scan reaches, and again the blobs with known secrets.

    Each hit is attributed to the oldest commit of the whole history that has it. The result also says for
    each known secret whether it is still present, and has the commits that the refs now lead to. The cache is
    not used.
    """
    repository = scan.repository
    outcome = ScanOutcome()
    gaps: list[str] = []
    tips = find_tips(repository, gaps)
    commits = list_commits(repository, tips.commits, gaps)
    max_commits = _MAX_CHECKED_COMMITS if earlier.tips else None
    note_missing_objects(repository, tips.objects, gaps, max_commits=max_commits)
    known_blobs = {blob for secret in earlier.secrets for blob in secret.blobs}
    results = _scan_batches(scan, _list_unscanned(scan, tips, earlier.tips, known_blobs), outcome)
    outcome.commits = len(commits)
    scan.progress(outcome)
    attributed = {*results, *known_blobs}
    places: Places = {}
    cuts = repository.budget.cuts
    if attributed:
        places = attribute_blobs(
            repository, commits, attributed, scan.jobs, gaps, max_paths=attribution.MAX_PATHS
        )
    if repository.budget.cuts > cuts:
        place_at_tips(repository, tips.commits, attributed, places)
    attribute_messages(repository, tips, commits, attributed, places)
    outcome.located = locate_hits(results, places, find_tip_blobs(repository, results, places))
    add_commit_info(repository, outcome.located)
    outcome.gaps += list_gaps(results, places)
    repository.gaps.extend(sorted(set(gaps)))
    _add_repository_gaps(repository, outcome)
    any_unread = any(reason in objects.READ_GAPS for result in results.values() for reason in result.gaps)
    found = {(hit.path, reveal(hit.hit.secret)) for hit in outcome.located}
    known_present = [
        (secret.path, secret.value) in found
        or is_reachable(repository, scan.ruleset, secret, places, tips.commits)
        for secret in earlier.secrets
    ]
    is_complete = not (repository.gaps or repository.budget.reason or any_unread)
    return ContinuedScan(outcome, tuple(tips.commits), known_present, is_complete=is_complete)


def _list_unscanned(
    scan: GitScan, tips: RefTips, earlier_tips: Sequence[bytes], known_blobs: set[bytes]
) -> Iterator[list[bytes]]:
    """Return batches of the ids of the objects that `continue_scan` scans.

    These are the blobs and commits that no existing commit in `earlier_tips` reaches, all annotated tags, old
    blobs that a new commit puts at a path, and those of `known_blobs` that exist. If no earlier tip exists,
    or if git fails because an object is missing, these are all objects of the repository.
    """
    repository = scan.repository
    existing = find_existing(repository, earlier_tips)
    old_tips = [tip for tip in earlier_tips if tip in existing]
    new_blobs = list_new_blobs(repository, tips.objects, old_tips) if old_tips else None
    new_commits = list_new_commits(repository, tips.commits, old_tips) if old_tips else None
    if new_blobs is None or new_commits is None:
        return list_objects(repository, (), lambda _: None, scan.jobs)
    # A new commit may put an old blob at a new path, where rules apply that did not apply at its old path.
    introduced = attribute_blobs(repository, new_commits, attribution.AllBlobs(), scan.jobs, [])
    old_blobs = find_existing(repository, sorted(known_blobs)) | introduced.keys()
    blobs = list(dict.fromkeys([*new_blobs, *sorted(old_blobs)]))
    return _split([*blobs, *new_commits, *tips.tags], _SCAN_BATCH)


def scan_commit(scan: GitScan, commit: bytes) -> ScanOutcome:
    """Scan the blobs that one commit introduces compared with its parents, and its message.

    `commit` is its hexadecimal id. The hits are not marked as being at the tip.
    """
    repository = scan.repository
    outcome = ScanOutcome(commits=1)
    gaps: list[str] = []
    places = attribute_blobs(repository, [commit], attribution.AllBlobs(), 1, gaps)
    attribute_messages(repository, RefTips(), [commit], [commit], places)
    results = _scan_batches(scan, [sorted(places)], outcome)
    outcome.located = locate_hits(results, places, set())
    add_commit_info(repository, outcome.located)
    outcome.gaps += [*list_gaps(results, places), *(("history", gap) for gap in sorted(set(gaps)))]
    _add_repository_gaps(repository, outcome)
    return outcome


def scan_since(scan: GitScan, since: bytes) -> ScanOutcome:
    """Scan blobs and messages of the commits after `since`, up to HEAD, or to all refs if HEAD has no commit.

    `since` is the id of a commit. Only new values are reported: a value is not new if the same file had it at
    `since`, or if the value has moved with its file.
    """
    repository = scan.repository
    outcome = ScanOutcome()
    gaps: list[str] = []
    tips = [repository.head] if repository.head else find_tips(repository, gaps).commits
    commits = list_commits(repository, tips, gaps, since=since)
    outcome.commits = len(commits)
    places = attribute_blobs(repository, commits, attribution.AllBlobs(), scan.jobs, gaps)
    attribute_messages(repository, RefTips(), commits, commits, places)
    results = _scan_batches(scan, [sorted(places)] if places else [], outcome)
    paths = sorted({path for oid in results for path in places.get(oid, ())})
    located = locate_hits(results, places, find_tip_blobs(repository, results, places))
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
    outcome.gaps += [*list_gaps(results, places), *(("history", gap) for gap in sorted(set(gaps)))]
    _add_repository_gaps(repository, outcome)
    return outcome


def _find_files(repository: Repository, commit: bytes, paths: list[bytes]) -> dict[bytes, bytes]:
    """Return path -> object id for those of the paths that `commit` has."""
    ids = find_ids_at(repository, commit, paths) if paths else []
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
    results = _scan_batches(scan, [sorted(staged.places)] if staged.places else [], outcome)
    old_values: renames.PathsByValue = {}
    if results:
        renames.add_old_values(old_values, repository, scan.ruleset, staged.replaced)
    located = renames.drop_old_values(locate_hits(results, staged.places, set()), old_values)
    if located and staged.deleted:
        renames.add_old_values(old_values, repository, scan.ruleset, staged.deleted)
        located = renames.drop_moved_values(located, {b"": staged.deleted}, old_values)
    for hit in located:
        hit.origin, hit.at_tip = None, True
    outcome.located = located
    outcome.gaps += list_gaps(results, staged.places)
    if repository.head is None:  # then every staged file counts as new, and the user needs to know why
        _add_repository_gaps(repository, outcome)
    return outcome


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
