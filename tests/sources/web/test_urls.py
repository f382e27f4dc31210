"""URLs: normalised, compared, and redacted for messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.sources.web.asset_names import stable_path
from outcrop.sources.web.urls import is_same_site, normalise_url, redact_url

HOME = "https://h.example/"


@pytest.mark.parametrize(
    ("reference", "base", "normalised"),
    [
        ("HTTPS://H.Example:443/a/../b#part", "", "https://h.example/b"),
        ("https://h.example", "", "https://h.example/"),
        ("http://h.example:80/?q=1", "", "http://h.example/?q=1"),
        ("https://me:secret@h.example/a", "", "https://h.example/a"),
        ("//cdn.example/x.js", HOME, "https://cdn.example/x.js"),
        ("  a\n b ", HOME, "https://h.example/a%20b"),
        ("\\x\\y", HOME, "https://h.example/x/y"),
        ("?page=2", "https://h.example/list?page=1", "https://h.example/list?page=2"),
        ("", "https://h.example/a?b#c", "https://h.example/a?b"),
        ("mailto:me@h.example", HOME, None),
        ("javascript:void(0)", HOME, None),
        ("data:text/html,x", HOME, None),
        ("http://[broken/", HOME, None),
        ("https://h.example:99999/", HOME, None),
        ("http://exa mple/", HOME, None),
        ("/" + "a" * 5_000, HOME, None),
    ],
)
def test_a_reference_is_resolved_and_normalised(reference, base, normalised):
    assert normalise_url(reference, base) == normalised


@pytest.mark.parametrize(
    ("url", "start", "same"),
    [
        ("https://h.example/a", "https://h.example/", True),
        ("https://www.h.example/a", "https://h.example/", True),
        ("https://h.example/a", "https://www.h.example/", True),
        ("https://h.example/a", "http://h.example/", True),
        ("http://h.example/a", "https://h.example/", False),
        ("https://h.example:8443/a", "https://h.example/", False),
        ("https://api.h.example/a", "https://h.example/", False),
        ("https://h.example.evil.example/", "https://h.example/", False),
    ],
)
def test_urls_of_the_same_site_are_recognised(url, start, same):
    assert is_same_site(url, start) is same


def test_a_redacted_url_has_no_password_and_no_query_values():
    assert (
        redact_url("https://me:hunter2@h.example/a?token=abc&page=2&eyJhbGciOi#x")
        == "https://h.example/a?token&page"
    )
    assert redact_url("http://[broken") == "a malformed URL"


@given(st.text(max_size=100), st.text(max_size=50))
def test_any_text_can_be_read_as_a_url(reference, base):
    assert (url := normalise_url(reference, HOME)) is None or normalise_url(url) == url
    normalise_url(reference, base)
    redact_url(reference)
    stable_path(reference)
