"""Remember which objects of a repository have been scanned with one version of the rules.

The cache never stores a credential. For an object with hits only its id is stored: such objects are few, and
are scanned again.
"""

import contextlib
import hashlib
from binascii import unhexlify
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from outcrop.sources.git.attribution import Places
from outcrop.sources.git.id_sets import RowFile, read_rows


@dataclass(slots=True)
class ScanCache:
    """The cached state of one repository and one version of the rules; ids are hexadecimal unless noted."""

    file: Path | None  # None: nothing is saved
    scanned: RowFile  # binary ids of all scanned objects
    with_hits: list[bytes] = field(
        default_factory=list
    )  # objects with hits or gaps, in the order of scanning
    reported: list[bytes] = field(default_factory=list)  # those that findings or gaps are reported from
    objects: str = ""  # digest of the object store; empty if not everything in it could be read
    refs: str = ""  # digest of the refs at the time of `places`
    places: Places = field(default_factory=dict)
    tip_blobs: set[tuple[bytes, bytes]] = field(default_factory=set)  # (path, blob) at the tip of HEAD
    gaps: list[str] = field(default_factory=list)  # of the attribution

    def save(self, work: Path) -> None:
        """Write the cache to a file in the folder `work`, then move that file to `file`.

        The folder of `file` is created if it is missing. Do nothing if `file` is None. Errors of the file
        system are ignored.
        """
        if self.file is None:
            return
        head = {
            "objects": self.objects,
            "refs": self.refs,
            "width": self.scanned.width,
            "with_hits": [oid.decode() for oid in self.with_hits],
            "reported": [oid.decode() for oid in self.reported],
            "places": [
                [oid.decode(), path.hex(), rank, commit.decode()]
                for oid, paths in sorted(self.places.items())
                for path, (rank, commit) in sorted(paths.items())
            ],
            "gaps": self.gaps,
            "tips": [[path.hex(), oid.decode()] for path, oid in sorted(self.tip_blobs)],
        }
        unfinished = work / self.file.name
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(orjson.dumps(head) + b"\n")
                file.writelines(self.scanned)
            unfinished.replace(self.file)


def load_cache(
    folder: Path | None, repository_key: bytes, version: str, scanned: RowFile, *, objects: str, refs: str
) -> ScanCache:
    """Load the cache of a repository; return an empty one if there is none, or if it is damaged.

    `folder` is the cache folder; if it is None, an empty cache is returned that is never saved.
    `repository_key` and `version` (of the rules) select the file. `objects` and `refs` are the current
    digests of the repository. If one differs from the cached one, the ids of scanned objects are added to
    `scanned`, which becomes the cache's `scanned`. If `objects` differs, ids of objects with hits are left
    out, so that these are scanned again.
    """
    if folder is None:
        return ScanCache(None, scanned)
    file = folder / "seen" / f"{hashlib.sha256(repository_key).hexdigest()[:24]}-{version}"
    try:
        with file.open("rb") as opened:
            head = orjson.loads(opened.readline())
            cache = ScanCache(
                file,
                scanned,
                with_hits=[oid.encode() for oid in head["with_hits"]],
                reported=[oid.encode() for oid in head["reported"]],
                objects=head["objects"],
                refs=head["refs"],
                gaps=[str(gap) for gap in head["gaps"]],
                tip_blobs={(bytes.fromhex(path), oid.encode()) for path, oid in head["tips"]},
            )
            for oid, path, rank, commit in head["places"]:
                cache.places.setdefault(oid.encode(), {})[bytes.fromhex(path)] = (rank, commit.encode())
            if (cache.objects, cache.refs) != (objects, refs):
                rescanned = {unhexlify(oid) for oid in cache.with_hits} if cache.objects != objects else set()
                scanned.extend(oid for oid in read_rows(opened, head["width"]) if oid not in rescanned)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        scanned.clear()
        return ScanCache(file, scanned)
    return cache
