"""Scan a git repository: its whole history, what was added since an earlier scan, or one commit.

Each scan has the same steps:

1. List the objects to scan (`enumerate_objects.list_objects`, `revisions`, `attribution`).
2. Scan them in several processes (`scan_batches`).
3. Find the path and the oldest commit of each object with hits (`attribution`).
4. Merge the hits to one per path and value (`locate.locate_hits`), and add author and date of the commit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.limits import BLOB_PATHS, CHECKED_COMMITS
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources.fork_pool import run_in_processes
from outcrop.sources.git import attribution, objects
from outcrop.sources.git.attribution import Places, attribute_blobs, attribute_messages, place_at_tips
from outcrop.sources.git.cat_file import find_existing
from outcrop.sources.git.enumerate_objects import DAMAGED_STORE, list_objects
from outcrop.sources.git.id_sets import IdSet, RowFile
from outcrop.sources.git.known_secrets import EarlierScan, is_reachable
from outcrop.sources.git.locate import (
    PathFilter,
    add_commit_info,
    every_path,
    find_tip_blobs,
    list_gaps,
    locate_hits,
)
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
    selects: PathFilter = every_path  # findings and gaps at other paths are left out


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
        results = scan_batches(scan, batches, outcome)
        if has_new_objects or has_new_refs:
            _attribute_results(scan, results, cache, outcome)
        outcome.located = locate_hits(results, cache.places, cache.tip_blobs, scan.selects)
        outcome.gaps += list_gaps(results, cache.places, scan.selects)
        if has_new_objects or has_new_refs:
            cache.refs = refs_digest
            cache.objects = objects_digest if _is_complete(repository, cache, outcome) else ""
            cache.with_hits = list(results)
            located = outcome.located
            if scan.selects is not every_path:  # the next scan may select others
                located = locate_hits(results, cache.places, cache.tip_blobs)
            reported = {blob for hit in located for blob in (hit.first_blob, hit.tip_blob)}
            cache.reported = [oid for oid, result in results.items() if oid in reported or result.gaps]
            cache.save(repository.folder.parent)
    add_commit_info(repository, outcome.located)
    repository.gaps.extend(cache.gaps)
    add_repository_gaps(repository, outcome)
    return outcome


def _split(oids: list[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the ids in lists of `size` ids; the last list may be shorter."""
    return (oids[at : at + size] for at in range(0, len(oids), size))


def scan_batches(scan: GitScan, batches: Iterable[list[bytes]], outcome: ScanOutcome) -> ResultsById:
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
        cache.places = attribute_blobs(repository, commits, wanted, scan.jobs, gaps, max_paths=BLOB_PATHS)
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


def add_repository_gaps(repository: Repository, outcome: ScanOutcome) -> None:
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
    max_commits = CHECKED_COMMITS if earlier.tips else None
    note_missing_objects(repository, tips.objects, gaps, max_commits=max_commits)
    known_blobs = {blob for secret in earlier.secrets for blob in secret.blobs}
    results = scan_batches(scan, _list_unscanned(scan, tips, earlier.tips, known_blobs), outcome)
    outcome.commits = len(commits)
    scan.progress(outcome)
    attributed = {*results, *known_blobs}
    places: Places = {}
    cuts = repository.budget.cuts
    if attributed:
        places = attribute_blobs(repository, commits, attributed, scan.jobs, gaps, max_paths=BLOB_PATHS)
    if repository.budget.cuts > cuts:
        place_at_tips(repository, tips.commits, attributed, places)
    attribute_messages(repository, tips, commits, attributed, places)
    outcome.located = locate_hits(results, places, find_tip_blobs(repository, results, places))
    add_commit_info(repository, outcome.located)
    outcome.gaps += list_gaps(results, places)
    repository.gaps.extend(sorted(set(gaps)))
    add_repository_gaps(repository, outcome)
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
    results = scan_batches(scan, [sorted(places)], outcome)
    outcome.located = locate_hits(results, places, set(), scan.selects)
    add_commit_info(repository, outcome.located)
    outcome.gaps += list_gaps(results, places, scan.selects)
    outcome.gaps += [("history", gap) for gap in sorted(set(gaps))]
    add_repository_gaps(repository, outcome)
    return outcome
