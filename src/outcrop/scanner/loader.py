"""Rule files into rules: TOML is read, checked with a message that names file, line and rule, and patterns are made whole."""

import re
import tomllib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from outcrop.domain.finding import Confidence
from outcrop.scanner import regex, short
from outcrop.scanner.advice import Revoke, Words
from outcrop.scanner.check import Checks
from outcrop.scanner.checksum import CHECKSUMS
from outcrop.scanner.judge.candidate import LED_TO
from outcrop.scanner.regex import compile_regex
from outcrop.scanner.rule import Form, Impact, Part, Rule, RuleError, Strength, files_of

WITHIN = 60  # characters between a context word and its value
_WIDEST_GAP = 1_000
PAIR_WITHIN = 600  # characters between the parts of one credential
_WORD = set(regex.WORD)
_JOINING = b"-+/="  # belong to a value's run only where its alphabet has them


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


_Listed = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]


class _FormIn(_Shape):
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
    confidence: Literal["high", "medium", "low"] | None = None
    strength: Literal["prefix", "structured", "context", "generic"] | None = None
    judge: Literal["noun", "key", "option", "header", "call"] | None = None


class _PartIn(_Shape):
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    pattern: str = Field(min_length=1)
    context: list[str] = []
    within: int = Field(PAIR_WITHIN, ge=1, le=8_000)
    required: bool = False
    alone: bool = False
    checksum: str | None = None


class _RuleIn(_FormIn):
    id: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=80)
    name: str | None = Field(None, min_length=1, max_length=120)
    secret_type: str | None = Field(None, pattern=r"^[a-z][a-z0-9_-]*$", max_length=80)
    impact: Literal["critical", "high", "medium", "low"] = "medium"
    password: bool = False
    decode: Literal["base64"] | None = None
    paths: list[str] = []
    also: list[_FormIn] = []
    part: list[_PartIn] = []
    check: Checks = ()
    revoke: Revoke | None = None  # these two are read where they are needed (scanner/advice.py), and only checked here
    advice: Words | None = None
    examples: list[str] = []
    counterexamples: list[str] = []


class _FileIn(_Shape):
    issuer: str = Field(min_length=1, max_length=80)
    let: dict[str, str] = {}  # pieces that patterns of this file share
    revoke: Revoke | None = None
    advice: Words | None = None
    rule: list[dict[str, Any]] = Field(min_length=1)


def load_paths(paths: list[Path]) -> list[Rule]:
    """Load rule files, and folders of them, in the order of their names; an id that comes twice is refused."""
    rules: list[Rule] = []
    seen: dict[str, str] = {}
    for path in paths:
        for file in files_of(path):
            for rule in load_text(_read(file), str(file)):
                if rule.id in seen:
                    raise RuleError(f"{rule.origin}: rule {rule.id}: is already defined in {seen[rule.id]}")
                seen[rule.id] = rule.origin
                rules.append(rule)
    return rules


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise RuleError(f"{path}: is not UTF-8") from None
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror}") from None


def load_text(text: str, name: str) -> list[Rule]:
    """Load the rules of one file's text."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, line = str(error).removesuffix(")").partition(" (at line ")
        raise RuleError(f"{name}:{line.partition(',')[0] or text.count(chr(10)) + 1}: {message}") from None
    lines = _Lines(text, name)
    try:
        file = _FileIn.model_validate(data)
    except ValidationError as error:
        raise RuleError(lines.message(None, error)) from None
    return [_rule(_with_pieces(raw, file.let), at, file.issuer, lines) for at, raw in enumerate(file.rule)]


def _with_pieces(raw: dict[str, Any], pieces: dict[str, str]) -> dict[str, Any]:
    """Put the file's pieces into the patterns that name them as <<piece>>."""
    if not pieces:
        return raw

    def filled(pattern: object) -> object:
        return re.sub(r"<<(\w+)>>", lambda match: pieces.get(match[1], match[0]), pattern) if isinstance(pattern, str) else pattern

    whole: dict[str, Any] = {key: filled(value) if key in {"pattern", "exclude"} else value for key, value in raw.items()}
    if isinstance(raw.get("also"), list):
        whole["also"] = [_with_pieces(form, pieces) if isinstance(form, dict) else form for form in raw["also"]]
    return whole


class _Lines:
    """Finds the line of a rule, and of a key in it: TOML's values carry no positions."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines = text.split("\n")
        self._starts = [n for n, line in enumerate(self._lines) if line.strip().startswith("[[rule]]")]

    def at(self, rule: int | None, key: str = "", table: str = "", index: int = 0) -> str:
        """Give file and line of a key, else of what it stands in: the rule, or the table of that index in it."""
        if rule is None or rule >= len(self._starts):
            return self.name
        start = self._starts[rule]
        stop = self._starts[rule + 1] if rule + 1 < len(self._starts) else len(self._lines)
        tables = [number for number in range(start + 1, stop) if self._lines[number].strip().startswith("[[rule.")]
        named = [number for number in tables if self._lines[number].strip().startswith(f"[[rule.{table}]]")]
        if table:
            start = named[index] if index < len(named) else start
        for number in range(start, next((number for number in tables if number > start), stop)):
            if key and re.match(rf"\s*{re.escape(key)}\s*=", self._lines[number]):
                return f"{self.name}:{number + 1}"
        return f"{self.name}:{start + 1}"

    def message(self, rule: int | None, error: ValidationError, label: str = "") -> str:
        first = error.errors(include_url=False, include_input=False)[0]
        keys = [str(part) for part in first["loc"]]
        nested = (keys[0], int(keys[1])) if len(keys) > 1 and keys[0] in {"also", "part"} else ("", 0)
        around = self.at(rule, "", *nested)
        found = (self.at(rule, key, *nested) for key in reversed(keys) if not key.isdigit())
        where = next((place for place in found if place != around), around)
        return f"{where}: {label}{'.'.join(keys)}: {first['msg']}"


def _rule(raw: dict[str, Any], at: int, issuer: str, lines: _Lines) -> Rule:
    label = f"rule {raw['id']}: " if isinstance(raw.get("id"), str) else f"rule number {at + 1}: "
    try:
        given = _RuleIn.model_validate(raw)
    except ValidationError as error:
        raise RuleError(lines.message(at, error, label)) from None
    table, index = "", 0
    parts: list[Part] = []
    try:
        forms = [make_form(given)]
        examples, counterexamples = _proof(given)
        for index, form in enumerate(given.also):  # noqa: B007 - told where it fails
            table = "also"
            # What the rule excludes, its further forms exclude as well, unless they say otherwise.
            forms.append(make_form(form if form.exclude is not None else form.model_copy(update={"exclude": given.exclude})))
        for index, part in enumerate(given.part):  # noqa: B007
            table = "part"
            parts.append(_part(part))
            forms += [_alone(part)] if part.alone else []
    except regex.PatternError as error:
        key = str(error).partition(" ")[0].rstrip(":,")
        raise RuleError(f"{lines.at(at, key, table, index)}: {label}{error}") from None
    secret_type = given.secret_type or short.type_of(issuer)
    return Rule(
        id=given.id,
        name=given.name or short.name_of(issuer, given.id, secret_type),
        secret_type=secret_type,
        issuer=issuer,
        impact=Impact(given.impact),
        forms=tuple(forms),
        parts=tuple(parts),
        paths=tuple(given.paths),
        password=given.password,
        decode=given.decode,
        origin=lines.at(at, "pattern" if given.pattern else "value"),
        examples=tuple(examples),
        counterexamples=tuple(counterexamples),
    )


def make_form(given: _FormIn) -> Form:
    """Make the full pattern of a form: context word, gap, boundary, value, boundary."""
    given = _written_out(given)
    within = given.within or WITHIN
    if sum(map(bool, (given.context, given.near, given.after))) > 1:
        raise regex.PatternError("context, near and after exclude each other")
    if given.until:
        if not (given.near or given.after):
            raise regex.PatternError("until needs near or after")
        _compiles("until", given.until)
    if given.context and within > _WIDEST_GAP:
        raise regex.PatternError(f"within is at most {_WIDEST_GAP} with context")
    whole = _whole(given.pattern, given.context, within, judged=given.judge in LED_TO)
    if given.checksum is not None and given.checksum not in CHECKSUMS:
        raise regex.PatternError(f"checksum {given.checksum!r} is not known; known are {', '.join(sorted(CHECKSUMS))}")
    if given.exclude:
        _compiles("exclude", given.exclude)
    strength = Strength(given.strength) if given.strength else _strength(given)
    usual = Confidence.HIGH if strength in {Strength.CHECKSUM, Strength.PREFIX, Strength.STRUCTURED} else Confidence.MEDIUM
    form = own_form(
        whole,
        word=_word(given),
        longest=given.longest,
        strength=strength,
        confidence=Confidence(given.confidence) if given.confidence else usual,
        entropy=given.entropy or 0.0,
        checksum=given.checksum,
        exclude=given.exclude or None,
    )
    width, joining = _width(given) if form.whole else (0, "")
    before, after = within if given.near else 0, within if given.near or given.after else 0
    return replace(form, before=before, after=after, until=given.until or None, width=width, joining=joining, judge=given.judge)


def _width(given: _FormIn) -> tuple[int, str]:
    """Give the width of a value that is all of its pattern and always as wide, with what may not follow it; else 0."""
    if given.context or "(?P<secret>" in given.pattern or not _edge(given.pattern, last=False):
        return 0, ""
    last = regex.last_characters(given.pattern)
    return (regex.fixed_width(given.pattern), _joining(last)) if last <= _WORD | set(_JOINING) and last & _WORD else (0, "")


def _written_out(given: _FormIn) -> _FormIn:
    """Write the short form out: what it does not say itself is made from its word and value."""
    words, values = given.word, given.value
    if bool(given.pattern) == bool(values):
        raise regex.PatternError("pattern and value exclude each other" if values else "pattern or value is needed")
    if words and (given.context or given.near or given.after):
        raise regex.PatternError("word stands for context, near and after")
    if not (words or given.context or given.near or given.after or given.pattern or short.begins_alike(values)):
        raise regex.PatternError("value has no beginning of its own: it needs a word")
    made: dict[str, Any] = {}
    if words:
        made |= {"context": [short.context_of(words, tight=given.tight)], "within": given.within or short.BESIDE}
    if values:
        made |= {
            "pattern": short.pattern_of(values),
            "entropy": short.entropy_of(values) if given.entropy is None else given.entropy,
            "exclude": short.exclude_of(values) if given.exclude is None else given.exclude,
        }
    return given.model_copy(update=made)


def _proof(given: _RuleIn) -> tuple[list[str], list[str]]:
    """Give a rule's examples and counterexamples; those of the short form are made, and its own stand beside them."""
    words, values = given.word, given.value
    if not values or given.context or given.near or given.after or given.paths:
        return given.examples, given.counterexamples
    made = short.examples_of(given.id, words, values), short.counterexamples_of(given.id, words, values)
    return [*made[0], *given.examples], [*made[1], *given.counterexamples]


def _word(given: _FormIn) -> str | None:
    """Give the pattern of the words around which the values stand, where these are not part of the match or too much of it."""
    if given.word:
        return short.trigger_of(given.word, tight=given.tight)
    words = given.near or given.after
    for word in words:
        _compiles("near" if given.near else "after", word)
    return f"(?i:{'|'.join(words)})" if words else None


def own_form(
    whole: str,
    *,
    word: str | None = None,
    strength: Strength,
    confidence: Confidence,
    longest: int = 0,
    entropy: float = 0.0,
    checksum: str | None = None,
    exclude: str | None = None,
) -> Form:
    """Make a form of a full pattern that has its group `secret`."""
    _compiles("pattern", whole)
    found = _trigger(word or whole)
    return Form(
        regex=whole,
        trigger=found.pattern,
        trigger_min=found.min_width,
        trigger_max=found.max_width,
        longest=longest or regex.width(regex.parse(whole))[1],
        whole=found.whole and not word,
        strength=strength,
        confidence=confidence,
        entropy=entropy,
        checksum=checksum,
        exclude=exclude,
    )


def _strength(given: _FormIn) -> Strength:
    if given.checksum:
        return Strength.CHECKSUM
    if given.context or given.near or given.after:
        return Strength.CONTEXT
    prefixes = regex.literal_prefixes(given.pattern)
    return Strength.PREFIX if prefixes and min(map(len, prefixes)) >= 3 else Strength.STRUCTURED


def _whole(pattern: str, context: list[str], within: int, *, judged: bool = False) -> str:
    _compiles("pattern", pattern)
    for word in context:
        _compiles("context", word)
    if "(?P<secret>" in pattern or judged:
        before, value = "", pattern
    else:
        before, value = _edge(pattern, last=False), f"(?P<secret>{pattern}){_edge(pattern, last=True)}"
    if not context:
        return before + value
    before = before.replace("(?:^|", "(?:")  # a value after a word is not at the beginning
    return f"(?is:(?:{'|'.join(context)}).{{0,{within}}}?){before}{value}"


def _edge(pattern: str, *, last: bool) -> str:
    """Give what must stand beside a value so that it is not the middle of a longer one."""
    outer = regex.last_characters(pattern) if last else regex.first_characters(pattern)
    if outer - _WORD - set(_JOINING) and not outer & _WORD:
        return ""
    joining = "".join(f"\\{sign}" for sign in _joining(outer))
    # An escaped line break before a value, as in JSON strings, ends in a letter.
    return f"(?:$|[^0-9A-Za-z_{joining}])" if last else f"(?:^|[^0-9A-Za-z_{joining}]|\\\\[nrt])"


def _joining(characters: set[int]) -> str:
    return "".join(chr(c) for c in _JOINING if c in characters)


@lru_cache(maxsize=256)  # many rules exclude the same
def _compiles(key: str, pattern: str) -> None:
    try:
        regex.parse(pattern)
        compile_regex(pattern)
    except regex.PatternError as error:
        raise regex.PatternError(f"{key} {error}: {pattern[:80]}") from None


def _trigger(whole: str) -> regex.Trigger:
    try:
        return regex.trigger(whole)
    except regex.PatternError as error:
        raise regex.PatternError(f"pattern {error}: {whole[:80]}") from None


def _part(given: _PartIn) -> Part:
    return Part(name=given.name, regex=_whole(given.pattern, given.context, WITHIN), within=given.within, required=given.required)


def _alone(given: _PartIn) -> Form:
    return replace(make_form(_FormIn(pattern=given.pattern, context=given.context, checksum=given.checksum)), part=given.name)
