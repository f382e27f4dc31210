"""Read objects with `git cat-file`, and look up the ids of objects.

`read_with_git` yields many small objects in one buffer, and large ones as streams. git ends at a damaged
object: it is then started again behind that object.
"""

import subprocess
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple, Self

from outcrop.limits import GIT_RESTARTS, LARGE_COMMIT_BYTES, READ_MEMORY
from outcrop.scanner.engine.scan import ContentBatch
from outcrop.sources.git import command
from outcrop.sources.git.repository import Repository

_BUFFER_BYTES = 2 << 20  # small, so that git goes on while objects are scanned
_MAX_BUFFERED = _BUFFER_BYTES // 2  # bytes of an object in the buffer; a larger one is a stream
_MESSAGE_TYPES = {b"commit", b"tag"}
HEADER_END = b"\n\n"  # before the message of a commit or tag


class MessageId(bytes):
    """The id of a commit or tag whose message was read."""

    __slots__ = ()


class LargeObject:
    """An object that is too large for the buffer: a stream that reads from git's output.

    `size` is the size of the object. `beginning` has the bytes of it that were read from `stream` already.
    """

    def __init__(self, stream: IO[bytes], size: int, beginning: bytes) -> None:
        self.size = size
        self.is_truncated = False  # git ended before the object did
        self._stream = stream
        self._beginning = beginning  # bytes that are not read from the stream any more
        self._remaining = size

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer at the end of the object or of git's output.

        Set `is_truncated` to whether git's output has ended before the object.
        """
        size = min(size, self._remaining)
        data, self._beginning = self._beginning[:size], self._beginning[size:]
        data += self._stream.read(size - len(data)) if len(data) < size else b""
        self._remaining -= len(data)
        self.is_truncated = len(data) < size
        return data

    def skip_header(self) -> None:
        """Skip the header of a commit or tag, up to its message; set `size` to the size of the message.

        If the first LARGE_COMMIT_BYTES have no end of a header, nothing is skipped, and `size` does not
        change.
        """
        head = self.read(LARGE_COMMIT_BYTES)
        before, separator, after = head.partition(HEADER_END)
        unread = after if separator else before
        self._beginning = unread + self._beginning
        self._remaining += len(unread)
        self.size = self._remaining

    def skip_rest(self) -> None:
        """Read and drop the rest of the object, so that the next object follows in git's output.

        Stop if git's output ends before.
        """
        while self._remaining and self.read(1 << 20):
            pass


CatFileItem = (
    ContentBatch | tuple[bytes, LargeObject | None]
)  # many objects, or one with its id; None if missing
Content = tuple[bytes, bytes | LargeObject | None]  # id and content of one object; None if missing


def read_with_git(
    repository: Repository, batches: Iterable[list[bytes]], *, messages_only: bool = True
) -> Iterator[CatFileItem]:
    """Yield the objects with these ids: small ones in a ContentBatch, large and missing ones one at a time.

    A ContentBatch, and a large object, which is (id, LargeObject), can be read only until the next item is
    requested; a missing or damaged object is (id, None). If `messages_only`, commits and tags are yielded
    without their headers and have a MessageId as id. git ends at a damaged object. Then the remaining ids are
    passed to a second process, without buffering: the first id without an answer is the damaged object. After
    GIT_RESTARTS all further objects count as missing.
    """
    batches = iter(batches)
    pending: deque[bytes] = deque()
    for _ in range(GIT_RESTARTS):
        with _CatFile(repository, pending, batches, messages_only=messages_only) as buffered:
            yield from buffered.read()
        if buffered.is_complete:
            return
        with _CatFile(repository, pending, messages_only=messages_only) as unbuffered:
            yield from unbuffered.read()
        if pending:
            yield pending.popleft(), None
    yield from ((oid, None) for batch in [list(pending), *batches] for oid in batch)


def split_item(item: CatFileItem) -> Iterator[Content]:
    """Yield (id, content) of each object of an item.

    The content is bytes; a LargeObject if the item is a large object; None if the object is missing.
    """
    if isinstance(item, ContentBatch):
        yield from ((oid, item.copy_bytes(start, stop)) for oid, start, stop in item.contents)
    else:
        yield item


def read_headers(repository: Repository, oids: list[bytes]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield (id, lines of the header) for each of these commits and tags.

    The lines are [b""] if the commit or tag cannot be read.
    """
    for item in read_with_git(repository, [oids], messages_only=False) if oids else ():
        for oid, content in split_item(item):
            raw = content.read(LARGE_COMMIT_BYTES) if isinstance(content, LargeObject) else content or b""
            yield oid, raw.partition(HEADER_END)[0].split(b"\n")


class _CatFile:
    """A `git cat-file --batch` process. A thread writes ids to it, so that neither side waits for the other.

    `pending` holds the ids without an answer. Those from an earlier process are written first, then
    `batches`. Without `batches`, git does not buffer its output.
    """

    def __init__(
        self,
        repository: Repository,
        pending: deque[bytes],
        batches: Iterator[list[bytes]] | None = None,
        *,
        messages_only: bool,
    ) -> None:
        arguments = ["cat-file", "--batch", *(["--buffer"] if batches is not None else [])]
        self._process = command.start(repository.folder, arguments, stdin=subprocess.PIPE, memory=READ_MEMORY)
        self._pending = pending
        self._retried = list(pending)
        self._batches = batches
        self._messages_only = messages_only
        self._all_written = False
        self.is_complete = False  # every id has had its answer
        self._feeder = threading.Thread(target=self._write_ids, daemon=True)

    def __enter__(self) -> Self:
        self._feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._feeder.join()
        self._process.__exit__(None, None, None)

    def _write_ids(self) -> None:
        """Write all ids to git's input, close the input and set `_all_written`.

        Add the ids of `batches` to `pending` before they are written. Return without an error if git ends
        before all ids are written.
        """
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - for the type checker
        try:
            stdin.write(b"".join(oid + b"\n" for oid in self._retried))
            for batch in self._batches or ():
                self._pending.extend(batch)
                stdin.write(b"".join(oid + b"\n" for oid in batch))
            self._all_written = True
            stdin.close()
        except (BrokenPipeError, ValueError, OSError):
            return

    def read(self) -> Iterator[CatFileItem]:
        """Yield the objects that git outputs, a buffer at a time; then set `is_complete`.

        `is_complete` is whether every id has had its answer. Large and missing objects are yielded one at a
        time. An object that is cut off at the end of the buffer is moved to the beginning of the next one. A
        yielded ContentBatch is valid only until the next item is requested.
        """
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - for the type checker
        buffer = bytearray(_BUFFER_BYTES)
        buffer[:1] = b"\n"
        length = 1
        while count := stream.readinto(memoryview(buffer)[length:]):  # type: ignore[attr-defined]
            length += count
            at = 1
            while True:
                objects, at, next_object = self._parse_buffer(buffer, at, length)
                if objects:
                    yield ContentBatch(buffer, at, objects)
                if next_object is None:
                    break
                if next_object.size < 0:
                    yield self._pending.popleft(), None
                    continue
                beginning = bytes(memoryview(buffer)[at : min(length, at + next_object.size)])
                large = LargeObject(stream, next_object.size, beginning)
                oid = self._take_id(next_object.type)
                if isinstance(oid, MessageId):
                    large.skip_header()
                yield oid, large
                at += next_object.size + 1
                if (
                    at > length
                ):  # the end of the object, or only the line break after it, is not in the buffer
                    large.skip_rest()
                    stream.read(1)
                    at = length
            unparsed = buffer[at:length]
            buffer[1 : 1 + len(unparsed)] = unparsed
            length = 1 + len(unparsed)
        self._process.wait()
        self._feeder.join()
        self.is_complete = self._all_written and not self._pending

    def _parse_buffer(
        self, buffer: bytearray, at: int, length: int
    ) -> tuple[list[tuple[bytes, int, int]], int, "_NextObject | None"]:
        """Return the complete small objects in `buffer[at:length]`, the next offset, and the next object.

        Each object is (id, start, end), and its id is removed from `pending`; a commit or tag starts at its
        message if only messages are read. The next object is a large one, and the offset is where its content
        begins; or a missing one, and the offset is after git's answer. The next object is None if the rest of
        the buffer, from the offset on, is empty or an incomplete object.
        """
        objects: list[tuple[bytes, int, int]] = []
        while (end := buffer.find(b"\n", at, length)) >= 0:
            header = buffer[at:end].split()
            if len(header) != 3 or not header[2].isdigit():
                return objects, end + 1, _NextObject(-1)
            size = int(header[2])
            start, stop = end + 1, end + 1 + size
            if size > _MAX_BUFFERED:
                return objects, start, _NextObject(size, bytes(header[1]))
            if stop >= length:
                break
            oid = self._take_id(bytes(header[1]))
            if isinstance(oid, MessageId):
                header_end = buffer.find(HEADER_END, start, stop)
                start = header_end + len(HEADER_END) if header_end >= 0 else stop
            objects.append((oid, start, stop))
            at = stop + 1
        return objects, at, None

    def _take_id(self, object_type: bytes) -> bytes:
        """Remove the next id from `pending` and return it, as a MessageId if only its message is read.

        `object_type` is the type that git reports for the object, such as b"commit".
        """
        oid = self._pending.popleft()
        return MessageId(oid) if self._messages_only and object_type in _MESSAGE_TYPES else oid


class _NextObject(NamedTuple):
    """An object that `_parse_buffer` does not list: a large one, or a missing one with the size -1."""

    size: int
    type: bytes = b""


def look_up(
    repository: Repository, names: list[bytes], output_format: str = "%(objectname)"
) -> list[bytes | None]:
    """Return what git outputs for each object name, such as `<commit>:<path>`; None for one that is missing.

    `output_format` is the format of `git cat-file --batch-check`; by default the answer is the object id. git
    ends at a damaged object and at some unusual paths. The answers for these are None too, and git is started
    again behind them. After GIT_RESTARTS starts all further answers are None.
    """
    answers: list[bytes | None] = []
    for _ in range(GIT_RESTARTS if names else 0):
        remaining = names[len(answers) :]
        code, out = command.run(
            repository.folder,
            "cat-file",
            "-z",
            f"--batch-check={output_format}",
            stdin_data=b"".join(name + b"\0" for name in remaining),
        )
        answers += _parse_answers(out, remaining)
        if code == 0 or len(answers) >= len(names):
            break
        answers.append(None)
    return [*answers, *[None] * (len(names) - len(answers))]


def _parse_answers(out: bytes, names: list[bytes]) -> Iterator[bytes | None]:
    """Yield git's answer for each of `names`, in their order, until `out` ends; None for "missing".

    `out` is the output of `git cat-file --batch-check`.
    """
    at = 0
    for name in names:
        missing = name + b" missing\n"  # compared as a whole, since a path may contain line breaks
        stop = at + len(missing) - 1 if out.startswith(missing, at) else out.find(b"\n", at)
        if stop < 0:
            return
        yield None if out.startswith(missing, at) else out[at:stop]
        at = stop + 1


def find_ids_at(repository: Repository, commit: bytes, paths: list[bytes]) -> list[bytes | None]:
    """Return the id of the object at each path of a commit; None where the commit does not have the path.

    The result is None too for a path that git cannot look up.
    """
    return look_up(repository, [commit + b":" + path for path in paths])


def find_existing(repository: Repository, oids: Sequence[bytes]) -> set[bytes]:
    """Return those of the hexadecimal ids whose object exists in the repository, as a set."""
    return {oid for oid in look_up(repository, list(oids)) if oid} if oids else set()
