"""The cookie of a browser that a member has signed in with."""

import os

import pytest

from outcrop.store.people.known_browser import ID_BYTES, add_member, find_id

KEY = b"k" * 32


def make(*emails: str) -> str:
    cookie = ""
    for email in emails:
        cookie = add_member(KEY, cookie, email, os.urandom(ID_BYTES))
    return cookie


def test_a_browser_keeps_its_id_for_all_its_members() -> None:
    first = make("jo@acme.example")
    both = add_member(KEY, first, "al@acme.example", os.urandom(ID_BYTES))
    id_ = find_id(KEY, first, "JO@acme.example")
    assert id_ is not None
    assert find_id(KEY, both, "jo@acme.example") == find_id(KEY, both, "al@acme.example") == id_
    assert find_id(KEY, first, "al@acme.example") is None
    assert add_member(KEY, both, "al@acme.example", b"") == both
    assert "acme" not in both


def test_only_the_last_four_members_are_kept() -> None:
    emails = [f"{n}@acme.example" for n in range(6)]
    cookie = make(*emails)
    assert [find_id(KEY, cookie, email) is not None for email in emails] == [False] * 2 + [True] * 4


@pytest.mark.parametrize("cookie", ["", ".", "a.b", "x" * 10_000, "\udc80" * 22 + "." + "a" * 22])
def test_a_damaged_cookie_is_that_of_an_unknown_browser(cookie: str) -> None:
    assert find_id(KEY, cookie, "jo@acme.example") is None
    assert find_id(KEY, add_member(KEY, cookie, "jo@acme.example", os.urandom(ID_BYTES)), "jo@acme.example")


def test_a_cookie_of_another_id_or_key_is_refused() -> None:
    cookie = make("jo@acme.example")
    other = make("al@acme.example")
    mixed = other.split(".")[0] + "." + cookie.split(".")[1]
    assert find_id(KEY, mixed, "jo@acme.example") is None
    assert find_id(b"x" * 32, cookie, "jo@acme.example") is None
