"""Folders for work in progress: each is locked by the process that uses it, and what a killed one left is swept by the next."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from outcrop.domain.errors import OperatorError

_LOCK = ".lock"


def cache_folder() -> Path:
    """Give the folder for what can be made again: compiled rules, what was scanned, work in progress."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        return (Path(base) if base.startswith("/") else Path("~/.cache").expanduser()) / "outcrop"
    except RuntimeError:  # a user without a home, as in some containers: nothing can be kept
        return Path(os.devnull) / "outcrop"


@contextlib.contextmanager
def work_folder(cache: Path) -> Iterator[Path]:
    """Make a folder that is gone afterwards, whatever happens."""
    try:
        folder, lock = _made(cache / "work")
    except OSError:
        folder, lock = _made(_temporary())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _made(parent: Path) -> tuple[Path, int]:
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_abandoned_folders(parent)
    return _locked(parent)


def _temporary() -> Path:
    """Give our folder among everybody's: who else could write to it could have git run what they like."""
    folder = Path(tempfile.gettempdir()) / f"outcrop-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OperatorError(
            f"{folder}: others can write there; name a folder of your own for work in progress by XDG_CACHE_HOME"
        )
    return folder


def _locked(parent: Path) -> tuple[Path, int]:
    """Make a folder and lock it; one that another process has swept before it was locked is made again."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix="scan-", dir=parent))
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _LOCK).exists():
            return folder, lock
        os.close(lock)


def remove_abandoned_folders(parent: Path) -> None:
    """Remove the folders whose process is gone: nobody holds their lock."""
    for folder in parent.glob("scan-*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if _is_old(folder):  # killed before it had a lock; a young one is just being made
                shutil.rmtree(folder, ignore_errors=True)
            continue
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _is_old(folder: Path) -> bool:
    import time  # noqa: PLC0415

    try:
        return time.time() - folder.stat().st_mtime > 60
    except OSError:
        return False
