"""From where the first pass saw something to a name, a value and what stands around them, judged."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from outcrop.domain.finding import Confidence
from outcrop.scanner.generic.collections import members, opens_list
from outcrop.scanner.generic.context import (
    ELSEWHERE,
    IN_NAMES,
    LAST_PLURAL,
    LAST_WORD,
    PASSED,
    goes_on,
    is_listed,
    is_outcome,
    is_outright,
    is_type,
    led_from,
    nearest_name,
)
from outcrop.scanner.generic.dismissed import is_dismissed
from outcrop.scanner.generic.names import WORDS, Noun, is_about, noun_of
from outcrop.scanner.generic.placeholders import decode_value, is_placeholder
from outcrop.scanner.generic.score import OUTRIGHT, is_drawn, is_drawn_with_signs, weigh
from outcrop.scanner.generic.tables import table
from outcrop.scanner.generic.values import array_before, is_checksum, is_identifier

# Forms whose pattern leads up to the value: how many of its characters the pattern takes, quoted and bare.
LEAD_IN_CHARS = {"noun": (4, 4), "key": (12, 16)}
LEAD_IN_JUDGES = frozenset(
    {*LEAD_IN_CHARS, "members", "table"}
)  # these, and one whose pattern leads up to a list, a mapping or a table
_LONGEST = 400  # bytes of a value
_LOOK_BACK = 128  # what is read before a value: the name, and the line it stands in
_LOOK_AHEAD = _LONGEST + 8  # its end, and what follows
MANY_MATCHES = 1_000  # places in a text from which on most are taken to be none, and none to come again
_GOES_ON = frozenset({b"+", b"%", b","})  # how the next line may go on with an expression
_MAY_GO_ON = _GOES_ON | {b" ", b"\t", b"\r", b"\n", b"\v", b"\f"}
_VALUE = re.compile(rb"[^\x00-\x20\x7f\"'`<>]{1,401}")
_QUOTED = {quote: re.compile(rb"[^\x00-\x1f\x7f%c]{1,401}" % quote) for quote in b"\"'`"}
_UNQUOTED = re.compile(rb"[^\x00-\x20\x7f\"'`<>(){}\[\]]{1,401}")
_WITH_BRACKETS = re.compile(rb"[!#-&(-_a-~]{1,401}(?<![,;])")
_CALLED = re.compile(rb"[A-Za-z_$][\w$.]*[(\[]")
_USER = re.compile(rb"[\w.@+-]{1,40}:")  # before his password
_VARIABLE = re.compile(rb"\$[A-Za-z_({]")
_CALLED_OR_TAG = re.compile(_CALLED.pattern + rb"|.*<[A-Za-z/!]|q[qw]?\{")  # or in Perl's own quotes
_BRACKETS = b"<>(){}[]"
_PAIRS = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b"<", b">"))
_BACKSLASH, _COMMA, _BACKTICK, _AT, _APOSTROPHE, _AMPERSAND = b"\\,`@'&"
_QUOTES, _SPACES = b"\"'`", b" \t"
_OPENS = frozenset({b"(", b"[", b"{"})  # behind a bare word: a call, an index
_LEADS = _QUOTES + b">;["  # stands before a value that is quoted or the content of an element
_MARKS = b" \t=:|>-"  # stands before one that is bare
_CALL = re.compile(rb"([A-Za-z_][\w.:<>-]*)[(\[{]\s*[bBuUrRLfN@$]{0,2}[\\\"'`]*$")
_CONVERTS = frozenset(word.encode() for word in WORDS["code"]["converts"])
_OBJECT = re.compile(rb"[\"'`]\{[ \t]?\\{0,3}[\"']$")  # how one begins that is written as a text
_MEMBER = re.compile(
    rb"([\w.-]*)\\{0,3}[\"']?[ \t]?:[ \t]?\\{0,3}[\"']([^\x00-\x20\x7f\"'\\]{16,200})\\{0,3}[\"']"
)
_SCHEME = re.compile(rb"(?i:bearer|token|apikey)[ \t]")  # how the value of a header begins
_BEHIND_SCHEME = re.compile(rb"(?<=[\"'`])" + _SCHEME.pattern + rb"$")
_SCHEMES, _SCHEME_ENDS = b"BbTtAa", b"RrNnYy"
_INNER = re.compile(
    rb"(?i:value|default)[\"'][ \t]?:[ \t]?[\"']"
)  # what an object calls the value of what it is
_INNERS = b"VvDd"
_LIFETIME = re.compile(
    rb"[a-z]{1,10} [^\n\"'`=]{3,30}=[^\n\"'`]{0,20}\""
)  # of a type in Rust, up to the value: `&'static str = "`
_ENDS = re.compile(
    rb"&(?:amp;)?[\w.\[\]-]+=|;[ \t]*[\w .-]+=|,[ \t]*[\w.-]+[=:]|\\+[nrt\"']|[;,]$|[)}\]]+[;,]*$"
    rb"|&(?:quot|[lr][sd]quo|nbsp|#3[49]);|%26|\|$"
)
_JOINTS = b"_.-:/ "
_ASCII = bytes(range(0x20, 0x7F))
_FOREIGN_LETTERS = 2
_ESCAPED = re.compile(rb"\\u([0-9A-Fa-f]{4})")
_COMMENT = re.compile(rb"#|//|/\*|^\s*(?:\*|--|;|<!--|%|REM\b|rem\b)")
_LOW = Confidence.LOW  # a member is looked up at each use


class Candidate(NamedTuple):
    """A value that may be a credential; `bare` tells that it stands unquoted, as an expression would in code."""

    confidence: Confidence
    start: int
    end: int
    bare: bool = False
    placeholder: bool = False


_ELSEWHERE = Candidate(Confidence.LOW, 0, 0)  # what names it, or makes that a name, stands in another line


def find_assigned(
    data: bytes,
    ends: Sequence[int],
    kind: str,
    taken: Callable[[int, int], bool],
    leads: Callable[[int], bool],
    *,
    include_low: bool,
) -> Iterator[Candidate]:
    """Judge the values whose first characters end at these places, each beside the name before it; not those that are taken.

    `leads` tells whether the pattern does lead up to such a place: it costs more than most judgements, which mostly end it.
    Those of low confidence are given if include_low is set.
    """
    quoted, bare = LEAD_IN_CHARS[kind]
    done = -1
    at_once = (
        not include_low and len(ends) > MANY_MATCHES
    )  # what is dismissed is not even cut out to be remembered
    for end in sorted(set(_places(data, ends, quoted) if kind == "noun" else ends)):
        if data[end - 1] == _COMMA and kind == "key":
            if end > done and (found := _array(data, end)) is not None:
                done = found.end
                yield found
            continue
        if end > quoted and data[end - quoted - 1] in _LEADS:
            left, is_bare = end - quoted, False
        elif end > bare and data[end - bare - 1] in _MARKS:
            left, is_bare = end - bare, True
        else:
            continue
        if left <= done or taken(left, end) or (at_once and _is_none(data, left, kind, is_bare=is_bare)):
            continue
        found, offset = _judged_at(data, left, kind, is_bare=is_bare, dismiss=not (include_low or at_once))
        if found is None or (found.confidence is _LOW and not include_low) or not leads(end):
            continue
        right = found.end + offset
        if found.confidence is not _LOW:
            done = right
        yield found._replace(start=found.start + offset, end=right)


def find_in_collections(
    data: bytes, ends: Iterable[int], taken: Callable[[int, int], bool], *, include_low: bool
) -> Iterator[Candidate]:
    """Judge the values of lists and mappings with a plural for a name, which begin at these places: each must be more than a word."""
    for end in ends:
        begins = end if opens_list(data, end) else data.rfind(b"\n", 0, end)
        start, stop = nearest_name(before := data[max(0, begins - _LOOK_BACK) : begins], LAST_PLURAL)
        noun = noun_of(before[start:stop])
        if noun not in {Noun.PASSWORD, Noun.SECRET}:
            continue
        for left, right, name, place in members(data, end):
            is_other = noun is Noun.SECRET and is_about(name)  # of passwords it is mostly whose they are
            found = None if is_other or taken(left, right) else _judged(data, left, right, Noun.SECRET, place)
            if found is not None and (include_low or found.confidence is not _LOW):
                yield found._replace(bare=place == "bare" and not is_drawn(data[left : found.end]))


def find_in_tables(
    data: bytes, ends: Iterable[int], taken: Callable[[int, int], bool], *, include_low: bool
) -> Iterator[Candidate]:
    """Judge what stands in tables below headings that have these places in their lines."""
    done = -1
    for end in ends:
        if end <= done:  # a line of a table that has been read
            continue
        found, done = table(data, end)
        for left, right, noun, outright in found:
            doubts = (OUTRIGHT,) if outright and noun is Noun.PASSWORD else ()
            judged = None if taken(left, right) else _judged(data, left, right, noun, "quoted", doubts)
            if judged is not None and (include_low or judged.confidence is not _LOW):
                yield judged


def _places(data: bytes, ends: Iterable[int], quoted: int) -> Iterator[int]:
    """Give these places, and those further on where what stands there may only lead to a value: a type with a lifetime, a value's name.

    Behind a header's scheme stands the value itself, and nowhere else.
    """
    for end in ends:
        left = end - quoted
        if data[left - 1] == _APOSTROPHE and data[left - 2] == _AMPERSAND:
            behind = _LIFETIME.match(data, left)
        elif (first := data[left]) in _SCHEMES:
            behind = _SCHEME.match(data, left)
        elif first in _INNERS:
            behind = _INNER.match(data, left)
        else:
            behind = None
        if behind is None or behind.re is not _SCHEME:
            yield end
        if behind and behind.end() + quoted <= len(data):
            yield behind.end() + quoted


def _judged_at(
    data: bytes, left: int, kind: str, *, is_bare: bool, dismiss: bool
) -> tuple[Candidate | None, int]:
    """Judge the value that begins here in its line, which is mostly enough, or in what stands around it; give where that begins."""
    begin = left - _LOOK_BACK if left > _LOOK_BACK else 0
    end = data.find(b"\n", left, left + _LOOK_AHEAD)
    if end < 0:
        stop = left + _LOOK_AHEAD
    else:
        stop = end + (
            3
            if data[end + 1 : end + 2] in _MAY_GO_ON and data[end + 1 : end + 3].lstrip()[:1] in _GOES_ON
            else 1
        )
    line = (data.rfind(b"\n", begin, left) + 1) or begin
    found = _beside(data[line:stop], left - line, kind, is_bare, True, dismiss)
    if found is not _ELSEWHERE:
        return None if found and is_checksum(data, found.start + line, found.end + line) else found, line
    found = _beside(
        data[begin : left + _LOOK_AHEAD if is_bare else stop], left - begin, kind, is_bare, False, dismiss
    )
    return None if found is _ELSEWHERE else found, begin


def has_name_in_line(data: bytes, end: int, kind: str) -> bool:
    """Tell whether a value whose first characters end here has its name in its line, which is then all that it is judged by."""
    stop = end - max(LEAD_IN_CHARS[kind])
    line = _line_before(data, stop) if stop > 0 else b""
    name = line[slice(*nearest_name(line, LAST_WORD[kind]))]
    is_array = kind == "key" and data[end - 1] == _COMMA
    return name != b"" and name not in PASSED and name.lower() != b"identified by" and not is_array


def _array(data: bytes, end: int) -> Candidate | None:
    """Judge an array of bytes whose first comma ends here as what it would be in hexadecimal digits."""
    array = array_before(data, end)
    if array is None:
        return None
    left, right, value = array
    start, stop = nearest_name(before := data[max(0, left - _LOOK_BACK) : left], LAST_WORD["key"])
    noun = noun_of(before[start:stop])
    confidence = weigh(value.hex().encode(), noun, "quoted").confidence if noun else None
    return _candidate(data, left, right, confidence)


@lru_cache(maxsize=4_096)  # versions of one file repeat the same lines thousands of times
def _beside(  # noqa: PLR0917 - a cached function is quicker without names
    data: bytes, left: int, kind: str, is_bare: bool, is_line: bool, dismiss: bool
) -> Candidate | None:
    """Judge a value in its line, or in all that matters around it. A call, and what is to be filled in, is none, whatever it is called."""
    before = data[:left]
    if before[-1] in _SPACES and (scheme := _BEHIND_SCHEME.search(before)):
        before, is_bare = before[: scheme.start()], False
    if (is_bare and _CALLED.match(data, left)) or (dismiss and is_dismissed(data, left, is_bare=is_bare)):
        return None
    return _by_name(data, left, before, kind, is_bare=is_bare, is_line=is_line)


def _is_none(data: bytes, left: int, kind: str, *, is_bare: bool) -> bool:
    """Tell whether a value is none, as it is told beside its line; what stands behind a header's scheme is left to that."""
    if is_bare:
        if (
            data[left - 1] in _SPACES
            and data[left - 2] in _SCHEME_ENDS
            and _BEHIND_SCHEME.search(data, max(0, left - 8), left)
        ):
            return False
        if _CALLED.match(data, left, left + _LOOK_AHEAD):
            return True
    if is_dismissed(data, left, is_bare=is_bare):
        return True
    return led_from(_line_before(data, left), kind, is_bare, True) is None


def _line_before(data: bytes, left: int) -> bytes:
    """Give what stands before a place in its line, as far as it is read."""
    begin = left - _LOOK_BACK if left > _LOOK_BACK else 0
    return data[(data.rfind(b"\n", begin, left) + 1) or begin : left]


def _by_name(  # noqa: PLR0911 - a way out for each way to stand
    data: bytes, left: int, before: bytes, kind: str, *, is_bare: bool, is_line: bool
) -> Candidate | None:
    """Judge a value by the nearest name before it."""
    found = led_from(before, kind, is_bare, is_line)
    if found is None or found is ELSEWHERE:
        return None if found is None else _ELSEWHERE
    start, name, noun, gap, line = found
    if is_bare and is_outcome(data, start, name):
        return None
    is_bare = is_bare and b"\n" not in gap  # in a list of names and values it has a line of its own
    if b"{" in gap and _OBJECT.search(gap):
        return _member(data, left)
    behind_scheme = data[left - 1] in _SPACES
    value = (_UNQUOTED if is_bare else _VALUE if behind_scheme else _QUOTED.get(before[-1], _VALUE)).match(
        data, left
    )
    if (
        value is None
        or value.end() - left > _LONGEST
        or _is_label(name, value[0])
        or is_identifier(name, value[0])
    ):
        return None
    right = value.end()
    if name[-7:].lower() == b"userpwd" and (user := _USER.match(data, left, right)):
        left = user.end()
    if is_listed(gap, value[0], data[right + 1 : right + 2]) and not is_drawn(value[0]):
        return None
    outright = (OUTRIGHT,) if noun is Noun.PASSWORD and is_outright(name, gap, line, is_bare=is_bare) else ()
    if is_bare:
        return _unquoted(data, left, right, noun, gap=gap, line=line, outright=outright)
    if before[-1] not in _QUOTES:
        return _judged(data, left, right, noun, "element", outright)
    return _quoted(data, left, right, noun, quote=before[-1], gap=gap, outright=outright)


def _quoted(
    data: bytes, left: int, right: int, noun: Noun, *, quote: int, gap: bytes, outright: tuple[str, ...]
) -> Candidate | None:
    """Judge a value in quotes; with spaces between backticks it is a command."""
    if right >= len(data) or data[right] != quote or (quote == _BACKTICK and b" " in data[left:right]):
        return None
    while data[right - 1] == _BACKSLASH:  # an escaped quote ends it
        right -= 1
    return _judged(data, left, right, noun, "quoted", (*_doubts(gap, data[right + 1 : right + 4]), *outright))


def _unquoted(
    data: bytes, left: int, right: int, noun: Noun, *, gap: bytes, line: bytes, outright: tuple[str, ...]
) -> Candidate | None:
    """Judge a value without quotes: no call and no index, and in code nothing that could be a variable."""
    if data[left] == _AT and gap.strip() == b"-":  # who says so
        return None
    said = gap.strip() in {b"is", b"was"}
    if gap[-1:] in _SPACES and goes_on(data, right):
        outright = ()
        said = said or gap.rstrip() == b":"
    doubts = ("said in a sentence",) if said else outright
    if noun is not Noun.KEY and (end := _whole(data, left, right, line)):
        return _candidate(data, left, end, weigh(data[left:end], noun, "bare", doubts).confidence)
    if data[right : right + 1] in _OPENS and not _ENDS.search(data, left, right):
        return None
    found = _judged(data, left, right, noun, "bare", doubts)
    if found is None:
        return None
    return found._replace(bare=_is_code(line) and not is_drawn(data[left : found.end]))


def _whole(data: bytes, left: int, right: int, line: bytes) -> int | None:
    """Give where a bare value ends that goes on behind a bracket: one that was drawn from all that a keyboard has, and in no others.

    A bracket that closes what was opened before the name ends such a value too.
    """
    if right >= len(data) or data[right] not in _BRACKETS or _ENDS.search(data, left, right):
        return None
    run = _WITH_BRACKETS.match(data, left)
    if (
        run is None
        or _CALLED_OR_TAG.match(run[0])
        or any(opens in line and closes in run[0] for opens, closes in _PAIRS)
    ):
        return None
    return run.end() if is_drawn_with_signs(run[0].decode()) else None


def _member(data: bytes, left: int) -> Candidate | None:
    """Judge the values of an object that is written as a text: what they are called says less than what it is called."""
    for member in _MEMBER.finditer(data, left, left + _LONGEST):
        if not is_about(member[1]) and (found := _judged(data, *member.span(2), Noun.SECRET, "quoted")):
            return found
    return None


def judge_match(
    data: bytes, span: tuple[int, int], name: tuple[int, int] | None, place: str
) -> Candidate | None:
    """Judge the value of a form whose pattern takes all of it, and maybe only the end of its name; without a name it is a password."""
    if place == "command" and _is_filled_in(data, *span):
        return None
    noun = Noun.PASSWORD if name is None else noun_of(_from_its_beginning(data, *name))
    return None if noun is None else _judged(data, *span, noun, place)


def _is_filled_in(data: bytes, left: int, right: int) -> bool:
    """Tell whether a shell puts something into what is handed to a command: between apostrophes it does not."""
    return data[left - 1 : left] != b"'" and _VARIABLE.search(data, left, right + 1) is not None


def _from_its_beginning(data: bytes, start: int, end: int) -> bytes:
    before = data[max(0, start - _LOOK_BACK) : start]
    return before[len(before.rstrip(IN_NAMES)) :] + data[start:end]


def _judged(  # noqa: PLR0917 - the value, its name, its place
    data: bytes, left: int, right: int, noun: Noun, place: str, doubts: tuple[str, ...] = ()
) -> Candidate | None:
    if place in {"bare", "option", "command", "said", "element"} and (cut := _ENDS.search(data, left, right)):
        right = cut.start()
    value = data[left:right]
    if b"\\u" in value:
        value = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)).encode("utf-8", "surrogatepass"), value)
    if not value.isascii() and not _is_text(value):
        return None
    return _candidate(data, left, right, weigh(value, noun, place, doubts).confidence)


def _candidate(data: bytes, left: int, right: int, confidence: Confidence | None) -> Candidate | None:
    """Give a value that was judged, unless it is none; what only stands for one is doubtful."""
    if confidence is None:
        return None
    placeholder = is_placeholder(decode_value(data[left:right]))
    return Candidate(_LOW if placeholder else confidence, left, right, placeholder=placeholder)


def _is_label(name: bytes, value: bytes) -> bool:
    """Tell whether a value only says again what it is called, in another way of writing: `vscodeAskpassMain: "VSCODE_ASKPASS_MAIN"`."""
    return name.lower().translate(None, _JOINTS).endswith(value.lower().translate(None, _JOINTS))


def _is_text(value: bytes) -> bool:
    try:
        return value.decode("utf-8").isprintable()
    except UnicodeDecodeError:  # letters of an older way of writing, of which a password has few
        return (
            len(letters := value.translate(None, _ASCII)) <= _FOREIGN_LETTERS
            and letters.decode("latin-1").isalpha()
        )


def _doubts(gap: bytes, after: bytes) -> tuple[str, ...]:
    """Read what stands between name and quote, and behind the closing quote."""
    doubts = []
    call = _CALL.search(gap) if b"(" in gap or b"[" in gap or b"{" in gap else None
    if call and not _is_same(call[1].rpartition(b".")[2].rpartition(b":")[2]):
        doubts.append("result of a call")
    after = after.lstrip()
    if after[:1] in {b"+", b"%"} or after[:3] == b".fo" or (gap[:1] == b"(" and after[:1] == b","):
        doubts.append("part of an expression")
    return tuple(doubts)


def _is_same(function: bytes) -> bool:
    """Tell whether what a function gives is the value that it is given: it converts it, or is the type that it has from now on."""
    return function.lower() in _CONVERTS or is_type(function)


def _is_code(line: bytes) -> bool:
    """Tell whether what stands unquoted would be an expression in a programming language: outside of strings and comments."""
    if line.count(b'"') % 2 or line.count(b"'") % 2 or line.count(b"`") % 2:
        return False
    return _COMMENT.search(line) is None
