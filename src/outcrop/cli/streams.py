"""How a command meets its standard streams, and how it ends when it fails."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from outcrop.domain.line import one_line

_UNWRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def fail(message: str) -> NoReturn:
    """End with a line that names what is wrong; what it quotes, of a rule or a file's name, moves no cursor."""
    with contextlib.suppress(OSError):
        print(f"outcrop: {one_line(message)}", file=sys.stderr)
    sys.exit(2)


def standing() -> None:
    """Make the three streams usable whatever the caller has closed, and print what a terminal's encoding lacks as an escape."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # the lowest free number is this one: no other file shall take it
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), "w" if number else "r", encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def told(error: OSError) -> str:
    """Say what the machine has refused; what names no file and could not be written is the output."""
    reason = (error.strerror or type(error).__name__).lower()
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    if error.errno in _UNWRITTEN:
        no_reader()
        return f"the output cannot be written: {reason}"
    return reason


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Print, up to the last byte: that it cannot be written is told now, and who has closed a pipe has read enough."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the exit code says what there was all the same
        no_reader()


def no_reader() -> None:
    """Let what is still to be printed go nowhere: who read it has gone, or it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
