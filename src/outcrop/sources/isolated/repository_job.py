"""A repository brought here and looked at, for an account: what a child process is sent to do, and what it comes back with."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.net.guard import Egress
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import ScanResult, SerializedResult, deserialize_result, serialize_result
from outcrop.sources import files
from outcrop.sources.git import scan as git_scan
from outcrop.sources.git.clone import COMMIT_REF, Remote, clone, fetch_commit, list_remote_refs
from outcrop.sources.git.presence import files_of, holds
from outcrop.sources.git.repository import Repository, find_git_folder, open_local
from outcrop.sources.git.scan import Known, Standing
from outcrop.sources.isolated import excerpts
from outcrop.sources.located import CommitInfo, LocatedHit, ProgressCallback, ScanOutcome
from outcrop.sources.workspace import work_folder

_READ = 256 << 20
_WORTH_MORE_JOBS = 200 << 20  # bytes of packs: below it one process is as quick


@dataclass(frozen=True, slots=True)
class RepositoryJob:
    """What to look at, from where an earlier look has left off."""

    remote: Remote | None = None
    folder: Path | None = None  # a repository on this machine: an operator's alone
    commit: str | None = None  # look at what this commit brought only
    known_refs_digest: str | None = None  # where the refs are still these, nothing is fetched
    known: Known = field(default_factory=Known)
    processes: int = 1


@dataclass(slots=True)
class JobResult:
    """What there is, and how sure it is that nothing else is."""

    located: list[LocatedHit] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)
    blobs: int = 0
    size: int = 0
    commits: int = 0
    refs_digest: str | None = None
    unchanged: bool = False
    tips: tuple[bytes, ...] = ()
    known_present: list[bool] = field(default_factory=list)  # of what was known
    is_complete: bool = False


Told = Callable[[int, int, int], None]  # blobs, bytes, commits


def run_job(errand: RepositoryJob, ruleset: RuleSet, egress: Egress, work: Path, told: Told) -> JobResult:
    """Bring the repository into a folder that is gone afterwards, and look at it."""

    def progress(outcome: ScanOutcome) -> None:
        told(outcome.files, outcome.size, outcome.commits)

    if errand.folder and not find_git_folder(errand.folder):
        return _of_files(errand, ruleset, progress)
    with work_folder(work) as folder:
        if (
            errand.remote
            and errand.known_refs_digest
            and _digest(list_remote_refs(errand.remote, folder, egress)) == errand.known_refs_digest
        ):
            return JobResult(refs_digest=errand.known_refs_digest, unchanged=True)
        repository = _opened(errand, folder, egress)
        jobs = errand.processes if _size(repository) > _WORTH_MORE_JOBS else 1
        scan = git_scan.Scan(repository, ruleset, Confidence.MEDIUM, jobs, progress)
        if errand.commit:
            return _brought(
                git_scan.scan_commit(scan, repository.refs[COMMIT_REF]),
                excerpts.of_blobs(repository, ruleset),
            )
        continued = git_scan.scan_on(scan, errand.known)
        brought = _brought(continued.outcome, excerpts.of_blobs(repository, ruleset))
        refs = _digest(repository.refs | ({b"HEAD": repository.head} if repository.head else {}))
        brought.refs_digest, brought.tips, brought.known_present, brought.is_complete = (
            refs,
            continued.tips,
            continued.there,
            continued.whole,
        )
        return brought


def _opened(errand: RepositoryJob, folder: Path, egress: Egress) -> Repository:
    if errand.remote is None:
        git_folder = find_git_folder(errand.folder or Path())
        if git_folder is None:
            raise OperatorError("the repository has just gone")
        return open_local(git_folder, folder)
    if errand.commit:
        return fetch_commit(errand.remote, errand.commit, folder, egress)
    return clone(errand.remote, folder, egress)


def _of_files(errand: RepositoryJob, ruleset: RuleSet, progress: ProgressCallback) -> JobResult:
    """Look at a folder that is no repository."""
    root = errand.folder or Path()
    folder = files.FolderScan(root, ruleset, Confidence.MEDIUM, errand.processes, lambda _: False)
    brought = _brought(files.scan_folder(folder, progress), excerpts.of_files(root, ruleset))
    told = {(one.path, reveal(one.hit.secret)) for one in brought.located}
    brought.known_present = [
        (one.path, one.value) in told or _in_file(root, one, ruleset) for one in errand.known.standing
    ]
    brought.is_complete = not brought.gaps
    return brought


def _in_file(root: Path, one: Standing, ruleset: RuleSet) -> bool:
    """Tell whether a file still holds a value; where that cannot be said, it does."""
    return any(_file_holds(root / os.fsdecode(path), one.value, ruleset) for path in files_of(one.path))


def _file_holds(path: Path, value: str | None, ruleset: RuleSet) -> bool:
    try:
        with path.open("rb") as file:
            content = file.read(_READ + 1)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return value is None or len(content) > _READ or holds(ruleset, content, value)


def _size(repository: Repository) -> int:
    return sum(
        pack.stat().st_size for folder in repository.objects for pack in (folder / "pack").glob("*.pack")
    )


def _digest(refs: dict[bytes, bytes]) -> str:
    return hashlib.sha256(b"".join(b"%s %s\n" % entry for entry in sorted(refs.items()))).hexdigest()


def _brought(outcome: ScanOutcome, add_excerpts: Callable[[list[LocatedHit]], None]) -> JobResult:
    located = [one for one in outcome.located if not one.unreachable]
    add_excerpts(located)
    return JobResult(located, outcome.gaps, outcome.files, outcome.size, outcome.commits)


# --- how it travels between processes: a Secret refuses to be serialised

Place = tuple[
    bytes | None, tuple[str, str | None, int | None] | None, bool, int | None, set[bytes], Excerpt | None
]
JobResultWire = tuple[SerializedResult, list[Place], JobResult]


def pack(brought: JobResult) -> JobResultWire:
    found = serialize_result(ScanResult([("", one.hit) for one in brought.located]))
    places = [
        (one.path, _told(one.origin), one.at_tip, one.current_line, one.blobs, one.excerpt)
        for one in brought.located
    ]
    brought.located = []
    return found, places, brought


def _told(origin: CommitInfo | None) -> tuple[str, str | None, int | None] | None:
    return (origin.commit, origin.author, origin.at) if origin else None


def unpack(wire: JobResultWire, ruleset: RuleSet) -> JobResult:
    hits = deserialize_result(wire[0], ruleset.rules).hits
    for (_, hit), (path, origin, at_tip, current_line, blobs, excerpt) in zip(hits, wire[1], strict=True):
        place = LocatedHit(
            hit,
            path,
            CommitInfo(*origin) if origin else None,
            at_tip,
            current_line,
            blobs=blobs,
            excerpt=excerpt,
        )
        wire[2].located.append(place)
    return wire[2]
