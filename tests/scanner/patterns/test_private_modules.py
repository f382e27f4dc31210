"""The private parts of `re` and `re2` that we use have the form that we expect (docs/adr/0014)."""

import re
from re import _constants as op
from re import _parser as parser

import pytest
import re2  # type: ignore[import-untyped]

from outcrop.scanner.patterns.re2_match import compile_regex, find_spans, matches_at, matches_fully

TREES = {
    "ab": [(op.LITERAL, 97), (op.LITERAL, 98)],
    "[^a]": [(op.NOT_LITERAL, 97)],
    ".": [(op.ANY, None)],
    "[a-c_]": [(op.IN, [(op.RANGE, (97, 99)), (op.LITERAL, 95)])],
    r"[^\d-]": [(op.IN, [(op.NEGATE, None), (op.CATEGORY, op.CATEGORY_DIGIT), (op.LITERAL, 45)])],
    r"\w": [(op.IN, [(op.CATEGORY, op.CATEGORY_WORD)])],
    "a{2,5}": [(op.MAX_REPEAT, (2, 5, [(op.LITERAL, 97)]))],
    "a+?": [(op.MIN_REPEAT, (1, op.MAXREPEAT, [(op.LITERAL, 97)]))],
    "(?P<secret>a)": [(op.SUBPATTERN, (1, 0, 0, [(op.LITERAL, 97)]))],
    "(?i:a)": [(op.SUBPATTERN, (None, re.IGNORECASE, 0, [(op.LITERAL, 97)]))],
    "ab|c": [(op.BRANCH, (None, [[(op.LITERAL, 97), (op.LITERAL, 98)], [(op.LITERAL, 99)]]))],
    r"^\b$": [(op.AT, op.AT_BEGINNING), (op.AT, op.AT_BOUNDARY), (op.AT, op.AT_END)],
    "(?=a)": [(op.ASSERT, (1, [(op.LITERAL, 97)]))],
    "(?!a)": [(op.ASSERT_NOT, (1, [(op.LITERAL, 97)]))],
    r"(a)\1": [(op.SUBPATTERN, (1, 0, 0, [(op.LITERAL, 97)])), (op.GROUPREF, 1)],
    "(?>a)": [(op.ATOMIC_GROUP, [(op.LITERAL, 97)])],
    "a++": [(op.POSSESSIVE_REPEAT, (1, op.MAXREPEAT, [(op.LITERAL, 97)]))],
}


def to_lists(node):
    """Return a syntax tree as nested lists and tuples."""
    if isinstance(node, list | parser.SubPattern):
        return [to_lists(item) for item in node]
    return tuple(to_lists(item) for item in node) if isinstance(node, tuple) else node


@pytest.mark.parametrize("pattern", TREES)
def test_the_parser_of_python_returns_the_tree_that_we_read(pattern):
    tree = parser.parse(pattern, 0)
    assert to_lists(tree) == TREES[pattern]
    assert isinstance(tree.state.flags, int)
    assert isinstance(tree.state.groupdict, dict)


def test_the_width_of_a_tree_is_known():
    assert parser.parse("a{2,5}(?:b|cd)?", 0).getwidth() == (2, 7)


@pytest.mark.parametrize("text", [b"", b"key=abc", b"xx key=abcd;", b"key=", b"key=1", b"no match"])
@pytest.mark.parametrize("window", [(0, None), (3, None), (0, 7), (2, 9)])
def test_our_calls_of_re2_return_what_its_public_methods_return(text, window):
    pattern = compile_regex(r"key=(?P<secret>[a-c]+)|(d)")
    start, stop = min(window[0], len(text)), min(window[1] or len(text), len(text))
    found = re2.compile(rb"key=(?P<secret>[a-c]+)|(d)").search(text, start, stop)
    spans = None if found is None else [found.span(group) for group in range(3)]
    assert find_spans(pattern, text, start, stop) == spans
    assert matches_at(pattern, text, start, stop) == (pattern.match(text, start, stop) is not None)
    assert matches_fully(pattern, text, start, stop) == (pattern.fullmatch(text, start, stop) is not None)
