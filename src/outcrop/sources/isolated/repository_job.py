"""Scan one repository or folder for a run of an account.

`run_job` runs in a child process: it clones the repository into a temporary folder, scans what is new since
the last scan, and checks whether known secrets are still present. `serialize_job_result` and
`deserialize_job_result` carry its result through the pipe to the parent process.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.limits import CHECKED_FILE_BYTES, SOURCE_LIMITS, SourceLimits
from outcrop.net.guard import Egress
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import ScanResult, SerializedResult, deserialize_result, serialize_result
from outcrop.sources import files
from outcrop.sources.budget import SourceBudget
from outcrop.sources.git import scan as git_scan
from outcrop.sources.git.clone import COMMIT_REF, Remote, clone, fetch_commit, list_remote_refs
from outcrop.sources.git.known_secrets import EarlierScan, KnownSecret, contains_value, list_containing_files
from outcrop.sources.git.repository import Repository, find_git_folder, open_local, pack_bytes
from outcrop.sources.isolated.excerpts import add_blob_excerpts, add_file_excerpts
from outcrop.sources.located import (
    CommitInfo,
    LocatedHit,
    ProgressCallback,
    ScanOutcome,
    too_many_findings,
)
from outcrop.sources.workspace import work_folder

_NO_REFS = "it had branches or tags before and has none now: no finding was resolved"
_MIN_PARALLEL_BYTES = 200 << 20  # of packs: a smaller repository is scanned as fast by one process


@dataclass(frozen=True, slots=True)
class RepositoryJob:
    """The repository or folder to scan, and what an earlier scan of it left."""

    remote: Remote | None = None
    folder: Path | None = None  # a repository or folder on this machine, instead of `remote`
    commit: str | None = None  # scan only the changes of this commit
    known_refs_digest: str | None = None  # if the refs still have this digest, nothing is fetched
    known: EarlierScan = field(default_factory=EarlierScan)
    had_refs: bool = False  # the last complete scan saw at least one ref
    processes: int = 1


@dataclass(slots=True)
class JobResult:
    """The hits and gaps of a job, and what the next job of this repository starts from."""

    located: list[LocatedHit] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)  # (what was skipped, why)
    blobs: int = 0
    size: int = 0
    commits: int = 0
    refs_digest: str | None = None
    unchanged: bool = False  # the refs had the known digest: nothing was scanned
    tips: tuple[bytes, ...] = ()
    known_present: list[bool] = field(default_factory=list)  # for each known secret of the job
    is_complete: bool = False  # nothing was skipped, so a known secret that is not present is gone


JobProgressCallback = Callable[[int, int, int], None]  # called with blobs, bytes, commits


def run_job(  # noqa: PLR0917 - what a job needs
    job: RepositoryJob,
    ruleset: RuleSet,
    egress: Egress,
    work: Path,
    on_progress: JobProgressCallback,
    limits: SourceLimits = SOURCE_LIMITS,
) -> JobResult:
    """Scan the repository of a job, cloned into a temporary folder in `work`, or its local folder.

    `on_progress` is called with blobs, bytes and commits. If the remote refs still have the known digest,
    nothing is cloned, and the result is marked as `unchanged`. The hits of the result have excerpts. Past one
    of `limits` the result has what was found until then, and a gap. Raise OperatorError if the repository
    cannot be cloned or opened.
    """

    def progress(outcome: ScanOutcome) -> None:
        """Call `on_progress` with the counters of the scan so far."""
        on_progress(outcome.files, outcome.size, outcome.commits)

    if job.folder and not find_git_folder(job.folder):
        with SourceBudget(limits).watch() as budget:
            return _scan_files(job, job.folder, ruleset, progress, budget)
    with work_folder(work) as folder, SourceBudget(limits).watch(folder) as budget:
        if job.remote and job.known_refs_digest:
            digest = _refs_digest(list_remote_refs(job.remote, folder, egress, budget))
            if digest == job.known_refs_digest:
                return JobResult(refs_digest=digest, unchanged=True)
        repository = _open_repository(job, folder, egress, budget)
        if job.had_refs and not repository.refs:
            return JobResult(gaps=[("", _NO_REFS)], known_present=[False] * len(job.known.secrets))
        processes = job.processes if pack_bytes(repository) > _MIN_PARALLEL_BYTES else 1
        scan = git_scan.GitScan(repository, ruleset, Confidence.MEDIUM, processes, progress)
        if job.commit:
            result = _job_result(git_scan.scan_commit(scan, repository.refs[COMMIT_REF]))
        else:
            continued = git_scan.continue_scan(scan, job.known)
            result = _job_result(continued.outcome)
            result.refs_digest = _refs_digest(
                repository.refs | ({b"HEAD": repository.head} if repository.head else {})
            )
            result.tips = continued.tips
            result.known_present = continued.known_present
            result.is_complete = continued.is_complete
        _limit_findings(result, limits)
        add_blob_excerpts(result.located, repository, ruleset)
        return result


def _open_repository(job: RepositoryJob, folder: Path, egress: Egress, budget: SourceBudget) -> Repository:
    """Open the local repository of a job, or clone the remote one (or fetch its one commit) into `folder`.

    Raise OperatorError if the local repository no longer exists, or if git fails.
    """
    if job.remote is None:
        git_folder = find_git_folder(job.folder or Path())
        if git_folder is None:
            raise OperatorError("the repository no longer exists")
        return open_local(git_folder, folder, budget)
    if job.commit:
        return fetch_commit(job.remote, job.commit, folder, egress, budget)
    return clone(job.remote, folder, egress, budget)


def _scan_files(
    job: RepositoryJob, root: Path, ruleset: RuleSet, progress: ProgressCallback, budget: SourceBudget
) -> JobResult:
    """Scan `root`, a folder that is not a repository or a single file; check the known secrets of the job.

    The result is complete if there are no gaps. Raise OperatorError or OSError as `scan_folder` does.
    """
    folder = files.FolderScan(root, ruleset, Confidence.MEDIUM, job.processes, lambda _: False, budget=budget)
    result = _job_result(files.scan_folder(folder, progress))
    found = {(place.path, reveal(place.hit.secret)) for place in result.located}
    _limit_findings(result, budget.limits)
    add_file_excerpts(result.located, root, ruleset)
    result.known_present = [
        (known.path, known.value) in found or _is_in_file(root, known, ruleset) for known in job.known.secrets
    ]
    result.is_complete = not result.gaps
    return result


def _is_in_file(root: Path, known: KnownSecret, ruleset: RuleSet) -> bool:
    """Whether the file of a known secret in the folder `root` still contains its value; True if unknown.

    The file may be an archive around the path of the secret. False if the file is gone.
    """
    return any(
        _file_contains(root / os.fsdecode(path), known.value, ruleset)
        for path in list_containing_files(known.path)
    )


def _file_contains(path: Path, value: str | None, ruleset: RuleSet) -> bool:
    """Whether the file contains the value; False if there is no such file.

    True if that is unknown: the file cannot be read or is too large, or `value` is None because it is not
    stored.
    """
    try:
        with path.open("rb") as file:
            content = file.read(CHECKED_FILE_BYTES + 1)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return value is None or len(content) > CHECKED_FILE_BYTES or contains_value(ruleset, content, value)


def _limit_findings(result: JobResult, limits: SourceLimits) -> None:
    """Drop the hits beyond the limit and add a gap with their number.

    Then the result is not complete: nothing is resolved, and the next job scans everything again.
    """
    if (surplus := len(result.located) - limits.findings) > 0:
        result.gaps.append(("", too_many_findings(surplus, limits.findings)))
        del result.located[limits.findings :]
        result.is_complete = False


def _refs_digest(refs: dict[bytes, bytes]) -> str:
    """Return a SHA-256 digest, in hexadecimal, of `refs`, which maps names to object ids."""
    return hashlib.sha256(b"".join(b"%s %s\n" % entry for entry in sorted(refs.items()))).hexdigest()


def _job_result(outcome: ScanOutcome) -> JobResult:
    """Return hits, gaps and counters of a scan as a JobResult, without the hits that no ref reaches."""
    located = [place for place in outcome.located if not place.unreachable]
    return JobResult(located, outcome.gaps, outcome.files, outcome.size, outcome.commits)


# --- The result as it is sent between processes: a Secret refuses to be pickled.

# path, origin, at_tip, current_lines, blobs and excerpt of a LocatedHit
_SerializedPlace = tuple[bytes | None, CommitInfo | None, bool, tuple[int, ...], set[bytes], Excerpt | None]
SerializedJobResult = tuple[SerializedResult, list[_SerializedPlace], JobResult]


def serialize_job_result(result: JobResult) -> SerializedJobResult:
    """Convert a result to a form that can be pickled; `result.located` is empty afterwards."""
    hits = serialize_result(ScanResult([("", place.hit) for place in result.located]))
    places = [
        (place.path, place.origin, place.at_tip, place.current_lines, place.blobs, place.excerpt)
        for place in result.located
    ]
    result.located = []
    return hits, places, result


def deserialize_job_result(serialized: SerializedJobResult, ruleset: RuleSet) -> JobResult:
    """Restore the result that `serialize_job_result` converted; the hits refer to the rules of `ruleset`.

    Fields of the hits that are not sent, such as `first_blob`, `tip_blob` and `inner`, have their defaults.
    """
    serialized_hits, places, result = serialized
    hits = deserialize_result(serialized_hits, ruleset.rules).hits
    for (_, hit), (path, origin, at_tip, current_lines, blobs, excerpt) in zip(hits, places, strict=True):
        result.located.append(
            LocatedHit(hit, path, origin, at_tip, current_lines, blobs=blobs, excerpt=excerpt)
        )
    return result
