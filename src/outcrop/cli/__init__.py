"""The command line: one module per group of commands; each command calls one service."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import NoReturn

from outcrop.cli.commands import tree
from outcrop.cli.streams import describe_os_error, fail, open_standard_streams, printing
from outcrop.domain.errors import OutcropError


def main() -> None:
    """Run a command. A failure is one line on stderr and exit code 2; only a bug of Outcrop prints more."""
    open_standard_streams()
    try:
        gc.disable()  # imported modules stay in memory, so collecting garbage during the imports is wasted
        app = tree(sys.argv[1] if len(sys.argv) > 1 else "")
        gc.freeze()
        gc.enable()
        with printing():
            app()
    except OutcropError as error:
        fail(error.message)
    except OSError as error:  # the state of the machine, such as a full disk, and not a bug
        fail(describe_os_error(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - Python would exit with 1, which means that findings exist
        _crash(error)


def _crash(error: BaseException) -> NoReturn:
    """Print the tracebacks of a bug without error messages: a message may contain a credential."""
    import traceback  # noqa: PLC0415 - rarely needed

    with contextlib.suppress(OSError):
        for cause in _with_causes(error):
            print("Traceback (most recent call last):", file=sys.stderr)
            traceback.print_tb(cause.__traceback__)
            print(type(cause).__qualname__, file=sys.stderr)
    fail(f"internal error ({type(error).__qualname__}); the lines above show where")


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the causes of an error, the first cause first, then the error."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield from _with_causes(cause)
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _with_causes(member)
    yield error
