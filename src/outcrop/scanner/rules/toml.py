"""Load rules from rule files in TOML; errors name the file, the line and the rule.

1. Parse the file (`parse_rule_file`) and fill its `<<pieces>>` into the patterns (`_fill_rule`).
2. Validate each rule's table, and build its forms and companions (`_make_rule`).
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from outcrop.scanner.patterns.regex_ast import PatternError
from outcrop.scanner.rules import shorthand
from outcrop.scanner.rules.advice import AdviceText, RevokeUrl
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

_COMPANION_DISTANCE = 600  # characters between a secret and its companion, unless `within` is given
_KEYS_WITH_PIECES = {"pattern", "exclude", "trigger"}
_NESTED_TABLES = ("also", "part")


class _CompanionTable(StrictTable):
    """`[[rule.part]]`."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    pattern: str = Field(min_length=1)
    context: list[str] = []
    within: int = Field(_COMPANION_DISTANCE, ge=1, le=8_000)
    required: bool = False
    alone: bool = False
    checksum: str | None = None


class _RuleTable(FormTable):
    """`[[rule]]`: the keys of the rule, and those of its first form."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=80)
    name: str | None = Field(None, min_length=1, max_length=120)
    secret_type: str | None = Field(None, pattern=r"^[a-z][a-z0-9_-]*$", max_length=80)
    impact: Literal["critical", "high", "medium", "low"] = "medium"
    password: bool = False
    decode: Literal["base64"] | None = None
    paths: list[str] = []
    further_forms: list[FormTable] = Field([], alias="also")
    part: list[_CompanionTable] = []
    check: Checks = ()  # only validated here, and read by `check_spec.load_checks`
    revoke: RevokeUrl | None = None  # only validated here, as is `advice`, and read by `advice.find_advice`
    advice: AdviceText | None = None
    examples: list[str] = []
    counterexamples: list[str] = []


class _FileTable(StrictTable):
    """A rule file."""

    issuer: str = Field(min_length=1, max_length=80)
    let: dict[str, str] = {}  # name -> piece of a pattern
    revoke: RevokeUrl | None = None
    advice: AdviceText | None = None
    rule: list[dict[str, Any]] = Field(min_length=1)


def load_rule_files(paths: Sequence[Path]) -> list[Rule]:
    """Return the rules of all rule files at these paths, which are files and folders.

    Raise RuleError if a file is wrong or two rules have the same id.
    """
    files = (file for path in paths for file in list_rule_files(path))
    return check_unique_ids(rule for file in files for rule in parse_rule_file(_read_text(Path(file)), file))


def check_unique_ids(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules; raise RuleError if two have the same id."""
    by_id: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in by_id:
            raise RuleError(f"{rule.origin}: rule {rule.id}: is already defined in {by_id[rule.id].origin}")
        by_id[rule.id] = rule
    return list(by_id.values())


def _read_text(path: Path) -> str:
    """Return the text of a file; raise RuleError if it cannot be read or is not UTF-8."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise RuleError(f"{path}: is not UTF-8") from None
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror}") from None


def parse_rule_file(text: str, name: str) -> list[Rule]:
    """Return the rules in the text of a rule file; raise RuleError if it is wrong.

    `name` is the file's name, for messages.
    """
    data = _parse_toml(text, name)
    if "rules" in data and "rule" not in data:
        raise RuleError(
            f"{name}: has [[rules]] but no [[rule]]: use --gitleaks-config for a gitleaks configuration"
        )
    lines = _RuleFileLines(text, name)
    try:
        file = _FileTable.model_validate(data)
    except ValidationError as error:
        raise RuleError(lines.describe_error(None, error)) from None
    pieces = _fill_pieces(file.let)
    return [
        _make_rule(_fill_rule(table, pieces), number, file.issuer, lines)
        for number, table in enumerate(file.rule)
    ]


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    """Return the tables of a TOML text; raise RuleError if it is wrong.

    `name` is the file's name, for the message.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, position = str(error).removesuffix(")").partition(" (at line ")
        line = position.partition(",")[0] or text.count("\n") + 1
        raise RuleError(f"{name}:{line}: {message}") from None
    except ValueError:
        raise RuleError(f"{name}: has a number with too many digits") from None
    except RecursionError:
        raise RuleError(f"{name}: is nested too deeply") from None


def _fill_pieces(pieces: dict[str, str]) -> dict[str, str]:
    """Return the pieces of `[let]` with `<<name>>` in them replaced by the earlier piece of that name."""
    filled: dict[str, str] = {}
    for name, piece in pieces.items():
        filled[name] = _fill_pattern(piece, filled)
    return filled


def _fill_rule(table: dict[str, Any], pieces: dict[str, str]) -> dict[str, Any]:
    """Return the table of a rule, form or companion with the pieces filled into its patterns.

    The tables of forms and companions inside it are filled too.
    """
    filled = {
        key: _fill_pattern(value, pieces) if key in _KEYS_WITH_PIECES else value
        for key, value in table.items()
    }
    for key in _NESTED_TABLES:
        if isinstance(table.get(key), list):
            filled[key] = [
                _fill_rule(nested, pieces) if isinstance(nested, dict) else nested for nested in table[key]
            ]
    return filled


def _fill_pattern(pattern: Any, pieces: dict[str, str]) -> Any:
    """Return a pattern with `<<name>>` replaced by the piece of that name; unknown names stay.

    Anything that is no text is returned as it is.
    """
    if not isinstance(pattern, str):
        return pattern
    return re.sub(r"<<(\w+)>>", lambda match: pieces.get(match[1], match[0]), pattern)


class _RuleFileLines:
    """The lines of a rule file, to find those of rules and keys: parsed TOML has no positions."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines = text.split("\n")
        self._rule_starts = [
            number for number, line in enumerate(self._lines) if re.match(r"\s*\[\[\s*rule\s*\]\]", line)
        ]

    def locate(self, rule: int | None, key: str = "", table: str = "", index: int = 0) -> str:
        """Return file and line of a key of the rule with this number; of the rule if the key is not found.

        With `table` and `index` the key is in that nested table (`[[rule.also]]`, `[[rule.part]]`). Without
        `key`, return the line of the rule or nested table. Return the file alone if `rule` is None or not
        found.
        """
        if rule is None or rule >= len(self._rule_starts):
            return self.name
        start, *next_rules = self._rule_starts[rule:]
        stop = next_rules[0] if next_rules else len(self._lines)
        nested = [number for number in range(start + 1, stop) if self._has_heading(number, "[[rule.")]
        if table:
            same_table = [number for number in nested if self._has_heading(number, f"[[rule.{table}]]")]
            start = same_table[index] if index < len(same_table) else start
        stop = next((number for number in nested if number > start), stop)
        if key:
            for number in range(start, stop):
                if re.match(rf"\s*{re.escape(key)}\s*=", self._lines[number]):
                    return f"{self.name}:{number + 1}"
        return f"{self.name}:{start + 1}"

    def _has_heading(self, number: int, heading: str) -> bool:
        """Whether the line with this number begins with this heading of a table."""
        return self._lines[number].strip().startswith(heading)

    def describe_error(self, rule: int | None, error: ValidationError, label: str = "") -> str:
        """Return a message for the first error of pydantic: file, line, `label`, key and reason.

        `rule` is the number of the rule, None for an error of the file itself.
        """
        first = error.errors(include_url=False, include_input=False)[0]
        keys = [str(part) for part in first["loc"]]
        nested = (keys[0], int(keys[1])) if len(keys) > 1 and keys[0] in _NESTED_TABLES else ("", 0)
        table_line = self.locate(rule, "", *nested)
        key_lines = (self.locate(rule, key, *nested) for key in reversed(keys) if not key.isdigit())
        line = next((line for line in key_lines if line != table_line), table_line)
        return f"{line}: {label}{'.'.join(keys)}: {first['msg']}"


@contextmanager
def _locate_errors(
    lines: _RuleFileLines, rule: int, label: str, table: str = "", index: int = 0
) -> Iterator[None]:
    """Turn a PatternError in the body of the `with` statement into a RuleError with the line of its key.

    The message of the error begins with that key. `rule` is the number of the rule; `table` and `index` name
    a nested table. `label` is put before the message.
    """
    try:
        yield
    except PatternError as error:
        key = str(error).partition(" ")[0].rstrip(":,")
        raise RuleError(f"{lines.locate(rule, key, table, index)}: {label}{error}") from None


def _make_rule(raw: dict[str, Any], number: int, issuer: str, lines: _RuleFileLines) -> Rule:
    """Return the rule of the table `raw`; raise RuleError if it is wrong.

    `number` is that of the rule in its file. `lines` and `issuer` are those of the file.
    """
    label = f"rule {raw['id']}: " if isinstance(raw.get("id"), str) else f"rule number {number + 1}: "
    try:
        table = _RuleTable.model_validate(raw)
    except ValidationError as error:
        raise RuleError(lines.describe_error(number, error, label)) from None
    locate_errors = partial(_locate_errors, lines, number, label)
    with locate_errors():
        forms = [make_form(table)]
        examples, counterexamples = _collect_examples(table)
    for index, form in enumerate(table.further_forms):
        with locate_errors("also", index):
            forms.append(make_form(_inherit_exclude(form, table)))
    companions: list[CompanionSpec] = []
    for index, companion in enumerate(table.part):
        with locate_errors("part", index):
            companions.append(_make_companion(companion, companions))
            if companion.alone:
                forms.append(_make_companion_form(companion))
    secret_type = table.secret_type or shorthand.default_secret_type(issuer)
    return Rule(
        id=table.id,
        name=table.name or shorthand.default_name(issuer, table.id, secret_type),
        secret_type=secret_type,
        issuer=issuer,
        impact=Impact(table.impact),
        forms=tuple(forms),
        companions=tuple(companions),
        paths=tuple(table.paths),
        password=table.password,
        decode=table.decode,
        origin=lines.locate(number, "pattern" if table.pattern else "value"),
        examples=tuple(examples),
        counterexamples=tuple(counterexamples),
    )


def _inherit_exclude(form: FormTable, rule: _RuleTable) -> FormTable:
    """Return a further form of a rule, with the rule's `exclude` unless it has its own."""
    return form if form.exclude is not None else form.model_copy(update={"exclude": rule.exclude})


def _collect_examples(table: _RuleTable) -> tuple[list[str], list[str]]:
    """Return a rule's examples and counterexamples.

    They begin with generated ones for a rule with `value`, unless it has context words or paths of its own.
    """
    if not table.value or table.context or table.near or table.after or table.paths:
        return table.examples, table.counterexamples
    examples = shorthand.make_examples(table.id, table.word, table.value)
    counterexamples = shorthand.make_counterexamples(table.id, table.word, table.value)
    return [*examples, *table.examples], [*counterexamples, *table.counterexamples]


def _make_companion(table: _CompanionTable, previous: list[CompanionSpec]) -> CompanionSpec:
    """Return the companion of a table; raise PatternError if its pattern is wrong or its name is taken.

    `previous` are the companions of the rule that were made before.
    """
    if table.name in {companion.name for companion in previous}:
        raise PatternError(f"name {table.name} is used by another part")
    return CompanionSpec(
        name=table.name,
        regex=make_companion_regex(table.pattern, table.context),
        within=table.within,
        required=table.required,
    )


def _make_companion_form(table: _CompanionTable) -> CredentialForm:
    """Return the form that reports a companion alone, when no secret is near.

    Raise PatternError if the table is wrong.
    """
    form = make_form(FormTable(pattern=table.pattern, context=table.context, checksum=table.checksum))
    return form._replace(companion=table.name)
