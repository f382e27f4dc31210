"""`outcrop import` and `outcrop export`."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from outcrop import __version__
from outcrop.cli import session as cli
from outcrop.cli.progress import bytes_done
from outcrop.cli.session import OPERATOR, AsJson, Slug, run, show, start, step_back
from outcrop.domain.errors import BadInputError
from outcrop.domain.paging import FindingQuery
from outcrop.runtime import open_runtime, open_session
from outcrop.services import accounts, exchange


def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="What was exported, or another scanner's report; - is standard input."
        ),
    ],
    slug: Slug,
    format_: Annotated[
        exchange.ImportFormat, typer.Option("--format", help="The file's format; auto finds out.")
    ] = exchange.ImportFormat.AUTO,
    as_json: AsJson = False,
) -> None:
    """Fill an account from a file: every line, or none."""
    settings = start()

    async def main(source: BinaryIO, told: Callable[[int], None]) -> exchange.ImportSummary:
        async with open_session(settings) as session:
            step_back(session.db.info.backend_pid if settings.database_url is None else None)
            return await exchange.import_findings(
                session.db,
                session.keys,
                await accounts.get_account(session.db, slug),
                source,
                keep_secrets=settings.keep_secrets == "active",
                by=OPERATOR,
                now=cli.now(),
                progress=told,
                format_=format_,
            )

    with ExitStack() as stack:
        source, size = _open(file, stack)
        told = stack.enter_context(bytes_done("importing", size))
        done = run(lambda: main(source, told))
    show({"lines": done.lines, "new": done.new, "updated": done.updated}, as_json=as_json)


def export(
    slug: Slug,
    format_: Annotated[
        exchange.ExportFormat, typer.Option("--format", help="What to write: JSON Lines, CSV or SARIF.")
    ],
) -> None:
    """Write an account's findings to standard output, credentials masked."""
    settings = start()

    async def main() -> None:
        async with open_runtime(settings, pool_size=1, statement_timeout=60) as runtime:
            async with runtime.pool.connection() as db:
                account = await accounts.get_account(db, slug)
            pieces = exchange.export_findings(
                runtime.pool,
                account,
                FindingQuery(),
                format_,
                version=__version__,
                by=OPERATOR,
                now=cli.now(),
            )
            async for piece in pieces:
                _write(piece)

    try:
        run(main)
    except BrokenPipeError:  # whoever reads has had enough
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # so that what is left does not fail at the end


def _write(piece: bytes) -> None:
    out = getattr(sys.stdout, "buffer", None)
    if out is None:
        sys.stdout.write(piece.decode())
    else:
        out.write(piece)
        out.flush()


def _open(file: str, stack: ExitStack) -> tuple[BinaryIO, int | None]:
    if file == "-":
        return sys.stdin.buffer, None
    try:
        source = stack.enter_context(Path(file).open("rb"))  # noqa: SIM115 - the stack closes it
        return source, Path(file).stat().st_size
    except OSError as error:
        raise BadInputError(f"cannot read {file}: {error.strerror}") from None
