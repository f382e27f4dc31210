"""The command line: one module per group of commands, each command one service call."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import NoReturn

from outcrop.cli.commands import tree
from outcrop.cli.streams import fail, printing, standing, told
from outcrop.domain.errors import OutcropError


def main() -> None:
    """Run a command; every failure is one line on standard error and exit code 2; only a fault of ours has more lines."""
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
    except Exception as error:  # noqa: BLE001 - with Python's own code, 1, it would seem that something was found
        _crash(error)


def _crash(error: BaseException) -> NoReturn:
    """Show where a fault of ours is. What the errors say is left out: values stand in it, and one may be a credential."""
    import traceback  # noqa: PLC0415 - hardly ever needed

    with contextlib.suppress(OSError):
        for one in _led_to(error):
            print("Traceback (most recent call last):", file=sys.stderr)
            traceback.print_tb(one.__traceback__)
            print(type(one).__qualname__, file=sys.stderr)
    fail(f"ended by a fault of its own, {type(error).__qualname__}: the lines above say where")


def _led_to(error: BaseException) -> Iterator[BaseException]:
    """Give an error behind those that it comes from."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for one in ([before] if before else []) + list(
        error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    ):
        yield from _led_to(one)
    yield error
