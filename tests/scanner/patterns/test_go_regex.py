"""Regular expressions in Go's syntax are translated to the syntax of RE2 and Hyperscan."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.scanner.patterns.go_regex import _scope_flags, translate_go_regex


@pytest.mark.parametrize(
    ("pattern", "scoped"),
    [
        ("a(?i)b|c", "a(?i:b)|(?i:c)"),
        ("(?i)a|b", "(?i:a)|(?i:b)"),
        ("(x(?s).|y)z", "(x(?s:.)|(?s:y))z"),
        ("a(?i)b(?-i)c", "a(?i:b(?-i:c))"),
        (r"a(?i)[|)\]]b|\|c", r"a(?i:[|)\]]b)|(?i:\|c)"),
        ("a(?i)(b|[]|]c)|d", "a(?i:(b|[]|]c))|(?i:d)"),
        ("[(?i)]x", "[(?i)]x"),
    ],
)
def test_a_flag_holds_up_to_the_end_of_its_group_across_alternatives(pattern, scoped):
    assert _scope_flags(pattern) == scoped


@given(st.text("ab|()[]?i:\\^", max_size=12))
def test_no_text_crashes_the_translation(text):
    translate_go_regex(text)


def test_escapes_and_classes_of_go_are_translated():
    assert translate_go_regex(r"\x{41}[[:alpha:]_]\\z\z") == r"\x41[A-Za-z_]\\z$"
    assert re.fullmatch(translate_go_regex("caf\u00e9").encode("latin-1"), "caf\u00e9".encode())
