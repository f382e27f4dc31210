"""Versions of files, of which only what is new is read by the first pass: what is found is what each gives by itself."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine import delta_scan
from outcrop.scanner.engine.delta_scan import CopiedRange, FileVersion, scan_new_text
from outcrop.scanner.engine.scan import scan_content, scan_versions
from outcrop.scanner.engine.triggers import scan_joined_texts
from tests.scanner.engine.test_scan_content import pieces, told
from tests.support.rulesets import github_token, ruleset

LOW = Confidence.LOW


def ordinary(seed: int, length: int) -> bytes:
    """Give lines in which there is nothing to find."""
    chance = random.Random(seed)
    return b"".join(
        b"    %s(%d)\n" % (chance.choice([b"walk", b"paint", b"cook"]), chance.randrange(999))
        for _ in range(length // 13)
    )


Edit = tuple[int, int, bytes]  # where, how many characters go, and what comes


def changed(base: FileVersion, edits: list[Edit]) -> FileVersion:
    """Make a version of another one, as a pack does: stretches that are copied, and new ones."""
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
def test_versions_give_what_each_gives_alone(first, later, together):
    chain = [
        FileVersion(
            b"".join(ordinary(number, length) + piece for number, (length, piece) in enumerate(first))
        )
    ]
    for change in later:
        chain.append(changed(chain[-1], change))
    named = [(b"%d" % number, version) for number, version in enumerate(chain)]
    found = [
        one
        for at in range(0, len(named), together)
        for one in scan_versions(ruleset(), named[at : at + together], LOW)
    ]
    assert [name for name, _, _ in found] == [name for name, _ in named]
    for version, (_, what, size) in zip(chain, found, strict=True):
        assert told(what) == told(scan_content(ruleset(), version.content, LOW))
        assert size == len(version.content)


@pytest.mark.parametrize("at", ["begins", "ends", "is in the middle", "lies across the seam", "is moved"])
def test_a_token_is_seen_wherever_a_change_has_put_it(at: str) -> None:
    token = github_token(3).encode()
    base = FileVersion(ordinary(1, 9_000) + token[:20] + b"\n" + ordinary(2, 9_000))
    seam = base.content.index(token[:20])
    edit: dict[str, Edit] = {
        "begins": (0, 0, token + b"\n"),
        "ends": (len(base.content), 0, token),
        "is in the middle": (5_000, 0, b" " + token + b" "),
        "lies across the seam": (seam + 20, 0, token[20:]),
        "is moved": (seam, 21, b""),
    }
    version = changed(base, [edit[at]])
    scanned = {
        name: found for name, found, _ in scan_versions(ruleset(), [(b"old", base), (b"new", version)], LOW)
    }
    assert not scanned[b"old"].hits
    assert len(scanned[b"new"].hits) == (at != "is moved")


@pytest.mark.parametrize(
    "behind", [b"", b"\n", b"\n" + ordinary(4, 9_000)], ids=["by the end", "by a line break", "by lines"]
)
def test_a_token_is_seen_that_is_set_free_by_what_follows(behind: bytes) -> None:
    """No character of it is new."""
    base = FileVersion(ordinary(1, 9_000) + github_token(3).encode() + b"xyz" + behind)
    version = changed(base, [(base.content.index(b"xyz"), 3, b"")])
    scanned = {
        name: found for name, found, _ in scan_versions(ruleset(), [(b"old", base), (b"new", version)], LOW)
    }
    assert (len(scanned[b"old"].hits), len(scanned[b"new"].hits)) == (0, 1)


def test_what_was_copied_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(rules: object, data: bytes) -> list[tuple[int, int]]:
        read.append(len(data))
        return scan_joined_texts(rules, data)  # type: ignore[arg-type]

    monkeypatch.setattr(delta_scan, "scan_joined_texts", counted)
    base = FileVersion(ordinary(1, 100_000))
    chain = [base]
    for number in range(10):
        chain.append(changed(chain[-1], [(10_000 * number, 5, b"new")]))
    scan_new_text(ruleset(), chain)
    assert read[0] < len(base.content) + 10 * 2.1 * (ruleset().rules.max_trigger_width + 50)


def test_a_base_that_was_not_read_is_of_no_use() -> None:
    base = FileVersion(ordinary(1, 9_000) + github_token(3).encode() + b"\n" + ordinary(2, 9_000))
    version = changed(base, [(0, 0, b"new\n")])
    scan_new_text(ruleset(), [version])
    assert version.content_matches() == sorted(
        (end, number) for end, number in scan_joined_texts(ruleset(), version.content)
    )


def test_rules_whose_triggers_are_wide_read_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_scan, "MAX_TRIGGER_WIDTH", 10)
    base = FileVersion(ordinary(1, 9_000))
    version = changed(base, [(0, 0, b"new\n")])
    assert delta_scan._plan_ranges(version, 11) == [(2, len(version.content) + 2, -2, None)]
