"""The command line: one module per group of commands, each command one service call."""

import sys
from importlib import import_module

from outcrop.cli.exits import fail
from outcrop.domain.errors import OutcropError

_ALONE = {"scan", "rules"}  # start without loading the service: a hook before every commit waits for them


def main() -> None:
    """Run a command; every failure is one line on standard error and exit code 2."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        if name in _ALONE:
            import_module(f"outcrop.cli.{name}").app(sys.argv[2:], prog_name=f"outcrop {name}")
        else:
            import_module("outcrop.cli.commands").app()
    except OutcropError as error:
        fail(error.message)
    except KeyboardInterrupt:
        sys.exit(130)
