"""Create temporary folders for clones and other work in progress.

Each folder has a lock file that its process holds. A killed process leaves its folder behind; the next
process that creates one removes all folders whose lock is free.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from outcrop.domain.errors import OperatorError

_LOCK_FILE = ".lock"
_MAX_UNLOCKED_SECONDS = 60  # a folder without a lock file is younger: its process is about to create the file


def cache_folder() -> Path:
    """Return the folder for files that can be created again: compiled rules, scan caches, clones.

    The folder is `outcrop` in XDG_CACHE_HOME or ~/.cache, and need not exist. For a user without a home the
    result is a path that cannot be created.
    """
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        return (Path(base) if base.startswith("/") else Path("~/.cache").expanduser()) / "outcrop"
    except RuntimeError:  # a user without a home, as in some containers: nothing can be cached
        return Path(os.devnull) / "outcrop"


@contextlib.contextmanager
def work_folder(cache: Path, temporary: Path | None = None) -> Iterator[Path]:
    """Yield a new folder in `cache`/work, or else in the folder `temporary`; remove it on exit.

    `temporary` is by default the system's. The new folder is locked until the exit. Folders of processes that
    have ended are removed first. Raise OperatorError as `_own_temporary_folder` does.
    """
    try:
        folder, lock = _create_folder(cache / "work")
    except OSError:
        folder, lock = _create_folder(_own_temporary_folder(temporary or Path(tempfile.gettempdir())))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def create_work_folders(cache: Path, temporary: Path | None = None) -> list[Path]:
    """Create the folders in which `work_folder` creates its own; return those that can be used."""
    found = []
    with contextlib.suppress(OSError):
        (cache / "work").mkdir(mode=0o700, parents=True, exist_ok=True)
        found.append(cache)
    with contextlib.suppress(OSError, OperatorError):
        found.append(_own_temporary_folder(temporary or Path(tempfile.gettempdir())))
    return found


def _create_folder(parent: Path) -> tuple[Path, int]:
    """Create and lock a folder in `parent`; return the folder and the file descriptor of its lock.

    `parent` is created if it is missing. Abandoned folders in `parent` are removed.
    """
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_abandoned_folders(parent)
    while True:
        folder = Path(tempfile.mkdtemp(prefix="scan-", dir=parent))
        lock = os.open(folder / _LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _LOCK_FILE).exists():
            return folder, lock
        os.close(lock)  # another process removed the folder before it was locked


def _own_temporary_folder(temporary: Path) -> Path:
    """Return this user's folder in the folder `temporary`; it is created if it is missing.

    Raise OperatorError if it is no folder, or if another user owns it or can write to it: who can write to a
    repository can make git run programs.
    """
    folder = temporary / f"outcrop-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OperatorError(
            f"{folder}: other users can write to this folder; set XDG_CACHE_HOME to a folder of your own"
        )
    return folder


def remove_abandoned_folders(parent: Path) -> None:
    """Remove the work folders in `parent` whose process has ended, so that nobody holds their lock.

    A folder without a lock file is removed if it was last changed more than _MAX_UNLOCKED_SECONDS ago.
    """
    for folder in parent.glob("scan-*"):
        try:
            lock = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if _is_old(folder):  # the process was killed before it created the lock file
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
    """Whether the folder was last changed more than _MAX_UNLOCKED_SECONDS ago; False if it is gone."""
    import time  # noqa: PLC0415

    try:
        return time.time() - folder.stat().st_mtime > _MAX_UNLOCKED_SECONDS
    except OSError:
        return False
