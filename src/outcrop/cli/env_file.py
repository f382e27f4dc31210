"""The settings of a command: `--env-file` applies to the whole command and to its child processes."""

import os
import re
import stat
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from outcrop.settings import Settings

EnvFile = Annotated[
    Path | None,
    typer.Option(
        "--env-file", metavar="FILE", help="Read settings that the environment does not set from a file."
    ),
]
_IN_CURRENT_FOLDER = Path(".env")
_MAX_BYTES = 1 << 20  # of `.env`, searched for lines that look like settings

_env_file: ContextVar[Path | None] = ContextVar("env_file", default=None)


def use_env_file(file: Path | None) -> None:
    """Use this file for the settings of the running command."""
    _env_file.set(file)


def read_settings(default_data_dir: Path | None = None) -> "Settings":
    """Read the settings of the running command."""
    from outcrop.settings import DEFAULT_DATA_DIR, load_settings  # noqa: PLC0415 - a scan of files needs none

    return load_settings(_env_file.get(), default_data_dir=default_data_dir or DEFAULT_DATA_DIR)


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
