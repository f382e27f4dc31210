"""The command line: one module per group of commands; each command calls one service."""

import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import NoReturn

from outcrop import __version__
from outcrop.cli.streams import describe_os_error, fail, open_standard_streams, printing
from outcrop.domain.errors import OutcropError


def main() -> None:
    """Run the command that the arguments name, as the program of this process."""
    try:
        run_command()
    finally:  # a later interrupt ends the process at once: Python would print where it was interrupted
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_command() -> None:
    """Run the command that the arguments name."""
    open_standard_streams()
    with reporting_failures():
        if sys.argv[1:] == ["--version"]:  # imports nothing: scripts ask for it often
            with printing():
                print(f"outcrop {__version__}")
            return
        with importing():
            from outcrop.processes import disable_core_dumps  # noqa: PLC0415 - not for `--version`

            disable_core_dumps()
            command = _find_command(sys.argv[1:])
        with printing():
            Context().run(command)  # the file of --env-file is known to this command only


def _find_command(arguments: list[str]) -> Callable[[], object]:
    """Return a function that runs the command. A scan whose arguments are right needs no Typer."""
    if arguments[:1] == ["scan"]:
        from outcrop.cli.scan_arguments import parse_call  # noqa: PLC0415

        if (given := parse_call(arguments[1:])) is not None:
            from outcrop.cli.env_file import warn_about_ignored_file  # noqa: PLC0415
            from outcrop.cli.run_scan import run_scan  # noqa: PLC0415

            def scan() -> None:
                warn_about_ignored_file()
                run_scan(given)

            return scan
    from outcrop.cli.commands import called_command, tree  # noqa: PLC0415

    return tree(called_command(arguments))


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage in the block: the modules that it imports stay in memory. Delay interrupts.

    An interrupt inside a compiled module that imports another one can crash Python, and one inside a callback
    of the import system is lost.
    """
    from outcrop.processes import delay_interrupts  # noqa: PLC0415 - `--version` needs no module

    gc.disable()
    try:
        with delay_interrupts():
            yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def reporting_failures() -> Iterator[None]:
    """Print a failure of the block as one line on stderr, and exit with 2; only a bug prints more."""
    try:
        yield
    except OutcropError as error:
        fail(error.message)
    except OSError as error:  # the state of the machine, such as a full disk, and not a bug
        fail(describe_os_error(error))
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in {"", "outcrop"}:
            _crash(error)
        fail(f"this command needs the package {name}, which is not installed: pip install 'outcrop[server]'")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - Python would exit with 1, which means that findings exist
        if (reason := _describe_lost_database(error)) is not None:
            fail(reason)
        _crash(error)


def _describe_lost_database(error: Exception) -> str | None:
    """Return a line for an error whose reason is that the database is unavailable; None for another one."""
    if "psycopg" not in sys.modules:  # not imported here: commands without a database should start fast
        return None
    from outcrop.store.db import describe_unavailability, find_unavailability  # noqa: PLC0415

    found = find_unavailability(error)
    return None if found is None else describe_unavailability(found)


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
