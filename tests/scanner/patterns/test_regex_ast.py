"""Facts about regular expressions are true of the texts that they match, and unsupported ones are refused."""

import random
import re
from re import _parser as parser

import pytest

from outcrop.scanner.patterns import regex_ast
from outcrop.scanner.patterns.prefilter import make_trigger
from outcrop.scanner.patterns.regex_ast import PatternError
from tests.support.form_samples import MatchWriter, forms_by_name
from tests.support.rulesets import ruleset


@pytest.mark.parametrize(
    ("pattern", "loosened", "exact_up_to"),
    [
        ("[a-z]{2,40}=[0-9]{3,5}", "[a-z]{2,}=[0-9]{3,5}", 44),
        (r"key\s{0,30}?.{1,64}", r"key\s{0,}?.{1,}", 34),
        (r"\{3,60}\\[{3,60}]{0,60}[]a]{1,99}[^]\]]{1,99}", r"\{3,60}\\[{3,60}]{0,}[]a]{1,}[^]\]]{1,}", 69),
        (r"\x41{0,80}(?:[a-f]{0,50}x){0,40}", r"\x41{0,}(?:[a-f]{0,}x){0,40}", 50),
        ("[a-f]{32}(?:ab){0,90}[0-9]{2,29}", "[a-f]{32}(?:ab){0,90}[0-9]{2,29}", regex_ast.MAX_WIDTH),
    ],
)
def test_large_bounds_are_dropped_and_the_length_up_to_which_matches_are_exact_is_known(
    pattern, loosened, exact_up_to
):
    assert (regex_ast.loosen(pattern), regex_ast.exact_up_to(pattern)) == (loosened, exact_up_to)


@pytest.mark.parametrize(
    ("pattern", "width"),
    [
        ("a(?P<secret>[0-9]+)", 0),
        ("a(?P<secret>[0-9]+)@[a-z]", 2),
        ("(?P<secret>a)(?:bc|de)", 2),
        ("(?P<secret>a)(?:$|[^a])", None),
        ("(?P<secret>a)b{1,2}", None),
        ("(?:(?P<secret>a)|b)", None),
        ("ab", None),
        ("(?P<name>ab)", None),
    ],
)
def test_the_width_after_the_value_is_known_if_it_never_varies(pattern, width):
    assert regex_ast.width_after_value(pattern) == width


@pytest.mark.parametrize(
    ("pattern", "is_single_line"),
    [
        ("abc[0-9]{4}", True),
        (r"(?:^|[^a-z])abc(?:$|[^a-z])", True),
        (r"\nabc\n", True),
        ("[^a]bc[^d]", True),
        (r"(?:\\[nrt]|\s)abc", True),
        (r"a\nb", False),
        ("a[^b]c", False),
        (r"a\s?b", False),
        (r"\s{2}a", False),
        (r"a(?:\s|,)*", False),
        ("(?s:a.b)", False),
        ("(?s)a.b", False),
        ("a.b", True),
        (r"(?:\n|\r\n)abc", False),
        ("a(?:b|(?s:.)c)d", False),
        (r"(?:x\n|y)abc", False),
        (r"abc\s", True),
    ],
)
def test_a_pattern_is_single_line_if_no_line_break_can_be_inside_a_match(pattern, is_single_line):
    assert regex_ast.is_single_line(pattern) is is_single_line


def test_no_match_of_a_single_line_form_has_a_line_break_inside():
    single_line = {name: form for name, form in forms_by_name(ruleset()).items() if form.window.single_line}
    with_break = []
    for name, form in single_line.items():
        tree = parser.parse(form.pattern.regex, 0)
        with_break += [
            name
            for seed in range(8)
            if b"\n" in MatchWriter(random.Random(f"{name} {seed}")).write(tree, tree.state.flags)[1:-1]
        ]
    assert with_break == []
    assert 300 < len(single_line) < len(forms_by_name(ruleset())) - 300


REFUSED = {
    "lookahead": (r"abc(?=d)", "uses lookahead or lookbehind"),
    "negative lookahead": (r"abc(?!d)", "uses lookahead or lookbehind"),
    "lookbehind": (r"(?<=x)abc", "uses lookahead or lookbehind"),
    "negative lookbehind": (r"(?<!x)abc", "uses lookahead or lookbehind"),
    "back-reference": (r"([abc]{3})\1", "uses a back-reference"),
    "named reference": (r"(?P<x>abc)(?P=x)", "uses a back-reference"),
    "condition": (r"(a)?b(?(1)c|d)e", "uses a back-reference"),
    "atomic group": (r"(?>abc)d", "atomic"),
    "possessive": (r"abc++d", "possessive"),
    "deep inside": (r"a(?:b|(?:c(?=d))){2}", "uses lookahead or lookbehind"),
    "open bracket": (r"abc[", "unterminated"),
    "open group": (r"(abc", "missing )"),
    "nothing to repeat": (r"*abc", "nothing to repeat"),
    "too short": (r"a", "fewer than two characters"),
    "empty": (r"(?:abc)?", "fewer than two characters"),
    "anything": (r".*", "fewer than two characters"),
    "not a byte": (r"\u4f60\u597d", r"above \xff"),
    "not ASCII": ("caf\u00e9", "non-ASCII"),
}


@pytest.mark.parametrize(("pattern", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_pattern_that_is_unsupported_or_matches_almost_anything_is_refused(pattern, reason):
    with pytest.raises(PatternError, match=re.escape(reason)):
        make_trigger(pattern)


def test_deep_nesting_is_refused_and_does_not_crash():
    with pytest.raises(PatternError):
        regex_ast.parse("(" * 5_000 + "a" + ")" * 5_000)


def test_characters_that_python_warns_about_are_accepted_without_a_warning():
    assert make_trigger(r"[[a-z]{3}[a-z||0-9]").min_width == 4
