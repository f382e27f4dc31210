"""A repository's whole history into located hits: every blob is read once, then the oldest commit of each hit is found."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.content import Found, from_wire
from outcrop.scanner.ruleset import RuleSet
from outcrop.sources import blobs, gitcall, history
from outcrop.sources import seen as memory
from outcrop.sources.base import Located, Origin, Outcome, Progress, for_path, member, one_line, shown
from outcrop.sources.history import Places
from outcrop.sources.parallel import spread
from outcrop.sources.repository import Repository, refs_state, state
from outcrop.sources.seen import Seen

_Key = tuple[bytes | None, str]  # a path with its member, and a value


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of one repository: what to look with, and how hard."""

    repository: Repository
    ruleset: RuleSet
    floor: Confidence
    jobs: int
    progress: Progress
    cache: Path | None = None
    key: bytes = b""  # names the repository in the cache


def scan_history(scan: Scan) -> Outcome:
    """Scan every blob there is, and attribute what is found to the oldest commit that has it."""
    outcome = Outcome()
    objects, refs = state(scan.repository), refs_state(scan.repository)
    seen = memory.load(scan.cache, scan.key, f"{scan.ruleset.version}-{scan.floor}", needed=objects)
    nothing_new = seen.objects == objects
    found = _read(scan, _batches(scan.repository, seen, everything=not nothing_new), outcome)
    if not nothing_new or seen.refs != refs:
        _attribute(scan, seen, found, outcome)
        seen.with_hits, seen.refs = set(found), refs
        seen.objects = "" if blobs.INCOMPLETE in scan.repository.gaps else objects
        if not nothing_new:
            seen.save()
    outcome.located = list(_located(found, seen.places, seen.tips))
    _describe(scan.repository, outcome.located)
    outcome.gaps += _gaps_of(found, seen.places)
    scan.repository.gaps.extend(seen.gaps)
    _note_gaps(scan.repository, outcome)
    return outcome


def scan_since(scan: Scan, since: bytes) -> Outcome:
    """Scan what the commits after a revision brought, up to HEAD; a value that stood in the same file before is not new."""
    outcome = Outcome()
    gaps: list[str] = []
    order = history.commits(scan.repository, gaps, since=since)
    outcome.commits = len(order)
    places = history.changed(scan.repository, order, scan.jobs, gaps)
    found = _read(scan, [sorted(places)] if places else [], outcome)
    paths = sorted({path for oid in found for path in places.get(oid, ())})
    before = [oid for oid in history.ids_at(scan.repository, since, paths) if oid] if paths else []
    tips = history.at_tips(scan.repository, _by_path(found, places))
    old = _values(scan, before)
    outcome.located = [one for one in _located(found, places, tips) if reveal(one.hit.secret) not in old]
    _describe(scan.repository, outcome.located)
    outcome.gaps += [*_gaps_of(found, places), *(("history", gap) for gap in sorted(set(gaps)))]
    _note_gaps(scan.repository, outcome)
    return outcome


def scan_staged(scan: Scan, git_folder: Path) -> Outcome:
    """Scan what is staged for the next commit; a value that the replaced version of a changed file held is not new."""
    outcome = Outcome()
    for file in [git_folder / "index", *git_folder.glob("sharedindex.*")]:
        if file.is_file():
            shutil.copyfile(file, scan.repository.folder / file.name)
    base = scan.repository.head.decode() if scan.repository.head else _empty_tree(scan.repository)
    code, out = gitcall.output(scan.repository.folder, "diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", base)
    if code:
        raise OperatorError("--staged: the index, or the commit that HEAD names, cannot be read")
    places: Places = {}
    before: list[bytes] = []
    for fields, path in history.records(out):
        if path is not None:
            _, mode, old, new, _ = fields.split(b" ")
            before += [old] if old.strip(b"0") else []
            if new.strip(b"0") and mode != history.SUBMODULE:
                places.setdefault(new, {})[path] = (0, b"")
    found = _read(scan, [sorted(places)] if places else [], outcome)
    known = _values(scan, before) if found else set()
    outcome.located = [one for one in _located(found, places, set()) if reveal(one.hit.secret) not in known]
    for one in outcome.located:
        one.origin, one.at_tip = None, True
    outcome.gaps += _gaps_of(found, places)
    return outcome


def _empty_tree(repository: Repository) -> str:
    _, out = gitcall.output(repository.folder, "hash-object", "-t", "tree", "--stdin")
    gitcall.output(repository.folder, "hash-object", "-t", "tree", "-w", "--stdin")
    return out.strip().decode()


def _note_gaps(repository: Repository, outcome: Outcome) -> None:
    outcome.gaps += [("repository", gap) for gap in dict.fromkeys(repository.gaps)]


def _batches(repository: Repository, seen: Seen, *, everything: bool) -> Iterator[list[bytes]]:
    """Give the blobs to read: those that held something before, if they are still there, and those never seen."""
    if everything:
        for oid in seen.with_hits:
            seen.scanned.discard(bytes.fromhex(oid.decode()))
        yield from blobs.listed(repository, seen, seen.add)
    elif seen.with_hits:
        yield sorted(seen.with_hits)


def _read(scan: Scan, batches: Iterable[list[bytes]], outcome: Outcome) -> dict[bytes, Found]:
    rules = {rule.id: rule for rule in scan.ruleset.rules}
    found: dict[bytes, Found] = {}
    for told in spread(batches, blobs.reader(scan.repository, scan.ruleset, scan.floor), scan.jobs):
        outcome.files += told.blobs
        outcome.size += told.size
        for oid, wire in told.hits:
            found[oid] = from_wire(wire, rules)
        for oid, reason in told.gaps:
            found[oid] = Found(gaps=[reason])
        scan.progress(outcome)
    return found


def _values(scan: Scan, oids: list[bytes]) -> set[str]:
    """Give the values that these blobs hold."""
    scanned = blobs.scanned(scan.repository, scan.ruleset, Confidence.LOW, [oids]) if oids else []
    return {reveal(hit.secret) for _, found, _ in scanned if not isinstance(found, str) for _, hit in found.hits}


def _attribute(scan: Scan, seen: Seen, found: dict[bytes, Found], outcome: Outcome) -> None:
    gaps: list[str] = []
    order = history.commits(scan.repository, gaps) if found else history.usable_tips(scan.repository, gaps)
    outcome.commits = len(order)
    scan.progress(outcome)
    seen.places = history.place(scan.repository, order, set(found), scan.jobs, gaps)
    seen.tips = history.at_tips(scan.repository, _by_path(found, seen.places))
    seen.gaps = sorted(set(gaps))


def _by_path(found: Iterable[bytes], places: Places) -> dict[bytes, set[bytes]]:
    by_path: dict[bytes, set[bytes]] = {}
    for oid in found:
        for path in places.get(oid, ()):
            by_path.setdefault(path, set()).add(oid)
    return by_path


def _located(found: dict[bytes, Found], places: Places, tips: set[tuple[bytes, bytes]]) -> Iterator[Located]:
    """Give one place per path and value: the oldest commit's line and column, and the line at the tip."""
    oldest: dict[_Key, tuple[int, Located]] = {}
    for oid, content in sorted(found.items()):
        places_of: list[tuple[bytes | None, tuple[int, bytes]]] = [*places.get(oid, {}).items()] or [(None, (0, b""))]
        for path, (rank, commit) in places_of:
            at_tip = path is not None and (path, oid) in tips
            for inner, hit in for_path(content, path):
                key = (member(path, inner), reveal(hit.secret))
                one = Located(hit, key[0], _origin(commit), at_tip, hit.line if at_tip else None, unreachable=path is None)
                known = oldest.get(key)
                if known is None or rank < known[0]:
                    if known is not None and known[1].at_tip:
                        one.at_tip, one.current_line = True, known[1].current_line
                    oldest[key] = (rank, one)
                elif at_tip and not known[1].at_tip:
                    known[1].at_tip, known[1].current_line = True, hit.line
    for _, one in oldest.values():
        yield one


def _origin(commit: bytes) -> Origin | None:
    return Origin(commit.decode()) if commit else None


def _describe(repository: Repository, located: list[Located]) -> None:
    wanted = sorted({one.origin.commit.encode() for one in located if one.origin})
    described = history.describe(repository, wanted)
    for one in located:
        if one.origin:
            one.origin = described.get(one.origin.commit.encode(), one.origin)


def _gaps_of(found: dict[bytes, Found], places: Places) -> Iterator[tuple[str, str]]:
    """Tell what could not be read of which file."""
    for oid, content in sorted(found.items()):
        path = next(iter(sorted(places.get(oid, ()))), None)
        for reason in content.gaps:
            yield (shown(path) if path is not None else f"object {oid.decode()}"), one_line(reason)


def file_at_head(repository: Repository, path: bytes) -> bytes:
    """Read a small file of HEAD; empty where there is none."""
    oid = history.ids_at(repository, repository.head, [path])[0] if repository.head else None
    if oid is None:
        return b""
    return next((content for _, content in blobs.contents(repository, [[oid]]) if isinstance(content, bytes)), b"")
