"""The command `outcrop why`."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from outcrop.cli.scan_allow import read_allow_file, read_baseline
from outcrop.cli.scan_options import Allow, Baseline, GitleaksConfig, IgnoreMarks, MinConfidence, Rules
from outcrop.cli.streams import printing
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Confidence
from outcrop.domain.line import one_line
from outcrop.lazy_regex import regex
from outcrop.scanner.engine.load import load_ruleset
from outcrop.scanner.risk.detection import DetectionReason
from outcrop.services.local_scan.options import ScanOptions
from outcrop.services.local_scan.why import LEFT_OUT, REPORTED, ExplainedValue, Explanation, explain
from outcrop.services.local_scan.why_source import Source, read_file, read_stream
from outcrop.sources.located import printable_path
from outcrop.sources.workspace import cache_folder

_MAX_NEAR_RULES = 8  # printed; --json has all
_NUMBER = regex(r"[0-9]{1,9}", re.ASCII)

Place = Annotated[
    str,
    typer.Argument(
        metavar="FILE:LINE", help="A line of a file; -:LINE for one of standard input, - for all of it."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]


def why(  # noqa: PLR0917 - one parameter per option
    place: Place,
    confidence: MinConfidence = Confidence.MEDIUM,
    rules: Rules = None,
    gitleaks_config: GitleaksConfig = None,
    baseline: Baseline = None,
    allow: Allow = None,
    ignore_marks: IgnoreMarks = False,
    as_json: AsJson = False,
) -> None:
    """Explain every candidate value on a line: why a scan reports it, or leaves it out."""
    source, line = _read(place, ignore_marks=ignore_marks)
    if line is not None:
        source.span(line)  # before the rules are loaded
    known = read_baseline(baseline)
    options = ScanOptions(
        ruleset=load_ruleset(rules or [], gitleaks=gitleaks_config, cache=cache_folder()),
        min_confidence=confidence,
        baseline=known.fingerprints,
        known=known.others,
        allowed=read_allow_file(allow),
        ignore_marks=ignore_marks,
    )
    explained = explain(source, line, options)
    with printing():
        if as_json:
            print(orjson.dumps(_record(source, line, explained, options)).decode())
        else:
            for text in _lines(source, line, explained, options):
                print(one_line(text))


def _read(place: str, *, ignore_marks: bool) -> tuple[Source, int | None]:
    """Return the text and the number of the line that an argument names; raise BadInputError if it is wrong.

    A column after the line, as compilers print it, is ignored.
    """
    if place == "-":
        return read_stream(sys.stdin.buffer), None
    name, _, number = place.rpartition(":")
    if not name or not _NUMBER.fullmatch(number):
        raise BadInputError(f"{place}: names no line; write FILE:LINE, such as config.py:12")
    outer, _, outer_number = name.rpartition(":")
    if outer and _NUMBER.fullmatch(outer_number) and not _exists(name):
        name, number = outer, outer_number
    line = int(number)
    if not line:
        raise BadInputError(f"{place}: lines are counted from 1")
    source = read_stream(sys.stdin.buffer) if name == "-" else read_file(name, ignore_marks=ignore_marks)
    return source, line


def _exists(name: str) -> bool:
    """Whether there is a file of this name."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def _record(source: Source, line: int | None, explained: Explanation, options: ScanOptions) -> dict[str, Any]:
    """Return the explanation as it is printed with `--json`."""
    names = options.ruleset.rules
    return {
        "path": printable_path(source.path),
        "line": line,
        "min_confidence": str(options.min_confidence),
        "values": [
            {
                "line": value.line,
                "column": value.column,
                "outcome": value.outcome,
                "left_out_by": value.left_out_by or None,
                "rule": value.rule,
                "name": None if value.rule is None else names[names.ids[value.rule]].name,
                "confidence": value.confidence,
                "matched_text": value.matched_text,
                "encoding": list(value.encoding),
                "context": value.context,
                "reasons": [reason._asdict() for reason in value.reasons],
                "other_rules": [
                    {
                        "rule": other.rule,
                        "reason": other.reason,
                        "points": [reason._asdict() for reason in other.points],
                    }
                    for other in value.others
                ],
            }
            for value in explained.values
        ],
        "near_rules": explained.near_rules,
    }


def _lines(source: Source, line: int | None, explained: Explanation, options: ScanOptions) -> list[str]:
    """Return the explanation as lines for people."""
    path = printable_path(source.path)
    lines: list[str] = []
    for value in explained.values:
        names = options.ruleset.rules
        name = "" if value.rule is None else names[names.ids[value.rule]].name
        lines += _value_lines(f"{path}:{value.line}:{value.column}", value, name)
    if not explained.values:
        where = path if line is None else f"{path}:{line}"
        lines.append(f"{where}: no candidate value")
    if near := explained.near_rules:
        more = f" and {len(near) - _MAX_NEAR_RULES} more" if len(near) > _MAX_NEAR_RULES else ""
        shown = ", ".join(near[:_MAX_NEAR_RULES])
        lines.append(f"no value, but a word or the beginning of one, of these rules: {shown}{more}")
    return lines


def _value_lines(place: str, value: ExplainedValue, name: str) -> list[str]:
    """Return one value as lines for people: what happens to it, and the reasons."""
    outcome = "no finding"
    if value.outcome == REPORTED:
        outcome = f"reported, {value.confidence} confidence"
    elif value.outcome == LEFT_OUT:
        outcome = f"left out by {value.left_out_by}, {value.confidence} confidence"
    lines = [f"{place}: {value.matched_text}: {outcome}"]
    if value.rule is not None:
        lines.append(f"  rule {value.rule}: {name}")
    if value.encoding:
        lines.append(f"  decoded: {', '.join(value.encoding)}")
    lines += [f"  {_reason_text(reason)}" for reason in value.reasons]
    if value.context:
        lines.append(f"  context: {value.context}")
    for other in value.others:
        lines.append(f"  not {other.rule}: {other.reason}")
        lines += [f"    {_reason_text(reason)}" for reason in other.points]
    return lines


def _reason_text(reason: DetectionReason) -> str:
    """Return a reason with its points, if it has any."""
    return reason.sentence if reason.points is None else f"{reason.points:+g} {reason.sentence}"
