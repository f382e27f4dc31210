"""Scan the files of a folder, or a single file.

1. `walk_folder` yields every regular file with its size.
2. `make_batches` groups the files into batches of about equal work and cuts large files into parts.
3. `batch_scanner` reads and scans batches. It runs in several processes.
4. `scan_folder` collects the hits and gaps of all batches.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.limits import GITIGNORE_BYTES
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import (
    SCAN_SIZES,
    ContentBatch,
    ScanResult,
    SerializedResult,
    TextPart,
    deserialize_result,
    scan_batch,
    scan_part,
    scan_stream,
    serialize_result,
    split_into_parts,
)
from outcrop.scanner.text.magic import ZIP_TAIL_BYTES, ends_with_zip, has_packed_header
from outcrop.sources.budget import SourceBudget
from outcrop.sources.fork_pool import Emit, run_in_processes
from outcrop.sources.gitignore import IgnorePatterns
from outcrop.sources.located import (
    LocatedHit,
    ProgressCallback,
    ScanOutcome,
    applicable_hits,
    member_path,
    printable_path,
)

_MIN_BATCH_BYTES = 1 << 20  # of the first batch: a second process costs as much as scanning this
_MAX_BATCH_BYTES = 8 << 20  # batches double up to this size
_OPEN_COST_BYTES = 4 << 10  # opening a file takes about as long as reading this much
_BUFFER_BYTES = (
    4 << 20
)  # small files are read into one buffer; a file of more than half of it is scanned alone
_HEAD_BYTES = 512  # enough to recognise an archive
_NEWLINE = ord("\n")
# A file may have become a link or a pipe since it was listed: neither follow the link nor wait for a writer.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

SizedPaths = list[tuple[bytes, int]]  # (path, size in bytes)
Batch = SizedPaths | tuple[bytes, TextPart]  # several files, or one part of a large file
GapCallback = Callable[[bytes, str], None]  # called with the path and the reason


class FolderScan(NamedTuple):
    """The parameters of one scan of a folder or of a single file."""

    path: Path
    ruleset: RuleSet
    floor: Confidence  # report hits of at least this confidence
    jobs: int  # number of processes
    ignored: Callable[[bytes], bool]  # whether to skip a path; that of a folder ends with a slash
    gitignore: bool = False  # skip what .gitignore files name, and .git
    listed: Sequence[bytes] | None = None  # scan only these files of the folder
    budget: SourceBudget | None = None


@dataclass(slots=True)
class BatchResult:
    """The hits and gaps of one batch by path, and how much was read."""

    hits: list[tuple[bytes, SerializedResult]] = field(default_factory=list)
    gaps: list[tuple[bytes, str]] = field(default_factory=list)
    files: int = 0
    size: int = 0
    is_part: bool = False  # the batch is a part of one large file


def scan_folder(folder: FolderScan, progress: ProgressCallback) -> ScanOutcome:
    """Scan a folder or a single file; call `progress` with the outcome so far after each batch.

    Return the hits, and the gaps sorted and each once. Raise OperatorError if a single file cannot be read or
    is not a regular file, and OSError if the folder cannot be listed.
    """
    outcome = ScanOutcome()
    path = folder.path
    is_file = not path.is_dir()
    files: Iterable[tuple[bytes, int]]
    if is_file:
        path = _resolve_link(path)
        base, files = path.parent, [(os.fsencode(path.name), _file_size(path))]
    else:
        os.scandir(path).close()  # raises if the folder may not be listed
        walk = walk_folder if folder.listed is None else walk_listed
        base, files = path, walk(folder, outcome.gap)
    prefix = os.path.join(os.fsencode(base), b"")
    batches = make_batches(prefix, files, folder.jobs, outcome.gap)
    found_in_parts: dict[bytes, ScanResult] = {}
    work, budget = batch_scanner(prefix, folder.ruleset, folder.floor), folder.budget or SourceBudget()
    for result in run_in_processes(batches, work, folder.jobs, budget=budget):
        budget.explain(objects=result.files, new_bytes=result.size)
        outcome.files += result.files
        outcome.size += result.size
        for name, reason in result.gaps:
            outcome.gap(name, reason)
        for name, serialized in result.hits:
            found = deserialize_result(serialized, folder.ruleset.rules)
            if result.is_part:
                found_in_parts.setdefault(name, ScanResult()).hits.extend(found.hits)
            else:
                _add_found(outcome, name, found)
        progress(outcome)
    for name, found in found_in_parts.items():
        _add_found(outcome, name, found)
    if budget.reason:
        outcome.gap("", budget.reason)
    if is_file and outcome.gaps and not outcome.size:
        raise OperatorError(f"{printable_path(os.fsencode(path))}: {outcome.gaps[0][1]}")
    outcome.gaps = sorted(set(outcome.gaps))  # the parts of one file report the same gap
    return outcome


def _add_found(outcome: ScanOutcome, name: bytes, found: ScanResult) -> None:
    """Add the hits in `found` that count at the path `name`, and its gaps, to the outcome."""
    outcome.located += [
        LocatedHit(hit, member_path(name, inner), inner=inner) for inner, hit in applicable_hits(found, name)
    ]
    for reason in found.gaps:
        outcome.gap(name, reason)


def _resolve_link(path: Path) -> Path:
    """Return the file that a symbolic link leads to, or the path itself if it is no link.

    A broken link is returned as it is, so that reading it fails.
    """
    if not path.is_symlink():
        return path
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return path


def _file_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if the size cannot be read, since reading will report the reason.

    Raise OperatorError if it is not a regular file.
    """
    try:
        status = path.stat()
    except OSError:
        return 0
    if not stat.S_ISREG(status.st_mode):
        raise OperatorError(f"{printable_path(os.fsencode(path))}: not a regular file")
    return status.st_size


# --- Listing the files of a folder


def walk_folder(scan: FolderScan, gap: GapCallback) -> Iterator[tuple[bytes, int]]:
    """Yield path and size of every regular file in the folder of `scan`, in the order of names.

    The files of a folder come before those of its subfolders. Paths are relative to the folder. Ignored paths
    and symbolic links are skipped. `gap` is called with path and reason for each file or folder that cannot
    be read or is special.
    """
    root = os.fsencode(scan.path)
    pending: list[tuple[bytes, list[tuple[bytes, IgnorePatterns]]]] = [(b"", [])]
    while pending:
        folder, patterns = pending.pop()
        try:
            entries = sorted(os.scandir(os.path.join(root, folder)), key=lambda entry: entry.name)
        except OSError as error:
            gap(folder, _error_text(error))
            continue
        if scan.gitignore and (own := _read_gitignore(os.path.join(root, folder, b".gitignore"))):
            patterns = [*patterns, (folder, own)]
        subfolders = []
        prefix = folder and folder + b"/"
        for entry in entries:
            path = prefix + entry.name
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                if scan.ignored(path + b"/" if is_folder else path) or (
                    scan.gitignore and _is_gitignored(path, patterns, is_folder=is_folder)
                ):
                    continue
                if is_folder:
                    subfolders.append((path, patterns))
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False).st_size
                elif not entry.is_symlink():
                    gap(path, "not a regular file")
            except OSError as error:
                gap(path, _error_text(error))
        pending += reversed(subfolders)


def walk_listed(scan: FolderScan, gap: GapCallback) -> Iterator[tuple[bytes, int]]:
    """Yield path and size of the listed files that are regular, exist and are not ignored.

    `gap` is called with path and reason for each file that cannot be read.
    """
    root = os.fsencode(scan.path)
    for path in scan.listed or ():
        parts = path.split(b"/")
        if any(scan.ignored(b"/".join(parts[:count]) + b"/") for count in range(1, len(parts))):
            continue
        try:
            status = os.lstat(os.path.join(root, path))
        except FileNotFoundError:  # it was deleted since it was listed
            continue
        except OSError as error:
            gap(path, _error_text(error))
            continue
        if stat.S_ISREG(status.st_mode) and not scan.ignored(path):
            yield path, status.st_size


def _read_gitignore(path: bytes) -> IgnorePatterns | None:
    """Return the patterns of a .gitignore file; None if there is no such file or it cannot be read."""
    try:
        with open_regular_file(path) as file:
            return IgnorePatterns(file.read(GITIGNORE_BYTES))
    except OSError:
        return None


def _is_gitignored(path: bytes, patterns: list[tuple[bytes, IgnorePatterns]], *, is_folder: bool) -> bool:
    """Whether .gitignore files ignore the path: the nearest one that has a matching pattern decides.

    `patterns` are (folder of the .gitignore, its patterns), the outermost folder first. `is_folder` is
    whether the path is a folder. `.git` is always ignored.
    """
    if path == b".git" or path.endswith(b"/.git"):
        return True
    for folder, own in reversed(patterns):
        ignored = own.match((path[len(folder) + 1 :] if folder else path) + (b"/" if is_folder else b""))
        if ignored is not None:
            return ignored
    return False


# --- Making batches


def make_batches(
    base: bytes, files: Iterable[tuple[bytes, int]], jobs: int, gap: GapCallback
) -> Iterator[Batch]:
    """Yield the files in batches of about equal work for `jobs` processes; cut large files into parts.

    `files` are (path, size in bytes); the paths are relative to `base`, which ends with a slash. A file is
    cut if it is larger than SCAN_SIZES.part and no archive: each part is a batch (path, part). `gap` is
    called with path and reason for such a file that cannot be read.
    """
    batch: SizedPaths = []
    size, limit = 0, _MIN_BATCH_BYTES
    for path, length in files:
        if length > SCAN_SIZES.part and not _is_archive(base + path):
            yield from _cut_file(base, path, length, jobs, gap)
            continue
        batch.append((path, length))
        size += length + _OPEN_COST_BYTES
        if size > limit:
            yield batch
            batch, size, limit = [], 0, min(2 * limit, _MAX_BATCH_BYTES)
    if batch:
        yield batch


def _is_archive(path: bytes) -> bool:
    """Whether the file is an archive, which cannot be scanned in parts; also True if it cannot be read."""
    try:
        with open_regular_file(path) as file:
            if has_packed_header(file.read(_HEAD_BYTES)):
                return True
            before = max(0, file.seek(0, os.SEEK_END) - ZIP_TAIL_BYTES)
            file.seek(before)
            return ends_with_zip(file.read(ZIP_TAIL_BYTES), before=before)
    except OSError:
        return True


def _cut_file(base: bytes, path: bytes, size: int, jobs: int, gap: GapCallback) -> Iterator[Batch]:
    """Yield (path, part) for each part of a large file of `size` bytes, to be scanned by `jobs` processes.

    A part is a position without content; the file is read to count lines. The path is relative to `base`.
    If reading fails, also after some parts, call `gap` with path and reason.
    """
    try:
        with open_regular_file(base + path) as file:
            for part in split_into_parts(file.read, size, jobs):
                yield path, part
    except OSError as error:
        gap(path, _error_text(error))


# --- Scanning batches, in several processes


def batch_scanner(
    base: bytes, ruleset: RuleSet, floor: Confidence
) -> Callable[[Iterator[Batch], Emit], None]:
    """Return the function that one process runs: scan each batch and emit its BatchResult.

    Paths are relative to `base`, which ends with a slash. Hits below the confidence `floor` are dropped.
    """

    def scan_batches(batches: Iterator[Batch], emit: Emit) -> None:
        """Scan each batch and emit its BatchResult."""
        buffer = bytearray(_BUFFER_BYTES)
        for batch in batches:
            result = BatchResult(is_part=isinstance(batch, tuple))
            for item in [batch] if isinstance(batch, tuple) else _read_batch(base, batch, buffer, result):
                scanned = (
                    scan_batch(ruleset, item, floor)
                    if isinstance(item, ContentBatch)
                    else _scan_alone(base, item, ruleset, floor, result)
                )
                for path, found, size in scanned:
                    result.size += size
                    if found.hits or found.gaps:
                        result.hits.append((path, serialize_result(found)))
            emit(result)

    return scan_batches


def _read_batch(
    base: bytes, batch: SizedPaths, buffer: bytearray, result: BatchResult
) -> Iterator[ContentBatch | tuple[bytes, None]]:
    """Read the files of a batch into the buffer, and yield the buffer each time it is full and at the end.

    A yielded ContentBatch is valid until the next one is requested. Paths are relative to `base`. A file that
    is too large for the buffer is yielded as (path, None). Count the files, and add those that cannot be read
    as gaps, in `result`.
    """
    view = memoryview(buffer)
    contents: list[tuple[bytes, int, int]] = []
    length = 0
    for path, size in batch:
        result.files += 1
        if size > _BUFFER_BYTES // 2:
            yield path, None
            continue
        if length + size + 2 > _BUFFER_BYTES:
            yield ContentBatch(buffer, length, contents)
            contents, length = [], 0
        buffer[length] = _NEWLINE
        start = length + 1
        try:
            stop = start + _read_into(base + path, view[start:], size)
        except OSError as error:
            result.gaps.append((path, _error_text(error)))
            continue
        if stop == _BUFFER_BYTES:  # the file has grown since it was listed
            yield path, None
            continue
        contents.append((path, start, stop))
        length = stop
    yield ContentBatch(buffer, length, contents)


def _scan_alone(
    base: bytes, item: tuple[bytes, TextPart | None], ruleset: RuleSet, floor: Confidence, result: BatchResult
) -> Iterator[tuple[bytes, ScanResult, int]]:
    """Scan a large file, or one part of it; yield (path, result, number of bytes scanned) once.

    `item` is (path, part), or (path, None) for the whole file; the path is relative to `base`. Hits below the
    confidence `floor` are dropped. With the first part the file is counted in `result`. If the file cannot be
    read, add a gap to `result` and yield nothing.
    """
    path, part = item
    try:
        with open_regular_file(base + path) as file:
            if part is None:
                found = scan_stream(ruleset, file.read, floor)
                size = file.tell()
            else:
                result.files += not part.offset  # a file is counted with its first part
                file.seek(part.offset)
                data = file.read(part.size)
                found = scan_part(ruleset, data, part, floor)
                size = part.own_size(len(data))
    except OSError as error:
        result.gaps.append((path, _error_text(error)))
        return
    yield path, found, size


def open_regular_file(path: bytes) -> FileIO:
    """Open a regular file for reading, without a buffer.

    Raise OSError if the path is a link, a pipe or a device, without waiting for a writer, or if it cannot be
    opened.
    """
    file = os.open(path, _OPEN_FLAGS)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "not a regular file")
    return FileIO(file)


def _read_into(path: bytes, room: memoryview, size: int) -> int:
    """Read a file into `room` and return the number of bytes.

    Stop at the end of the file, when `room` is full, or when exactly `size` bytes are read, which is the
    expected size of the file. The file's type is not checked, which would cost a system call for each of very
    many files. A file without end fills `room`, and the caller then opens it with `open_regular_file`. Raise
    OSError if it cannot be read.
    """
    file = os.open(path, _OPEN_FLAGS)
    try:
        length = 0
        while length < len(room) and (count := os.readv(file, [room[length:]])):
            length += count
            if length == size:
                break
        return length
    finally:
        os.close(file)


def _error_text(error: OSError) -> str:
    """Return the reason of an OSError in lower case, such as "permission denied"; its type if it has none."""
    return (error.strerror or type(error).__name__).lower()
