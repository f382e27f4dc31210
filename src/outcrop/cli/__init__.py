"""The command line: one module per group of commands, each command one service call."""

import sys

from outcrop.cli.exits import fail
from outcrop.domain.errors import OutcropError

_WITHOUT_SERVICE = ("scan", "rules")


def main() -> None:
    """Run a command; every failure is one line on standard error and exit code 2."""
    try:
        if sys.argv[1:2] and sys.argv[1] in _WITHOUT_SERVICE:
            from outcrop.cli.scanner import app  # noqa: PLC0415 - the others load half of the service
        else:
            from outcrop.cli.commands import app  # noqa: PLC0415
        app()
    except OutcropError as error:
        fail(error.message)
    except KeyboardInterrupt:
        sys.exit(130)
