"""A form out of what a rule says of it: the full pattern with its word, gap and boundaries, and what the first pass looks for."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from outcrop.domain.finding import Confidence
from outcrop.scanner.generic.collections import MAX_COLLECTION_BYTES
from outcrop.scanner.generic.find import LEAD_IN_CHARS, LEAD_IN_JUDGES
from outcrop.scanner.patterns import regex_ast
from outcrop.scanner.patterns.checksums import CHECKSUMS
from outcrop.scanner.patterns.prefilter import Trigger, as_written, trigger
from outcrop.scanner.patterns.re2_match import compile_regex
from outcrop.scanner.rules import shorthand
from outcrop.scanner.rules.model import Form, Strength

WITHIN = 60  # characters between a context word and its value
_WIDEST_GAP = 1_000
_WORD = set(regex_ast.WORD)
_TELLING = 3  # characters of a beginning that is seldom in what follows it
_JOINING = b"-+/="  # belong to a value's run only where its alphabet has them


class Strict(BaseModel):
    """A table of a rule file: a key that is not known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


_Listed = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]


class FormIn(Strict):
    pattern: str = ""
    value: _Listed = []  # the short form: what the value is made of, and the issuer's word
    word: _Listed = []
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
        Literal["noun", "key", "members", "table", "option", "command", "said", "header", "call"] | None
    ) = None
    trigger: str | None = None  # what the first pass looks for instead of the pattern


def make_form(given: FormIn) -> Form:
    """Make the full pattern of a form: context word, gap, boundary, value, boundary."""
    given = _written_out(given)
    within = given.within or WITHIN
    _check(given, within)
    leading, value = _leading_and_value(
        given.pattern, given.context, within, judged=given.judge in LEAD_IN_JUDGES
    )
    strength = Strength(given.strength) if given.strength else _strength(given)
    usual = (
        Confidence.HIGH
        if strength in {Strength.CHECKSUM, Strength.PREFIX, Strength.STRUCTURED}
        else Confidence.MEDIUM
    )
    form = own_form(
        leading + value,
        word=_word(given),
        own=given.trigger,
        longest=given.longest,
        strength=strength,
        confidence=Confidence(given.confidence) if given.confidence else usual,
        entropy=given.entropy or 0.0,
        checksum=given.checksum,
        exclude=given.exclude or None,
    )
    form = form._replace(**_known(given)) if form.whole else form._replace(value_at=len(leading))
    before, after = within if given.near else 0, within if given.near or given.after else 0
    if given.judge in {"members", "table"}:
        if not form.whole:
            raise regex_ast.PatternError(
                "pattern must end with what stands before the first member, and be at most 450 characters wide"
            )
        after = MAX_COLLECTION_BYTES
    drawn = bool(given.entropy) and strength is Strength.CONTEXT if given.drawn is None else given.drawn
    in_line = not (before or after or given.judge) and form.in_line
    return form._replace(
        before=before, after=after, until=given.until or None, judge=given.judge, drawn=drawn, in_line=in_line
    )


def _check(given: FormIn, within: int) -> None:
    """Refuse what does not go together, and what is not known."""
    if sum(map(bool, (given.context, given.near, given.after))) > 1:
        raise regex_ast.PatternError("context, near and after exclude each other")
    if given.until:
        if not (given.near or given.after):
            raise regex_ast.PatternError("until needs near or after")
        _compiles("until", given.until)
    if given.context and within > _WIDEST_GAP:
        raise regex_ast.PatternError(f"within is at most {_WIDEST_GAP} with context")
    if given.trigger:
        if given.judge not in LEAD_IN_CHARS:
            raise regex_ast.PatternError(
                f"trigger needs a judge that a pattern leads to: {' or '.join(LEAD_IN_CHARS)}"
            )
        _whole("trigger", given.trigger)
    if given.checksum is not None and given.checksum not in CHECKSUMS:
        raise regex_ast.PatternError(
            f"checksum {given.checksum!r} is not known; known are {', '.join(sorted(CHECKSUMS))}"
        )
    if given.exclude:
        _whole("exclude", given.exclude)


def _known(given: FormIn) -> dict[str, Any]:
    """Give how wide a value is that is all of its pattern, and what tells where it stands when the first pass tells where it ends."""
    if given.context or "(?P<secret>" in given.pattern or not _edge(given.pattern, last=False):
        return {}
    tree, last = regex_ast.parse(given.pattern), regex_ast.last_characters(given.pattern)
    if regex_ast.has_anchor(tree) or not (last <= _WORD | set(_JOINING) and last & _WORD):
        return {}
    narrowest, widest = regex_ast.width(tree)
    known = {"width": widest, "narrowest": narrowest, "joining": _joining(last)}
    if narrowest == widest:
        return known
    # Else it must not go on behind what could be its end, and its beginning must be one that is found.
    begins = regex_ast.literal_prefixes(given.pattern)
    if min(map(len, begins)) < _TELLING or regex_ast.characters(tree, narrowest) - _WORD - set(
        _joining(last).encode()
    ):
        return {}
    return known | {"begins": tuple(text.decode("latin-1") for text in begins)}


def _written_out(given: FormIn) -> FormIn:
    """Write the short form out: what it does not say itself is made from its word and value."""
    words, values = given.word, given.value
    if bool(given.pattern) == bool(values):
        raise regex_ast.PatternError(
            "pattern and value exclude each other" if values else "pattern or value is needed"
        )
    if words and (given.context or given.near or given.after):
        raise regex_ast.PatternError("word stands for context, near and after")
    if not (
        words or given.context or given.near or given.after or given.pattern or shorthand.begins_alike(values)
    ):
        raise regex_ast.PatternError("value has no beginning of its own: it needs a word")
    made: dict[str, Any] = {}
    if words:
        made |= {
            "context": [shorthand.context_of(words, tight=given.tight)],
            "within": given.within or shorthand.BESIDE,
        }
    if values:
        made |= {
            "pattern": shorthand.pattern_of(values),
            "entropy": shorthand.entropy_of(values) if given.entropy is None else given.entropy,
            "exclude": shorthand.exclude_of(values) if given.exclude is None else given.exclude,
        }
    return given.model_copy(update=made)


def _word(given: FormIn) -> str | None:
    """Give the pattern of the words around which the values stand, where these are not part of the match or too much of it."""
    if given.word:
        return shorthand.trigger_of(given.word, tight=given.tight)
    words = given.near or given.after
    for word in words:
        _compiles("near" if given.near else "after", word)
    return f"(?i:{'|'.join(words)})" if words else None


def own_form(
    whole: str,
    *,
    word: str | None = None,
    own: str | None = None,
    strength: Strength,
    confidence: Confidence,
    longest: int = 0,
    entropy: float = 0.0,
    checksum: str | None = None,
    exclude: str | None = None,
) -> Form:
    """Make a form of a full pattern that has its group `secret`."""
    _compiles("pattern", whole)
    found = _trigger("trigger", own, as_written) if own else _trigger("pattern", word or whole, trigger)
    ends_match = found.whole and not word
    return Form(
        regex=whole,
        trigger=found.pattern,
        trigger_min=found.min_width,
        trigger_max=found.max_width,
        longest=longest or regex_ast.width(regex_ast.parse(whole))[1],
        exact=regex_ast.exact(whole),
        literals=tuple(text.decode("latin-1") for text in regex_ast.literals(whole)),
        whole=ends_match,
        behind=regex_ast.behind_value(whole) if ends_match else None,
        in_line=regex_ast.in_line(whole),
        strength=strength,
        confidence=confidence,
        entropy=entropy,
        checksum=checksum,
        exclude=exclude,
    )


def _strength(given: FormIn) -> Strength:
    if given.checksum:
        return Strength.CHECKSUM
    if given.context or given.near or given.after:
        return Strength.CONTEXT
    prefixes = regex_ast.literal_prefixes(given.pattern)
    return Strength.PREFIX if prefixes and min(map(len, prefixes)) >= 3 else Strength.STRUCTURED


def whole_pattern(pattern: str, context: list[str], within: int) -> str:
    return "".join(_leading_and_value(pattern, context, within))


def _leading_and_value(
    pattern: str, context: list[str], within: int, *, judged: bool = False
) -> tuple[str, str]:
    """Write the word with the gap behind it, and the value with its boundaries."""
    _whole("pattern", pattern)
    for word in context:
        _compiles("context", word)
    if "(?P<secret>" in pattern or judged:
        before, value = "", pattern
    else:
        before, value = _edge(pattern, last=False), f"(?P<secret>{pattern}){_edge(pattern, last=True)}"
    if not context:
        return "", before + value
    before = before.replace("(?:^|", "(?:")  # a value after a word is not at the beginning
    return f"(?is:(?:{'|'.join(context)}).{{0,{within}}}?)", before + value


def _edge(pattern: str, *, last: bool) -> str:
    """Give what must stand beside a value so that it is not the middle of a longer one."""
    outer = regex_ast.last_characters(pattern) if last else regex_ast.first_characters(pattern)
    if outer - _WORD - set(_JOINING) and not outer & _WORD:
        return ""
    joining = "".join(f"\\{sign}" for sign in _joining(outer))
    # An escaped line break before a value, as in JSON strings, ends in a letter.
    return f"(?:$|[^0-9A-Za-z_{joining}])" if last else f"(?:^|[^0-9A-Za-z_{joining}]|\\\\[nrt])"


def _joining(characters: set[int]) -> str:
    return "".join(chr(c) for c in _JOINING if c in characters)


def _whole(key: str, pattern: str) -> None:
    """Check a pattern that may be made of pieces."""
    if unknown := re.search(r"<<\w+>>", pattern):
        raise regex_ast.PatternError(f"{key} names a piece that [let] does not have, {unknown[0]}")
    _compiles(key, pattern)


@lru_cache(maxsize=256)  # many rules exclude the same
def _compiles(key: str, pattern: str) -> None:
    try:
        regex_ast.parse(pattern)
        compile_regex(pattern)
    except regex_ast.PatternError as error:
        raise regex_ast.PatternError(f"{key} {error}: {pattern[:80]}") from None


def _trigger(key: str, pattern: str, make: Callable[[str], Trigger]) -> Trigger:
    try:
        return make(pattern)
    except regex_ast.PatternError as error:
        raise regex_ast.PatternError(f"{key} {error}: {pattern[:80]}") from None
