"""A repository's whole history into located hits: every file and message is read once, then the oldest commit of each hit is found."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.domain.line import one_line
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import ScanResult, SerializedResult, deserialize_result, serialize_result
from outcrop.scanner.rules.cache_format import LazyRules
from outcrop.sources.fork_pool import run_in_processes
from outcrop.sources.git import attribution, command, objects, renames
from outcrop.sources.git import scan_cache as memory
from outcrop.sources.git.attribution import Places
from outcrop.sources.git.commit_headers import describe
from outcrop.sources.git.enumerate_objects import DAMAGED_STORE, list_objects
from outcrop.sources.git.id_sets import IdSet, RowFile
from outcrop.sources.git.presence import files_of, holds
from outcrop.sources.git.refs import Tips, place_texts, tips_of
from outcrop.sources.git.repository import Repository, refs_state, state
from outcrop.sources.git.scan_cache import Seen
from outcrop.sources.located import (
    CommitInfo,
    LocatedHit,
    ProgressCallback,
    ScanOutcome,
    hits_at_path,
    member_path,
    printable_path,
)

_Key = tuple[bytes | None, str]  # a path with its member, and a value
_AGAIN = 100  # blobs that are read again: enough for neighbours in the pack to share their bases, few enough to be spread
_AT_ONCE = 2_000  # blobs that a process is given
_NEWEST = (
    1_000  # commits behind which it is looked whether all is there, where older ones were looked at before
)


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of one repository: what to look with, and how hard."""

    repository: Repository
    ruleset: RuleSet
    floor: Confidence
    jobs: int
    progress: ProgressCallback
    cache: Path | None = None
    key: bytes = b""  # names the repository in the cache


def scan_history(scan: Scan) -> ScanOutcome:
    """Scan every blob there is, and attribute what is found to the oldest commit that has it."""
    objects, refs = state(scan.repository), refs_state(scan.repository)
    version = f"{scan.ruleset.version}-{scan.floor}"
    with closing(RowFile(scan.repository.folder)) as scanned:
        return _scanned(
            scan,
            memory.load(scan.cache, scan.key, version, scanned, objects=objects, refs=refs),
            objects,
            refs,
        )


def _scanned(scan: Scan, seen: Seen, objects: str, refs: str) -> ScanOutcome:
    """Scan what has not been seen yet, and keep what is known from now on."""
    outcome = ScanOutcome()
    new_objects, new_refs = seen.objects != objects, seen.refs != refs
    found = _read(scan, _batches(scan, seen, objects=new_objects, refs=new_refs), outcome)
    if new_objects or new_refs:
        _attribute(scan, seen, found, outcome)
    outcome.located = list(_located(found, seen.places, seen.tips))
    outcome.gaps += _gaps_of(found, seen.places)
    if new_objects or new_refs:
        seen.with_hits, seen.refs = list(found), refs
        seen.telling = _telling(found, outcome.located)
        seen.objects = objects if _is_whole(scan, seen, outcome) else ""
        seen.save(scan.repository.folder.parent)
    _describe(scan.repository, outcome.located)
    scan.repository.gaps.extend(seen.gaps)
    _note_gaps(scan.repository, outcome)
    return outcome


def _is_whole(scan: Scan, seen: Seen, outcome: ScanOutcome) -> bool:
    """Tell whether all that there is was read. What was not may be readable next time, though nothing has come or gone."""
    unread = any(why in objects.UNREAD for _, why in outcome.gaps)
    return not (unread or DAMAGED_STORE in scan.repository.gaps or attribution.UNREAD.intersection(seen.gaps))


@dataclass(frozen=True, slots=True)
class Standing:
    """A credential that an earlier scan found: its path, the blobs that hold it there, its value where that is kept."""

    path: bytes
    blobs: frozenset[bytes]
    value: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Known:
    """What earlier scans have left: the commits from which every blob has been read, and what they found."""

    tips: tuple[bytes, ...] = ()
    standing: tuple[Standing, ...] = ()


@dataclass(frozen=True, slots=True)
class Continued:
    """A scan that went on from another one. It tells the same as one that had begun anew."""

    outcome: ScanOutcome
    tips: tuple[bytes, ...]
    there: list[bool]  # of each that is known: a ref still reaches a blob that holds it at its path
    whole: bool  # no object was missing: what is not told is not there


def scan_on(scan: Scan, known: Known) -> Continued:
    """Read the files and messages that no known tip reaches, and again those that matter; attribute all of them in the whole history."""
    outcome = ScanOutcome()
    gaps: list[str] = []
    tips = tips_of(scan.repository, gaps)
    order = attribution.commits(scan.repository, tips.commits, gaps)
    attribution.missing(scan.repository, tips.reaching, gaps, newest=_NEWEST if known.tips else None)
    found = _read(scan, _unread(scan, tips, known), outcome)
    outcome.commits = len(order)
    scan.progress(outcome)
    matter = {blob for one in known.standing for blob in one.blobs}
    places = attribution.place(scan.repository, order, {*found, *matter}, scan.jobs, gaps)
    place_texts(scan.repository, tips, order, {*found, *matter}, places)
    outcome.located = list(
        _located(found, places, attribution.at_tip(scan.repository, _by_path(found, places)))
    )
    _describe(scan.repository, outcome.located)
    outcome.gaps += _gaps_of(found, places)
    scan.repository.gaps.extend(sorted(set(gaps)))
    _note_gaps(scan.repository, outcome)
    unread = any(reason in objects.UNREAD for content in found.values() for reason in content.gaps)
    told = {(one.path, reveal(one.hit.secret)) for one in outcome.located}
    there = [
        (one.path, one.value) in told or _stands(scan, one, places, tips.commits) for one in known.standing
    ]
    return Continued(outcome, tuple(tips.commits), there, whole=not (scan.repository.gaps or unread))


def _stands(scan: Scan, one: Standing, places: Places, tips: list[bytes]) -> bool:
    """Tell whether a credential that no rule tells of is there all the same: rules change, and absence is judged by the value."""
    files = files_of(one.path)
    if any(places.get(blob, {}).keys() & files for blob in one.blobs):
        return True
    if one.value is None:
        return False
    for path in files:
        versions = attribution.blobs_at(scan.repository, tips, path)
        if versions is None:
            return True
        given = objects.contents(scan.repository, [versions]) if versions else ()
        if any(holds(scan.ruleset, content, one.value) for _, content in given):
            return True
    return False


def _unread(scan: Scan, tips: Tips, known: Known) -> Iterator[list[bytes]]:
    there = attribution.present(scan.repository, known.tips)
    old = [tip for tip in known.tips if tip in there]
    fresh = attribution.new_blobs(scan.repository, tips.reaching, old) if old else None
    order = attribution.new_commits(scan.repository, tips.commits, old) if old else None
    if (
        fresh is None or order is None
    ):  # nothing was read before, or something is missing: everything that is there is read
        yield from list_objects(scan.repository, (), lambda _: None, scan.jobs)
        return
    # What new commits bring to a path is read though its blob be an old one: at its old path it may have been nothing to tell.
    brought = attribution.changed(scan.repository, order, scan.jobs, [])
    again = attribution.present(
        scan.repository, sorted({blob for one in known.standing for blob in one.blobs})
    )
    wanted = list(dict.fromkeys([*fresh, *sorted(again | brought.keys())]))
    wanted += [*order, *tips.tags]  # for their messages
    yield from (wanted[at : at + _AT_ONCE] for at in range(0, len(wanted), _AT_ONCE))


def scan_commit(scan: Scan, commit: bytes) -> ScanOutcome:
    """Scan what one commit brought."""
    outcome = ScanOutcome(commits=1)
    gaps: list[str] = []
    places = attribution.changed(scan.repository, [commit], 1, gaps)
    place_texts(scan.repository, Tips(), [commit], [commit], places)
    found = _read(scan, [sorted(places)], outcome)
    outcome.located = list(_located(found, places, set()))
    _describe(scan.repository, outcome.located)
    outcome.gaps += [*_gaps_of(found, places), *(("history", gap) for gap in sorted(set(gaps)))]
    _note_gaps(scan.repository, outcome)
    return outcome


def scan_since(scan: Scan, since: bytes) -> ScanOutcome:
    """Scan what the commits after a revision brought, up to HEAD, or to all refs where it is at nothing.

    A value that stood in the same file before is not new, nor is one that has moved with its file.
    """
    outcome = ScanOutcome()
    gaps: list[str] = []
    ends = [scan.repository.head] if scan.repository.head else tips_of(scan.repository, gaps).commits
    order = attribution.commits(scan.repository, ends, gaps, since=since)
    outcome.commits = len(order)
    places = attribution.changed(scan.repository, order, scan.jobs, gaps)
    place_texts(scan.repository, Tips(), order, order, places)
    found = _read(scan, [sorted(places)] if places else [], outcome)
    paths = sorted({path for oid in found for path in places.get(oid, ())})
    tips = attribution.at_tip(scan.repository, _by_path(found, places))
    old = renames.holders(scan.repository, scan.ruleset, renames.files_at(scan.repository, since, paths))
    outcome.located = renames.new(_located(found, places, tips), old)
    if outcome.located:
        origins = {renames.commit_of(one) for one in outcome.located}
        removed = attribution.removed(scan.repository, [commit for commit in order if commit in origins])
        gone = sorted({path for files in removed.values() for path in files} - {*paths})
        renames.hold(
            old,
            renames.holders(scan.repository, scan.ruleset, renames.files_at(scan.repository, since, gone)),
        )
        outcome.located = renames.unmoved(outcome.located, removed, old)
    _describe(scan.repository, outcome.located)
    outcome.gaps += [*_gaps_of(found, places), *(("history", gap) for gap in sorted(set(gaps)))]
    _note_gaps(scan.repository, outcome)
    return outcome


def scan_staged(scan: Scan, git_folder: Path, index: Path) -> ScanOutcome:
    """Scan what an index holds for the next commit.

    A value that the replaced version of a changed file held is not new, nor is one that has moved with its file.
    """
    outcome = ScanOutcome()
    base = scan.repository.head.decode() if scan.repository.head else _empty_tree(scan.repository)
    arguments = ["diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", base]
    code, out = (
        command.run(scan.repository.folder, *arguments)
        if _copied(scan.repository, git_folder, index)
        else (1, b"")
    )
    if code:
        raise OperatorError("--staged: the index, or the commit that HEAD names, cannot be read")
    places: Places = {}
    replaced: dict[bytes, bytes] = {}
    removed: dict[bytes, bytes] = {}
    for fields, path in attribution.records(iter(out.split(b"\0"))):
        if path is not None:
            _, mode, before, new, status = fields.split(b" ")
            if before.strip(b"0"):
                (removed if status == b"D" else replaced)[path] = before
            if new.strip(b"0") and mode != attribution.SUBMODULE:
                places.setdefault(new, {})[path] = (0, b"")
    found = _read(scan, [sorted(places)] if places else [], outcome)
    old = renames.holders(scan.repository, scan.ruleset, replaced) if found else {}
    outcome.located = renames.new(_located(found, places, set()), old)
    if outcome.located and removed:
        renames.hold(old, renames.holders(scan.repository, scan.ruleset, removed))
        outcome.located = renames.unmoved(outcome.located, {b"": removed}, old)
    for one in outcome.located:
        one.origin, one.at_tip = None, True
    outcome.gaps += _gaps_of(found, places)
    if scan.repository.head is None:  # then everything counts as new: it matters why none was found
        _note_gaps(scan.repository, outcome)
    return outcome


def _copied(repository: Repository, git_folder: Path, index: Path) -> bool:
    """Copy an index, and what it may share with others, to our own repository; where there is none yet, nothing is staged."""
    try:
        for file, name in [
            (index, "index"),
            *((file, file.name) for file in git_folder.glob("sharedindex.*")),
        ]:
            if file.is_file():
                shutil.copyfile(file, repository.folder / name)
    except OSError:
        return False
    return True


def _empty_tree(repository: Repository) -> str:
    _, out = command.run(repository.folder, "hash-object", "-t", "tree", "--stdin")
    command.run(repository.folder, "hash-object", "-t", "tree", "-w", "--stdin")
    return out.strip().decode()


def _note_gaps(repository: Repository, outcome: ScanOutcome) -> None:
    outcome.gaps += [("repository", gap) for gap in dict.fromkeys(repository.gaps)]


def _telling(found: Mapping[bytes, ScanResult], located: list[LocatedHit]) -> list[bytes]:
    """Give the blobs that findings are told from, and those with gaps: while nothing changes the others say nothing more."""
    wanted = {blob for one in located for blob in (one.first_blob, one.tip_blob)}
    return [oid for oid, content in found.items() if oid in wanted or content.gaps]


def _batches(scan: Scan, seen: Seen, *, objects: bool, refs: bool) -> Iterator[list[bytes]]:
    """Give the blobs to read: those that held something before, if they are still there, and those never seen."""
    if objects:
        yield from list_objects(scan.repository, IdSet(seen.scanned), seen.scanned.add, scan.jobs)
    else:
        again = seen.with_hits if refs else seen.telling
        yield from (again[at : at + _AGAIN] for at in range(0, len(again), _AGAIN))


class _Held(Mapping[bytes, ScanResult]):
    """What blobs hold, as it came: of a long history that is much, and each is looked at once or twice."""

    def __init__(self, rules: LazyRules) -> None:
        self._rules = rules
        self._wires: dict[bytes, SerializedResult] = {}

    def add(self, oid: bytes, wire: SerializedResult) -> None:
        self._wires[oid] = wire

    def __getitem__(self, oid: bytes) -> ScanResult:
        return deserialize_result(self._wires[oid], self._rules)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._wires)

    def __len__(self) -> int:
        return len(self._wires)


def _read(scan: Scan, batches: Iterable[list[bytes]], outcome: ScanOutcome) -> Mapping[bytes, ScanResult]:
    found = _Held(scan.ruleset.rules)
    for told in run_in_processes(
        batches, objects.reader(scan.repository, scan.ruleset, scan.floor), scan.jobs
    ):
        outcome.files += told.blobs
        outcome.size += told.size
        for oid, wire in told.hits:
            found.add(oid, wire)
        for oid, reason in told.gaps:
            found.add(oid, serialize_result(ScanResult(gaps=[reason])))
        scan.progress(outcome)
    return found


def _attribute(scan: Scan, seen: Seen, found: Mapping[bytes, ScanResult], outcome: ScanOutcome) -> None:
    gaps: list[str] = []
    tips = tips_of(scan.repository, gaps)
    order = attribution.commits(scan.repository, tips.commits, gaps) if found else tips.commits
    outcome.commits = len(order)
    scan.progress(outcome)
    seen.places, lost = attribution.place_and_miss(
        scan.repository, order, set(found), scan.jobs, gaps, there=IdSet(seen.scanned) if found else ()
    )
    place_texts(scan.repository, tips, order, found, seen.places)
    attribution.missing(scan.repository, tips.reaching, gaps, lost=lost if found else None)
    seen.tips = attribution.at_tip(scan.repository, _by_path(found, seen.places))
    seen.gaps = sorted(set(gaps))


def _by_path(found: Iterable[bytes], places: Places) -> dict[bytes, set[bytes]]:
    by_path: dict[bytes, set[bytes]] = {}
    for oid in found:
        for path in places.get(oid, ()):
            by_path.setdefault(path, set()).add(oid)
    return by_path


def _located(
    found: Mapping[bytes, ScanResult], places: Places, tips: set[tuple[bytes, bytes]]
) -> Iterator[LocatedHit]:
    """Give one place per path and value: the oldest commit's line and column, and the line at the tip.

    A mark allows the versions of a line that have it: the oldest without one counts, where there is one.
    """
    oldest: dict[_Key, tuple[tuple[bool, int], LocatedHit]] = {}
    for oid in sorted(found):
        content = found[oid]
        places_of: list[tuple[bytes | None, tuple[int, bytes]]] = [*places.get(oid, {}).items()] or [
            (None, (0, b""))
        ]
        for path, (rank, commit) in places_of:
            at_tip = path is not None and (path, oid) in tips
            for inner, hit in hits_at_path(content, path):
                key = (member_path(path, inner), reveal(hit.secret))
                one = LocatedHit(
                    hit,
                    key[0],
                    _origin(commit),
                    at_tip,
                    hit.line if at_tip else None,
                    unreachable=path is None,
                    inner=inner,
                )
                known = oldest.get(key)
                one.blobs = known[1].blobs if known else one.blobs
                one.blobs.add(oid)
                one.first_blob, one.tip_blob = oid, oid if at_tip else None
                if known is None or (hit.allowed, rank) < known[0]:
                    if known is not None and known[1].at_tip:
                        one.at_tip, one.current_line, one.tip_blob = (
                            True,
                            known[1].current_line,
                            known[1].tip_blob,
                        )
                    oldest[key] = ((hit.allowed, rank), one)
                elif at_tip and not known[1].at_tip:
                    known[1].at_tip, known[1].current_line, known[1].tip_blob = True, hit.line, oid
    for _, one in oldest.values():
        yield one


def _origin(commit: bytes) -> CommitInfo | None:
    return CommitInfo(commit.decode()) if commit else None


def _describe(repository: Repository, located: list[LocatedHit]) -> None:
    wanted = sorted({one.origin.commit.encode() for one in located if one.origin})
    described = describe(repository, wanted)
    for one in located:
        if one.origin:
            one.origin = described.get(one.origin.commit.encode(), one.origin)


def _gaps_of(found: Mapping[bytes, ScanResult], places: Places) -> Iterator[tuple[str, str]]:
    """Tell what could not be read of which file."""
    for oid in sorted(found):
        path = next(iter(sorted(places.get(oid, ()))), None)
        for reason in found[oid].gaps:
            yield (printable_path(path) if path is not None else f"object {oid.decode()}"), one_line(reason)


def file_at_head(repository: Repository, path: bytes) -> bytes:
    """Read a small file of HEAD; empty where there is none."""
    oid = attribution.ids_at(repository, repository.head, [path])[0] if repository.head else None
    if oid is None:
        return b""
    return next(
        (content for _, content in objects.contents(repository, [[oid]]) if isinstance(content, bytes)), b""
    )
