"""The settings of a command, and warnings about them.

`--env-file` applies to the whole command and to its child processes.
"""

import os
import re
import stat
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outcrop.settings import Settings
    from outcrop.settings_sources import LoadedSettings

_IN_CURRENT_FOLDER = Path(".env")
_MAX_BYTES = 1 << 20  # of `.env`, searched for lines that look like settings

_env_file: ContextVar[Path | None] = ContextVar("env_file", default=None)
_has_warned: ContextVar[bool] = ContextVar("has_warned", default=False)


def use_env_file(file: Path | None) -> None:
    """Use this file for the settings of the running command."""
    _env_file.set(file)


def read_settings(folder_in_data: str = "") -> "Settings":
    """Read the settings of the running command.

    The default data folder is the folder of this name in the usual one.
    """
    return load(folder_in_data).settings


def load(folder_in_data: str = "") -> "LoadedSettings":
    """Read the settings of the running command with their origins; print the warnings, once a command."""
    from outcrop.settings_sources import load_with_origins  # noqa: PLC0415 - a scan of files needs none

    loaded = load_with_origins(_env_file.get(), folder_in_data=folder_in_data)
    if not _has_warned.get():
        _has_warned.set(True)
        for warning in loaded.warnings:
            print(f"outcrop: warning: {warning}", file=sys.stderr)
    return loaded


def leave_warnings_to_parent() -> None:
    """Print no warnings about settings: the parent process has printed them."""
    _has_warned.set(True)


def env_file_arguments() -> list[str]:
    """Return the arguments that give a child process the same file."""
    file = _env_file.get()
    return [] if file is None else ["--env-file", str(file.expanduser().absolute())]


def warn_about_ignored_file() -> None:
    """Warn if the current folder has a `.env` with lines that look like settings: it is never read.

    It may belong to a foreign repository, whose settings could run programs and redirect connections.
    """
    if _names_settings(_IN_CURRENT_FOLDER) and _env_file.get() != _IN_CURRENT_FOLDER:
        print(
            "outcrop: warning: the settings in .env of this folder are not read; use --env-file FILE, or"
            " outcrop.env in the data folder",
            file=sys.stderr,
        )


def _names_settings(file: Path) -> bool:
    """Whether it is a regular file with a line such as `OUTCROP_PORT=1`. Never waits for a pipe."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as content:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        lines = re.MULTILINE | re.IGNORECASE
        return (
            re.search(rb"^[ \t]*(?:export[ \t]+)?OUTCROP_\w+[ \t]*=", content.read(_MAX_BYTES), lines)
            is not None
        )
