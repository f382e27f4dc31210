"""The command `outcrop report`."""

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from outcrop.cli.session import AsJson, print_json
from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.merged_report import merge_reports
from outcrop.services.exchange.report_page import write_report_page


def report(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Reports of scanners; - is standard input.")
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")],
    format_: Annotated[ImportFormat, typer.Option("--format", help="Of all files.")] = ImportFormat.AUTO,
    as_json: AsJson = False,
) -> None:
    """Merge reports of scanners into one HTML page, without a server and a database."""
    if files.count("-") > 1:
        raise BadInputError("standard input can be read only once")
    moment = now()
    names = ["standard input" if name == "-" else Path(name).name for name in files]
    with ExitStack() as stack:
        opened: list[tuple[str, BinaryIO]] = []
        for name, shown in zip(files, names, strict=True):
            opened.append(
                (shown, sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb")))
            )
        for shown, _ in opened:
            if names.count(shown) > 1 and shown == "standard input":
                raise BadInputError("standard input can be read only once")
        findings = merge_reports(opened, format_, now=moment)
    _write(output, write_report_page(findings, names, made_at=moment))
    if as_json:
        print_json({"findings": len(findings), "files": len(files), "output": str(output)})
    else:
        print(f"{len(findings)} findings of {len(files)} files: {output}")


def _write(path: Path, content: bytes) -> None:
    """Write a file completely or not at all; a device or a pipe is written as it is."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
