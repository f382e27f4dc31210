"""Write findings as a JUnit report, which CI systems show as failed tests."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from outcrop.lazy_regex import regex

# Characters that XML 1.0 does not allow, even when they are escaped.
_NOT_IN_XML = regex("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


def write_junit(findings: Sequence[Mapping[str, Any]], gaps: Sequence[tuple[str, str]]) -> bytes:
    """Return one test suite with a failed test per finding, or with one passed test if there are none.

    Gaps are in the output of the suite.
    """
    counts = f'tests="{len(findings) or 1}" failures="{len(findings)}" errors="0" skipped="0"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="outcrop" {counts}>',
        f'<testsuite name="outcrop" {counts}>',
        *map(_test_case, findings),
    ]
    if not findings:
        lines.append('<testcase classname="outcrop" name="no credentials found"/>')
    if gaps:
        text = "\n".join(f"not scanned: {where}: {why}" for where, why in gaps)
        lines.append(f"<system-err>{escape(_printable(text))}</system-err>")
    lines += ["</testsuite>", "</testsuites>", ""]
    return "\n".join(lines).encode("utf-8")


def _test_case(finding: Mapping[str, Any]) -> str:
    """Return the failed test of one finding."""
    path = finding["file_path"] or "(unreachable)"
    place = f"{path}:{finding['line_number']}"
    name = finding["pattern"]["name"]
    details = [
        f"{name} {finding['matched_text']}",
        f"place: {place}, column {finding['column']}",
        *([f"lines: {' '.join(map(str, finding['lines']))}"] if finding["lines_total"] > 1 else []),
        f"rule: {finding['rule']}, confidence {finding['confidence']}",
        f"context: {finding['context']}",
        f"score: {finding['composite_score']:.0f}",
        f"verdict: {finding['validation_status']}",
        *([f"commit: {finding['commit']}"] if finding["commit"] else []),
        *([f"secret: {finding['secret']}"] if "secret" in finding else []),
        f"fingerprint: {finding['fingerprint']}",
    ]
    title = f"{finding['rule']} at {place} ({finding['fingerprint'].rpartition(':')[2]})"
    where = f"classname={_attribute(path)} name={_attribute(title)} file={_attribute(path)}"
    failure = f"message={_attribute(f'{name} in {place}')} type={_attribute(finding['rule'])}"
    text = escape(_printable("\n".join(details)))
    return f"<testcase {where}><failure {failure}>{text}</failure></testcase>"


def _attribute(text: str) -> str:
    """Return a text as a quoted XML attribute."""
    return quoteattr(_printable(text), _ESCAPES)


def _printable(text: str) -> str:
    """Return a text with the characters that XML does not allow replaced."""
    return _NOT_IN_XML.sub("\ufffd", text)
