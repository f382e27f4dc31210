"""Weights, intervals, agreement of readers, and what counts as found."""

import math

import pytest

from bench.accuracy.estimates import estimate_share, kappa, weigh, wilson
from bench.accuracy.figures import (
    agreement_of_readers,
    credentials_in,
    judge,
    precision_rows,
    recall_rows,
    worst_rules,
)
from bench.accuracy.labels import Label
from bench.accuracy.scans import Reported, digest_of

COMMIT = "0" * 40


def finding(number, rule="generic_password", confidence="medium"):
    return Reported("o/r", f"f{number}", 1, rule, confidence, f"Value-{number}-é")


def label(found, verdict, by=1, rule=None):
    return Label(found.repo, found.path, found.line, found.digest, by, COMMIT, rule or found.rule, verdict)


def test_wilson_intervals_are_those_of_the_textbook():
    low, high = wilson(0.5, 10)
    assert (low, high) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))
    low, high = wilson(0, 20)
    assert (low, high) == (0, pytest.approx(0.1611, abs=1e-4))
    assert wilson(0.5, 0) == (0, 1)


def test_a_share_counts_by_weight_and_its_interval_by_the_effective_number():
    equal = estimate_share([(7.0, True)] * 5 + [(7.0, False)] * 5)
    assert (equal.estimate, equal.low) == (0.5, pytest.approx(0.2366, abs=1e-4))
    uneven = estimate_share([(30.0, True)] + [(10.0, False)] * 7)
    assert uneven.estimate == 0.3
    assert (uneven.low, uneven.high) == wilson(0.3, 100**2 / (30**2 + 7 * 10**2))
    assert estimate_share([]) is None


def test_a_labelled_value_represents_its_stratum_and_unread_ones_the_next_coarser():
    strata = {
        **{f"a{n}": (("x", "a"), "x") for n in range(10)},
        **{f"b{n}": (("x", "b"), "x") for n in range(4)},  # nothing read: goes to the readers of x
        **{f"c{n}": (("y", "c"), "y") for n in range(3)},  # nothing read in y
    }
    weights, uncovered = weigh(strata, {"a0", "a1"})
    assert weights == {"a0": 7, "a1": 7}
    assert uncovered == 3
    assert sum(weights.values()) + uncovered == len(strata)


def test_kappa_is_that_of_the_textbook():
    pairs = [("yes", "yes")] * 20 + [("yes", "no")] * 5 + [("no", "yes")] * 10 + [("no", "no")] * 15
    assert kappa(pairs) == pytest.approx(0.4)
    assert kappa([("yes", "yes")] * 3) == 1
    assert math.isnan(kappa([]))


def test_the_figures_of_a_known_sample():
    reported = [finding(n) for n in range(10)] + [finding(10, "jwt", "high"), finding(11, "jwt", "low")]
    labels = [
        label(reported[0], "leak"),
        label(reported[1], "false"),
        label(reported[10], "example"),
        label(reported[11], "false"),
        label(reported[0], "example", by=2),
        label(reported[1], "false", by=2),
    ]
    judged, uncovered = judge(reported, {"o/r": "web"}, labels)
    rows = {row.group: row for row in precision_rows(judged)}
    assert uncovered == 0
    assert (rows["all"].findings, rows["all"].read) == (11, 3)
    assert rows["all"].not_false.estimate == pytest.approx(6 / 11)  # 5 + 1 of 5 + 5 + 1
    assert rows["all"].leak.estimate == pytest.approx(5 / 11)
    assert rows["all"].not_false_as_read == pytest.approx(2 / 3)
    assert rows["named rules"].not_false.estimate == 1
    assert rows["named, low"].not_false.estimate == 0
    assert rows["generic, high"].not_false is None
    assert rows["web"].findings == 11
    assert [(row.rule, row.false) for row in worst_rules(judged)] == [("generic_password", 5)]
    readers = agreement_of_readers(labels)
    assert (readers["pairs"], readers["agreed"]) == (2, 1)


def test_recall_counts_what_is_reported_by_value_or_in_its_line():
    reported = [finding(1, confidence="high"), finding(2, confidence="low")]
    elsewhere = Reported("o/r", "f2", 1, "read", "-", "another form of the value in the line")
    missed = Reported("o/r", "f2", 8, "read", "-", "missed")
    labels = [
        label(reported[0], "leak"),
        label(elsewhere, "example", rule="read"),
        label(reported[1], "example"),  # the same credential in another form
        label(missed, "example", rule="read"),
        label(finding(3), "leak"),  # in a file that nobody read in full
        label(finding(1), "example", by=2),
    ]
    read_paths = {("o/r", "f1"), ("o/r", "f2")}
    assert len(credentials_in(labels, read_paths)) == 3
    rows = recall_rows(reported, labels, read_paths)
    assert [row.found.estimate for row in rows] == [pytest.approx(n / 3) for n in (1, 1, 2)]
    assert [(row.leaks, row.leaks_found.estimate) for row in rows] == [(1, 1)] * 3


def test_a_digest_is_20_bits_of_sha_256():
    assert digest_of("abc") == "ba781"
