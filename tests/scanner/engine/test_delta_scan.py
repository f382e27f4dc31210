"""Test that versions of files have the same hits as if each was scanned alone, with less text searched."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.delta_scan import (
    MAX_TRIGGER_WIDTH,
    CopiedRange,
    FileVersion,
    _plan_ranges,
    scan_new_text,
)
from outcrop.scanner.engine.scan import scan_content, scan_versions
from outcrop.scanner.engine.triggers import find_trigger_matches
from tests.scanner.engine.test_scan_content import pieces, summarize
from tests.support.calls import recorded_calls
from tests.support.rulesets import github_token, ruleset

LOW = Confidence.LOW


def make_plain_lines(seed: int, length: int) -> bytes:
    """Return lines without any credential."""
    rng = random.Random(seed)
    return b"".join(
        b"    %s(%d)\n" % (rng.choice([b"walk", b"paint", b"cook"]), rng.randrange(999))
        for _ in range(length // 13)
    )


Edit = tuple[int, int, bytes]  # (offset, number of removed bytes, inserted bytes)


def make_version(base: FileVersion, edits: list[Edit]) -> FileVersion:
    """Return a version of `base` with these edits and its copied ranges, as a pack describes them."""
    text, copied, at = b"", list[CopiedRange](), 0
    for wanted, gone, new in sorted(edits):
        place = max(wanted, at)
        if at < place <= len(base.content):
            copied.append((len(text), len(text) + place - at, at))
        text += base.content[at:place] + new
        at = max(at, min(place + gone, len(base.content)))
    if at < len(base.content):
        copied.append((len(text), len(text) + len(base.content) - at, at))
    return FileVersion(text + base.content[at:], base, copied)


edits = st.lists(st.tuples(st.integers(0, 20_000), st.sampled_from([0, 0, 1, 30, 4_000]), pieces), max_size=4)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6_000), pieces), min_size=1, max_size=4),
    st.lists(edits, min_size=1, max_size=5),
    st.integers(1, 5),
)
def test_versions_have_the_same_hits_as_each_scanned_alone(pieces_of_base, edits_by_version, batch_size):
    chain = [
        FileVersion(
            b"".join(
                make_plain_lines(number, length) + piece
                for number, (length, piece) in enumerate(pieces_of_base)
            )
        )
    ]
    for change in edits_by_version:
        chain.append(make_version(chain[-1], change))
    named = [(b"%d" % number, version) for number, version in enumerate(chain)]
    found = [
        scanned
        for at in range(0, len(named), batch_size)
        for scanned in scan_versions(ruleset(), named[at : at + batch_size], LOW)
    ]
    assert [name for name, _, _ in found] == [name for name, _ in named]
    for version, (_, result, size) in zip(chain, found, strict=True):
        assert summarize(result) == summarize(scan_content(ruleset(), version.content, LOW))
        assert size == len(version.content)


@pytest.mark.parametrize("at", ["begins", "ends", "is in the middle", "crosses the edit", "is removed"])
def test_token_is_found_wherever_an_edit_put_it(at: str) -> None:
    token = github_token(3).encode()
    base = FileVersion(make_plain_lines(1, 9_000) + token[:20] + b"\n" + make_plain_lines(2, 9_000))
    seam = base.content.index(token[:20])
    edit: dict[str, Edit] = {
        "begins": (0, 0, token + b"\n"),
        "ends": (len(base.content), 0, token),
        "is in the middle": (5_000, 0, b" " + token + b" "),
        "crosses the edit": (seam + 20, 0, token[20:]),
        "is removed": (seam, 21, b""),
    }
    version = make_version(base, [edit[at]])
    scanned = {
        name: found for name, found, _ in scan_versions(ruleset(), [(b"old", base), (b"new", version)], LOW)
    }
    assert not scanned[b"old"].hits
    assert len(scanned[b"new"].hits) == (at != "is removed")


@pytest.mark.parametrize(
    "after", [b"", b"\n", b"\n" + make_plain_lines(4, 9_000)], ids=["end of text", "line break", "lines"]
)
def test_token_is_found_if_an_edit_removes_the_text_after_it(after: bytes) -> None:
    base = FileVersion(make_plain_lines(1, 9_000) + github_token(3).encode() + b"xyz" + after)
    version = make_version(base, [(base.content.index(b"xyz"), 3, b"")])
    scanned = {
        name: found for name, found, _ in scan_versions(ruleset(), [(b"old", base), (b"new", version)], LOW)
    }
    assert (len(scanned[b"old"].hits), len(scanned[b"new"].hits)) == (0, 1)


def test_copied_text_is_not_searched_again() -> None:
    base = FileVersion(make_plain_lines(1, 100_000))
    chain = [base]
    for number in range(10):
        chain.append(make_version(chain[-1], [(10_000 * number, 5, b"new")]))
    with recorded_calls(find_trigger_matches) as calls:
        scan_new_text(ruleset(), chain)
    (call,) = calls
    assert len(call.arguments["data"]) < len(base.content) + 10 * 2.1 * (
        ruleset().rules.max_trigger_width + 50
    )


def test_version_of_a_base_that_was_not_searched_is_searched_completely() -> None:
    base = FileVersion(
        make_plain_lines(1, 9_000) + github_token(3).encode() + b"\n" + make_plain_lines(2, 9_000)
    )
    version = make_version(base, [(0, 0, b"new\n")])
    scan_new_text(ruleset(), [version])
    assert version.content_matches() == sorted(
        (end, number) for end, number in find_trigger_matches(ruleset(), version.content)
    )


def test_version_is_searched_completely_if_triggers_are_too_wide() -> None:
    base = FileVersion(make_plain_lines(1, 9_000))
    scan_new_text(ruleset(), [base])
    version = make_version(base, [(0, 0, b"new\n")])
    assert len(_plan_ranges(version, MAX_TRIGGER_WIDTH)) == 2
    assert _plan_ranges(version, MAX_TRIGGER_WIDTH + 1) == [(2, len(version.content) + 2, -2, None)]
