"""The files of a folder: every regular one, whatever its name; what cannot be read is told."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.scanner.content import Found, Stretch, Wire, from_wire, scan_content, scan_stream, scan_stretch, to_wire
from outcrop.scanner.ruleset import RuleSet
from outcrop.sources.base import Located, Outcome, Progress, for_path, member, shown
from outcrop.sources.ignoring import Ignoring
from outcrop.sources.parallel import Emit, spread

_BATCH_BYTES = 4 << 20
_BATCH_FILES = 500
_BUFFER = 2 << 20  # small files are looked at together; one of half of it is looked at alone
_LARGE = 24 << 20
_LINE_BREAK = 10


@dataclass(slots=True)
class Read:
    """What a worker tells: hits and gaps by path, and how far it has come."""

    hits: list[tuple[bytes, Wire]] = field(default_factory=list)
    gaps: list[tuple[bytes, str]] = field(default_factory=list)
    files: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Folder:
    """One scan of a folder, or of a single file: what to look with, and what to leave out."""

    path: Path
    ruleset: RuleSet
    floor: Confidence
    jobs: int
    ignored: Callable[[bytes], bool]  # a folder's path ends with a slash
    gitignore: bool = False


def batches(folder: Folder, gap: Callable[[bytes, str], None]) -> Iterator[list[bytes]]:
    """Walk a folder, in the order of names, and give paths relative to it in batches of about equal work."""
    batch: list[bytes] = []
    size = 0
    for path, length in walk(folder, gap):
        batch.append(path)
        size += length
        if size > _BATCH_BYTES or len(batch) >= _BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def walk(work: Folder, gap: Callable[[bytes, str], None]) -> Iterator[tuple[bytes, int]]:
    """Give every regular file with its size. Links are not followed: what they name is not in the folder."""
    root = os.fsencode(work.path)
    folders: list[tuple[bytes, list[tuple[bytes, Ignoring]]]] = [(b"", [])]
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
                if work.ignored(path + b"/" if is_folder else path) or (work.gitignore and _ignored(path, specs, is_folder=is_folder)):
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


def _spec(path: bytes) -> Ignoring | None:
    try:
        with regular(path) as file:
            return Ignoring(file.read(1 << 20))
    except OSError:
        return None


def _ignored(path: bytes, specs: list[tuple[bytes, Ignoring]], *, is_folder: bool) -> bool:
    """Ask the nearest .gitignore that says anything about the path."""
    if path == b".git" or path.endswith(b"/.git"):
        return True
    for folder, spec in reversed(specs):
        result = spec.says((path[len(folder) + 1 :] if folder else path) + (b"/" if is_folder else b""))
        if result is not None:
            return result
    return False


def reader(root: Path, ruleset: RuleSet, floor: Confidence) -> Callable[[Iterator[list[bytes]], Emit], None]:
    """Give the work of one process: read files, scan them, tell."""
    base = os.path.join(os.fsencode(root), b"")

    def work(batches: Iterator[list[bytes]], emit: Emit) -> None:
        buffer = bytearray(_BUFFER)
        for batch in batches:
            told = Read()
            for item in _stretches(base, batch, buffer, told):
                scanned = scan_stretch(ruleset, item, floor) if isinstance(item, Stretch) else _alone(base, item, ruleset, floor, told)
                for path, found, size in scanned:
                    told.size += size
                    if found.hits or found.gaps:
                        told.hits.append((path, to_wire(found)))
            emit(told)

    return work


def _stretches(base: bytes, batch: list[bytes], buffer: bytearray, told: Read) -> Iterator[Stretch | bytes]:
    """Read the files of a batch, as many as fit, into the buffer; one that is too large for that is given by its path."""
    view = memoryview(buffer)
    contents: list[tuple[bytes, int, int]] = []
    length = 0
    for path in batch:
        told.files += 1
        try:
            file, size = _opened(base + path)
            try:
                if size > _BUFFER // 2:
                    yield path
                    continue
                if length + size + 2 > _BUFFER:
                    yield Stretch(buffer, length, contents)
                    contents, length = [], 0
                buffer[length] = _LINE_BREAK
                start = length + 1
                stop = start + _read(file, view[start:], size)
            finally:
                os.close(file)
        except OSError as error:
            told.gaps.append((path, _reason(error)))
            continue
        if stop == _BUFFER:  # it has grown
            yield path
            continue
        contents.append((path, start, stop))
        length = stop
    yield Stretch(buffer, length, contents)


def _alone(base: bytes, path: bytes, ruleset: RuleSet, floor: Confidence, told: Read) -> Iterator[tuple[bytes, Found, int]]:
    try:
        found, size = scan_file(base + path, ruleset, floor)
    except OSError as error:
        told.gaps.append((path, _reason(error)))
        return
    yield path, found, size


def scan_file(path: bytes, ruleset: RuleSet, floor: Confidence) -> tuple[Found, int]:
    """Scan one regular file."""
    with regular(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size <= _LARGE:
            data = file.read(status.st_size + 1)
            if len(data) <= status.st_size:
                return scan_content(ruleset, data, floor), len(data)
            file.seek(0)
        return scan_stream(ruleset, file.read, floor), status.st_size


def regular(path: bytes) -> FileIO:
    """Open a regular file, without following a link that took its place, and without waiting for a pipe."""
    return FileIO(_opened(path)[0])


def _opened(path: bytes) -> tuple[int, int]:
    """Open it as a mere descriptor, with its size: a folder has very many."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise OSError(0, "not a regular file")
    return file, status.st_size


def _read(file: int, room: memoryview, size: int) -> int:
    """Read until there is no more, as the size says where it says anything; give how much that was."""
    length = 0
    while length < len(room) and (count := os.readv(file, [room[length:]])):
        length += count
        if length == size:
            break
    return length


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _behind(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):  # of a link that leads nowhere, reading says what is wrong
        return path


def scan_folder(folder: Folder, progress: Progress) -> Outcome:
    """Scan a folder, or a single file."""
    outcome = Outcome()
    path = folder.path
    single = not path.is_dir()
    if single and path.is_symlink():  # named by a person, it is what it points at; inside a folder a link is not followed
        path = _behind(path)
    work = reader(path.parent if single else path, folder.ruleset, folder.floor)
    todo = iter([[os.fsencode(path.name)]]) if single else batches(folder, outcome.gap)
    for told in spread(todo, work, folder.jobs):
        outcome.files += told.files
        outcome.size += told.size
        for name, reason in told.gaps:
            outcome.gap(name, reason)
        for name, wire in told.hits:
            found = from_wire(wire, folder.ruleset.by_id)
            outcome.located += [Located(hit, member(name, inner)) for inner, hit in for_path(found, name)]
            for reason in found.gaps:
                outcome.gap(name, reason)
        progress(outcome)
    if single and outcome.gaps and not outcome.size:
        raise OperatorError(f"{shown(os.fsencode(path))}: {outcome.gaps[0][1]}")
    outcome.gaps.sort()
    return outcome
