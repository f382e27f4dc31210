"""Decode encoded parts of a text: base64, and percent, unicode, hex and HTML escapes.

The trigger scan finds where a text may be encoded. Only the text around these places is decoded:

- base64: a literal has three forms in base64, by its position in a group of three bytes (`base64_forms`).
  `decode_base64_runs` decodes the base64 around each match of a form.
- escapes: ESCAPE_PATTERNS match an escape. `find_escaped_ranges` and `decode_escapes` decode the text
  around it.

A decoded piece is scanned like any other text. `DecodedPiece.original_offset` maps its offsets back.
"""

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from outcrop.lazy_regex import regex

# --- base64
_BASE64_CHARS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_BASE64_AND_SPACE = _BASE64_CHARS + b" \t\r\n"
_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")
_MIN_LITERAL_CHARS = 4  # shorter base64 of a literal is in every second line
_MAX_RUN_CHARS = 65_536  # followed to each side of a match
_FIRST_STEP_CHARS = 256
_CHARS_CHECKED_AHEAD = 16  # enough to distinguish text from random bytes
_BEYOND_ASCII = bytes(range(0x80, 0x100))
_MIN_LINE_CHARS = 16  # a line before with fewer base64 characters does not belong to the run
# Literals for rules whose patterns begin with no literal.
_COMMON_LITERALS = (
    b"password", b"PASSWORD", b"Password", b"secret", b"SECRET", b"Secret", b"token", b"TOKEN", b"Token",
    b"api_key", b"API_KEY", b"apiKey", b"api-key", b"_KEY=", b"_KEY:", b"ccess_key", b"ccessKey",
    b"Authorization", b"://",
)  # fmt: skip

# --- escapes
# Only escapes of printable ASCII count: texts in other languages are full of the others.
_PRINTABLE = "(?:[2-6][0-9A-Fa-f]|7[0-9A-Ea-e])"
_PRINTABLE_OR_TWO_MORE = "[2-7][0-9A-Fa-f]"
_NOT_PRINTABLE = "[^2-7].|[2-6][^0-9A-Fa-f]|7[^0-9A-Ea-e]"
# Percent escapes of line breaks, quotes, spaces and the punctuation of URLs.
_URL_PUNCTUATION = "(?:0[ADad]|2[0267BCFbcf]|3[ABDabd]|40|7[Bb])"
_NO_URL_PUNCTUATION = "[^02347].|0[^ADad]|2[^0267BCFbcf]|3[^ABDabd]|4[^0]|7[^Bb]"
# Patterns of the trigger scan. Of several escapes in a row only the first is matched. `\x` has one pattern
# for each alternative: code is full of it, and alternatives in one pattern took 7 % of the scan.
ESCAPE_PATTERNS = (
    rf"(?s)(?:{_NOT_PRINTABLE}|[^0]..|[^0]...|[^u]....|[^\\].....)\\u00{_PRINTABLE}",
    rf"(?s)^.{{0,5}}\\u00{_PRINTABLE}",
    *(
        rf"(?s){before}\\x{_PRINTABLE_OR_TWO_MORE}"
        for before in (r"[^\\]...", "[^x]..", "[^2-7].", "[2-7][^0-9A-Fa-f]")
    ),
    rf"(?s)^.{{0,3}}\\x{_PRINTABLE_OR_TWO_MORE}",
    rf"(?s)(?:{_NO_URL_PUNCTUATION}|[^%]..)%(?:25)?{_URL_PUNCTUATION}",
    rf"(?s)^..?.?%(?:25)?{_URL_PUNCTUATION}|^%(?:25)?{_URL_PUNCTUATION}",
    r"&#(?:x[2-7][0-9A-Fa-f]|[3-9][0-9]|1[01][0-9]|12[0-6]);",
    r":\\/\\/",
    r"\x1b\[[0-9;]{1,12}m[0-9A-Za-z]",
    r"=3D[0-9A-Za-z]",
)
_ESCAPES_IN_A_ROW = regex(
    rf"(?:\\u00{_PRINTABLE})++|(?:\\x{_PRINTABLE_OR_TWO_MORE})++|(?:%(?:25)?{_URL_PUNCTUATION})++|".encode()
)
_ROW_FIRST_BYTES = (b"\\", b"%")
# An escaped quote before a value, in code that is itself in a string as in notebooks; or an equals sign in
# quoted-printable. Only counts after a word for a credential.
QUOTED_VALUE_PATTERN = r"[=:] ?\\[\"']|=3D[ \"']"
_CREDENTIAL_WORD = regex(rb"(?i:key|token|secret|passw|pwd|auth|credential)")
_MAX_BYTES_AFTER_WORD = 40
_ESCAPED_BYTE = f"(?:{_PRINTABLE}|0[ADad])"
# One pattern for each first byte: `finditer` then skips the text between escapes four times as fast.
_ESCAPE_RUNS = tuple(
    regex(text.encode())
    for text in (
        rf"\\(?:x{_PRINTABLE}(?:\\x{_PRINTABLE})*+|u00{_PRINTABLE}(?:\\u00{_PRINTABLE})*+|[/\"'])",
        f"%{_ESCAPED_BYTE}(?:%{_ESCAPED_BYTE})*+",
        r"&#(?:x[2-7][0-9A-Fa-f]|\d{2,3});",
        r"\x1b\[[0-9;]{1,12}m",
        "=3D",
    )
)
# The bytes before the hex digits of an escape, by the second byte of the escape.
_ESCAPE_PREFIXES = {ord("u"): b"\\u00", ord("x"): b"\\x"} | dict.fromkeys(b"0234567", b"%")
_HTML_ENTITY, _TERMINAL_COLOUR = b"&\x1b"
_QUOTED_PRINTABLE = regex(rb"(?i:quoted-printable)|=20\r?\n|=E2=80=")
_BYTES_BEFORE_ESCAPE, _BYTES_AFTER_ESCAPE = 400, 2_400  # decoded around an escape


def _list_escapes() -> dict[bytes, bytes]:
    """Return all escapes of one printable ASCII character, each with the character: `%41` -> `A`."""
    characters = {b"\\/": b"/", b'\\"': b'"', b"\\'": b"'", b"=3D": b"="}
    for code in range(32, 127):
        for digits in (f"{code:02x}", f"{code:02X}"):
            for escape in (
                f"&#{code};",
                f"&#{code:03};",
                f"&#x{digits};",
                f"%{digits}",
                f"\\x{digits}",
                f"\\u00{digits}",
            ):
                characters[escape.encode()] = bytes([code])
    return characters


_CHARACTER_OF_ESCAPE = _list_escapes()


class DecodedPiece(NamedTuple):
    """A decoded part of a text, with the offsets that map it back to the text.

    For escapes, `decoded_at` has the offset after each decoded character in `text`, and `original_at` the
    offset after its escape. For base64, they have the start of each line: in base64 characters from the first
    that is decoded, and in the original text.
    """

    text: bytes
    encoding: str  # "base64" or "escaped"
    start: int  # offset of the part in the original text
    decoded_at: tuple[int, ...] = ()
    original_at: tuple[int, ...] = ()
    cut: tuple[bool, bool] = (False, False)  # the original text goes on before the part, after it

    def is_cut_at(self, start: int, end: int) -> bool:
        """Whether a value with this span in `text` touches an end where the part was cut off.

        Then the value may be longer.
        """
        return (self.cut[0] and start == 0) or (self.cut[1] and end == len(self.text))

    def has_decoded(self, start: int, stop: int) -> bool:
        """Whether a character between the offsets `start` and `stop` of `text` was an escape.

        Only for a piece with decoded escapes.
        """
        row = bisect_right(self.decoded_at, max(0, start))
        return row < len(self.decoded_at) and self.decoded_at[row] <= stop

    def decoded_lines(self) -> tuple[list[int], list[int]]:
        """Return starts and ends of the lines in `text` that have decoded characters; for escapes only.

        A line break that was an escape belongs to the lines on both sides of it.
        """
        starts: list[int] = []
        stops: list[int] = []
        text, at, count = self.text, 0, len(self.decoded_at)
        while at < count:
            starts.append(text.rfind(b"\n", 0, self.decoded_at[at] - 1) + 1)
            stop = text.find(b"\n", self.decoded_at[at])
            stops.append(stop if stop >= 0 else len(text))
            at = bisect_right(self.decoded_at, stops[-1])
        return starts, stops

    def has_decoded_in_base64_run(self, end: int) -> bool:
        """Whether an escape was decoded in the base64 around offset `end` of `text`; for escapes only.

        That is so if only base64 characters and spaces are between `end` and the nearest decoded character
        before or after it.
        """
        row = bisect_right(self.decoded_at, end)
        if row and not self.text[self.decoded_at[row - 1] : end].rstrip(_BASE64_AND_SPACE):
            return True
        return row < len(self.decoded_at) and not self.text[end : self.decoded_at[row] - 1].lstrip(
            _BASE64_AND_SPACE
        )

    def original_offset(self, offset: int) -> int:
        """Return the offset in the original text for an offset in the decoded `text`."""
        if self.encoding == "base64":
            base64_offset = offset * 4 // 3
            row = bisect_right(self.decoded_at, base64_offset) - 1
            return self.original_at[row] + base64_offset - self.decoded_at[row]
        row = bisect_right(self.decoded_at, offset) - 1
        if row < 0:
            return self.start + offset
        return self.original_at[row] + offset - self.decoded_at[row]

    def decoded_offset(self, offset: int) -> int:
        """Return the offset in the decoded `text` for an offset in the original text; for escapes only."""
        row = bisect_right(self.original_at, offset) - 1
        return offset - self.start if row < 0 else self.decoded_at[row] + offset - self.original_at[row]


def base64_forms(literals: Iterable[bytes]) -> dict[int, list[bytes]]:
    """Return the base64 forms of the literals and of common words, by their phase.

    A form is the part of the base64 that does not depend on the bytes around the literal, in the standard and
    the URL alphabet. Its phase, 0 to 3, is the number of characters by which it ends after a group of four.
    Forms below _MIN_LITERAL_CHARS are left out.
    """
    forms: dict[int, set[bytes]] = {0: set(), 1: set(), 2: set(), 3: set()}
    for literal in {*literals, *_COMMON_LITERALS}:
        for shift, skipped in ((0, 0), (1, 2), (2, 3)):
            text = base64.b64encode(b"\0" * shift + literal)
            end = (shift + len(literal)) * 8 // 6  # later characters depend on the next byte
            form = text[skipped:end]
            if len(form) >= _MIN_LITERAL_CHARS:
                forms[end % 4].add(form)
                forms[end % 4].add(form.replace(b"+", b"-").replace(b"/", b"_"))
    return {phase: sorted(phase_forms) for phase, phase_forms in forms.items()}


def decode_base64_runs(data: bytes, ends: dict[int, list[int]]) -> Iterator[DecodedPiece]:
    """Yield the decoded runs of base64 in which a form of `base64_forms` ends.

    `ends` has the offsets at which forms end, by the phase of the form. A run may have several lines. A run
    is skipped if it is invalid, if it is shorter than eight characters, or if the group of four in which the
    form ends and the next groups decode to something that is not text. A run can be yielded twice, with its
    groups of four aligned in different ways.
    """
    done: set[tuple[int, int]] = set()
    for phase, phase_ends in ends.items():
        last_stop = -1
        for end in phase_ends:
            if end < last_stop or not _text_follows(data, end - phase):
                continue  # decoded in this phase with the run before, or the form is there by chance
            lines, run, at = _find_run(data, end)
            first = (at - phase) % 4  # the first group of four begins here
            last_stop = lines[-1][1]
            if (lines[0][0], first) in done or len(run) - first < 8:
                continue
            done.add((lines[0][0], first))
            decoded = _decode_base64(run[first:])
            if decoded:
                yield _make_base64_piece(decoded, lines, first)


def _text_follows(data: bytes, at: int) -> bool:
    """Whether the next 16 characters of base64 from offset `at` decode to text and not to random bytes.

    `at` is the start of a group of four. In random bytes a form occurs by chance. True also if the base64
    ends too early to decide.
    """
    try:
        ahead = binascii.a2b_base64(
            data[at : at + _CHARS_CHECKED_AHEAD].translate(_STANDARD_ALPHABET), strict_mode=True
        )
        # The last character may be cut off.
        return ahead.rstrip(_BEYOND_ASCII).translate(None, b"\t\r\n").decode().isprintable()
    except UnicodeDecodeError:
        return False
    except binascii.Error:
        return True


def _find_run(data: bytes, end: int) -> tuple[list[tuple[int, int]], bytes, int]:
    """Return the base64 around offset `end`: the spans of its lines, their joined text, and an offset.

    The offset is that of `end` in the joined text. Lines are added on both sides until the run has about
    _MAX_RUN_CHARS on each side.
    """
    left, right = _find_run_start(data, end), _find_run_end(data, end)
    lines = [(left, right)]
    size = right - left
    while size < _MAX_RUN_CHARS and (line := _find_line_before(data, lines[0][0])):
        lines.insert(0, line)
        size += line[1] - line[0]
    at = end - left + sum(stop - start for start, stop in lines[:-1])
    while size < 2 * _MAX_RUN_CHARS and (line := _find_line_after(data, lines[-1][1])):
        lines.append(line)
        size += line[1] - line[0]
    return lines, b"".join(data[start:stop] for start, stop in lines), at


def _find_run_start(data: bytes, end: int) -> int:
    """Return the offset of the first of the base64 characters directly before `end`; `end` if there are none.

    At most _MAX_RUN_CHARS are read, in steps that grow, since most runs are short.
    """
    at, step = end, _FIRST_STEP_CHARS
    while at > (first := max(0, at - step)) and end - at < _MAX_RUN_CHARS:
        kept = len(data[first:at].rstrip(_BASE64_CHARS))
        at, step = first + kept, step * 4
        if kept:
            break
    return max(at, end - _MAX_RUN_CHARS)


def _find_run_end(data: bytes, start: int) -> int:
    """Return the offset after the last of the base64 characters from `start` on, at most _MAX_RUN_CHARS.

    Return `start` if no base64 character is there.
    """
    at, step = start, _FIRST_STEP_CHARS
    while part := data[at : at + step]:
        at += len(part) - (kept := len(part.lstrip(_BASE64_CHARS)))
        step *= 4
        if kept or at - start >= _MAX_RUN_CHARS:
            break
    return min(at, start + _MAX_RUN_CHARS)


def _find_line_before(data: bytes, start: int) -> tuple[int, int] | None:
    """Return the span of the base64 at the end of the line before the one that begins at `start`.

    None if it has fewer than _MIN_LINE_CHARS, if other text is directly before it, or if `start` does not
    begin a line.
    """
    near = data[max(0, start - 64) : start]
    kept = near.rstrip(b" \t\r\n")
    if b"\n" not in near[len(kept) :]:
        return None
    stop = start - len(near) + len(kept)
    left = _find_run_start(data, stop)
    is_line = stop - left >= _MIN_LINE_CHARS and data[left - 1 : left] in {b"", b"\n", b" ", b"\t", b"\r"}
    return (left, stop) if is_line else None


def _find_line_after(data: bytes, stop: int) -> tuple[int, int] | None:
    """Return the span of the base64 in the line after the one with `stop`.

    Return None if that line has anything else before it, or anything but padding (`=`) directly after it, or
    if other text than spaces is between `stop` and the end of its line.
    """
    near = data[stop : stop + 64]
    kept = near.lstrip(b" \t\r\n")
    between = near[: len(near) - len(kept)]
    if b"\n" not in between:
        return None
    start = stop + len(between)
    right = _find_run_end(data, start)
    return (start, right) if right > start and data[right : right + 1] in {b"", b"\n", b"\r", b"="} else None


def _decode_base64(text: bytes) -> bytes:
    """Return decoded base64 in the standard or the URL alphabet; b"" if it has wrong padding.

    The padding `=` may be absent. A single character after the last group of four is dropped. Characters of
    no alphabet are skipped; callers pass none.
    """
    text = text.translate(_STANDARD_ALPHABET)
    if len(text) % 4 == 1:
        text = text[:-1]
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4))
    except binascii.Error:
        return b""


def decode_base64_value(text: bytes) -> bytes | None:
    """Return the decoded bytes of a value that is base64 from start to end; None if it is not.

    None also if the bytes are no text: not UTF-8, or with control characters but without a line break. The
    standard alphabet is required; the padding `=` may be absent.
    """
    try:
        decoded = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
        return decoded if decoded.decode().isprintable() or b"\n" in decoded else None
    except ValueError:
        return None


def _make_base64_piece(decoded: bytes, lines: list[tuple[int, int]], first: int) -> DecodedPiece:
    """Return the piece for a decoded run of base64.

    `lines` has the spans of the lines of the run; `first` is the number of its characters before the first
    that was decoded.
    """
    decoded_at, original_at, length = [], [], -first
    for start, stop in lines:
        decoded_at.append(length)
        original_at.append(start)
        length += stop - start
    return DecodedPiece(decoded, "base64", lines[0][0], tuple(decoded_at), tuple(original_at))


def keep_after_credential_words(data: bytes, ends: list[int]) -> list[int]:
    """Return those of the offsets `ends` with a word for a credential in the 40 bytes before them."""
    return [end for end in ends if _CREDENTIAL_WORD.search(data, max(0, end - _MAX_BYTES_AFTER_WORD), end)]


def is_quoted_printable_equals(data: bytes, start: int) -> bool:
    """Whether the `3D` at `start` is the rest of an equals sign in quoted-printable, `=3D`.

    That is so if `=` is before it and the text has another `=3D` or other marks of quoted-printable.
    """
    if not data.startswith(b"=3D", start - 1):
        return False
    return (
        data.find(b"=3D", start) >= 0
        or data.find(b"=3D") != start - 1
        or _QUOTED_PRINTABLE.search(data) is not None
    )


def find_escaped_ranges(data: bytes, ends: list[int]) -> Iterator[tuple[int, int]]:
    """Yield start and stop of the ranges to decode around escapes; ranges that overlap are joined.

    `ends` has the end of the first escape of each row of escapes, in order. A range goes from
    _BYTES_BEFORE_ESCAPE before that end to _BYTES_AFTER_ESCAPE after the row.
    """
    start = stop = 0
    for first_end in ends:
        end = first_end
        while (
            data[end : end + 1] in _ROW_FIRST_BYTES
            and (row := _ESCAPES_IN_A_ROW.match(data, end)) is not None
            and row.end() > end
        ):
            end = row.end()
        if first_end - _BYTES_BEFORE_ESCAPE > stop:
            if stop:
                yield start, stop
            start = first_end - _BYTES_BEFORE_ESCAPE
        stop = max(stop, min(len(data), end + _BYTES_AFTER_ESCAPE))
    if stop:
        yield start, stop


def decode_escapes(data: bytes, start: int, stop: int) -> DecodedPiece | None:
    """Return the text between `start` and `stop` with its escapes decoded; None if it has none."""
    parts: list[bytes] = []
    decoded_at: list[int] = []
    original_at: list[int] = []
    length, last_end = 0, start
    for match in _find_escapes(data, start, stop):
        begin, end = match.span()
        decoded = _CHARACTER_OF_ESCAPE.get(escape := match[0]) or _decode_escape_run(escape)
        if not decoded:
            continue
        parts += data[last_end:begin], decoded
        length += begin - last_end + 1
        decoded_at.append(length)
        if (count := len(decoded)) > 1:
            width = (end - begin) // count
            decoded_at += range(length + 1, length + count)
            original_at += range(begin + width, end, width)
            length += count - 1
        original_at.append(end)
        last_end = end
    if not decoded_at:
        return None
    parts.append(data[last_end:stop])
    cut = (start > 0, stop < len(data))
    return DecodedPiece(b"".join(parts), "escaped", start, tuple(decoded_at), tuple(original_at), cut)


def _find_escapes(data: bytes, start: int, stop: int) -> list[re.Match[bytes]]:
    """Return the matches of all runs of escapes between `start` and `stop`, in order.

    Mostly the escapes are of one kind, and need no sorting.
    """
    found = [matches for run in _ESCAPE_RUNS if (matches := list(run.finditer(data, start, stop)))]
    return found[0] if len(found) == 1 else sorted(chain.from_iterable(found), key=re.Match.start)


def _decode_escape_run(escapes: bytes) -> bytes:
    """Return the characters of several escapes in a row; b" " for a terminal colour.

    Return b"" for an HTML entity: those of printable ASCII are in _CHARACTER_OF_ESCAPE, the others are not
    decoded.
    """
    if escapes[0] in {_HTML_ENTITY, _TERMINAL_COLOUR}:
        return b" " if escapes[0] == _TERMINAL_COLOUR else b""
    return bytes.fromhex(escapes.replace(_ESCAPE_PREFIXES[escapes[1]], b"").decode())
