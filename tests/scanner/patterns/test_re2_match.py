"""Loosened patterns match the same as the full ones, and matching takes linear time."""

import random

import pytest

from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.load import compile_ruleset
from outcrop.scanner.generic.find import LEAD_IN_CHARS
from outcrop.scanner.patterns import regex_ast
from outcrop.scanner.patterns.re2_match import (
    compile_cached,
    compile_loosened,
    compile_regex,
    ends_with_match,
    find_spans,
)
from outcrop.scanner.rules.toml import parse_rule_file
from tests.support.form_samples import forms_by_name, write_match
from tests.support.growth import grows_linearly
from tests.support.rulesets import ruleset


@pytest.mark.slow
def test_a_loosened_form_has_the_same_matches_up_to_its_exact_length():
    """Texts are written with and without the large bounds, so that some of them are too long."""
    different, same, too_long = [], 0, 0
    for name, form in forms_by_name(ruleset()).items():
        rng = random.Random(f"loosened {name}")
        for pattern in (form.pattern.regex, regex_ast.loosen(form.pattern.regex)) * 3:
            data = write_match(pattern, rng)
            found = find_spans(compile_loosened(form.pattern.regex)[0], data, 0, len(data))
            if found is not None and found[0][1] - found[0][0] > form.pattern.exact_up_to:
                too_long += 1
                continue
            same += found is not None
            if found != find_spans(compile_cached(form.pattern.regex), data, 0, len(data)):
                different.append(name)
    assert different == []
    assert same > 3_000
    assert too_long > 500


def test_a_text_ends_with_a_match_exactly_if_the_full_pattern_matches_its_end():
    for form in [form for form in forms_by_name(ruleset()).values() if form.judge in LEAD_IN_CHARS]:
        at_end, rng = compile_regex(rf"(?:{form.pattern.regex})\z"), random.Random(form.pattern.regex)
        texts = [
            write_match(pattern, rng)[:size]
            for pattern in (form.pattern.regex, regex_ast.loosen(form.pattern.regex)) * 300
            for size in (60, 400)
        ]
        wrong = [
            text
            for text in texts
            if ends_with_match(text, form.pattern.regex, form.pattern.exact_up_to)
            != bool(at_end.search(text))
        ]
        assert wrong == []


NESTED = [r"(?:aa+)+$", r"(?:a+a+)+b", r"(?:a|a)*?(?:a|aa)+c", r"(?:a{1,9}){2,20}d", r"aa(?:[a-z]+)*\d"]


@pytest.mark.parametrize("pattern", NESTED)
def test_nested_repetition_takes_linear_time_or_is_refused(pattern):
    head = "issuer='x'\n[[rule]]\nid='x'\nname='x'\nsecret_type='x'\n"
    try:
        rules = compile_ruleset(parse_rule_file(f"{head}pattern='''(?P<secret>{pattern})'''", "x"))
    except Exception as error:  # noqa: BLE001
        assert "pattern" in str(error)  # noqa: PT017
        return
    assert grows_linearly(lambda size: find(rules, b"a" * size), 20_000)
