"""Test the excerpts of hits: the right lines, cut to their width, and no detected value in any of them."""

import base64
import io
import zipfile
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.excerpt import Excerpt
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import MASK, Secret, reveal
from outcrop.scanner.engine.excerpt import MAX_LINE_WIDTH, excerpts_of_file, make_excerpts
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.rules.example_templates import expand_template
from outcrop.scanner.rules.model import Strength
from outcrop.scanner.rules.toml import parse_rule_file
from tests.support.rulesets import BASE64, drawn, github_token, ruleset

(RULE,) = parse_rule_file(
    """
issuer = "Own"

[[rule]]
id = "own"
name = "Own"
secret_type = "own"
impact = "low"
pattern = 'own_[a-z]{20}'
examples = ['«own_{{lower 20}}»']
""",
    "own.toml",
)
TOKEN, OTHER = github_token("excerpt"), github_token("other")
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "\n".join(drawn(BASE64, 64, n) for n in range(12))
    + "\n-----END RSA PRIVATE KEY-----"
)


def hit_at(
    text: bytes,
    start: int,
    value: str,
    *,
    end: int | None = None,
    encoding: tuple[str, ...] = (),
    **more: object,
) -> Hit:
    """Return a hit at `start`, as detection would make it."""
    stop = start + len(value.encode()) if end is None else end
    hit = Hit(
        RULE,
        Secret(value),
        start,
        stop,
        Strength.PREFIX,
        Confidence.HIGH,
        encoding=encoding,
        line=text.count(b"\n", 0, start) + 1,
    )
    hit.companions.update(more.get("parts", {}))  # type: ignore[call-overload]
    return hit


def found_in(text: str | bytes) -> list[Excerpt]:
    """Return the excerpts of all hits that the built-in rules find in a text."""
    data = text.encode() if isinstance(text, str) else text
    found = scan_content(ruleset(), data, Confidence.MEDIUM).hits
    shown = excerpts_of_file(ruleset(), data, [(b"!" + inner.encode(), hit) for inner, hit in found])
    assert None not in shown
    return [excerpt for excerpt in shown if excerpt is not None]


def shows(excerpt: Excerpt, value: str) -> bool:
    """Whether the value is in the excerpt, as it is or URL-encoded."""
    text = "\n".join(excerpt.lines)
    return value in text or value in unquote(text)


# --- lines


def test_excerpt_has_two_lines_before_and_after_the_hit() -> None:
    (shown,) = found_in(f"one\ntwo\nthree\nkey = {TOKEN}  # x\nfive\nsix\nseven\n")
    assert shown == Excerpt(2, ("two", "three", f"key = {Secret(TOKEN).masked()}  # x", "five", "six"), 2)
    assert shown.line == 4


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_excerpt_has_fewer_lines_at_the_ends_of_a_file(end: str) -> None:
    (shown,) = found_in(TOKEN + end)
    assert shown == Excerpt(1, (Secret(TOKEN).masked(), *([""] if end == "\n\n" else [])), 0)
    (shown,) = found_in(f"a\r\n{TOKEN}\r\nb{end}")
    assert (shown.first, shown.lines[:3], shown.at) == (1, ("a", Secret(TOKEN).masked(), "b"), 1)


def test_long_line_is_cut_around_the_value_and_other_lines_at_their_end() -> None:
    (shown,) = found_in("b" * 900 + "\n" + "var x=1;" * 500 + f'k="{TOKEN}";' + "y()," * 500 + "\nlast")
    assert all(len(line) <= MAX_LINE_WIDTH + 2 for line in shown.lines)
    assert Secret(TOKEN).masked() in shown.lines[shown.at]
    assert shown.lines[shown.at].startswith("…")
    assert shown.lines[shown.at].endswith("…")
    (shown,) = found_in("b" * 900 + f"\n{TOKEN}\nlast")
    assert shown.lines == ("b" * MAX_LINE_WIDTH + "…", Secret(TOKEN).masked(), "last")


def test_line_of_megabytes_is_shown_without_other_lines() -> None:
    (shown,) = found_in("first\n" + "a " * 500_000 + TOKEN + " b" * 500_000 + "\nlast")
    assert (shown.first, len(shown.lines), shown.at) == (2, 1, 0)


def test_control_and_direction_characters_are_replaced() -> None:
    (shown,) = found_in(f"\x1b[31m\tred\u202e\n{TOKEN}\x07")
    assert shown.lines == ("\ufffd[31m\tred\ufffd", Secret(TOKEN).masked() + "\ufffd")


# --- masks


def test_key_of_many_lines_is_masked_completely() -> None:
    (shown,) = found_in(f"a\nb\n{PEM}\nc\n")
    assert shown == Excerpt(1, ("a", "b", MASK, MASK, MASK), 2)
    shown = found_in(f"{PEM}\nkey = {TOKEN}\n")[1]
    assert shown.lines == (MASK, MASK, f"key = {Secret(TOKEN).masked()}")


def test_every_value_in_the_lines_is_masked_also_if_url_encoded() -> None:
    line = f"a={TOKEN} b={OTHER} c={quote(OTHER, safe='')} d={''.join(f'%{ord(c):02x}' for c in OTHER)}"
    for shown in found_in(f"{line}\n{OTHER}\n{TOKEN}x"):
        assert not shows(shown, TOKEN)
        assert not shows(shown, OTHER)
        assert shown.lines[0].startswith(f"a={Secret(TOKEN).masked()} b={Secret(OTHER).masked()} c=")


def test_companions_are_masked() -> None:
    id_, secret = "AKIA" + drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, 1), drawn(BASE64, 40, 2)
    for shown in found_in(f"aws_access_key_id = {id_}\naws_secret_access_key = {secret}\n"):
        assert not shows(shown, id_)
        assert not shows(shown, secret)


def test_encoded_word_is_masked_completely() -> None:
    word = base64.b64encode(f"user:{TOKEN}:more".encode()).decode()
    shown = found_in(f"x\nAuthorization: Basic {word}\n")
    assert {excerpt.lines for excerpt in shown} == {("x", f"Authorization: Basic {MASK}")}


def test_no_excerpt_if_a_value_looks_like_the_mask() -> None:
    text = f"{'*' * 8} own_{'q' * 20}".encode()
    hits = [hit_at(text, 0, "*" * 8), hit_at(text, 9, f"own_{'q' * 20}")]
    assert make_excerpts(text, hits, hits) == [None, None]


def test_value_is_not_shown_if_masking_changes_its_url_decoding() -> None:
    text = b"0000001%0001000%3D %0001000="
    hits = [hit_at(text, 0, "0000001%"), hit_at(text, 1, "000001%"), hit_at(text, 20, "0001000=")]
    for shown in make_excerpts(text, hits, hits):
        assert shown is None or "0001000=" not in unquote("\n".join(shown.lines))


def test_archive_members_have_excerpts_of_their_own_lines() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a/one.txt", f"first\n{TOKEN}\n")
        archive.writestr("two.txt", f"{OTHER}\n" * 2)
    shown = found_in(packed.getvalue())
    assert [excerpt.lines for excerpt in shown[:2]] == [
        ("first", Secret(TOKEN).masked()),
        (Secret(OTHER).masked(),) * 2,
    ]


# --- random texts


_letters = st.sampled_from("abAB01+/ %_*é")
_value = st.text(_letters, min_size=4, max_size=12) | st.text(
    _letters, min_size=32, max_size=34
)  # of long ones four characters are shown
_between = st.sampled_from(
    ["", "", " ", "\n", "\r\n", "=", "%", "%25", "a", "ab", "*" * 8, "x" * 150, "ü", "\n\n\n"]
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[bytes, list[Hit]]:
    """Draw a text with several values, and its hits.

    Values are inside each other, adjacent, repeated or encoded. Each is a hit at least once, not everywhere.
    """
    values = draw(st.lists(_value, min_size=1, max_size=4))
    longer = draw(st.sampled_from(values))
    values.append(draw(_value) + longer[draw(st.integers(0, 2)) :] + draw(_between).strip("\r\n*"))
    values.append(longer[: draw(st.sampled_from([4, 4, 5, 12]))])
    text, hits = b"", list[tuple[int, int, str, bool]]()
    for value in [*values, *draw(st.lists(st.sampled_from(values), max_size=5))]:
        text += draw(_between).encode()
        how = draw(st.sampled_from(["plain", "plain", "plain", "hidden", "url", "all"]))
        if how == "all":
            text += b"".join(b"%%%02x" % byte for byte in value.encode())
        elif how == "url":
            text += quote(value, safe="").encode()
        else:
            hits += [(len(text), len(text) + len(value.encode()), value, False)] if how == "plain" else []
            text += value.encode()
    text += draw(_between).encode()
    hit_values = {value for _, _, value, _ in hits}
    for value in values:  # each is a hit at least once
        if value not in hit_values:
            text += draw(_between).encode()
            hits.append((len(text), len(text) + len(value.encode()), value, False))
            text += value.encode()
    return text, [hit_at(text, start, value, end=end) for start, end, value, _ in hits]


@pytest.mark.slow
@given(documents())
@settings(max_examples=250, deadline=None)
def test_no_excerpt_shows_the_value_of_any_hit(document: tuple[bytes, list[Hit]]) -> None:
    text, hits = document
    for hit, shown in zip(hits, make_excerpts(text, hits, hits), strict=True):
        if shown is None:
            continue
        shown_text = "\n".join(shown.lines)
        for other in hits:
            value = reveal(other.secret)
            assert value not in shown_text
            # Otherwise the mask, or text that is decoded twice, can look like the value.
            if "*" not in value and "%" not in value:
                assert value not in unquote(shown_text)
        assert shown.line == hit.line
        assert 1 <= len(shown.lines) <= 5
        assert all(len(line) <= MAX_LINE_WIDTH + 2 for line in shown.lines)


_TEMPLATES = [
    "ghp_{{base62 30}}{{crc32_base62}}",
    "sk_live_{{base62 24}}",
    "postgres://app:{{base62 16}}@db.internal:5432/app",
    "https://{{lower 6}}:ghp_{{base62 30}}{{crc32_base62}}@github.com/a/b",
    "AKIA{{base32 16}}\n{{base64 40}}",
    'password = "{{base62 18}}"',
    "-----BEGIN PRIVATE KEY-----\n{{base64 64}}\n{{base64 64}}\n-----END PRIVATE KEY-----",
    "xoxb-{{digits 12}}-{{digits 12}}-{{base62 24}}",
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(_TEMPLATES),
            st.integers(0, 20),
            st.sampled_from(["", " ", "\n", ",", "&x=", '";a="', "\n\n"]),
        ),
        max_size=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_no_excerpt_shows_a_value_that_the_rules_find(pieces: list[tuple[str, int, str]]) -> None:
    text = "".join(
        expand_template(template, str(seed)) + between for template, seed, between in pieces
    ).encode()
    found = scan_content(ruleset(), text, Confidence.LOW).hits
    for shown in excerpts_of_file(ruleset(), text, [(b"", hit) for _, hit in found]):
        for _, hit in found:
            for secret in (hit.secret, *hit.companions.values()):
                assert shown is None or len(reveal(secret)) < 4 or not shows(shown, reveal(secret))
