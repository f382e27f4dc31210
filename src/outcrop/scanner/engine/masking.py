"""Find the spans of a text that must be masked, so that no detected value can be read.

Values are searched for in bytes, as the offsets of hits count bytes, and as bytes that are not valid UTF-8
cannot hide a value then.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import unquote, unquote_to_bytes

from outcrop.domain.secret import MASK, Secret, reveal
from outcrop.lazy_regex import regex
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.generic.randomness import is_made_of_words, random_bits
from outcrop.scanner.patterns.entropy import has_entropy
from outcrop.scanner.rules.model import Strength

# Bytes. Shorter values are in ordinary words, so they are masked only where they were detected.
MIN_SEARCHED_VALUE = 4
MAX_ENCODED_WORD = 4_096  # bytes to each side of a hit in which the encoded word around it is followed
_ENCODED_WORD = regex(rb"[0-9A-Za-z+/=_\\%&;#-]*")

MIN_RANDOM_IN_PATH = 16  # characters: a shorter value of a generic rule is a word of many paths
_HEX = regex(r"[0-9A-Fa-f-]*")
_MIN_HEX_BITS = 2.5  # per character
_MIN_RANDOM_BITS = 8.0  # three ordinary words in a row can have 7

Span = tuple[int, int]  # (start, end)
MaskedSpan = tuple[int, int, Secret | None]  # (start, end, the secret if the span is exactly one value)


def is_masked_in_paths(hit: Hit) -> bool:
    """Whether the value of a hit is masked in paths and URLs; see `hides_in_paths`."""
    return hides_in_paths(
        reveal(hit.secret), is_named=hit.strength is not Strength.GENERIC, is_password=hit.rule.password
    )


def hides_in_paths(value: str, *, is_named: bool, is_password: bool) -> bool:
    """Whether a value is masked in paths and URLs: otherwise nobody could find the file `production/app.env`.

    `is_named` says that the rule of an issuer has found it, and not a generic rule. A named value is masked
    unless it is a password that consists of letters and looks like words. A generic one is masked if it has
    at least MIN_RANDOM_IN_PATH characters and looks random.
    """
    if is_named:
        return not (is_password and value.isalpha() and is_made_of_words(value))
    if len(value) < MIN_RANDOM_IN_PATH or value.replace("-", "").isdecimal():
        return False
    is_hex = _HEX.fullmatch(value) is not None and has_entropy(value, _MIN_HEX_BITS)
    return is_hex or random_bits(value) > _MIN_RANDOM_BITS


def find_in_texts(ruleset: RuleSet, texts: Iterable[str]) -> list[Hit]:
    """Return the hits in paths, URLs or names of authors, also where they are URL-encoded.

    The texts are searched together. A hit's offsets have no meaning.
    """
    joined = "\n\n".join(sorted(set(texts)))
    forms = {joined, unquote(joined)}
    return [hit for form in sorted(forms) for hit in find(ruleset, form.encode("utf-8", "replace"))]


def mask_text(ruleset: RuleSet, text: str) -> str:
    """Return the text with every value masked that a scan would report, also where it is URL-encoded.

    Values of low confidence are not masked. Lone surrogates are replaced by U+FFFD.
    """
    data = text.encode("utf-8", "surrogatepass")
    masked, at = b"", 0
    for start, end, secret in find_masked_spans(data, find(ruleset, data), [(0, len(data))]):
        mask = MASK if secret is None else secret.masked()
        masked += data[at:start] + mask.encode("utf-8", "surrogatepass")
        at = end
    text = (masked + data[at:]).decode("utf-8", "replace")
    if "%" in text:
        for secret in unique_secrets(find(ruleset, unquote(text).encode("utf-8", "surrogatepass"))):
            text = secret.masked_within(text)
    return text


def find_masked_spans(text: bytes, hits: Sequence[Hit], regions: Sequence[Span]) -> list[MaskedSpan]:
    """Return the spans of all hits, and of their values elsewhere in `regions`, sorted; overlaps are joined.

    A value is searched for plain and URL-encoded. The values of companions are searched for too.
    """
    return _join_overlapping([*_hit_spans(text, hits), *_value_spans(text, unique_secrets(hits), regions)])


def unique_secrets(hits: Iterable[Hit]) -> list[Secret]:
    """Return the secrets of the hits and their companions, each value once."""
    secrets = (secret for hit in hits for secret in (hit.secret, *hit.companions.values()))
    return list({reveal(secret): secret for secret in secrets}.values())


def is_encoded(hit: Hit) -> bool:
    """Whether the bytes at the hit are not the value itself but an encoding of it."""
    return bool(hit.encoding or hit.rule.decode)


def possible_bytes(secret: Secret) -> set[bytes]:
    """Return the bytes that a secret may have been decoded from: as UTF-8, and as Latin-1 if possible."""
    value = reveal(secret)
    encoded = {value.encode("utf-8", "surrogatepass")}
    if not value.isascii() and max(value) <= "\xff":
        encoded.add(value.encode("latin-1"))
    return encoded


def _hit_spans(text: bytes, hits: Iterable[Hit]) -> Iterator[MaskedSpan]:
    """Yield the span of each hit; if the value is encoded, that of the whole encoded word, without a secret.

    The first and last characters of the word can have bits of the value. A span also has no secret if the
    text there is not the value.
    """
    for hit in hits:
        start, end = hit.start, hit.end
        if is_encoded(hit):
            before = text[max(0, start - MAX_ENCODED_WORD) : start]
            start -= _ENCODED_WORD.match(before[::-1]).end()  # type: ignore[union-attr]  # always matches
            end = _ENCODED_WORD.match(text, end, end + MAX_ENCODED_WORD).end()  # type: ignore[union-attr]
            yield start, end, None
        elif start < end:
            yield start, end, hit.secret if text[start:end] in possible_bytes(hit.secret) else None


def _value_spans(text: bytes, secrets: Sequence[Secret], regions: Sequence[Span]) -> Iterator[MaskedSpan]:
    """Yield the spans in `regions` where the value of one of `secrets` is, plain or URL-encoded.

    All regions are searched at once. Values below MIN_SEARCHED_VALUE bytes are not searched for.
    """
    joined, joined_starts, text_starts = _join_regions(text, regions)
    url_decoded = unquote_to_bytes(joined) if b"%" in joined else b""
    with_spaces = joined.replace(b"+", b" ") if b"+" in joined else b""
    for secret in secrets:
        for value in possible_bytes(secret):
            if len(value) < MIN_SEARCHED_VALUE:
                continue
            spans = list(_find_plain(joined, value))
            has_space = b" " in value
            if (
                b"%" in value
                or value in url_decoded
                or (has_space and (value in with_spaces or value in url_decoded.replace(b"+", b" ")))
            ):
                spans += _find_url_encoded(joined, value)
            for start, end in spans:
                region = bisect_right(joined_starts, start) - 1
                shift = text_starts[region] - joined_starts[region]
                yield start + shift, end + shift, secret


def _join_regions(text: bytes, regions: Sequence[Span]) -> tuple[bytes, list[int], list[int]]:
    """Return the regions of `text` joined by line breaks, and two lists of where each region begins.

    The first list has the offsets in the joined text, the second those in `text`. Regions that overlap or
    touch become one.
    """
    joined: list[Span] = []
    for start, end in sorted(regions):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    joined_starts, size = [], 0
    for start, end in joined:
        joined_starts.append(size)
        size += end - start + 1
    return b"\n".join(text[start:end] for start, end in joined), joined_starts, [start for start, _ in joined]


def _find_plain(text: bytes, value: bytes) -> Iterator[Span]:
    """Yield every span of `value` in the text, also overlapping ones."""
    at = text.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = text.find(value, at + 1)


def _find_url_encoded(text: bytes, value: bytes) -> Iterator[Span]:
    """Yield every span of `value` with any or none of its bytes percent-encoded, also overlapping ones.

    A space can be `+` too.
    """
    pattern = b"".join(
        rb"(?:%s|%%(?i:%02x)%s)" % (re.escape(bytes([byte])), byte, rb"|\+" if byte == 0x20 else b"")
        for byte in value
    )
    for match in re.finditer(b"(?=(%s))" % pattern, text, re.DOTALL):
        yield match.span(1)


def _join_overlapping(spans: Iterable[MaskedSpan]) -> list[MaskedSpan]:
    """Return the spans, sorted, with overlapping ones joined.

    A joined span has no secret and is masked completely: the shown ends of one value could be all of another.
    Only if its spans are the same span of the same value, it keeps the secret.
    """
    joined: list[MaskedSpan] = []
    for start, end, secret in sorted(spans, key=lambda span: span[:2]):
        if not joined or start >= joined[-1][1]:
            joined.append((start, end, secret))
            continue
        last_start, last_end, last_secret = joined[-1]
        is_same = (
            (last_start, last_end) == (start, end)
            and secret is not None
            and last_secret is not None
            and reveal(secret) == reveal(last_secret)
        )
        joined[-1] = last_start, max(end, last_end), last_secret if is_same else None
    return joined
