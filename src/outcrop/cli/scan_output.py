"""Write the findings of `outcrop scan`: to stdout in one format, and to files in several."""

import io
import os
import stat
import sys
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import orjson

from outcrop import __version__
from outcrop.cli.scan_table import print_findings_table
from outcrop.domain.errors import BadInputError
from outcrop.domain.line import one_line
from outcrop.domain.secret import reveal
from outcrop.services.local_scan import LocalFinding, ScanReport

if TYPE_CHECKING:
    from outcrop.domain.reports.sarif import RuleHelp


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    SARIF = "sarif"
    CSV = "csv"
    JUNIT = "junit"
    GITLAB = "gitlab"
    HTML = "html"


_FORMATS = {format_.value: format_ for format_ in OutputFormat}
_SUFFIXES = {f".{format_}": format_ for format_ in OutputFormat} | {
    ".ndjson": OutputFormat.JSONL,
    ".xml": OutputFormat.JUNIT,
    ".htm": OutputFormat.HTML,
    ".txt": OutputFormat.TABLE,
}


class OutputFile(NamedTuple):
    """A file that the findings are written to."""

    format: OutputFormat
    path: Path


class Printed(NamedTuple):
    """The formats and files that the options ask for."""

    format: OutputFormat | None  # of stdout; None: the table, unless `quiet`
    files: Sequence[OutputFile]
    quiet: bool
    show_secrets: bool
    own_rules: Sequence[Path] = ()
    allow_all: Path | None = None  # the file for entries that allow what is found


class OutputStyle(NamedTuple):
    """How the findings are shown, in every format."""

    show_secrets: bool
    validated: bool
    started_at: datetime
    ended_at: datetime
    own_rules: Sequence[Path] = ()  # files and folders, beside the built-in rules


def parse_outputs(given: Sequence[str] | None, default: OutputFormat | None) -> list[OutputFile]:
    """Return the files of the options `-o [FORMAT=]FILE`. Raise BadInputError if one cannot be written.

    Without FORMAT the suffix of the file decides, then `default`. Nothing is written yet, but a folder that
    does not exist is reported before a long scan.
    """
    files: list[OutputFile] = []
    for text in given or ():
        format_, path = _parse_output(text, default)
        if path.is_dir() or not path.parent.is_dir():
            reason = "is a folder" if path.is_dir() else "its folder does not exist"
            raise BadInputError(f"-o {one_line(text)}: {reason}")
        if any(os.path.realpath(path) == os.path.realpath(other.path) for other in files):
            raise BadInputError(f"-o {one_line(text)}: the file is given twice")
        files.append(OutputFile(format_, path))
    return files


def _parse_output(text: str, default: OutputFormat | None) -> OutputFile:
    """Return the format and the file that one option `-o` names."""
    prefix, equals, rest = text.partition("=")
    path = rest if equals and prefix in _FORMATS else text
    if path in {"", "-"}:
        raise BadInputError(f"-o {one_line(text)}: is no file; --format writes to standard output")
    if equals and prefix in _FORMATS:
        return OutputFile(_FORMATS[prefix], Path(rest))
    if equals and prefix.isalnum():
        raise BadInputError(f"-o {one_line(text)}: {prefix!r} is not one of {', '.join(_FORMATS)}")
    format_ = _SUFFIXES.get(Path(path).suffix.lower(), default)
    if format_ is None:
        raise BadInputError(f"-o {one_line(text)}: name the format, as in json={one_line(path)}")
    return OutputFile(format_, Path(path))


def write_outputs(files: Sequence[OutputFile], report: ScanReport, style: OutputStyle) -> None:
    """Write the findings to each file, whole or not at all; add each failure to the report."""
    for format_, path in files:
        try:
            write_whole(path, render(report, format_, style), private=style.show_secrets)
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            report.failures.append(f"-o {one_line(str(path))}: cannot be written: {reason}")


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file whole or not at all. A link stays one; a pipe or device is written to as it is.

    A new file is readable for its owner only if it is `private`. Raise OSError if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        old_mode = target.stat().st_mode
    except FileNotFoundError:
        old_mode = None
    if old_mode is not None and not stat.S_ISREG(old_mode):
        with path.open("wb") as special:
            special.write(content)
        return
    unfinished = target.with_name(f".{uuid4().hex}.outcrop")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        with os.fdopen(descriptor, "wb") as file:
            if old_mode is not None and not private:
                os.fchmod(descriptor, stat.S_IMODE(old_mode))
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def print_findings(report: ScanReport, format_: OutputFormat, style: OutputStyle) -> None:
    """Write the findings to stdout in the given format."""
    if format_ is OutputFormat.TABLE:
        print_findings_table(report, show_secrets=style.show_secrets, validated=style.validated)
    else:
        sys.stdout.buffer.write(render(report, format_, style))


def render(report: ScanReport, format_: OutputFormat, style: OutputStyle) -> bytes:
    """Return the findings in the given format. The modules of most formats are imported only when needed."""
    shown = [_shown(finding, style) for finding in report.findings]
    well = not report.failures
    match format_:
        case OutputFormat.TABLE:
            text = io.StringIO()
            print_findings_table(
                report, show_secrets=style.show_secrets, validated=style.validated, file=text
            )
            content = text.getvalue().encode("utf-8", "backslashreplace")
        case OutputFormat.JSON:
            content = _json(shown)
        case OutputFormat.JSONL:
            content = b"".join(map(_json, shown))
        case OutputFormat.SARIF:
            from outcrop.domain.reports import sarif  # noqa: PLC0415

            findings = [finding.fields | {"path": finding.path} for finding in report.findings]
            helps = _rule_helps(report.findings, style.own_rules)
            log = sarif.sarif(findings, report.gaps, version=__version__, well=well, helps=helps)
            content = _json(log)
        case OutputFormat.CSV:
            from outcrop.cli.report_formats.csv_report import write_csv  # noqa: PLC0415

            content = write_csv(shown)
        case OutputFormat.JUNIT:
            from outcrop.cli.report_formats.junit import write_junit  # noqa: PLC0415

            content = write_junit(shown, report.gaps)
        case OutputFormat.GITLAB:
            from outcrop.cli.report_formats.gitlab import write_gitlab  # noqa: PLC0415

            times = style.started_at, style.ended_at
            content = write_gitlab(shown, report.gaps, times, version=__version__, well=well)
        case OutputFormat.HTML:
            from outcrop.cli.report_formats.html import write_html  # noqa: PLC0415

            content = write_html(shown, report.gaps, ended_at=style.ended_at, files=report.files)
    return content


def _rule_helps(findings: Sequence[LocalFinding], own_rules: Sequence[Path]) -> "dict[str, RuleHelp]":
    """Return the advice and the impact of the rules of the findings, by their ids."""
    from outcrop.domain.reports.sarif import RuleHelp  # noqa: PLC0415
    from outcrop.scanner.rules.advice import find_advice  # noqa: PLC0415 - searches the rule files

    helps = {}
    for rule in {finding.hit.rule.id: finding.hit.rule for finding in findings}.values():
        advice = find_advice(rule.id, rule.secret_type, own_rules)
        helps[rule.id] = RuleHelp(advice.steps, advice.links, rule.impact.value)
    return helps


def _shown(finding: LocalFinding, style: OutputStyle) -> dict[str, Any]:
    """Return the printed fields of a finding; with `--reveal` also the raw credential."""
    return finding.fields | {"secret": reveal(finding.secret)} if style.show_secrets else finding.fields


def _json(value: object) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_APPEND_NEWLINE)
