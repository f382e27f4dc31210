"""What has been scanned before: blobs by id, under the version of the rules; no credential is ever kept here.

For a blob that holds something only its id is kept: it is read again, which is cheap since they are few.
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
class Seen:
    """The memory of one repository under one version of the rules."""

    file: Path | None
    scanned: RowFile  # ids in binary
    with_hits: list[bytes] = field(
        default_factory=list
    )  # ids in hexadecimal, as they were read; also those that could not be
    telling: list[bytes] = field(default_factory=list)  # those of them that findings are told from
    objects: str = ""  # the state of the object store when everything in it had been scanned
    refs: str = ""  # the state of the refs when the places were found
    places: Places = field(default_factory=dict)
    tips: set[tuple[bytes, bytes]] = field(default_factory=set)
    gaps: list[str] = field(default_factory=list)  # what was missing when the places were looked for

    def save(self, work: Path) -> None:
        """Write it in the folder for work in progress and put it in place at once; a cache that cannot be written means no memory."""
        if self.file is None:
            return
        head = {
            "objects": self.objects,
            "refs": self.refs,
            "width": self.scanned.width,
            "with_hits": [oid.decode() for oid in self.with_hits],
            "telling": [oid.decode() for oid in self.telling],
            "places": [
                [oid.decode(), path.hex(), rank, commit.decode()]
                for oid, paths in sorted(self.places.items())
                for path, (rank, commit) in sorted(paths.items())
            ],
            "gaps": self.gaps,
            "tips": [[path.hex(), oid.decode()] for path, oid in sorted(self.tips)],
        }
        unfinished = work / self.file.name
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(orjson.dumps(head) + b"\n")
                file.writelines(self.scanned)
            unfinished.replace(self.file)


def load(
    cache: Path | None, repository: bytes, version: str, scanned: RowFile, *, objects: str, refs: str
) -> Seen:
    """Read the memory; a missing or damaged one is empty.

    What was scanned is only needed where objects or refs have changed; where objects have, what held something is to be read again.
    """
    if cache is None:
        return Seen(None, scanned)
    file = cache / "seen" / f"{hashlib.sha256(repository).hexdigest()[:24]}-{version}"
    try:
        with file.open("rb") as opened:
            head = orjson.loads(opened.readline())
            seen = Seen(
                file,
                scanned,
                with_hits=[oid.encode() for oid in head["with_hits"]],
                telling=[oid.encode() for oid in head["telling"]],
                objects=head["objects"],
                refs=head["refs"],
                gaps=[str(gap) for gap in head["gaps"]],
                tips={(bytes.fromhex(path), oid.encode()) for path, oid in head["tips"]},
            )
            for oid, path, rank, commit in head["places"]:
                seen.places.setdefault(oid.encode(), {})[bytes.fromhex(path)] = (rank, commit.encode())
            if (seen.objects, seen.refs) != (objects, refs):
                again = {unhexlify(oid) for oid in seen.with_hits} if seen.objects != objects else set()
                scanned.extend(oid for oid in read_rows(opened, head["width"]) if oid not in again)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        scanned.clear()
        return Seen(file, scanned)
    return seen
