"""Find values at the matches of generic rules, and decide which are credentials.

Most patterns of generic rules are lead-ins: they match a name, the separator after it and the first
characters of a value. The setting `judge` of the rule says what follows:

- `noun`, `key`: one value (`find_assigned`). The names differ: `noun` is for passwords, secrets and tokens,
  `key` for keys, salts and others that need a random value.
- `members`: a list or a mapping (`find_in_collections`).
- `table`: the header of a table (`find_in_tables`).

Other patterns match the complete value. For these the `judge` is the place of the value, such as `option`
(`judge_match`; `candidate` lists the places).

Parameters of several functions:

- `data` is the text that is scanned. `ends` has the offsets in it at which matches of the rule end;
  `match_end` is one such offset.
- `taken(start, end)` returns whether another rule has already found a value in this span.
- `include_low`: also yield values of low confidence.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import Secret
from outcrop.lazy_regex import regex
from outcrop.scanner import trace
from outcrop.scanner.generic.assignment import (
    AUTH_SCHEME,
    BYTES_BEFORE_VALUE,
    is_dismissed_in_line,
    judge_assignment,
)
from outcrop.scanner.generic.candidate import Candidate, judge_value, make_candidate, reject
from outcrop.scanner.generic.collections import is_after_bracket, read_items
from outcrop.scanner.generic.context import (
    LAST_PLURAL,
    LAST_WORD,
    NAME_BYTES,
    TEST_PASSED,
    find_nearest_name,
)
from outcrop.scanner.generic.names import Noun, ends_with_attribute, find_noun
from outcrop.scanner.generic.placeholders import decode_value
from outcrop.scanner.generic.score import DIRECT_ASSIGNMENT, looks_generated, weigh
from outcrop.scanner.generic.tables import read_table
from outcrop.scanner.generic.values import read_byte_array

# Lead-ins to one value, by judge: how many characters they match of a quoted value, and of a bare value.
LEAD_IN_CHARS = {"noun": (4, 4), "key": (12, 16)}
LEAD_IN_JUDGES = frozenset({*LEAD_IN_CHARS, "members", "table"})
# In a text with more matches, nearly all are assumed to be near misses that do not occur in other texts.
MANY_MATCHES = 1_000
_BEFORE_QUOTED = b"\"'`>;["  # bytes before a value that is quoted, or the content of an XML element
_BEFORE_BARE = b" \t=:|>-"
_COMMA, _APOSTROPHE, _AMPERSAND = b",'&"
_AUTH_SCHEME_FIRST_LETTERS = b"BbTtAa"
# The name of the value in an object that describes a setting: `"value": "`.
_INNER_VALUE_NAME = regex(rb"(?i:value|default)[\"'][ \t]?:[ \t]?[\"']")
_INNER_VALUE_FIRST_LETTERS = b"VvDd"
# The rest of a type with a lifetime in Rust, up to the value: `static str = "` after `&'`.
_RUST_TYPE = regex(rb"[a-z]{1,10} [^\n\"'`=]{3,30}=[^\n\"'`]{0,20}\"")
_SHELL_VARIABLE = regex(rb"\$[A-Za-z_({]")
_VALUE_IN_LINE = regex(rb"[^\s\"'`<>]{1,400}")  # how far a rejected value may reach
_LOW = Confidence.LOW  # a global is quicker than a member of an enum

SpanCheck = Callable[[int, int], bool]


def find_assigned(
    data: bytes,
    ends: Sequence[int],
    judge: str,
    taken: SpanCheck,
    leads: Callable[[int], bool],
    *,
    include_low: bool,
) -> Iterator[Candidate]:
    """Yield the credentials among the values whose lead-ins end at the offsets `ends`, in order.

    `judge` is `noun` or `key`. Skip values in a span for which `taken(start, end)` is true, and values inside
    one that was yielded before. `leads(end)` returns whether the pattern of the rule matches up to this
    offset; it costs more than most other checks, so it is called last. Values of low confidence are only
    yielded if `include_low`.
    """
    quoted_chars, bare_chars = LEAD_IN_CHARS[judge]
    is_crowded = not include_low and len(ends) > MANY_MATCHES
    dismiss = not (include_low or is_crowded)
    reported_end = -1
    for match_end in _sort_match_ends(data, ends, judge):
        if data[match_end - 1] == _COMMA and judge == "key":
            found = _judge_byte_array(data, match_end) if match_end > reported_end else None
            if found is not None:
                reported_end = found.end
                yield found
            continue
        start, is_bare = _find_value_start(data, match_end, quoted_chars, bare_chars)
        if (
            start <= reported_end
            or taken(start, match_end)
            or (is_crowded and is_dismissed_in_line(data, start, judge, is_bare))
        ):
            continue
        found = judge_assignment(data, start, judge, is_bare, dismiss, include_low)
        if found is None or not leads(match_end):
            _record_rejected(data, start, match_end, found)
            continue
        if found.confidence is not _LOW:
            reported_end = found.end
        yield found


def find_in_collections(
    data: bytes, ends: Iterable[int], taken: SpanCheck, *, include_low: bool
) -> Iterator[Candidate]:
    """Yield the credentials in the lists and mappings whose beginnings the rule has matched.

    `ends` has the ends of these matches. The name of the list or mapping is a plural such as `tokens`; others
    are skipped. Also skip values in a span for which `taken(start, end)` is true, values whose own name is an
    attribute (`url`; not in a mapping of passwords), and values of low confidence unless `include_low`.
    """
    for match_end in ends:
        name_end = match_end if is_after_bracket(data, match_end) else data.rfind(b"\n", 0, match_end)
        noun = _find_noun_before(data, name_end, LAST_PLURAL)
        if noun not in {Noun.PASSWORD, Noun.SECRET}:
            continue
        for start, end, name, place in read_items(data, match_end):
            # The names in a mapping of passwords are mostly those of users.
            if (noun is Noun.SECRET and ends_with_attribute(name)) or taken(start, end):
                continue
            found = judge_value(data, start, end, Noun.SECRET, place)
            if found is None:
                trace.record(start, end, value=_masked(data, start, end))
            elif include_low or found.confidence is not _LOW:
                yield found._replace(bare=place == "bare" and not looks_generated(data[start : found.end]))


def find_in_tables(
    data: bytes, ends: Iterable[int], taken: SpanCheck, *, include_low: bool
) -> Iterator[Candidate]:
    """Yield the credentials in the tables whose headers contain the offsets `ends`.

    Values in a span for which `taken(start, end)` is true are skipped, and values of low confidence unless
    `include_low`.
    """
    table_end = -1
    for match_end in ends:
        if match_end <= table_end:
            continue
        cells, table_end = read_table(data, match_end)
        for start, end, noun, is_direct in cells:
            if taken(start, end):
                continue
            context = (DIRECT_ASSIGNMENT,) if is_direct and noun is Noun.PASSWORD else ()
            found = judge_value(data, start, end, noun, "quoted", context)
            if found is None:
                trace.record(start, end, value=_masked(data, start, end))
            elif include_low or found.confidence is not _LOW:
                yield found


def judge_match(
    data: bytes, span: tuple[int, int], name: tuple[int, int] | None, place: str
) -> Candidate | None:
    """Return a value that a pattern has matched completely as a candidate; None if it is no credential.

    `span` is the span of the value. `name` is the span of its name, or of the last part of its name; if it is
    None, the value is scored as a password. `place` says how the value is written, such as `option` or
    `call`. With the place `command`, a value with a shell variable is no credential.
    """
    if place == "command" and _has_shell_variable(data, *span):
        return reject("it contains a variable of a shell")
    noun = Noun.PASSWORD if name is None else find_noun(_complete_name(data, *name))
    if noun is None:
        return reject("the name before it announces no credential")
    return judge_value(data, *span, noun, place)


def _record_rejected(data: bytes, start: int, match_end: int, found: Candidate | None) -> None:
    """Record a value that was rejected, for `outcrop why`.

    `match_end` is the end of the lead-in. `found` is set if the text before the value does not lead to it.
    """
    if trace.active is None:
        return
    if found is not None:
        trace.record(
            found.start,
            found.end,
            reason="the text between its name and the value does not assign it",
            value=_masked(data, found.start, found.end),
        )
        return
    rest = _VALUE_IN_LINE.match(data, start)
    end = max(match_end, rest.end() if rest else start)
    trace.record(start, end, value=_masked(data, start, end))


def _masked(data: bytes, start: int, end: int) -> Secret:
    """Return the text from `start` to `end` as a secret that is masked as a whole."""
    return Secret(decode_value(data[start:end]), mask_all=True)


def has_name_in_line(data: bytes, match_end: int, judge: str) -> bool:
    """Whether the lead-in that ends at `match_end` has its name in the same line as the value.

    Then `find_assigned` reads no other line. `judge` is `noun` or `key`. False for an array of bytes, and for
    names that only other lines can confirm (`PASS`, `IDENTIFIED BY`).
    """
    value_start = match_end - max(LEAD_IN_CHARS[judge])
    text_start = max(0, value_start - BYTES_BEFORE_VALUE)
    line_start = (data.rfind(b"\n", text_start, value_start) + 1) or text_start
    line = data[line_start:value_start] if value_start > 0 else b""
    name = line[slice(*find_nearest_name(line, LAST_WORD[judge]))]
    is_array = judge == "key" and data[match_end - 1] == _COMMA
    return name != b"" and name not in TEST_PASSED and name.lower() != b"identified by" and not is_array


def _sort_match_ends(data: bytes, ends: Sequence[int], judge: str) -> list[int]:
    """Return the ends of lead-ins sorted, each once, with added ends where the value may begin later.

    With `judge` `noun`, the value may begin after a Rust type with a lifetime, after the name of an inner
    value (`"value": "`), or after an authentication scheme (`Bearer `). A scheme is never the value itself:
    its own end is dropped. With `key`, no ends are added or dropped.
    """
    if judge == "key":
        return sorted(set(ends))
    quoted_chars = LEAD_IN_CHARS[judge][0]
    later_ends, scheme_ends = [], []
    for match_end in ends:
        start = match_end - quoted_chars
        if data[start - 1] == _APOSTROPHE and data[start - 2] == _AMPERSAND:
            lead = _RUST_TYPE.match(data, start)
        elif (first := data[start]) in _AUTH_SCHEME_FIRST_LETTERS:
            lead = AUTH_SCHEME.match(data, start)
        elif first in _INNER_VALUE_FIRST_LETTERS:
            lead = _INNER_VALUE_NAME.match(data, start)
        else:
            continue
        if lead is None:
            continue
        if lead.re.pattern == AUTH_SCHEME.pattern:
            scheme_ends.append(match_end)
        if lead.end() + quoted_chars <= len(data):
            later_ends.append(lead.end() + quoted_chars)
    return sorted(set(ends).difference(scheme_ends).union(later_ends))


def _find_value_start(data: bytes, match_end: int, quoted_chars: int, bare_chars: int) -> tuple[int, bool]:
    """Return the offset of the value and whether it is unquoted; (-1, False) if no value begins there.

    A lead-in that ends at `match_end` includes `quoted_chars` characters of a quoted value, or `bare_chars`
    characters of an unquoted value. The byte before the value shows which it is.
    """
    if match_end > quoted_chars and data[match_end - quoted_chars - 1] in _BEFORE_QUOTED:
        return match_end - quoted_chars, False
    if match_end > bare_chars and data[match_end - bare_chars - 1] in _BEFORE_BARE:
        return match_end - bare_chars, True
    return -1, False


def _judge_byte_array(data: bytes, comma_end: int) -> Candidate | None:
    """Return the array of bytes as a candidate; None if there is no array or it is no credential.

    `comma_end` is the offset after the first comma of the array. The bytes are scored as hexadecimal digits,
    with the noun of the name before the array.
    """
    array = read_byte_array(data, comma_end)
    if array is None:
        return None
    noun = _find_noun_before(data, array.start, LAST_WORD["key"])
    if noun is None:
        return None
    return make_candidate(data, array.start, array.end, weigh(array.content.hex().encode(), noun, "quoted"))


def _find_noun_before(data: bytes, end: int, last_word: re.Pattern[bytes]) -> Noun | None:
    """Return the noun of the nearest name before offset `end`; None if there is no name, or it has no noun.

    Only names with a word of the pattern `last_word` count (LAST_WORD, LAST_PLURAL), and only the last
    BYTES_BEFORE_VALUE bytes are read.
    """
    before = data[max(0, end - BYTES_BEFORE_VALUE) : end]
    return find_noun(before[slice(*find_nearest_name(before, last_word))])


def _has_shell_variable(data: bytes, start: int, end: int) -> bool:
    """Whether the argument of a command from `start` to `end` contains a variable that a shell replaces.

    After an apostrophe a shell replaces nothing: the result is False.
    """
    return data[start - 1 : start] != b"'" and _SHELL_VARIABLE.search(data, start, end + 1) is not None


def _complete_name(data: bytes, start: int, end: int) -> bytes:
    """Return the text from `start` to `end`, with the characters of a name directly before it."""
    before = data[max(0, start - BYTES_BEFORE_VALUE) : start]
    return before[len(before.rstrip(NAME_BYTES)) :] + data[start:end]
