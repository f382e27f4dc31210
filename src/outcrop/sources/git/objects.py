"""Read and scan the blobs and messages of a repository.

1. `make_object_scanner` returns the work of one process: it scans batches of ids and reports hits.
2. `scan_objects` scans objects one after the other.
3. `read_objects` reads them from the packs, and from git what the packs cannot give.
"""

import time
from binascii import unhexlify
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from outcrop.domain.finding import Confidence
from outcrop.limits import PACK_LIMITS, PackLimits
from outcrop.scanner.engine.delta_scan import FileVersion
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import (
    ContentBatch,
    ScanResult,
    SerializedResult,
    deserialize_result,
    scan_batch,
    scan_stream,
    scan_versions,
    serialize_result,
)
from outcrop.scanner.rules.cache_format import LazyRules
from outcrop.sources.fork_pool import Emit
from outcrop.sources.git.cat_file import (
    HEADER_END,
    CatFileItem,
    Content,
    MessageId,
    find_ids_at,
    read_with_git,
    split_item,
)
from outcrop.sources.git.enumerate_objects import MessageBatch
from outcrop.sources.git.packs.pack import PackReader
from outcrop.sources.git.repository import Repository

_REPORT_BYTES = 8 << 20  # bytes of scanned blobs after which a process reports
_REPORT_HITS = 200  # objects with hits after which a process reports
_REPORT_CPU = 2.0  # CPU seconds after which a process reports
_MISSING, _TRUNCATED = "object is missing or damaged", "object is damaged: only its beginning was read"
READ_GAPS = {_MISSING, _TRUNCATED}


@dataclass(frozen=True, slots=True)
class ReadSizes:
    """How many objects are read and scanned together."""

    scanned_bytes: int = 1 << 20  # of objects that are scanned together
    waiting: int = 10_000  # objects that wait for git before git is started
    packs: PackLimits = PACK_LIMITS


READ_SIZES = ReadSizes()

Versions = list[tuple[bytes, FileVersion]]  # ids and contents of blobs, each after its delta base


@dataclass(slots=True)
class WorkerReport:
    """Hits and gaps by object id, and how much was scanned since the last report.

    `objects` counts messages too; `new_bytes` leaves out what a blob has copied from its delta base.
    """

    hits: list[tuple[bytes, SerializedResult]] = field(default_factory=list)
    gaps: list[tuple[bytes, str]] = field(default_factory=list)
    blobs: int = 0
    size: int = 0
    objects: int = 0
    new_bytes: int = 0


class ResultsById(Mapping[bytes, ScanResult]):
    """Scan results by hexadecimal object id, kept in serialized form: a long history has many of them."""

    def __init__(self, rules: LazyRules) -> None:
        self._rules = rules
        self._serialized: dict[bytes, SerializedResult] = {}

    def add(self, report: WorkerReport) -> None:
        """Add the hits and gaps of a report; each replaces the earlier result of the same object."""
        for oid, serialized in report.hits:
            self._serialized[oid] = serialized
        for oid, reason in report.gaps:
            self._serialized[oid] = serialize_result(ScanResult(gaps=[reason]))

    def __getitem__(self, oid: bytes) -> ScanResult:
        return deserialize_result(self._serialized[oid], self._rules)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._serialized)

    def __len__(self) -> int:
        return len(self._serialized)


def make_object_scanner(
    repository: Repository, ruleset: RuleSet, floor: Confidence
) -> Callable[[Iterator[list[bytes]], Emit], None]:
    """Return a function that scans the objects of batches and emits WorkerReports: the work of a process.

    Hits below the confidence `floor` are dropped.
    """

    def work(batches: Iterator[list[bytes]], emit: Emit) -> None:
        """Scan the objects with the ids in `batches`, and emit WorkerReports.

        Emit one after every _REPORT_BYTES of blobs, _REPORT_HITS objects with hits or _REPORT_CPU seconds,
        and one at the end.
        """
        report = WorkerReport()
        reported = time.process_time()
        for oid, result, size, new_bytes in scan_objects(repository, ruleset, floor, batches):
            report.objects += 1
            report.new_bytes += new_bytes
            if not isinstance(oid, MessageId):
                report.blobs += 1
                report.size += size
            if isinstance(result, str):
                report.gaps.append((oid, result))
            elif result.hits or result.gaps:
                report.hits.append((oid, serialize_result(result)))
            if (
                report.size > _REPORT_BYTES
                or len(report.hits) > _REPORT_HITS
                or time.process_time() - reported > _REPORT_CPU
            ):
                emit(report)
                report, reported = WorkerReport(), time.process_time()
        emit(report)

    return work


def scan_objects(
    repository: Repository, ruleset: RuleSet, floor: Confidence, batches: Iterable[list[bytes]]
) -> Iterator[tuple[bytes, ScanResult | str, int, int]]:
    """Yield (id, result, size, new bytes) for each object with an id in `batches`.

    The new bytes of an object are those that it has not copied from its delta base.

    The id is a MessageId for a commit or tag, whose message alone is scanned. The result has hits of at least
    the confidence `floor`. If the object could not be read, the result is the reason as a text, and the size
    is 0.
    """
    for item in read_objects(repository, batches):
        if isinstance(item, list):
            copied = [sum(stop - start for start, stop, _ in version.copied) for _, version in item]
            for (oid, result, size), old in zip(scan_versions(ruleset, item, floor), copied, strict=True):
                yield oid, result, size, size - old
        elif isinstance(item, ContentBatch):
            for oid, result, size in scan_batch(ruleset, item, floor):
                yield oid, result, size, size
        elif item[1] is None:
            yield item[0], _MISSING, 0, 0
        else:
            result = scan_stream(ruleset, item[1].read, floor)
            if item[1].is_truncated:
                result.gaps.append(_TRUNCATED)
            yield item[0], result, item[1].size, item[1].size


def read_contents(
    repository: Repository, batches: Iterable[list[bytes]], sizes: ReadSizes = READ_SIZES
) -> Iterator[Content]:
    """Yield (id, content) of each object with an id in `batches`, one by one.

    The content is bytes; or a LargeObject, which can be read only until the next object is requested; or None
    if git cannot read the object. Of a commit or tag the content is the message.
    """
    for item in read_objects(repository, batches, sizes):
        if isinstance(item, list):
            yield from ((oid, version.content) for oid, version in item)
        else:
            yield from split_item(item)


def read_file_at_head(repository: Repository, path: bytes) -> bytes:
    """Return the content of a file of HEAD; b"" if there is no HEAD or HEAD does not have the file.

    Return b"" too if the file is larger than 1 MB or cannot be read.
    """
    oid = find_ids_at(repository, repository.head, [path])[0] if repository.head else None
    if oid is None:
        return b""
    contents = (content for _, content in read_contents(repository, [[oid]]))
    return next((content for content in contents if isinstance(content, bytes)), b"")


def read_objects(
    repository: Repository, batches: Iterable[list[bytes]], sizes: ReadSizes = READ_SIZES
) -> Iterator[CatFileItem | Versions]:
    """Yield the blobs and messages with the ids in `batches`, many at a time: from packs, or else from git.

    Blobs of packs are yielded as a list of (id, FileVersion), which is valid until the next item is
    requested. Other items are as in `read_with_git`. git reads what the packs cannot give. git is started
    once at the end, or earlier if `sizes.waiting` objects wait for it.
    """
    waiting: list[bytes] = []  # ids that the packs cannot give
    with closing(PackReader(repository.objects, sizes.packs)) as packs:
        versions: Versions = []
        size, max_size = 0, sizes.scanned_bytes
        for batch in batches:
            if isinstance(batch, MessageBatch):
                yield from _read_messages(packs, batch, waiting, sizes.scanned_bytes)
            else:
                for oid in batch:
                    version = packs.read_blob(unhexlify(oid))
                    if version is None:
                        waiting.append(oid)
                        continue
                    versions.append((oid, version))
                    size += len(version.content)
                    if size > max_size:
                        yield versions
                        for _, scanned in versions:
                            scanned.drop_base()
                        versions, size = [], 0
            if len(waiting) >= sizes.waiting:
                yield from read_with_git(repository, [waiting.copy()])
                waiting.clear()
        if versions:
            yield versions
    if waiting:
        yield from read_with_git(repository, [waiting])


def _read_messages(
    packs: PackReader, batch: MessageBatch, waiting: list[bytes], max_size: int
) -> Iterator[ContentBatch]:
    """Yield the messages of a batch of commits and tags, many in each ContentBatch, with MessageIds as ids.

    Add the ids of commits and tags that cannot be read from the packs to `waiting`: git must read them.
    """
    buffer, contents = bytearray(b"\n"), list[tuple[bytes, int, int]]()
    for oid, offset in zip(batch, batch.offsets, strict=True):
        data = packs.read_commit_or_tag(batch.pack_index, offset)
        if data is None:
            waiting.append(oid)
            continue
        start = len(buffer)
        buffer += data.partition(HEADER_END)[2]
        contents.append((MessageId(oid), start, len(buffer)))
        buffer += b"\n"
        if len(buffer) > max_size:
            yield ContentBatch(buffer, len(buffer), contents)
            buffer, contents = bytearray(b"\n"), []
    if contents:
        yield ContentBatch(buffer, len(buffer), contents)
