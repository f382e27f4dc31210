"""The texts of a repository's objects, files and messages: from its packs, and what is not as usual by `git cat-file`."""

import subprocess
import threading
from binascii import unhexlify
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO, NamedTuple, Self

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.delta_scan import FileVersion
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import (
    ContentBatch,
    ScanResult,
    SerializedResult,
    scan_batch,
    scan_stream,
    scan_versions,
    serialize_result,
)
from outcrop.sources.fork_pool import Emit
from outcrop.sources.git import command
from outcrop.sources.git.enumerate_objects import MessageBatch
from outcrop.sources.git.packs.pack import PackReader
from outcrop.sources.git.repository import Repository

_BUFFER = 2 << 20  # small, so that git goes on while we scan; an object of half of it is read alone
_REPORT_EVERY = 8 << 20
_AT_ONCE = 1 << 20  # bytes of versions that are scanned together
_MOST_LEFT = 10_000  # objects for which git is started
_MOST_RESTARTS = 1_000
_MISSING, _CUT = "object is missing or damaged", "object is damaged: only its beginning was read"
UNREAD = {_MISSING, _CUT}
_WITH_MESSAGE = {b"commit", b"tag"}
MESSAGE = b"\n\n"  # what stands before it
HEAD = 1 << 20  # bytes of a large commit within which it does


class MessageOf(bytes):
    """The id of a commit or a tag whose message was read."""

    __slots__ = ()


@dataclass(slots=True)
class Read:
    """What a worker tells: hits by object, gaps by object, and how far it has come."""

    hits: list[tuple[bytes, SerializedResult]] = field(default_factory=list)
    gaps: list[tuple[bytes, str]] = field(default_factory=list)
    blobs: int = 0
    size: int = 0


def reader(
    repository: Repository, ruleset: RuleSet, floor: Confidence
) -> Callable[[Iterator[list[bytes]], Emit], None]:
    """Give the work of one process: read files and messages, scan them, tell."""

    def work(batches: Iterator[list[bytes]], emit: Emit) -> None:
        told = Read()
        since = 0
        for oid, found, size in scanned(repository, ruleset, floor, batches):
            if not isinstance(oid, MessageOf):
                told.blobs += 1
                told.size += size
            if isinstance(found, str):
                told.gaps.append((oid, found))
            elif found.hits or found.gaps:
                told.hits.append((oid, serialize_result(found)))
            if told.size - since > _REPORT_EVERY or len(told.hits) > 200:
                emit(told)
                told, since = Read(), 0
        emit(told)

    return work


def scanned(
    repository: Repository, ruleset: RuleSet, floor: Confidence, batches: Iterable[list[bytes]]
) -> Iterator[tuple[bytes, ScanResult | str, int]]:
    """Scan files and messages one after the other; give each with what it holds, or why it could not be read, and its size."""
    for item in _read(repository, batches):
        if isinstance(item, list):
            yield from scan_versions(ruleset, item, floor)
        elif isinstance(item, ContentBatch):
            yield from scan_batch(ruleset, item, floor)
        elif item[1] is None:
            yield item[0], _MISSING, 0
        else:
            found = scan_stream(ruleset, item[1].read, floor)
            if item[1].cut:
                found.gaps.append(_CUT)
            yield item[0], found, item[1].size


class Large:
    """The bytes of an object that is too large to be held: they are read from git as it gives them."""

    def __init__(self, stream: IO[bytes], size: int, beginning: bytes) -> None:
        self.size = size
        self.cut = False  # git ended before the object did
        self._stream = stream
        self._beginning = beginning
        self._left = size

    def read(self, size: int) -> bytes:
        size = min(size, self._left)
        data, self._beginning = self._beginning[:size], self._beginning[size:]
        data += self._stream.read(size - len(data)) if len(data) < size else b""
        self._left -= len(data)
        self.cut = len(data) < size
        return data

    def begin_behind(self, mark: bytes) -> None:
        """Pass over what stands before a mark near the beginning."""
        head = self.read(HEAD)
        before, found, behind = head.partition(mark)
        kept = behind if found else before
        self._beginning = kept + self._beginning
        self._left += len(kept)
        self.size = self._left

    def skip(self) -> None:
        while self._left and self.read(1 << 20):
            pass


Content = tuple[bytes, bytes | Large | None]


def contents(repository: Repository, batches: Iterable[list[bytes]]) -> Iterator[Content]:
    """Give the text of files and messages, one by one; None for one that git cannot give."""
    for item in _read(repository, batches):
        if isinstance(item, list):
            yield from ((oid, version.content) for oid, version in item)
        else:
            yield from _one_by_one(item)


def whole(repository: Repository, oids: list[bytes]) -> Iterator[Content]:
    """Give commits and tags as they are, with what stands before their messages."""
    for item in _asked(repository, [oids], cut=False) if oids else ():
        yield from _one_by_one(item)


def _one_by_one(item: "Item") -> Iterator[Content]:
    if isinstance(item, ContentBatch):
        yield from ((oid, item.bytes(start, stop)) for oid, start, stop in item.contents)
    else:
        yield item


Item = ContentBatch | tuple[bytes, Large | None]
Versions = list[tuple[bytes, FileVersion]]


def _read(repository: Repository, batches: Iterable[list[bytes]]) -> Iterator[Item | Versions]:
    """Give objects many at a time: from the packs, and what they do not give from git."""
    left: list[bytes] = []
    yield from _from_packs(repository, batches, left)
    if left:
        yield from _asked(repository, [left])


def _from_packs(
    repository: Repository, batches: Iterable[list[bytes]], left: list[bytes]
) -> Iterator[Item | Versions]:
    """Give what the packs have, and note what is left to git: that is asked meanwhile only where much is."""
    with closing(PackReader(repository.objects)) as packs:
        versions: Versions = []
        size = 0
        for batch in batches:
            if isinstance(batch, MessageBatch):
                yield from _messages(packs, batch, left)
            else:
                for oid in batch:
                    version = packs.read_blob(unhexlify(oid))
                    if version is None:
                        left.append(oid)
                        continue
                    versions.append((oid, version))
                    size += len(version.content)
                    if size > _AT_ONCE:
                        yield versions
                        _let_go(versions)
                        versions, size = [], 0
            if len(left) >= _MOST_LEFT:
                yield from _asked(repository, [left.copy()])
                left.clear()
        if versions:
            yield versions


def _messages(packs: PackReader, batch: MessageBatch, left: list[bytes]) -> Iterator[ContentBatch]:
    """Give the messages of a pack many at a time; note what is left to git."""
    buffer, contents = bytearray(b"\n"), list[tuple[bytes, int, int]]()
    for oid, start in zip(batch, batch.offsets, strict=True):
        data = packs.read_commit_or_tag(batch.pack_index, start)
        if data is None:
            left.append(oid)
            continue
        begin = len(buffer)
        buffer += data.partition(MESSAGE)[2]
        contents.append((MessageOf(oid), begin, len(buffer)))
        buffer += b"\n"
        if len(buffer) > _AT_ONCE:
            yield ContentBatch(buffer, len(buffer), contents)
            buffer, contents = bytearray(b"\n"), []
    if contents:
        yield ContentBatch(buffer, len(buffer), contents)


def _let_go(versions: Versions) -> None:
    for _, version in versions:
        version.drop_base()


def _asked(repository: Repository, batches: Iterable[list[bytes]], *, cut: bool = True) -> Iterator[Item]:
    """Ask git for objects, many at a time; large ones, and those that git cannot give, alone. Messages are cut out unless told.

    git ends at a damaged object. The rest is then asked for again, without its buffer, so that the first one
    without an answer is the damaged one.
    """
    source = iter(batches)
    left: deque[bytes] = deque()
    for _ in range(_MOST_RESTARTS):
        with _CatFile(repository, left, source, cut=cut) as cat:
            yield from cat.answers()
        if cat.complete:
            return
        with _CatFile(repository, left, cut=cut) as careful:
            yield from careful.answers()
        if left:
            yield left.popleft(), None
    yield from ((oid, None) for batch in [list(left), *source] for oid in batch)


class _CatFile:
    """One `git cat-file --batch`: a thread feeds it, so that neither side waits for the other."""

    def __init__(
        self,
        repository: Repository,
        left: deque[bytes],
        source: Iterator[list[bytes]] | None = None,
        *,
        cut: bool,
    ) -> None:
        arguments = ["cat-file", "--batch", *(["--buffer"] if source is not None else [])]
        self._process = command.start(repository.folder, arguments, stdin=subprocess.PIPE)
        self._left = left
        self._again = list(left)
        self._source = source
        self._cut = cut
        self._ended = False
        self.complete = False
        self._feeder = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Self:
        self._feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._feeder.join()
        self._process.__exit__(None, None, None)

    def _feed(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - for the type checker
        try:
            stdin.write(b"".join(oid + b"\n" for oid in self._again))
            for batch in self._source or ():
                self._left.extend(batch)
                stdin.write(b"".join(oid + b"\n" for oid in batch))
            self._ended = True
            stdin.close()
        except (BrokenPipeError, ValueError, OSError):
            return

    def answers(self) -> Iterator[Item]:
        """Read what git gives, a buffer at a time; what is cut off at its end begins the next."""
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - for the type checker
        buffer = bytearray(_BUFFER)
        buffer[:1] = b"\n"
        length = 1
        while count := stream.readinto(memoryview(buffer)[length:]):  # type: ignore[attr-defined]
            length += count
            at = 1
            while True:
                objects, at, ahead = self._whole_objects(buffer, at, length)
                if objects:
                    yield ContentBatch(buffer, at, objects)
                if ahead is None:
                    break
                if ahead.size < 0:
                    yield self._left.popleft(), None
                    continue
                large = Large(
                    stream, ahead.size, bytes(memoryview(buffer)[at : min(length, at + ahead.size)])
                )
                oid = self._next(ahead.kind)
                if isinstance(oid, MessageOf):
                    large.begin_behind(MESSAGE)
                yield oid, large
                at += ahead.size + 1
                if at > length:  # its end, or only the line break after it, is still to come
                    large.skip()
                    stream.read(1)
                    at = length
            tail = buffer[at:length]
            buffer[1 : 1 + len(tail)] = tail
            length = 1 + len(tail)
        self._process.wait()
        self._feeder.join()
        self.complete = self._ended and not self._left

    def _whole_objects(
        self, buffer: bytearray, at: int, length: int
    ) -> tuple[list[tuple[bytes, int, int]], int, "_Ahead | None"]:
        """Give the objects that lie wholly in the buffer, where they end, and what follows: nothing where the buffer ends."""
        objects: list[tuple[bytes, int, int]] = []
        while (end := buffer.find(b"\n", at, length)) >= 0:
            header = buffer[at:end].split()
            if len(header) != 3 or not header[2].isdigit():
                return objects, end + 1, _Ahead(-1)
            size = int(header[2])
            start, stop = end + 1, end + 1 + size
            if size > _BUFFER // 2:
                return objects, start, _Ahead(size, bytes(header[1]))
            if stop >= length:
                break
            oid = self._next(bytes(header[1]))
            if isinstance(oid, MessageOf):
                mark = buffer.find(MESSAGE, start, stop)
                start = mark + len(MESSAGE) if mark >= 0 else stop
            objects.append((oid, start, stop))
            at = stop + 1
        return objects, at, None

    def _next(self, kind: bytes) -> bytes:
        """Give the id of the object that git answers with now; what its text is, is seen by it."""
        oid = self._left.popleft()
        return MessageOf(oid) if self._cut and kind in _WITH_MESSAGE else oid


class _Ahead(NamedTuple):
    """An object that is to be read alone; its size is −1 where it is missing."""

    size: int
    kind: bytes = b""
