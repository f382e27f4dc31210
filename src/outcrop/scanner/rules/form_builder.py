"""Build the form of a rule from its table in a rule file (`make_form`).

1. Expand the shorthand keys `word` and `value` (`_expand_shorthand`); refuse wrong keys (`_check_keys`).
2. Join context words, gap, boundaries and value to the full regular expression (`_join_regex`).
3. Choose the trigger for the Hyperscan pass (`_choose_trigger`) and the window around it (`_search_window`).
4. Compute what lets a scan skip the regular expression (`_value_layout`).
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from outcrop.domain.finding import Confidence
from outcrop.scanner.generic.collections import MAX_COLLECTION_BYTES
from outcrop.scanner.generic.find import LEAD_IN_CHARS, LEAD_IN_JUDGES
from outcrop.scanner.patterns import regex_ast
from outcrop.scanner.patterns.checksums import CHECKSUMS
from outcrop.scanner.patterns.prefilter import PrefilterTrigger, make_trigger, make_verbatim_trigger
from outcrop.scanner.patterns.re2_match import compile_regex
from outcrop.scanner.patterns.regex_ast import PatternError
from outcrop.scanner.rules import shorthand
from outcrop.scanner.rules.model import (
    CredentialForm,
    FormPattern,
    FormTrigger,
    SearchWindow,
    Strength,
    ValueChecks,
    ValueLayout,
)

_CONTEXT_GAP = 60  # bytes between a context word and its value, unless `within` is given
_MAX_CONTEXT_GAP = 1_000  # RE2 counts repetitions up to this number
_WORD_BYTES = set(regex_ast.WORD_BYTES)
_JOINING = b"-+/="  # bytes that continue a value only if the pattern itself can begin or end with them
_MIN_PREFIX = 3  # characters; a shorter prefix is likely to occur again inside the value
_EVIDENT = {Strength.CHECKSUM, Strength.PREFIX, Strength.STRUCTURED}  # high confidence by default


class StrictTable(BaseModel):
    """A table of a rule file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


_StringOrList = Annotated[
    list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]


class FormTable(StrictTable):
    """The keys of a form, in `[[rule]]` and in `[[rule.also]]`; docs/rules.md describes each."""

    pattern: str = ""
    value: _StringOrList = []  # shorthand
    word: _StringOrList = []  # shorthand
    tight: bool = False
    context: list[str] = []
    near: list[str] = []
    after: list[str] = []
    within: int | None = Field(None, ge=1, le=8_000)
    until: str | None = None
    longest: int = Field(0, ge=0, le=262_144)
    entropy: float | None = Field(None, ge=0, le=8)
    checksum: str | None = None
    exclude: str | None = None
    drawn: bool | None = None
    confidence: Literal["high", "medium", "low"] | None = None
    strength: Literal["prefix", "structured", "context", "generic"] | None = None
    judge: (
        Literal["noun", "key", "members", "table", "option", "command", "said", "below", "header", "call"]
        | None
    ) = None
    trigger: str | None = None


class _JoinedRegex(NamedTuple):
    """The full regular expression of a form, in two parts."""

    lead: str  # the context words and the gap behind them; empty without context words
    value: str  # the value with its boundaries

    @property
    def full(self) -> str:
        """The two parts as one regular expression."""
        return self.lead + self.value


def make_form(table: FormTable) -> CredentialForm:
    """Return the form that a table of a rule file describes; raise PatternError if the table is wrong.

    The error message begins with the key that is wrong.
    """
    table = _expand_shorthand(table)
    _check_keys(table)
    regex = _join_regex(
        table.pattern,
        table.context,
        table.within or _CONTEXT_GAP,
        has_boundaries=table.judge not in LEAD_IN_JUDGES,
        assigned=shorthand.make_assignment(table.word) if table.word and not table.tight else "",
    )
    form_trigger = _choose_trigger(table, regex.full)
    if table.judge in {"members", "table"} and not form_trigger.ends_match:
        raise PatternError("pattern must end right before the first value and match at most 450 characters")
    strength = Strength(table.strength) if table.strength else _derive_strength(table)
    default_confidence = Confidence.HIGH if strength in _EVIDENT else Confidence.MEDIUM
    return CredentialForm(
        pattern=_describe_regex(
            regex.full, table.longest, value_at=0 if form_trigger.ends_match else len(regex.lead)
        ),
        trigger=form_trigger,
        window=_search_window(table, regex.full),
        checks=_value_checks(table, strength),
        strength=strength,
        confidence=Confidence(table.confidence) if table.confidence else default_confidence,
        layout=_value_layout(table) if form_trigger.ends_match else None,
        judge=table.judge,
    )


def make_regex_form(
    regex: str,
    *,
    strength: Strength,
    confidence: Confidence,
    min_entropy: float = 0.0,
    keywords: tuple[str, ...] = (),
) -> CredentialForm:
    """Return the form of a complete regular expression; raise PatternError if it cannot be used.

    The group `secret`, if there is one, is the value. Values with fewer than `min_entropy` bits per character
    are dropped. One of `keywords` (in lower case) must be anywhere in the text, unless there are none.
    """
    _check_regex("pattern", regex)
    return CredentialForm(
        pattern=_describe_regex(regex),
        trigger=_trigger_of_regex(regex)._replace(keywords=keywords),
        window=SearchWindow(single_line=regex_ast.is_single_line(regex)),
        checks=ValueChecks(min_entropy=min_entropy),
        strength=strength,
        confidence=confidence,
    )


def make_companion_regex(pattern: str, context: list[str]) -> str:
    """Return the full regular expression of a companion, in which the group `secret` is its value.

    It has one of the words `context`, a gap of up to _CONTEXT_GAP bytes, a boundary, the value and a
    boundary. Without `context` it begins with the boundary; a `pattern` with a group `secret` gets no
    boundaries. Raise PatternError if a pattern is wrong.
    """
    return _join_regex(pattern, context, _CONTEXT_GAP).full


def _expand_shorthand(table: FormTable) -> FormTable:
    """Return the table with full keys added for its shorthand keys `word` and `value`, which it keeps.

    `word` adds `context` and `within`; `value` adds `pattern`, `entropy` and `exclude`. Of `entropy`,
    `exclude` and `within` the table's own value stays. Raise PatternError if

    - not exactly one of `pattern` and `value` is given,
    - `word` is used together with `context`, `near` or `after`,
    - a `value` does not begin with a fixed text of three characters, and the table has none of these four,
    - a `word` is no name, or a `value` is not understood.
    """
    has_context = bool(table.context or table.near or table.after)
    if bool(table.pattern) == bool(table.value):
        raise PatternError(
            "pattern and value cannot be used together" if table.value else "pattern or value is needed"
        )
    if table.word and has_context:
        raise PatternError("word cannot be used together with context, near or after")
    if not (table.word or has_context or table.pattern or shorthand.all_have_prefix(table.value)):
        raise PatternError("value has no prefix of three characters or more: add a word")
    expanded: dict[str, Any] = {}
    if table.word:
        expanded["context"] = [shorthand.make_context(table.word, tight=table.tight)]
        expanded["within"] = table.within or shorthand.WORD_GAP
    if table.value:
        expanded |= _expand_values(table)
    return table.model_copy(update=expanded)


def _expand_values(table: FormTable) -> dict[str, Any]:
    """Return `pattern`, `entropy` and `exclude` made from `value`; the table's own last two have precedence.

    Raise PatternError if a value is not understood.
    """
    return {
        "pattern": shorthand.make_pattern(table.value),
        "entropy": shorthand.min_entropy(table.value) if table.entropy is None else table.entropy,
        "exclude": shorthand.make_exclude(table.value) if table.exclude is None else table.exclude,
    }


def _check_keys(table: FormTable) -> None:
    """Raise PatternError for keys that cannot be combined, for unknown checksums and for wrong patterns.

    The message begins with a key.
    """
    if sum(map(bool, (table.context, table.near, table.after))) > 1:
        raise PatternError("context, near and after cannot be used together")
    if table.until:
        if not (table.near or table.after):
            raise PatternError("until needs near or after")
        _check_regex("until", table.until)
    if table.context and (table.within or 0) > _MAX_CONTEXT_GAP:
        raise PatternError(f"within must be at most {_MAX_CONTEXT_GAP} with context")
    if table.trigger:
        if table.judge not in LEAD_IN_CHARS:
            raise PatternError(f"trigger needs judge = {' or '.join(LEAD_IN_CHARS)}")
        _check_filled_regex("trigger", table.trigger)
    if table.checksum is not None and table.checksum not in CHECKSUMS:
        raise PatternError(
            f"checksum {table.checksum!r} is unknown; use one of {', '.join(sorted(CHECKSUMS))}"
        )
    if table.exclude:
        _check_filled_regex("exclude", table.exclude)


def _join_regex(
    pattern: str, context: list[str], gap: int, *, has_boundaries: bool = True, assigned: str = ""
) -> _JoinedRegex:
    """Return the regular expression for one of the words `context`, up to `gap` bytes, and a value.

    With `assigned` the value may also come right after a match of that. `pattern` matches the value. A
    pattern with a group `secret` sets its own boundaries; any other gets boundaries and the group unless
    `has_boundaries` is false. Raise PatternError if a pattern is wrong.
    """
    _check_filled_regex("pattern", pattern)
    for word in context:
        _check_regex("context", word)
    left, value = "", pattern
    if "(?P<secret>" not in pattern and has_boundaries:
        left, value = _boundary(pattern, last=False), f"(?P<secret>{pattern}){_boundary(pattern, last=True)}"
    if not context:
        return _JoinedRegex("", left + value)
    left = left.replace("(?:^|", "(?:")  # behind a context word the text cannot begin
    words = f"(?is:(?:{'|'.join(context)}).{{0,{gap}}}?)"
    if assigned:
        return _JoinedRegex(f"(?:{words}{left}|(?is:{assigned}))", value)
    return _JoinedRegex(words, left + value)


def _boundary(pattern: str, *, last: bool) -> str:
    """Return a regular expression for the byte beside a value, so that no middle of a longer value matches.

    Return an empty one if the pattern itself begins (or, with `last`, ends) with a byte that separates
    values.
    """
    outer = regex_ast.last_bytes(pattern) if last else regex_ast.first_bytes(pattern)
    if outer - _WORD_BYTES - set(_JOINING) and not outer & _WORD_BYTES:
        return ""
    joining = "".join(f"\\{char}" for char in _joining_chars(outer))
    # In a JSON string an escaped line break before the value ends in a letter.
    return f"(?:$|[^0-9A-Za-z_{joining}])" if last else f"(?:^|[^0-9A-Za-z_{joining}]|\\\\[nrt])"


def _joining_chars(edge_bytes: set[int]) -> str:
    """Return the characters of `_JOINING` that are in `edge_bytes`."""
    return "".join(chr(byte) for byte in _JOINING if byte in edge_bytes)


def _derive_strength(table: FormTable) -> Strength:
    """Return the strength of a form that does not name its own.

    CHECKSUM with a checksum, else CONTEXT with context words, else PREFIX if all values begin with a literal
    of three characters, else STRUCTURED.
    """
    if table.checksum:
        return Strength.CHECKSUM
    if table.context or table.near or table.after:
        return Strength.CONTEXT
    prefixes = regex_ast.literal_prefixes(table.pattern)
    return Strength.PREFIX if prefixes and min(map(len, prefixes)) >= 3 else Strength.STRUCTURED


def _describe_regex(regex: str, longest: int = 0, *, value_at: int = 0) -> FormPattern:
    """Return a regular expression with facts about its matches.

    `longest` is the length of the longest match to search for; 0 for the width of the pattern. `value_at` is
    the offset in `regex` behind the context words.
    """
    return FormPattern(
        regex=regex,
        longest=longest or regex_ast.match_width(regex_ast.parse(regex))[1],
        exact_up_to=regex_ast.exact_up_to(regex),
        literals=tuple(text.decode("latin-1") for text in regex_ast.required_literals(regex)),
        value_at=value_at,
    )


def _choose_trigger(table: FormTable, regex: str) -> FormTrigger:
    """Return the trigger of a form: its own, or one for its words, or one for the full regular expression.

    Raise PatternError, beginning with the key, if a pattern is wrong or too short.
    """
    words = _words_regex(table)
    _check_regex("pattern", regex)
    if table.trigger:
        return _make_trigger("trigger", table.trigger, make_verbatim_trigger)
    if words:
        return _make_trigger("pattern", words, make_trigger)._replace(ends_match=False)
    return _trigger_of_regex(regex)


def _words_regex(table: FormTable) -> str | None:
    """Return the trigger's regular expression for the key `word`, `near` or `after`; None without these keys.

    At most one of the keys is given. For `word` the result matches one of the words, and with `tight` also
    the beginning of a word such as key after it. `near` and `after` have regular expressions: the result
    matches what one of them matches. Raise PatternError if a `word` is no name, or one of these is wrong.
    """
    if table.word:
        return shorthand.make_trigger_pattern(table.word, tight=table.tight)
    words = table.near or table.after
    for word in words:
        _check_regex("near" if table.near else "after", word)
    return f"(?i:{'|'.join(words)})" if words else None


def _trigger_of_regex(regex: str) -> FormTrigger:
    """Return the trigger for a full regular expression, with `after_value` if it ends with the match.

    Raise PatternError if it is too short.
    """
    form_trigger = _make_trigger("pattern", regex, make_trigger)
    if not form_trigger.ends_match:
        return form_trigger
    return form_trigger._replace(after_value=regex_ast.width_after_value(regex))


def _make_trigger(key: str, pattern: str, make: Callable[[str], PrefilterTrigger]) -> FormTrigger:
    """Return `make(pattern)` as a FormTrigger; the message of a PatternError gets `key` in front."""
    try:
        made = make(pattern)
    except PatternError as error:
        raise PatternError(f"{key} {error}: {pattern[:80]}") from None
    return FormTrigger(made.pattern, made.min_width, made.max_width, made.ends_match)


def _search_window(table: FormTable, regex: str) -> SearchWindow:
    """Return the window of a form around its trigger; `regex` is the form's full regular expression.

    With `near` or `after` it has `within` bytes, in a list or a table MAX_COLLECTION_BYTES after the trigger,
    otherwise only what the pattern reaches.
    """
    distance = table.within or _CONTEXT_GAP
    before = distance if table.near else 0
    after = distance if table.near or table.after else 0
    if table.judge in {"members", "table"}:
        after = MAX_COLLECTION_BYTES
    single_line = not (before or after or table.judge) and regex_ast.is_single_line(regex)
    return SearchWindow(before, after, table.until or None, single_line=single_line)


def _value_checks(table: FormTable, strength: Strength) -> ValueChecks:
    """Return the checks of a form's values.

    `not_words` is the key `drawn`. If that is not given, it is true for a form with context words and a
    minimum of entropy.
    """
    not_words = table.drawn
    if not_words is None:
        not_words = bool(table.entropy) and strength is Strength.CONTEXT
    return ValueChecks(
        exclude=table.exclude or None,
        min_entropy=table.entropy or 0.0,
        not_words=not_words,
        checksum=table.checksum,
    )


def _value_layout(table: FormTable) -> ValueLayout | None:
    """Return how the start of the form's value is computed from its end, or None if that is not possible.

    The form's trigger must end where its match ends.
    """
    pattern = table.pattern
    if table.context or "(?P<secret>" in pattern or not _boundary(pattern, last=False):
        return None
    tree, last = regex_ast.parse(pattern), regex_ast.last_bytes(pattern)
    if regex_ast.has_anchor(tree) or not (last <= _WORD_BYTES | set(_JOINING) and last & _WORD_BYTES):
        return None
    min_width, max_width = regex_ast.match_width(tree)
    joining = _joining_chars(last)
    if min_width == max_width:
        return ValueLayout(min_width, max_width, joining=joining)
    # The width varies. Then no byte that ends a value may be possible in it after min_width bytes, and the
    # prefix must be long enough to find its start.
    prefixes = regex_ast.literal_prefixes(pattern)
    inner = regex_ast.bytes_after(tree, min_width) - _WORD_BYTES - set(joining.encode())
    if inner or min(map(len, prefixes)) < _MIN_PREFIX:
        return None
    return ValueLayout(min_width, max_width, tuple(text.decode("latin-1") for text in prefixes), joining)


def _check_filled_regex(key: str, pattern: str) -> None:
    """Raise PatternError, beginning with `key`, for an invalid pattern or an undefined `<<piece>>`."""
    if unknown := re.search(r"<<\w+>>", pattern):
        raise PatternError(f"{key} uses {unknown[0]}, which [let] does not define")
    _check_regex(key, pattern)


@lru_cache(maxsize=256)  # many rules exclude the same
def _check_regex(key: str, pattern: str) -> None:
    """Raise PatternError, beginning with `key`, if Python's parser or RE2 refuses the pattern."""
    try:
        regex_ast.parse(pattern)
        compile_regex(pattern)
    except PatternError as error:
        raise PatternError(f"{key} {error}: {pattern[:80]}") from None
