"""Text inside text: base64, percent and unicode escapes are found by the first pass and decoded around the place only.

Base64 shifts a literal in three ways. Each rule's literal beginning is looked for in all three, so a token inside a base64
blob costs nothing until it is there. A decoded piece is scanned like any other text, and every position leads back.
"""

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_IN_RUNS = _ALPHABET + b" \t\r\n"
_STANDARD = bytes.maketrans(b"-_", b"+/")
_SHORTEST_LITERAL = 4  # base64 characters: a shorter literal is in every other line
_RUN = 65_536  # how far a base64 run is followed to each side
_STEP = 256
_AHEAD = 16  # characters by which a text is told from what is none
_BEYOND_ASCII = bytes(range(0x80, 0x100))
_SHORTEST_LINE = 16  # a neighbouring line must hold this many base64 characters to belong to the run
# What rules without a literal beginning are recognised by.
_COMMON = (
    b"password", b"PASSWORD", b"Password", b"secret", b"SECRET", b"Secret", b"token", b"TOKEN", b"Token", b"api_key", b"API_KEY", b"apiKey",
    b"api-key", b"_KEY=", b"_KEY:", b"ccess_key", b"ccessKey", b"Authorization", b"://",
)  # fmt: skip

# Only escapes of visible ASCII and of the space that may stand before a value: text in other languages is full of the rest.
_VISIBLE = "(?:[2-6][0-9A-Fa-f]|7[0-9A-Ea-e])"
_ANY = "[2-7][0-9A-Fa-f]"  # the same, and two more
_INVISIBLE = "[^2-7].|[2-6][^0-9A-Fa-f]|7[^0-9A-Ea-e]"
# What is a sign in an address, what quotes a value, and what stands between words.
_SIGN = "(?:0[ADad]|2[0267BCFbcf]|3[ABDabd]|40|7[Bb])"
_NO_SIGN = "[^02347].|0[^ADad]|2[^0267BCFbcf]|3[^ABDabd]|4[^0]|7[^Bb]"
# Of escapes side by side, as where a whole value is escaped, the first pass sees the first one only. What code is full of is asked without
# alternatives, which the first pass would have to follow: that took 7 % of its time.
ESCAPE_PATTERNS = (
    rf"(?s)(?:{_INVISIBLE}|[^0]..|[^0]...|[^u]....|[^\\].....)\\u00{_VISIBLE}",
    rf"(?s)^.{{0,5}}\\u00{_VISIBLE}",
    *(rf"(?s){before}\\x{_ANY}" for before in (r"[^\\]...", "[^x]..", "[^2-7].", "[2-7][^0-9A-Fa-f]")),
    rf"(?s)^.{{0,3}}\\x{_ANY}",
    rf"(?s)(?:{_NO_SIGN}|[^%]..)%(?:25)?{_SIGN}",
    rf"(?s)^..?.?%(?:25)?{_SIGN}|^%(?:25)?{_SIGN}",
    r"&#(?:x[2-7][0-9A-Fa-f]|[3-9][0-9]|1[01][0-9]|12[0-6]);",
    r":\\/\\/",
    r"\x1b\[[0-9;]{1,12}m[0-9A-Za-z]",
    r"=3D[0-9A-Za-z]",
)
_FURTHER = re.compile(rf"(?:\\u00{_VISIBLE})++|(?:\\x{_ANY})++|(?:%(?:25)?{_SIGN})++|".encode())
_GOES_ON = (b"\\", b"%")
# A quoted value in code that itself stands in a string, as in notebooks, and before one a sign as mails write it: looked at only after a
# word that matters.
QUOTED_VALUE_PATTERN = r"[=:] ?\\[\"']|=3D[ \"']"
_WORD = re.compile(rb"(?i:key|token|secret|passw|pwd|auth|credential)")
_BYTE = f"(?:{_VISIBLE}|0[ADad])"
# One pattern for each sign, with which all of it begins: what lies between is then passed over four times as quickly.
_ESCAPE = tuple(
    re.compile(text.encode())
    for text in (
        rf"\\(?:x{_VISIBLE}(?:\\x{_VISIBLE})*+|u00{_VISIBLE}(?:\\u00{_VISIBLE})*+|[/\"'])",
        f"%{_BYTE}(?:%{_BYTE})*+",
        r"&#(?:x[2-7][0-9A-Fa-f]|\d{2,3});",
        r"\x1b\[[0-9;]{1,12}m",
        "=3D",
    )
)
_MARKS = {ord("u"): b"\\u00", ord("x"): b"\\x"} | dict.fromkeys(
    b"0234567", b"%"
)  # before each code, by the second sign
_CHARACTER = {
    b"\\/": b"/",
    b'\\"': b'"',
    b"\\'": b"'",
    b"=3D": b"=",
}  # each way to write one visible character, or a space
for _code in range(32, 127):
    for _hex in (f"{_code:02x}", f"{_code:02X}"):
        for _spelling in (
            f"&#{_code};",
            f"&#{_code:03};",
            f"&#x{_hex};",
            f"%{_hex}",
            f"\\x{_hex}",
            f"\\u00{_hex}",
        ):
            _CHARACTER[_spelling.encode()] = bytes([_code])
_OF_MAIL = re.compile(rb"(?i:quoted-printable)|=20\r?\n|=E2=80=")
_ENTITY, _COLOUR = b"&\x1b"
_BEFORE, _AFTER = 400, 2_400  # an escape is read in this much of its surroundings


class DecodedPiece(NamedTuple):
    """A decoded stretch, with how its positions lead back to the text it stood in."""

    text: bytes
    encoding: str
    start: int
    decoded_at: tuple[int, ...] = ()
    original_at: tuple[int, ...] = ()
    cut: tuple[bool, bool] = (False, False)  # the text goes on before it, after it

    def cuts(self, start: int, end: int) -> bool:
        """Tell whether a value may be only what is left of a longer one."""
        return (self.cut[0] and start == 0) or (self.cut[1] and end == len(self.text))

    @property
    def changes(self) -> bool:
        """Tell whether it is known which of its characters are decoded ones: not all of them are."""
        return self.encoding == "escaped"

    def changed(self, start: int, stop: int) -> bool:
        """Tell whether one of these characters is a decoded one."""
        row = bisect_right(self.decoded_at, max(0, start))
        return row < len(self.decoded_at) and self.decoded_at[row] <= stop

    def changed_lines(self) -> tuple[list[int], list[int]]:
        """Give where the lines begin and end that have decoded characters; a line break that is one belongs to both sides of it."""
        starts: list[int] = []
        stops: list[int] = []
        text, at, count = self.text, 0, len(self.decoded_at)
        while at < count:
            starts.append(text.rfind(b"\n", 0, self.decoded_at[at] - 1) + 1)
            stop = text.find(b"\n", self.decoded_at[at])
            stops.append(stop if stop >= 0 else len(text))
            at = bisect_right(self.decoded_at, stops[-1])
        return starts, stops

    def changed_in_run(self, end: int) -> bool:
        """Tell whether a run of base64 around a place may have a decoded character: nothing else stands between the two."""
        row = bisect_right(self.decoded_at, end)
        if row and not self.text[self.decoded_at[row - 1] : end].rstrip(_IN_RUNS):
            return True
        return row < len(self.decoded_at) and not self.text[end : self.decoded_at[row] - 1].lstrip(_IN_RUNS)

    def origin(self, position: int) -> int:
        """Give where a position of the decoded text stands in the original."""
        if self.encoding == "base64":
            quantum = position * 4 // 3
            row = bisect_right(self.decoded_at, quantum) - 1
            return self.original_at[row] + quantum - self.decoded_at[row]
        row = bisect_right(self.decoded_at, position) - 1
        if row < 0:
            return self.start + position
        return self.original_at[row] + position - self.decoded_at[row]

    def place(self, origin: int) -> int:
        """Give where a position of the original stands in the text with its escapes decoded."""
        row = bisect_right(self.original_at, origin) - 1
        return origin - self.start if row < 0 else self.decoded_at[row] + origin - self.original_at[row]


def base64_forms(prefixes: Iterable[bytes]) -> dict[int, list[bytes]]:
    """Give the base64 forms of literals, by how many characters into a group of four they end."""
    found: dict[int, set[bytes]] = {0: set(), 1: set(), 2: set(), 3: set()}
    for literal in {*prefixes, *_COMMON}:
        for shift, skip in ((0, 0), (1, 2), (2, 3)):
            text = base64.b64encode(b"\0" * shift + literal)
            whole = (shift + len(literal)) * 8 // 6  # characters that no later byte can change
            part = text[skip:whole]
            if len(part) >= _SHORTEST_LITERAL:
                found[whole % 4].add(part)
                found[whole % 4].add(part.replace(b"+", b"-").replace(b"/", b"_"))
    return {phase: sorted(parts) for phase, parts in found.items()}


def decode_base64_runs(data: bytes, ends: dict[int, list[int]]) -> Iterator[DecodedPiece]:
    """Decode the runs in which a literal of a phase ends at one of the positions."""
    done: set[tuple[int, int]] = set()
    for phase, positions in ends.items():
        reached = -1
        for end in positions:
            if end < reached or not _goes_on(data, end - phase):
                continue  # the run before it has been decoded in this phase, or it is there by chance
            rows, text, at = _run(data, end)
            # Group borders are known from where the literal ended.
            first = (at - phase) % 4
            reached = rows[-1][1]
            if (rows[0][0], first) in done or len(text) - first < 8:
                continue
            done.add((rows[0][0], first))
            decoded = _decode(text[first:])
            if decoded:
                yield _base64_piece(decoded, rows, first)


def _goes_on(data: bytes, at: int) -> bool:
    """Tell whether a text goes on behind a literal: what is no text, but drawn by chance, has one in it now and then."""
    try:
        ahead = binascii.a2b_base64(data[at : at + _AHEAD].translate(_STANDARD), strict_mode=True)
        return (
            ahead.rstrip(_BEYOND_ASCII).translate(None, b"\t\r\n").decode().isprintable()
        )  # its last character may be cut
    except UnicodeDecodeError:
        return False
    except binascii.Error:  # the run ends here, or goes on in another line
        return True


def _run(data: bytes, end: int) -> tuple[list[tuple[int, int]], bytes, int]:
    """Follow base64 characters around a position, over line ends: the rows, their text, and the position in it."""
    left, right = _row(data, end)
    rows = [(left, right)]
    size = right - left
    while size < _RUN and (row := _row_before(data, rows[0][0])):
        rows.insert(0, row)
        size += row[1] - row[0]
    at = end - left + sum(stop - start for start, stop in rows[:-1])
    while size < 2 * _RUN and (row := _row_after(data, rows[-1][1])):
        rows.append(row)
        size += row[1] - row[0]
    return rows, b"".join(data[start:stop] for start, stop in rows), at


def _row(data: bytes, end: int) -> tuple[int, int]:
    return _left(data, end), _right(data, end)


def _left(data: bytes, end: int) -> int:
    """Follow base64 characters to the left, in steps that grow: most runs are short."""
    at, step = end, _STEP
    while at > (least := max(0, at - step)) and end - at < _RUN:
        kept = len(data[least:at].rstrip(_ALPHABET))
        at, step = least + kept, step * 4
        if kept:
            break
    return max(at, end - _RUN)


def _right(data: bytes, end: int) -> int:
    at, step = end, _STEP
    while piece := data[at : at + step]:
        at += len(piece) - (kept := len(piece.lstrip(_ALPHABET)))
        step *= 4
        if kept or at - end >= _RUN:
            break
    return min(at, end + _RUN)


def _row_before(data: bytes, start: int) -> tuple[int, int] | None:
    gap = data[max(0, start - 64) : start]
    kept = gap.rstrip(b" \t\r\n")
    if b"\n" not in gap[len(kept) :]:
        return None
    stop = start - len(gap) + len(kept)
    left = _left(data, stop)
    return (
        (left, stop)
        if stop - left >= _SHORTEST_LINE and data[left - 1 : left] in {b"", b"\n", b" ", b"\t", b"\r"}
        else None
    )


def _row_after(data: bytes, stop: int) -> tuple[int, int] | None:
    gap = data[stop : stop + 64]
    kept = gap.lstrip(b" \t\r\n")
    between = gap[: len(gap) - len(kept)]
    if b"\n" not in between:
        return None
    start = stop + len(between)
    right = _right(data, start)
    return (start, right) if right > start and data[right : right + 1] in {b"", b"\n", b"\r", b"="} else None


def _decode(text: bytes) -> bytes:
    text = text.translate(_STANDARD)
    if len(text) % 4 == 1:
        text = text[:-1]
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4))
    except binascii.Error:
        return b""


def decode_base64_value(text: bytes) -> bytes | None:
    """Decode a value that is base64 as a whole; None where it is not, or holds no text."""
    try:
        decoded = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
        return decoded if decoded.decode().isprintable() or b"\n" in decoded else None
    except ValueError:  # not base64, or no text
        return None


def _base64_piece(decoded: bytes, rows: list[tuple[int, int]], first: int) -> DecodedPiece:
    decoded_at, original_at, length = [], [], -first
    for start, stop in rows:
        decoded_at.append(length)
        original_at.append(start)
        length += stop - start
    return DecodedPiece(decoded, "base64", rows[0][0], tuple(decoded_at), tuple(original_at))


def keep_after_credential_words(data: bytes, ends: list[int]) -> list[int]:
    """Keep the places shortly before which a word stands that names a credential."""
    return [end for end in ends if _WORD.search(data, max(0, end - 40), end)]


def is_quoted_printable_equals(data: bytes, start: int) -> bool:
    """Tell whether what stands here begins with the rest of a sign as mails write it, and not with a number and a letter."""
    if not data.startswith(b"=3D", start - 1):
        return False
    return (
        data.find(b"=3D", start) >= 0 or data.find(b"=3D") != start - 1 or _OF_MAIL.search(data) is not None
    )


def find_escaped_ranges(data: bytes, ends: list[int]) -> Iterator[tuple[int, int]]:
    """Give what stands around the positions, each the end of the first escape of its kind; neighbouring places become one."""
    start = stop = 0
    for first in ends:
        end = first
        while (
            data[end : end + 1] in _GOES_ON
            and (further := _FURTHER.match(data, end)) is not None
            and further.end() > end
        ):
            end = further.end()
        if first - _BEFORE > stop:
            if stop:
                yield start, stop
            start = first - _BEFORE
        stop = max(stop, min(len(data), end + _AFTER))
    if stop:
        yield start, stop


def decode_escapes(data: bytes, start: int, stop: int) -> DecodedPiece | None:
    """Decode the escapes of a stretch; None where there are none."""
    out: list[bytes] = []
    decoded_at: list[int] = []
    original_at: list[int] = []
    length, last = 0, start
    for match in _escapes(data, start, stop):
        begin, end = match.span()
        decoded = _CHARACTER.get(written := match[0]) or _several(written)
        if not decoded:
            continue
        out += data[last:begin], decoded
        length += begin - last + 1
        decoded_at.append(length)
        if (count := len(decoded)) > 1:
            wide = (end - begin) // count
            decoded_at += range(length + 1, length + count)
            original_at += range(begin + wide, end, wide)
            length += count - 1
        original_at.append(end)
        last = end
    if not decoded_at:
        return None
    out.append(data[last:stop])
    return DecodedPiece(
        b"".join(out), "escaped", start, tuple(decoded_at), tuple(original_at), (start > 0, stop < len(data))
    )


def _escapes(data: bytes, start: int, stop: int) -> list[re.Match[bytes]]:
    """Give the escapes of a stretch in their order: mostly they are of one kind."""
    found = [mine for escape in _ESCAPE if (mine := list(escape.finditer(data, start, stop)))]
    return found[0] if len(found) == 1 else sorted(chain.from_iterable(found), key=re.Match.start)


def _several(written: bytes) -> bytes:
    """Decode escapes side by side; a colour ends a word, and an entity of something else is none."""
    if written[0] in {_ENTITY, _COLOUR}:
        return b" " if written[0] == _COLOUR else b""
    return bytes.fromhex(written.replace(_MARKS[written[1]], b"").decode())
