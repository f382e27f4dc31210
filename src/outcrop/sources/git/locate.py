"""Turn the hits in blobs and messages into located hits: one per path and value, with its oldest commit."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from outcrop.domain.line import one_line
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import ScanResult
from outcrop.sources.git.attribution import CommitRank, Places
from outcrop.sources.git.cat_file import find_ids_at, read_headers
from outcrop.sources.git.repository import Repository
from outcrop.sources.located import CommitInfo, LocatedHit, applicable_hits, member_path, printable_path

PathFilter = Callable[[bytes | None], bool]  # whether a path is reported; None: that of an unreachable blob
TipBlobs = Collection[tuple[bytes, bytes]]  # (path, blob) of files in the tip of HEAD
_UNREACHABLE: list[tuple[bytes | None, CommitRank]] = [(None, (0, b""))]  # the place of a blob without one
_MAX_SECONDS = 253_402_300_800  # the year 10000, which a datetime cannot represent


def every_path(_path: bytes | None) -> bool:
    """Return True: every path is reported."""
    return True


def find_tip_blobs(repository: Repository, oids: Iterable[bytes], places: Places) -> set[tuple[bytes, bytes]]:
    """Return (path, blob) for each of the blobs `oids` that HEAD still has at a path of the blob.

    `places` has the paths of each blob. The result is empty if the repository has no HEAD.
    """
    if repository.head is None:
        return set()
    blobs_by_path: dict[bytes, set[bytes]] = {}
    for oid in oids:
        for path in places.get(oid, ()):
            blobs_by_path.setdefault(path, set()).add(oid)
    paths = list(blobs_by_path)
    at_head = zip(paths, find_ids_at(repository, repository.head, paths), strict=True)
    return {(path, oid) for path, oid in at_head if oid in blobs_by_path[path]}


def locate_hits(
    results: Mapping[bytes, ScanResult],
    places: Places,
    tip_blobs: TipBlobs,
    selects: PathFilter = every_path,
) -> list[LocatedHit]:
    """Return one hit per path and value, as in the oldest commit that has it, and with its line at the tip.

    `results` has the scan result of each object, `places` its paths and commits, and `tip_blobs` the files at
    the tip. A hit without an allow mark is preferred to an older one with a mark. A hit in an object without
    a place has the path None (or the path inside an archive) and is marked as unreachable. Paths that
    `selects` refuses are left out.
    """
    by_path_and_value: dict[tuple[bytes | None, str], LocatedHit] = {}
    ages: dict[tuple[bytes | None, str], tuple[bool, int]] = {}  # (has an allow mark, rank of the commit)
    for oid in sorted(results):
        result = results[oid]
        for path, (rank, commit) in [*places.get(oid, {}).items()] or _UNREACHABLE:
            if not selects(path):
                continue
            at_tip = path is not None and (path, oid) in tip_blobs
            for inner, hit in applicable_hits(result, path):
                key = (member_path(path, inner), reveal(hit.secret))
                located = by_path_and_value.get(key)
                if located is None:
                    located = by_path_and_value[key] = LocatedHit(hit, key[0], at_tip=False)
                if key not in ages or (hit.allowed, rank) < ages[key]:
                    ages[key] = (hit.allowed, rank)
                    located.hit, located.inner, located.first_blob = hit, inner, oid
                    located.origin = CommitInfo(commit.decode()) if commit else None
                    located.unreachable = path is None
                located.blobs.add(oid)
                if at_tip and not located.at_tip:
                    located.at_tip, located.current_lines, located.tip_blob = True, hit.all_lines, oid
    return list(by_path_and_value.values())


def add_commit_info(repository: Repository, located: list[LocatedHit]) -> None:
    """Replace the `origin` of each hit by one with author and date, which are read from the commit.

    Author and date stay None if the commit cannot be read. A hit without origin does not change.
    """
    oids = sorted({hit.origin.commit.encode() for hit in located if hit.origin})
    commits = {oid.decode(): _parse_commit(oid, header) for oid, header in read_headers(repository, oids)}
    for hit in located:
        if hit.origin:
            hit.origin = commits.get(hit.origin.commit, hit.origin)


def _parse_commit(oid: bytes, header: list[bytes]) -> CommitInfo:
    """Return id, author and author date of the commit `oid` with these header lines.

    The author is None if it is missing or empty, the date if it is malformed, before 1970 or after the year
    9999.
    """
    author_line = next((line[7:] for line in header if line.startswith(b"author ")), b"")
    name, _, date = author_line.rpartition(b"> ")
    encoding = next((line[9:] for line in header if line.startswith(b"encoding ")), b"utf-8")
    author = _decode_name(name + b">" if name else author_line, encoding).strip() or None
    seconds = date.split(b" ")[0]
    # A date before 1970 or after the year 9999 is dropped.
    is_valid = seconds.isdigit() and len(seconds) < 20 and int(seconds) < _MAX_SECONDS
    return CommitInfo(oid.decode(), author, int(seconds) if is_valid else None)


def _decode_name(name: bytes, encoding: bytes) -> str:
    """Decode a name in the encoding that its commit declares.

    If that encoding is unknown or does not fit, decode the name as UTF-8 with replacement characters.
    """
    try:
        return name.decode(encoding.decode("ascii"))
    except (LookupError, ValueError):
        return name.decode("utf-8", "replace")


def list_gaps(
    results: Mapping[bytes, ScanResult], places: Places, selects: PathFilter = every_path
) -> Iterator[tuple[str, str]]:
    """Yield (path, reason) for each gap in `results`, both printable on one line.

    The path is the first one in sorting order that `places` has for the object, or `object <id>` if it has
    none. Paths that `selects` refuses are left out.
    """
    for oid in sorted(results):
        path = min(filter(selects, places.get(oid, ())), default=None)
        if path is None and (places.get(oid) or not selects(None)):
            continue
        for reason in results[oid].gaps:
            yield (
                printable_path(path) if path is not None else f"object {oid.decode()}",
                one_line(reason),
            )
