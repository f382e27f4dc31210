"""What has been scanned before: blobs by id, under the version of the rules; no credential is ever kept here.

For a blob that holds something only its id is kept: it is read again, which is cheap since they are few.
"""

import contextlib
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from outcrop.sources.history import Places


@dataclass(slots=True)
class Seen:
    """The memory of one repository under one version of the rules."""

    file: Path | None
    scanned: bytearray = field(default_factory=bytearray)  # ids in binary, one after the other: a set takes four times as much
    width: int = 20  # of an id
    with_hits: list[bytes] = field(default_factory=list)  # ids in hexadecimal, as they were read; also those that could not be
    telling: list[bytes] = field(default_factory=list)  # those of them that findings are told from
    objects: str = ""  # the state of the object store when everything in it had been scanned
    refs: str = ""  # the state of the refs when the places were found
    places: Places = field(default_factory=dict)
    tips: set[tuple[bytes, bytes]] = field(default_factory=set)
    gaps: list[str] = field(default_factory=list)  # what was missing when the places were looked for

    def note(self, oid: bytes) -> None:
        """Note a blob as one that has been scanned when this is saved."""
        if len(oid) != self.width:  # those of another kind are of a repository that was here before
            self.scanned, self.width = bytearray(), len(oid)
        self.scanned += oid

    def ids(self) -> set[bytes]:
        """Give what has been scanned, in binary."""
        return {bytes(self.scanned[at : at + self.width]) for at in range(0, len(self.scanned), self.width)}

    def save(self, work: Path) -> None:
        """Write it in the folder for work in progress and put it in place at once; a cache that cannot be written means no memory."""
        if self.file is None:
            return
        head = {
            "objects": self.objects,
            "refs": self.refs,
            "width": self.width,
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
                file.write(self.scanned)
            unfinished.replace(self.file)


def load(cache: Path | None, repository: bytes, version: str, *, needed: tuple[str, str]) -> Seen:
    """Read the memory; a missing or damaged one is empty. Where objects and refs are as they were the list of blobs is not needed."""
    if cache is None:
        return Seen(None)
    file = cache / "seen" / f"{hashlib.sha256(repository).hexdigest()[:24]}-{version}"
    try:
        with file.open("rb") as opened:
            head = orjson.loads(opened.readline())
            seen = Seen(
                file,
                with_hits=[oid.encode() for oid in head["with_hits"]],
                telling=[oid.encode() for oid in head["telling"]],
                objects=head["objects"],
                refs=head["refs"],
                gaps=[str(gap) for gap in head["gaps"]],
                tips={(bytes.fromhex(path), oid.encode()) for path, oid in head["tips"]},
            )
            for oid, path, rank, commit in head["places"]:
                seen.places.setdefault(oid.encode(), {})[bytes.fromhex(path)] = (rank, commit.encode())
            if (seen.objects, seen.refs) != needed:
                body, width = opened.read(), head["width"]
                if width > 0 and len(body) % width == 0:
                    seen.scanned, seen.width = bytearray(body), width
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Seen(file)
    return seen
