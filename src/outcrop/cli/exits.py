"""How a command meets its standard streams, and how it ends when it fails."""

import contextlib
import io
import os
import sys
from typing import NoReturn


def fail(message: str) -> NoReturn:
    with contextlib.suppress(OSError):
        print(f"outcrop: {message}", file=sys.stderr)
    sys.exit(2)


def standing() -> None:
    """Make the three streams usable whatever the caller has closed, and print what a terminal's encoding lacks as an escape."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # the lowest free number is this one: no other file shall take it
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), "w" if number else "r", encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def no_reader() -> None:
    """Let what is still to be printed go nowhere: who read it has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
