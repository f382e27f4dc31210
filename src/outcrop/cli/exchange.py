"""The commands `outcrop import` and `outcrop export`."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from outcrop import __version__
from outcrop.cli.progress import byte_progress
from outcrop.cli.session import OPERATOR, AsJson, Slug, lower_priority, run, show, start
from outcrop.cli.streams import discard_output
from outcrop.domain.errors import BadInputError
from outcrop.domain.paging import FindingQuery
from outcrop.runtime import open_runtime, open_session
from outcrop.scanner.engine.load import load_ruleset
from outcrop.services import accounts
from outcrop.services.exchange.exporter import ExportFormat, export_findings
from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.formats.csv_table import parse_map
from outcrop.services.exchange.importer import ImportSummary, import_findings
from outcrop.sources.workspace import cache_folder
from outcrop.store.db import current_time


def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="An export of Outcrop, or a report of another scanner; - is standard input."
        ),
    ],
    slug: Slug,
    *,
    format_: Annotated[
        ImportFormat, typer.Option("--format", help="The format of the file; auto detects it.")
    ] = ImportFormat.AUTO,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            help="Replace all fields of findings that exist, also status and notes, by those of the file.",
        ),
    ] = False,
    sends_events: Annotated[
        bool, typer.Option("--events", help="Send finding.new for each new finding that a report adds.")
    ] = False,
    repo: Annotated[
        str | None, typer.Option(metavar="URL", help="The repository of records that name none.")
    ] = None,
    commit: Annotated[
        str | None, typer.Option(metavar="SHA", help="The commit of records that name none.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="FIELD=COLUMN", help="Take a field from this column of a CSV file; repeatable."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import findings from a file: all records, or none if one is invalid.

    A scanner's report changes no decision of a person. An export of Outcrop restores its findings.
    """
    settings = start()
    columns = parse_map(assignments or [])

    async def main(source: BinaryIO, progress: Callable[[int], None]) -> ImportSummary:
        async with open_session(settings) as session:
            lower_priority(session.db.info.backend_pid if settings.database_url is None else None)
            return await import_findings(
                session.db,
                session.keys,
                await accounts.get_account(session.db, slug),
                source,
                by=OPERATOR,
                now=session.now,
                progress=progress,
                format_=format_,
                restore=restore,
                columns=columns,
                repo=repo,
                commit=commit,
                load_rules=partial(
                    load_ruleset, [settings.rules] if settings.rules else [], cache=cache_folder()
                ),
                sends_events=sends_events,
            )

    with ExitStack() as stack:
        source, size = _open(file, stack)
        progress = stack.enter_context(byte_progress("importing", size))
        summary = run(lambda: main(source, progress))
    if summary.unplaced:
        print(
            f"{summary.unplaced} records name no repository: their source is the report itself. "
            "Use --repo URL to name it.",
            file=sys.stderr,
        )
    show({"lines": summary.lines, "new": summary.new, "updated": summary.updated}, as_json=as_json)


def export(
    slug: Slug,
    format_: Annotated[
        ExportFormat, typer.Option("--format", help="The output format: JSON Lines, CSV or SARIF.")
    ],
) -> None:
    """Write an account's findings to standard output, credentials masked."""
    settings = start()

    async def main() -> None:
        async with open_runtime(settings, pool_size=1, statement_timeout=60) as runtime:
            async with runtime.pool.connection() as db:
                account = await accounts.get_account(db, slug)
                moment = await current_time(db)
            pieces = export_findings(
                runtime.pool.connection,
                account,
                FindingQuery(),
                format_,
                version=__version__,
                by=OPERATOR,
                now=moment,
            )
            async for piece in pieces:
                _write(piece)

    try:
        run(main)
    except BrokenPipeError:  # the reader closed the pipe
        discard_output()


def _write(piece: bytes) -> None:
    """Write bytes to stdout and flush, so that a reader gets them at once."""
    out = getattr(sys.stdout, "buffer", None)
    if out is None:
        sys.stdout.write(piece.decode())
    else:
        out.write(piece)
        out.flush()


def _open(file: str, stack: ExitStack) -> tuple[BinaryIO, int | None]:
    """Open the file and return it with its size; None for standard input."""
    if file == "-":
        return sys.stdin.buffer, None
    try:
        source = stack.enter_context(Path(file).open("rb"))  # noqa: SIM115 - the stack closes it
        return source, Path(file).stat().st_size
    except OSError as error:
        raise BadInputError(f"cannot read {file}: {error.strerror}") from None
