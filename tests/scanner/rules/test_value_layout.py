"""Values that are located by their layout are the values that the regular expression matches."""

import random

import pytest

from outcrop.scanner.engine import confirm
from outcrop.scanner.engine.confirm import _confirm_by_layout, _match_window, _windows
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.precedence import keep_best
from outcrop.scanner.rules.model import CredentialForm, Rule
from tests.support.calls import recorded_calls
from tests.support.form_samples import trigger_ends, write_match
from tests.support.rulesets import ruleset


def find_both_ways(rule: Rule, form: CredentialForm) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the spans that layout and regular expression find in a text with three values."""
    rng = random.Random(form.pattern.regex)
    data = b"".join(write_match(form.pattern.regex, rng) for _ in range(3))
    by_layout = _confirm_by_layout(rule, form, data, trigger_ends(ruleset(), form, data))
    by_regex = _match_window(rule, form, data, (0, len(data)))
    return [(hit.start, hit.end) for hit in by_layout], [(hit.start, hit.end) for hit in by_regex]


def test_the_layout_finds_the_same_values_as_the_regular_expression():
    found = {
        (rule.id, form.pattern.regex): find_both_ways(rule, form)
        for rule in ruleset().rules
        for form in rule.forms
        if form.layout
    }
    assert len(found) > 100
    assert {name: both for name, both in found.items() if both[0] != both[1]} == {}


def write_adjacent_values(form: CredentialForm, rng: random.Random) -> bytes:
    """Return values next to each other and to separators; some are damaged or have another prefix inside."""
    values = [write_match(form.pattern.regex, rng).decode("latin-1")[1:-1] for _ in range(3)]
    parts = []
    for _ in range(rng.randrange(1, 7)):
        value, at = rng.choice(values), rng.randrange(1, 20)
        damaged = (
            value[:-at],
            value + value[-at:],
            value[:at] + rng.choice(form.layout.prefixes) + value[at:],
            rng.choice(form.layout.prefixes),
        )
        parts.append(rng.choice([value, value, *damaged, *' \n"-_=x/+.,', "\\n", " "]))
    return "".join(parts).encode("latin-1")


@pytest.mark.parametrize("seed", range(4))
def test_the_layout_finds_the_start_of_a_value_next_to_any_other_text(seed):
    count = 0
    for number in range(ruleset().trigger_count):
        for rule, form in ruleset().forms[number]:
            if not (form.layout and form.layout.prefixes):
                continue
            data = write_adjacent_values(form, random.Random(f"{seed} {form.pattern.regex}"))
            ends = trigger_ends(ruleset(), form, data)
            if not ends:
                continue
            by_regex = [
                hit
                for window in _windows(form, ends, len(data))
                for hit in _match_window(rule, form, data, window)
            ]
            by_layout = _confirm_by_layout(rule, form, data, ends)
            assert {(hit.start, hit.end) for hit in keep_best(by_layout)} == {
                (hit.start, hit.end) for hit in keep_best(by_regex)
            }, (rule.id, data)
            count += 1
    assert count > 10


def test_each_rejected_value_is_checked_once_in_a_text_full_of_them():
    """So the time grows only with the size of the text."""
    with recorded_calls(confirm._check_value) as checks:
        assert find(ruleset(), (b"sk_live_" + b"x" * 24 + b"\n") * 100) == []
    assert len(checks) == 100
