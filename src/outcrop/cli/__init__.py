"""The command line: one module per group of commands, each command one service call."""

import errno
import gc
import os
import sys

from outcrop.cli.commands import tree
from outcrop.cli.exits import fail
from outcrop.domain.errors import OutcropError

_UNWRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def main() -> None:
    """Run a command; every failure is one line on standard error and exit code 2."""
    try:
        _open_streams()
        gc.disable()  # what is loaded stays, and need not be looked through while it comes
        app = tree(sys.argv[1] if len(sys.argv) > 1 else "")
        gc.freeze()
        gc.enable()
        try:
            app()
        finally:
            _flush()
    except OutcropError as error:
        fail(error.message)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.errno not in _UNWRITTEN or error.filename is not None:
            raise
        _give_up_output()
        fail(f"the output cannot be written: {os.strerror(error.errno or 0).lower()}")


def _flush() -> None:
    """Write what is left, while it can still be told that it cannot be written; who has closed a pipe has read enough."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()


def _give_up_output() -> None:
    """Let nothing be said by Python when it ends, and tries again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_streams() -> None:
    """Open what the caller has closed, or a file would be opened in its place. To write to a closed output stays a failure."""
    for number, (name, mode) in enumerate((("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))):
        if getattr(sys, name) is None and os.open(os.devnull, mode) == number:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115
