"""The command line: one module per group of commands, each command one service call."""

import gc
import sys

from outcrop.cli.commands import tree
from outcrop.cli.exits import fail, printing, standing, told
from outcrop.domain.errors import OutcropError


def main() -> None:
    """Run a command; every failure is one line on standard error and exit code 2."""
    standing()
    try:
        gc.disable()  # what is loaded stays, and need not be looked through while it comes
        app = tree(sys.argv[1] if len(sys.argv) > 1 else "")
        gc.freeze()
        gc.enable()
        with printing():
            app()
    except OutcropError as error:
        fail(error.message)
    except OSError as error:  # a full disk, no more processes, no program of that name: the machine's state, not a fault of ours
        fail(told(error))
    except KeyboardInterrupt:
        sys.exit(130)
