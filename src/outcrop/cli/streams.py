"""Standard streams of a command, and its end after a failure."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from outcrop.domain.line import one_line

_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def fail(message: str) -> NoReturn:
    """Print one line to stderr and exit with 2. Control characters in the message are escaped."""
    with contextlib.suppress(OSError):
        print(f"outcrop: {one_line(message)}", file=sys.stderr)
    sys.exit(2)


def open_standard_streams() -> None:
    """Open the standard streams that the caller has closed; escape characters that stdout cannot encode."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # otherwise another file would get this descriptor
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), "w" if number else "r", encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def describe_os_error(error: OSError) -> str:
    """Return the error as text for the user. A write error without a file name concerns the output."""
    reason = (error.strerror or type(error).__name__).lower()
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    if error.errno in _WRITE_ERRORS:
        discard_output()
        return f"cannot write the output: {reason}"
    return reason


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Flush stdout at the end, so that a write error is reported; ignore a reader that closed the pipe."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the exit code still says whether there were findings
        discard_output()


def discard_output() -> None:
    """Send all further output to /dev/null."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
