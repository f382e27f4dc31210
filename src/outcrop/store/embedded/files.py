"""Open, lock and create the private files of the embedded server."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_LOG_BYTES = 1_000_000


@contextmanager
def open_fd(path: Path, flags: int) -> Iterator[int]:
    """Open a private file for reading and writing, and create it if needed; with O_DIRECTORY, open a folder.

    Yield the file descriptor, and close it at the end.
    """
    access = os.O_RDONLY if flags == os.O_DIRECTORY else os.O_RDWR | os.O_CREAT
    fd = os.open(path, flags | access | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def lock_file(path: Path, operation: int) -> Iterator[int]:
    """Hold an flock on the file (LOCK_SH or LOCK_EX) during the block; yield its file descriptor."""
    with open_fd(path, 0) as fd:
        fcntl.flock(fd, operation)
        try:
            yield fd
        finally:
            # Closing alone would not unlock it: a forked child may have a copy of the descriptor.
            fcntl.flock(fd, fcntl.LOCK_UN)


@contextmanager
def try_lock_file(path: Path) -> Iterator[bool]:
    """Hold an exclusive flock on the file during the block, if it is free; yield whether it was."""
    with open_fd(path, 0) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)


def make_private_folder(folder: Path) -> None:
    """Create the folder and its missing parents with mode 0700; give an existing folder that mode too."""
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)


def trim_log(log: Path) -> None:
    """Empty a log that is longer than MAX_LOG_BYTES, and keep its end in `log.1`.

    The file is emptied in place, since the server has it open and appends to it.
    """
    with open_fd(log, 0) as fd:
        size = os.fstat(fd).st_size
        if size > MAX_LOG_BYTES:
            with suppress(OSError), open_fd(log.with_name("log.1"), os.O_TRUNC) as old:
                os.write(old, os.pread(fd, MAX_LOG_BYTES, size - MAX_LOG_BYTES))
            os.ftruncate(fd, 0)
