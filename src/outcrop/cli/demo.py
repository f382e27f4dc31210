"""`outcrop demo`. What it does is in `run_demo`, which the help of all commands need not import."""

from typing import Annotated

import typer


def demo(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 means a free port.")
    ] = 8000,
) -> None:
    """Run the whole service with an example account. Nothing leaves this machine."""
    from outcrop.cli.run_demo import run_demo  # noqa: PLC0415 - half of the time of `outcrop --help`

    run_demo(port)
