"""Rule files into rules: TOML is read and checked, with a message that names file, line and rule."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from outcrop.scanner.patterns import regex_ast
from outcrop.scanner.rules import shorthand
from outcrop.scanner.rules.advice import Revoke, Words
from outcrop.scanner.rules.check_spec import Checks
from outcrop.scanner.rules.form_builder import FormTable, StrictTable, make_companion_regex, make_form
from outcrop.scanner.rules.model import (
    CompanionSpec,
    CredentialForm,
    Impact,
    Rule,
    RuleError,
    list_rule_files,
)

PAIR_WITHIN = 600  # characters between the parts of one credential


class _PartIn(StrictTable):
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    pattern: str = Field(min_length=1)
    context: list[str] = []
    within: int = Field(PAIR_WITHIN, ge=1, le=8_000)
    required: bool = False
    alone: bool = False
    checksum: str | None = None


class _RuleIn(FormTable):
    id: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=80)
    name: str | None = Field(None, min_length=1, max_length=120)
    secret_type: str | None = Field(None, pattern=r"^[a-z][a-z0-9_-]*$", max_length=80)
    impact: Literal["critical", "high", "medium", "low"] = "medium"
    password: bool = False
    decode: Literal["base64"] | None = None
    paths: list[str] = []
    also: list[FormTable] = []
    part: list[_PartIn] = []
    check: Checks = ()
    revoke: Revoke | None = (
        None  # these two are read where they are needed (scanner/rules/advice.py), and only checked here
    )
    advice: Words | None = None
    examples: list[str] = []
    counterexamples: list[str] = []


class _FileIn(StrictTable):
    issuer: str = Field(min_length=1, max_length=80)
    let: dict[str, str] = {}  # pieces that patterns of this file share
    revoke: Revoke | None = None
    advice: Words | None = None
    rule: list[dict[str, Any]] = Field(min_length=1)


def load_rule_files(paths: Sequence[Path]) -> list[Rule]:
    """Load rule files, and folders of them, in the order of their names."""
    return check_unique_ids(
        rule
        for path in paths
        for file in list_rule_files(path)
        for rule in parse_rule_file(_read(Path(file)), file)
    )


def check_unique_ids(rules: Iterable[Rule]) -> list[Rule]:
    """Refuse an id that comes twice."""
    seen: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in seen:
            raise RuleError(f"{rule.origin}: rule {rule.id}: is already defined in {seen[rule.id].origin}")
        seen[rule.id] = rule
    return list(seen.values())


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise RuleError(f"{path}: is not UTF-8") from None
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror}") from None


def parse_rule_file(text: str, name: str) -> list[Rule]:
    """Load the rules of one file's text."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, line = str(error).removesuffix(")").partition(" (at line ")
        raise RuleError(f"{name}:{line.partition(',')[0] or text.count(chr(10)) + 1}: {message}") from None
    except ValueError:
        raise RuleError(f"{name}: has a number of too many digits") from None
    except RecursionError:
        raise RuleError(f"{name}: is nested too deeply") from None
    lines = _Lines(text, name)
    if "rules" in data and "rule" not in data:
        raise RuleError(
            f"{name}: has [[rules]] and no [[rule]]: a configuration of gitleaks is read by --gitleaks-config"
        )
    try:
        file = _FileIn.model_validate(data)
    except ValidationError as error:
        raise RuleError(lines.message(None, error)) from None
    pieces = _pieces(file.let)
    return [_rule(_with_pieces(raw, pieces), at, file.issuer, lines) for at, raw in enumerate(file.rule)]


def _with_pieces(raw: dict[str, Any], pieces: dict[str, str]) -> dict[str, Any]:
    """Put the file's pieces into the patterns that name them as <<piece>>."""
    whole = {
        key: _filled(value, pieces) if key in {"pattern", "exclude", "trigger"} else value
        for key, value in raw.items()
    }
    for table in ("also", "part"):
        if isinstance(raw.get(table), list):
            whole[table] = [
                _with_pieces(inner, pieces) if isinstance(inner, dict) else inner for inner in raw[table]
            ]
    return whole


def _pieces(given: dict[str, str]) -> dict[str, str]:
    """Put pieces into the pieces that name them: each may name those above it."""
    made: dict[str, str] = {}
    for name, piece in given.items():
        made[name] = _filled(piece, made)
    return made


def _filled(pattern: Any, pieces: dict[str, str]) -> Any:
    return (
        re.sub(r"<<(\w+)>>", lambda match: pieces.get(match[1], match[0]), pattern)
        if isinstance(pattern, str)
        else pattern
    )


class _Lines:
    """Finds the line of a rule, and of a key in it: TOML's values carry no positions."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines = text.split("\n")
        self._starts = [n for n, line in enumerate(self._lines) if re.match(r"\s*\[\[\s*rule\s*\]\]", line)]

    def at(self, rule: int | None, key: str = "", table: str = "", index: int = 0) -> str:
        """Give file and line of a key, else of what it stands in: the rule, or the table of that index in it."""
        if rule is None or rule >= len(self._starts):
            return self.name
        start = self._starts[rule]
        stop = self._starts[rule + 1] if rule + 1 < len(self._starts) else len(self._lines)
        tables = [
            number for number in range(start + 1, stop) if self._lines[number].strip().startswith("[[rule.")
        ]
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
    parts: list[CompanionSpec] = []
    try:
        forms = [make_form(given)]
        examples, counterexamples = _proof(given)
        for index, form in enumerate(given.also):  # noqa: B007 - told where it fails
            table = "also"
            # What the rule excludes, its further forms exclude as well, unless they say otherwise.
            forms.append(
                make_form(
                    form if form.exclude is not None else form.model_copy(update={"exclude": given.exclude})
                )
            )
        for index, part in enumerate(given.part):  # noqa: B007
            table = "part"
            parts.append(_part(part, parts))
            forms += [_alone(part)] if part.alone else []
    except regex_ast.PatternError as error:
        key = str(error).partition(" ")[0].rstrip(":,")
        raise RuleError(f"{lines.at(at, key, table, index)}: {label}{error}") from None
    secret_type = given.secret_type or shorthand.default_secret_type(issuer)
    return Rule(
        id=given.id,
        name=given.name or shorthand.default_name(issuer, given.id, secret_type),
        secret_type=secret_type,
        issuer=issuer,
        impact=Impact(given.impact),
        forms=tuple(forms),
        companions=tuple(parts),
        paths=tuple(given.paths),
        password=given.password,
        decode=given.decode,
        origin=lines.at(at, "pattern" if given.pattern else "value"),
        examples=tuple(examples),
        counterexamples=tuple(counterexamples),
    )


def _proof(given: _RuleIn) -> tuple[list[str], list[str]]:
    """Give a rule's examples and counterexamples; those of the short form are made, and its own stand beside them."""
    words, values = given.word, given.value
    if not values or given.context or given.near or given.after or given.paths:
        return given.examples, given.counterexamples
    made = (
        shorthand.make_examples(given.id, words, values),
        shorthand.make_counterexamples(given.id, words, values),
    )
    return [*made[0], *given.examples], [*made[1], *given.counterexamples]


def _part(given: _PartIn, before: list[CompanionSpec]) -> CompanionSpec:
    if given.name in {part.name for part in before}:
        raise regex_ast.PatternError(f"name {given.name} is another part's")
    return CompanionSpec(
        name=given.name,
        regex=make_companion_regex(given.pattern, given.context),
        within=given.within,
        required=given.required,
    )


def _alone(given: _PartIn) -> CredentialForm:
    return make_form(
        FormTable(pattern=given.pattern, context=given.context, checksum=given.checksum)
    )._replace(companion=given.name)
