"""Explain every candidate value of a line: why it is reported, lowered or left out.

The text is scanned as `outcrop scan` does, at the confidence that is asked for. That says what is reported.
A second scan at every confidence records each decision (`scanner.trace`). No rule is applied a second way.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner import trace
from outcrop.scanner.engine.detect import NO_VALUE, find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.scan import ScanResult
from outcrop.scanner.risk.detection import DetectionReason, explain_points, explain_reasons
from outcrop.services.local_scan.findings import LocalFinding, describe_findings
from outcrop.services.local_scan.options import ScanOptions
from outcrop.services.local_scan.why_source import Source
from outcrop.sources.located import LocatedHit, applicable_hits

REPORTED, LEFT_OUT, NO_FINDING = "reported", "left_out", "no_finding"
_BY_CONFIDENCE = "--confidence"
_MARK_OF_LINE = "its line has the mark {}"


class OtherRule(NamedTuple):
    """A rule that does not report a value, and why."""

    rule: str
    reason: str
    points: list[DetectionReason]


class ExplainedValue(NamedTuple):
    """A candidate value: whether it is reported, and why.

    `left_out_by` is what leaves out a value that a rule has found, otherwise "". Without a finding, `rule`
    and `confidence` are None, and only `others` has reasons.
    """

    line: int
    column: int
    outcome: str
    left_out_by: str
    rule: str | None
    confidence: Confidence | None
    matched_text: str
    encoding: tuple[str, ...]
    context: str | None
    reasons: list[DetectionReason]
    others: list[OtherRule]


class Explanation(NamedTuple):
    """The candidate values of a line or a text, and the rules that found only the beginning of a value."""

    values: list[ExplainedValue]
    near_rules: list[str]


class _Scan(NamedTuple):
    """What the two scans of a text have found."""

    hits: list[Hit]  # at every confidence
    found: dict[str, Hit]  # by value: the hit of each finding at every confidence
    findings: dict[str, LocalFinding]  # by value: what the scan reports, or a mark or a file leaves out
    steps: list[trace.Step]


def explain(source: Source, line: int | None, options: ScanOptions) -> Explanation:
    """Return the candidate values in a line of a text; with None, those in all its lines."""
    scan = _scan(source, options)
    start, stop = (0, len(source.text) + 1) if line is None else source.span(line)
    hits = [hit for hit in scan.hits if hit.start < stop and hit.end > start]
    steps = [step for step in scan.steps if step.start < stop and step.end > start]
    tried = [step for step in steps if step.reason != NO_VALUE]
    values: list[ExplainedValue] = []
    for group_hits, group_steps in _group(hits, tried):
        values += _explain_group(group_hits, group_steps, source, scan, options.min_confidence)
    known = {value.rule for value in values} | {other.rule for value in values for other in value.others}
    near = sorted({step.rule for step in steps if step.reason == NO_VALUE} - known)
    return Explanation(values, near)


def _scan(source: Source, options: ScanOptions) -> _Scan:
    """Scan a text at the confidence of the options, then at every confidence with each decision recorded."""
    asked = find(options.ruleset, source.text, options.min_confidence)
    located = [LocatedHit(hit, source.path) for _, hit in _applicable(asked, source)]
    with trace.recording() as recorded:
        hits = find(options.ruleset, source.text, Confidence.LOW)
        found = {reveal(hit.secret): hit for _, hit in _applicable(hits, source)}
    hidden = options._replace(keeps_hidden=True)
    described = describe_findings(located, source.target, hidden, Counter(options.baseline), Counter())
    return _Scan(hits, found, {reveal(finding.secret): finding for finding in described}, recorded.steps)


def _applicable(hits: list[Hit], source: Source) -> list[tuple[str, Hit]]:
    """Return the hits that count in a file of this path."""
    return applicable_hits(ScanResult([("", hit) for hit in hits]), source.path)


def _group(hits: list[Hit], steps: list[trace.Step]) -> Iterator[tuple[list[Hit], list[trace.Step]]]:
    """Yield hits and decisions about the same value: those whose spans overlap, in order of their places."""
    spans = sorted([(hit.start, hit.end) for hit in hits] + [(step.start, step.end) for step in steps])
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    for start, end in joined:
        yield (
            [hit for hit in hits if start <= hit.start < end],
            [step for step in steps if start <= step.start < end],
        )


def _explain_group(
    hits: list[Hit], steps: list[trace.Step], source: Source, scan: _Scan, asked: Confidence
) -> Iterator[ExplainedValue]:
    """Yield each finding among overlapping hits; if there is none, the value that was rejected."""
    found = [hit for hit in hits if reveal(hit.secret) in scan.found]
    if not found:
        yield _explain_rejected(steps, source)
        return
    for number, hit in enumerate(found):
        # A decision of the rule about the same value does not explain why another rule does not report it.
        others = [step for step in steps if step.rule != hit.rule.id] if number == 0 else []
        yield _explain_found(hit, others, scan, asked)


def _explain_found(hit: Hit, steps: Sequence[trace.Step], scan: _Scan, asked: Confidence) -> ExplainedValue:
    """Return a value that is a finding, at least at low confidence."""
    value = reveal(hit.secret)
    best, finding = scan.found[value], scan.findings.get(value)
    outcome, left_out_by = REPORTED, ""
    if finding is None:
        outcome, left_out_by = LEFT_OUT, f"{_BY_CONFIDENCE} {asked}"
    elif finding.is_hidden:
        outcome, left_out_by = LEFT_OUT, finding.left_out_by
    elif hit.allow_mark:  # another line with the value has no mark
        outcome, left_out_by = LEFT_OUT, hit.allow_mark
    reasons = explain_reasons(best.reason_ids, best.strength)
    if best.line != hit.line:
        sentence = f"one finding has all lines of this value; the first is line {best.line}"
        reasons.append(DetectionReason("lines", None, sentence))
    return ExplainedValue(
        hit.line,
        hit.column,
        outcome,
        left_out_by,
        best.rule.id,
        best.confidence,
        hit.secret.masked(),
        hit.encoding,
        None if finding is None else str(finding.fields["context"]),
        reasons,
        list(_other_rules(steps)),
    )


def _explain_rejected(steps: list[trace.Step], source: Source) -> ExplainedValue:
    """Return a value that no rule reports."""
    first = min(steps, key=lambda step: (step.start, -step.end))
    line, column = source.position(first.start)
    shown = next((step.value.masked() for step in steps if step.value is not None), "")
    return ExplainedValue(
        line,
        column,
        NO_FINDING,
        "",
        None,
        None,
        shown,
        first.encoding,
        None,
        [],
        list(_other_rules(steps)),
    )


def _other_rules(steps: Iterable[trace.Step]) -> Iterator[OtherRule]:
    """Yield each rule with each of its reasons once."""
    known: set[tuple[Any, ...]] = set()
    for step in steps:
        if (key := (step.rule, step.reason, step.points)) not in known:
            known.add(key)
            yield OtherRule(step.rule, step.reason, explain_points(step.points) if step.points else [])
