"""A child process of `outcrop serve`: an API process or the worker. It exits when its parent exits or dies.

It is a program of its own (`python -m outcrop.cli.process`), so that no other command imports FastAPI.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from outcrop import metrics
from outcrop.cli import importing, reporting_failures
from outcrop.cli.commands import EnvFile
from outcrop.cli.env_file import leave_warnings_to_parent, use_env_file
from outcrop.cli.serve import SHUTDOWN_SECONDS, ChildRole, work_until_signal
from outcrop.cli.session import run, start
from outcrop.processes import watch_parent
from outcrop.tracing import start_tracing


def process(  # noqa: PLR0917 - one parameter per option
    role: ChildRole,
    fd: Annotated[int, typer.Option()] = -1,
    tls_cert: Annotated[Path | None, typer.Option()] = None,
    tls_key: Annotated[Path | None, typer.Option()] = None,
    metrics_folder: Annotated[Path | None, typer.Option()] = None,
    metrics_slot: Annotated[str, typer.Option()] = "",
    env_file: EnvFile = None,
) -> None:
    """Run an API process or the worker. Started by `outcrop serve`."""
    use_env_file(env_file)
    leave_warnings_to_parent()
    settings = start()
    if metrics_folder is not None:
        metrics.start_recording(metrics_folder, metrics_slot)
    start_tracing()
    watch_parent(_wait_for_end_of_input, stop_within=SHUTDOWN_SECONDS)
    if role is ChildRole.API:
        with importing():
            from outcrop.cli.api_server import serve_api  # noqa: PLC0415 - the worker does not need FastAPI

        serve_api(settings, fd, tls_cert, tls_key)
    else:
        run(lambda: work_until_signal(settings))


def _wait_for_end_of_input() -> None:
    """Wait until standard input is closed. It is a pipe to the parent that nobody writes to."""
    while os.read(0, 1024):  # not sys.stdin: a thread that blocks in it breaks the interpreter's shutdown
        pass


if __name__ == "__main__":
    with reporting_failures():
        typer.run(process)
