"""Shared by all commands: settings, logs, a database session, and printing of records."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from outcrop.cli.env_file import read_settings
from outcrop.cli.tables import print_table
from outcrop.domain.errors import BadInputError
from outcrop.logs import set_up_logs
from outcrop.settings import Settings

if TYPE_CHECKING:
    from outcrop.runtime import CommandSession

T = TypeVar("T")
DEFAULT_BASE_URL = "http://127.0.0.1:8000"  # of `outcrop serve` without any setting
OPERATOR = "operator"  # actor in the audit trail for changes made on the command line

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]
Slug = Annotated[str, typer.Option("--account", metavar="SLUG", help="The account.")]


def start() -> Settings:
    """Load the settings and set up logs."""
    settings = read_settings()
    set_up_logs(settings.log_level, settings.log_format)
    return settings


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end. Ctrl-C and SIGTERM cancel it, so that no child process is left running."""

    async def guarded() -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            return await main()
        except Exception:
            if task.cancelling():  # a cancelled operation may raise another error
                raise asyncio.CancelledError from None
            raise

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)


@asynccontextmanager
async def transaction(settings: Settings) -> AsyncIterator["CommandSession"]:
    """Open a database session with one transaction."""
    from outcrop.runtime import open_session  # noqa: PLC0415 - `findings` and `report` need no database

    async with open_session(settings) as session, session.db.transaction():
        yield session


def lower_priority(backend: int | None) -> None:
    """Lower the CPU priority of this process and of a local PostgreSQL backend, in favour of the service."""
    for pid in (0, backend):
        if pid is not None:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, pid, 10)


def moment(text: str, name: str) -> datetime:
    """Parse a time given on the command line; without an offset it is UTC."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise BadInputError(f"{name}: {text!r} is not a time in ISO 8601") from None
    return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).replace(
        microsecond=0
    )


def first_line_of_stdin() -> str:
    return sys.stdin.readline().rstrip("\r\n")


def print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False))


def show(record: Mapping[str, object], *, as_json: bool) -> None:
    """Print one record."""
    if as_json:
        print_json(record)
        return
    width = max(map(len, record))
    for name, value in record.items():
        print(f"{name:<{width}}  {_plain(value)}")


def show_all(records: Sequence[Mapping[str, object]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print a list of records as a table or as a JSON list."""
    if as_json:
        print_json(list(records))
        return
    print_table(columns, [[_plain(record[column]) for column in columns] for record in records])


def _plain(value: object) -> str:
    """Return a value as text; None as `-`."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return "-" if value is None else str(value)
