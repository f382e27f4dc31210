"""The files of a folder: every regular one, whatever its name; what cannot be read is told."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import (
    PART,
    Found,
    Part,
    Stretch,
    Wire,
    from_wire,
    parts_of,
    scan_part,
    scan_stream,
    scan_stretch,
    to_wire,
)
from outcrop.scanner.text.magic import ZIP_TAIL_BYTES, ends_with_zip, has_packed_header
from outcrop.sources.fork_pool import Emit, run_in_processes
from outcrop.sources.gitignore import IgnorePatterns
from outcrop.sources.located import (
    LocatedHit,
    ProgressCallback,
    ScanOutcome,
    hits_at_path,
    member_path,
    printable_path,
)

_FIRST_BATCH, _BATCH = 64 << 10, 8 << 20  # bytes: small at first, since nobody has anything to do before
_FILE = 4 << 10  # what a file costs before it is read, in bytes that could be read instead
_BUFFER = 4 << 20  # small files are looked at together; one of half of it is looked at alone
_LINE_BREAK = 10
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


@dataclass(slots=True)
class BatchResult:
    """What a worker tells: hits and gaps by path, and how far it has come."""

    hits: list[tuple[bytes, Wire]] = field(default_factory=list)
    gaps: list[tuple[bytes, str]] = field(default_factory=list)
    files: int = 0
    size: int = 0
    cut: bool = False  # the hits are those of a part of one file


Files = list[tuple[bytes, int]]  # each with its size
Batch = Files | tuple[bytes, Part]  # or a part of a large one


class FolderScan(NamedTuple):
    """One scan of a folder, or of a single file: what to look with, and what to leave out."""

    path: Path
    ruleset: RuleSet
    floor: Confidence
    jobs: int
    ignored: Callable[[bytes], bool]  # a folder's path ends with a slash
    gitignore: bool = False


def batches(
    base: bytes, files: Iterable[tuple[bytes, int]], jobs: int, gap: Callable[[bytes, str], None]
) -> Iterator[Batch]:
    """Give files, named from a folder on and with their sizes, in batches of about equal work for so many processes."""
    batch: Files = []
    size, enough = 0, _FIRST_BATCH
    for path, length in files:
        if length > PART and not _is_packed(base + path):
            yield from _parts(base, path, length, jobs, gap)
            continue
        batch.append((path, length))
        size += length + _FILE
        if size > enough:
            yield batch
            batch, size, enough = [], 0, min(2 * enough, _BATCH)
    if batch:
        yield batch


def _is_packed(path: bytes) -> bool:
    """Tell whether a file must be read from its beginning to its end; one that cannot be read need not be cut either."""
    try:
        with open_regular_file(path) as file:
            if has_packed_header(file.read(512)):
                return True
            before = max(0, file.seek(0, os.SEEK_END) - ZIP_TAIL_BYTES)
            file.seek(before)
            return ends_with_zip(file.read(ZIP_TAIL_BYTES), before=before)
    except OSError:
        return True


def _parts(
    base: bytes, path: bytes, size: int, jobs: int, gap: Callable[[bytes, str], None]
) -> Iterator[Batch]:
    try:
        with open_regular_file(base + path) as file:
            for part in parts_of(file.read, size, jobs):
                yield path, part
    except OSError as error:
        gap(path, _reason(error))


def walk_folder(work: FolderScan, gap: Callable[[bytes, str], None]) -> Iterator[tuple[bytes, int]]:
    """Give every regular file of a folder with its size, in the order of names. Links are not followed: what they name is not in it."""
    root = os.fsencode(work.path)
    folders: list[tuple[bytes, list[tuple[bytes, IgnorePatterns]]]] = [(b"", [])]
    while folders:
        folder, specs = folders.pop()
        try:
            entries = sorted(os.scandir(os.path.join(root, folder)), key=lambda entry: entry.name)
        except OSError as error:
            gap(folder, _reason(error))
            continue
        if work.gitignore and (spec := _spec(os.path.join(root, folder, b".gitignore"))):
            specs = [*specs, (folder, spec)]
        inner = []
        prefix = folder and folder + b"/"
        for entry in entries:
            path = prefix + entry.name
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                if work.ignored(path + b"/" if is_folder else path) or (
                    work.gitignore and _ignored(path, specs, is_folder=is_folder)
                ):
                    continue
                if is_folder:
                    inner.append((path, specs))
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False).st_size
                elif not entry.is_symlink():
                    gap(path, "not a regular file")
            except OSError as error:
                gap(path, _reason(error))
        folders += reversed(inner)


def _spec(path: bytes) -> IgnorePatterns | None:
    try:
        with open_regular_file(path) as file:
            return IgnorePatterns(file.read(1 << 20))
    except OSError:
        return None


def _ignored(path: bytes, specs: list[tuple[bytes, IgnorePatterns]], *, is_folder: bool) -> bool:
    """Ask the nearest .gitignore that says anything about the path."""
    if path == b".git" or path.endswith(b"/.git"):
        return True
    for folder, spec in reversed(specs):
        result = spec.says((path[len(folder) + 1 :] if folder else path) + (b"/" if is_folder else b""))
        if result is not None:
            return result
    return False


def batch_scanner(
    base: bytes, ruleset: RuleSet, floor: Confidence
) -> Callable[[Iterator[Batch], Emit], None]:
    """Give the work of one process: read files, scan them, tell."""

    def work(batches: Iterator[Batch], emit: Emit) -> None:
        buffer = bytearray(_BUFFER)
        for batch in batches:
            told = BatchResult(cut=isinstance(batch, tuple))
            for item in [batch] if isinstance(batch, tuple) else _stretches(base, batch, buffer, told):
                scanned = (
                    scan_stretch(ruleset, item, floor)
                    if isinstance(item, Stretch)
                    else _alone(base, item, ruleset, floor, told)
                )
                for path, found, size in scanned:
                    told.size += size
                    if found.hits or found.gaps:
                        told.hits.append((path, to_wire(found)))
            emit(told)

    return work


def _stretches(
    base: bytes, batch: Files, buffer: bytearray, told: BatchResult
) -> Iterator[Stretch | tuple[bytes, None]]:
    """Read the files of a batch, as many as fit, into the buffer; one that is too large for that is given by its path."""
    view = memoryview(buffer)
    contents: list[tuple[bytes, int, int]] = []
    length = 0
    for path, size in batch:
        told.files += 1
        if size > _BUFFER // 2:
            yield path, None
            continue
        if length + size + 2 > _BUFFER:
            yield Stretch(buffer, length, contents)
            contents, length = [], 0
        buffer[length] = _LINE_BREAK
        start = length + 1
        try:
            stop = start + _read(base + path, view[start:], size)
        except OSError as error:
            told.gaps.append((path, _reason(error)))
            continue
        if stop == _BUFFER:  # it has grown
            yield path, None
            continue
        contents.append((path, start, stop))
        length = stop
    yield Stretch(buffer, length, contents)


def _alone(
    base: bytes, item: tuple[bytes, Part | None], ruleset: RuleSet, floor: Confidence, told: BatchResult
) -> Iterator[tuple[bytes, Found, int]]:
    """Scan one large file, or a part of it."""
    path, part = item
    try:
        with open_regular_file(base + path) as file:
            if part is None:
                found = scan_stream(ruleset, file.read, floor)
                size = file.tell()
            else:
                told.files += not part.offset
                file.seek(part.offset)
                data = file.read(part.size)
                found = scan_part(ruleset, data, part, floor)
                size = part.own(len(data))
    except OSError as error:
        told.gaps.append((path, _reason(error)))
        return
    yield path, found, size


def open_regular_file(path: bytes) -> FileIO:
    """Open a regular file, without following a link that took its place, and without waiting for a pipe."""
    file = os.open(path, _OPEN)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "not a regular file")
    return FileIO(file)


def _read(path: bytes, room: memoryview, size: int) -> int:
    """Read a file until there is no more, as the size says where it is still right; give how much that was.

    It was a regular one a moment ago, and of very many the system is not asked again. What never ends fills the room, and is then opened
    with more care.
    """
    file = os.open(path, _OPEN)
    try:
        length = 0
        while length < len(room) and (count := os.readv(file, [room[length:]])):
            length += count
            if length == size:
                break
        return length
    finally:
        os.close(file)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _behind(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):  # of a link that leads nowhere, reading says what is wrong
        return path


def scan_folder(folder: FolderScan, progress: ProgressCallback) -> ScanOutcome:
    """Scan a folder, or a single file."""
    outcome = ScanOutcome()
    path = folder.path
    single = not path.is_dir()
    if (
        single and path.is_symlink()
    ):  # named by a person, it is what it points at; inside a folder a link is not followed
        path = _behind(path)
    if not single:
        os.scandir(path).close()  # where that is not allowed nothing can be read at all
    base = os.path.join(os.fsencode(path.parent if single else path), b"")
    todo = [(os.fsencode(path.name), _size(path))] if single else walk_folder(folder, outcome.gap)
    cut: dict[bytes, Found] = {}
    for told in run_in_processes(
        batches(base, todo, folder.jobs, outcome.gap),
        batch_scanner(base, folder.ruleset, folder.floor),
        folder.jobs,
    ):
        outcome.files += told.files
        outcome.size += told.size
        for name, reason in told.gaps:
            outcome.gap(name, reason)
        for name, wire in told.hits:
            found = from_wire(wire, folder.ruleset.rules)
            if told.cut:
                cut.setdefault(name, Found()).hits.extend(found.hits)
            else:
                _locate(outcome, name, found)
        progress(outcome)
    for name, found in cut.items():
        _locate(outcome, name, found)
    if single and outcome.gaps and not outcome.size:
        raise OperatorError(f"{printable_path(os.fsencode(path))}: {outcome.gaps[0][1]}")
    outcome.gaps = sorted(set(outcome.gaps))  # parts of one file have the same to tell
    return outcome


def _locate(outcome: ScanOutcome, name: bytes, found: Found) -> None:
    outcome.located += [LocatedHit(hit, member_path(name, inner)) for inner, hit in hits_at_path(found, name)]
    for reason in found.gaps:
        outcome.gap(name, reason)


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except OSError:  # reading it says what is wrong
        return 0
    if not stat.S_ISREG(status.st_mode):
        raise OperatorError(f"{printable_path(os.fsencode(path))}: not a regular file")
    return status.st_size
