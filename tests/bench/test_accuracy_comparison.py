"""The table of agreement: what both scanners report, and what only one of them does, with labels."""

from dataclasses import replace

import pytest

from bench.accuracy.agreement import OtherReport
from bench.accuracy.comparison import compare
from bench.accuracy.labels import Label
from bench.accuracy.scans import Reported


def finding(path, value, confidence="high", rule="generic_password"):
    return Reported("o/r", path, 3, rule, confidence, value)


def labelled(found, verdict):
    return Label(found.repo, found.path, found.line, found.digest, 1, "0" * 40, found.rule, verdict)


SHARED = finding("a.env", "Tr0ub4dor")
LOW = finding("a.env", "maybe-one", "low")
OURS = [finding("a.env", f"ours-{number}", "medium") for number in range(4)]
OUTSIDE = finding("b.env", "Tr0ub4dor")  # in a file that the other one did not scan
LOW_ONLY = finding("a.env", "not-shared", "low")
THEIRS = [finding("a.env", f"theirs-{number}", "-", "other:x") for number in range(3)]
REPORTED = [SHARED, LOW, *OURS, OUTSIDE, LOW_ONLY]
REPORT = OtherReport(
    "o/r",
    [finding("a.env", "PASSWORD=Tr0ub4dor", "-", "other:x"), replace(LOW, line=9, rule="other:y"), *THEIRS],
    frozenset({"a.env", "c.env"}),
)
LABELS = [
    labelled(SHARED, "leak"),
    labelled(LOW, "example"),
    labelled(OURS[0], "example"),
    labelled(OURS[1], "false"),
    labelled(THEIRS[0], "false"),
    labelled(OUTSIDE, "leak"),
]


def test_findings_and_labels_are_counted_by_who_reports_them():
    rows = compare("other", [REPORT], REPORTED, LABELS)
    assert {(row.scanner, row.files) for row in rows} == {("other", "2")}
    assert [(row.reported_by, row.findings, row.leak, row.example, row.false) for row in rows] == [
        ("both", 1, 1, 0, 0),
        ("both, Outcrop at low", 1, 0, 1, 0),
        ("only Outcrop", 4, 0, 1, 1),
        ("only other", 3, 0, 0, 1),
    ]
    assert [row.not_false.estimate for row in rows] == [1, 1, pytest.approx(0.5), 0]


def test_all_files_count_if_the_other_scanner_had_all():
    rows = compare("other", [replace(REPORT, scanned=None)], REPORTED, LABELS)
    assert rows[0].files == "all"
    assert [row.findings for row in rows] == [1, 1, 5, 3]


def test_without_labels_there_is_no_share():
    assert {row.not_false for row in compare("other", [REPORT], REPORTED, [])} == {None}
