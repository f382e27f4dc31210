"""Load rules in the format of `gitleaks.toml`. Notes report everything in a file that has no effect.

1. Parse the file and those that it extends (`_parse_file`), and merge their rules (`_merge_rules`).
2. Collect notes on what has no effect (`_file_notes`, `_rule_notes`).
3. Make a rule of each table that has a `regex` (`_make_rule`), and give them different ids (`_number_ids`).
"""

import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outcrop.domain.finding import Confidence
from outcrop.lazy_regex import regex
from outcrop.scanner.patterns.go_regex import name_secret_group, translate_go_regex
from outcrop.scanner.patterns.re2_match import compile_regex
from outcrop.scanner.patterns.regex_ast import PatternError
from outcrop.scanner.rules.allowlist import Allowlist
from outcrop.scanner.rules.form_builder import make_regex_form
from outcrop.scanner.rules.gitleaks_files import MAX_EXTENDED_FILES, list_extended_files, lower_keys
from outcrop.scanner.rules.model import GITLEAKS_ISSUER, Impact, Rule, RuleError, Strength

_RULE_HEADING = regex(r"\s*\[\[\s*rules\s*\]\]", re.IGNORECASE)
# Keys of a rule that replace those of the rule that it extends.
_REPLACED_KEYS = ("description", "regex", "path", "secretgroup", "entropy")
_MAX_ID = 80  # characters, as in our own rule files
_MAX_NAME = 120


class _GitleaksTable(BaseModel):
    """A table of the file. Its keys are in lower case: gitleaks ignores case. Unknown keys are noted."""

    model_config = ConfigDict(extra="allow", strict=True)


class _AllowlistTable(_GitleaksTable):
    """`[[allowlists]]` of the file or of a rule."""

    description: str = ""
    condition: str = Field("", pattern=r"(?i)^(and|or|&&|\|\||)$")
    commits: list[str] = []
    paths: list[str] = []
    regextarget: Literal["", "secret", "match", "line"] = ""
    regexes: list[str] = []
    stopwords: list[str] = []
    targetrules: list[str] = []


class _RuleTable(_GitleaksTable):
    """`[[rules]]`."""

    id: str = ""
    description: str = ""
    regex: str = ""
    path: str = ""
    secretgroup: int = Field(0, ge=0)
    entropy: float = 0
    keywords: list[str] = []
    tags: list[str] = []
    allowlist: _AllowlistTable | None = None
    allowlists: list[_AllowlistTable] = []
    required: list[dict[str, Any]] = []
    skipreport: bool = False


class _ExtendTable(_GitleaksTable):
    """`[extend]`."""

    path: str = ""
    usedefault: bool = False
    disabledrules: list[str] = []


class _FileTable(_GitleaksTable):
    """The whole file."""

    title: str = ""
    description: str = ""
    minversion: str = ""
    extend: _ExtendTable = _ExtendTable()
    rules: list[dict[str, Any]] = []
    allowlist: _AllowlistTable | None = None
    allowlists: list[_AllowlistTable] = []


class GitleaksConfig(NamedTuple):
    """The rules of a configuration, and notes on what in it has no effect."""

    rules: list[Rule]
    notes: list[str]


class _LocatedRule(NamedTuple):
    """The table of a rule, with file and line."""

    origin: str
    table: _RuleTable

    @property
    def is_reported(self) -> bool:
        """Whether the rule has a regular expression and its matches are reported (no `skipReport`)."""
        return bool(self.table.regex) and not self.table.skipreport


class _ParsedFile(NamedTuple):
    """One file: its keys, its rules by id, and notes on its unknown keys."""

    table: _FileTable
    rules: dict[str, _LocatedRule]
    notes: list[str]


def load_gitleaks_config(path: Path) -> GitleaksConfig:
    """Return the rules of a configuration and of the files that it extends, with notes on what has no effect.

    Raise RuleError if a file is wrong.
    """
    files = [_parse_file(file) for file in (path, *list_extended_files(path))]
    rules = files[-1].rules
    for file in reversed(files[:-1]):
        rules = _merge_rules(file, rules)
    notes = [note for file in files for note in file.notes]
    notes += _file_notes(path, files, rules)
    notes += (note for rule in rules.values() for note in _rule_notes(rule))
    file_allowlists = [allowlist for file in files for allowlist in _allowlists_of(file.table)]
    made = [_make_rule(rule, file_allowlists) for rule in rules.values() if rule.is_reported]
    return GitleaksConfig(_number_ids(made), notes)


def _parse_file(path: Path) -> _ParsedFile:
    """Return the parsed file; raise RuleError, with file, line and rule, if it is wrong.

    A rule without an id is called `rule-` and its number. Of two rules with the same id the last one counts.
    """
    text = _read_text(path)
    file = _parse_tables(path, text)
    if file.extend.path and file.extend.usedefault:
        raise RuleError(f"{path}: extend.path and extend.useDefault cannot be used together")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if _RULE_HEADING.match(line)]
    rules: dict[str, _LocatedRule] = {}
    notes: list[str] = []
    for number, raw in enumerate(file.rules):
        origin = f"{path}:{lines[number]}" if number < len(lines) else str(path)
        rule, rule_notes = _parse_rule(raw, str(raw.get("id") or f"rule-{number + 1}"), origin)
        rules[rule.id] = _LocatedRule(origin, rule)
        notes += rule_notes
    notes += (f"{path}: {key}: unknown key, ignored" for key in _unknown_keys(file))
    return _ParsedFile(file, rules, notes)


def _read_text(path: Path) -> str:
    """Return the text of a file; raise RuleError if it cannot be read or is not UTF-8."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise RuleError(f"{path}: is not UTF-8") from None
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror}") from None


def _parse_tables(path: Path, text: str) -> _FileTable:
    """Return the tables of a file, those of its rules not yet validated; raise RuleError if one is wrong.

    All keys are in lower case.
    """
    try:
        return _FileTable.model_validate(lower_keys(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"{path}: {error}") from None
    except ValidationError as error:
        raise RuleError(f"{path}: {_describe_error(error)}") from None
    except ValueError:
        raise RuleError(f"{path}: has a number with too many digits") from None
    except RecursionError:
        raise RuleError(f"{path}: is nested too deeply") from None


def _parse_rule(raw: dict[str, Any], rule_id: str, origin: str) -> tuple[_RuleTable, list[str]]:
    """Return the table of a rule, and notes on its keys that are ignored; raise RuleError if a key is wrong.

    `raw` is the table as parsed, with keys in lower case; `rule_id` replaces its id. `origin` is file and
    line, for messages.
    """
    try:
        rule = _RuleTable.model_validate(raw | {"id": rule_id})
    except ValidationError as error:
        raise RuleError(f"{origin}: rule {rule_id}: {_describe_error(error)}") from None
    notes = []
    if math.isnan(rule.entropy):  # no value has so much entropy: the rule would find nothing
        notes.append(f"{origin}: rule {rule_id}: entropy: is not a number and is ignored")
        rule = rule.model_copy(update={"entropy": 0.0})
    notes += [f"{origin}: rule {rule_id}: {key}: unknown key, ignored" for key in _unknown_keys(rule)]
    return rule, notes


def _describe_error(error: ValidationError) -> str:
    """Return key and reason of the first error of pydantic."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _unknown_keys(table: _RuleTable | _FileTable) -> list[str]:
    """Return the unknown keys of a table and of its allowlists."""
    in_allowlists = (key for allowlist in _allowlists_of(table) for key in allowlist.model_extra or ())
    return [*(table.model_extra or ()), *in_allowlists]


def _allowlists_of(table: _RuleTable | _FileTable) -> list[_AllowlistTable]:
    """Return the allowlists of a rule or file: gitleaks reads both `allowlist` and `allowlists`."""
    return [*([table.allowlist] if table.allowlist else []), *table.allowlists]


def _merge_rules(file: _ParsedFile, base: dict[str, _LocatedRule]) -> dict[str, _LocatedRule]:
    """Return the rules of `file` and those of `base` that `file` does not disable, by id.

    `base` has the rules of the file that `file` extends. A rule of `file` with the id of one of `base`
    extends that rule.
    """
    disabled = file.table.extend.disabledrules
    merged = {rule_id: rule for rule_id, rule in base.items() if rule_id not in disabled}
    for rule_id, rule in file.rules.items():
        if rule_id in merged:
            merged[rule_id] = _LocatedRule(rule.origin, _extend_rule(rule.table, merged[rule_id].table))
        else:
            merged[rule_id] = rule
    return merged


def _extend_rule(rule: _RuleTable, base: _RuleTable) -> _RuleTable:
    """Return `base` with the keys of _REPLACED_KEYS that `rule` sets, and allowlists and keywords of both."""
    replaced = {key: getattr(rule, key) for key in _REPLACED_KEYS if getattr(rule, key)}
    joined = {
        "allowlist": None,
        "allowlists": [*_allowlists_of(base), *_allowlists_of(rule)],
        "keywords": [*base.keywords, *rule.keywords],
    }
    return base.model_copy(update=replaced | joined)


def _file_notes(path: Path, files: Sequence[_ParsedFile], rules: dict[str, _LocatedRule]) -> Iterator[str]:
    """Yield notes on keys of the files that have no effect, or not the expected one.

    `path` is the first of the files; `rules` are the merged rules of all of them, by id.
    """
    not_read = files[-1].table.extend.path
    if len(files) > MAX_EXTENDED_FILES and not_read:
        yield f"{path}: extends more than {MAX_EXTENDED_FILES} files: {not_read} is not read"
    if any(file.table.extend.usedefault and file.table.extend.disabledrules for file in files):
        yield (
            f"{path}: extend.disabledRules: ignored, the built-in rules replace those of gitleaks "
            "and are all enabled"
        )
    allowlists = [allowlist for file in files for allowlist in _allowlists_of(file.table)]
    if any(not allowlist.targetrules for allowlist in allowlists):
        yield (
            f"{path}: its allowlists apply to its own rules, not to the built-in ones; "
            ".outcropignore excludes paths for all rules"
        )
    targets = {rule_id for allowlist in allowlists for rule_id in allowlist.targetrules}
    for rule_id in sorted(targets - rules.keys()):
        yield f"{path}: targetRules: there is no rule {rule_id} in this file"


def _rule_notes(rule: _LocatedRule) -> Iterator[str]:
    """Yield at most one note: the rule finds nothing, as it has no `regex`; or its key `required` is ignored.

    Yield nothing for a rule with `skipReport`.
    """
    where = f"{rule.origin}: rule {rule.table.id}"
    if rule.table.skipreport:
        return
    if not rule.table.regex:
        reason = (
            "has a path but no regex" if rule.table.path else "changes a rule of gitleaks that is not here"
        )
        yield f"{where}: {reason}: it finds nothing"
    elif rule.table.required:
        yield f"{where}: required: is ignored, the rule reports its matches alone"


def _make_rule(rule: _LocatedRule, file_allowlists: list[_AllowlistTable]) -> Rule:
    """Return the rule of a table; raise RuleError if a pattern cannot be used.

    It gets its own allowlists, and those of `file_allowlists` that name it in `targetRules` or name no rule.
    """
    table = rule.table
    of_files = [
        allowlist for allowlist in file_allowlists if table.id in (allowlist.targetrules or [table.id])
    ]
    try:
        form = make_regex_form(
            name_secret_group(translate_go_regex(table.regex), table.secretgroup),
            strength=Strength.CONTEXT,
            confidence=Confidence.HIGH,
            min_entropy=table.entropy,
            keywords=tuple(word.lower() for word in table.keywords),
        )
        allowlists = tuple(_make_allowlist(allowlist) for allowlist in [*_allowlists_of(table), *of_files])
        path_regex = _join_patterns([table.path] if table.path else [])
    except PatternError as error:
        raise RuleError(f"{rule.origin}: rule {table.id}: {error}") from None
    rule_id = re.sub(r"[^a-z0-9_-]", "-", table.id.lower())[:_MAX_ID]
    return Rule(
        id=rule_id,
        name=(table.description or table.id)[:_MAX_NAME],
        secret_type=rule_id,
        issuer=GITLEAKS_ISSUER,
        origin=rule.origin,
        impact=Impact.MEDIUM,
        forms=(form,),
        path_regex=path_regex,
        allowlists=allowlists,
    )


def _make_allowlist(table: _AllowlistTable) -> Allowlist:
    """Return the allowlist of a table; raise PatternError if a pattern cannot be used."""
    return Allowlist(
        needs_all=table.condition.upper() in {"AND", "&&"},
        path_regex=_join_patterns(table.paths),
        commits=tuple(commit.strip().lower() for commit in table.commits),
        regex=_join_patterns(table.regexes),
        regex_target=table.regextarget or "secret",
        stopwords=tuple(word.lower() for word in table.stopwords),
    )


def _join_patterns(patterns: list[str]) -> str:
    """Return one regular expression that matches what any of the Go patterns matches; "" without patterns.

    Raise PatternError if a pattern cannot be used.
    """
    joined = "|".join(f"(?:{translate_go_regex(pattern)})" for pattern in patterns)
    if joined:
        compile_regex(joined)
    return joined


def _number_ids(rules: list[Rule]) -> list[Rule]:
    """Return the rules with a number added to each id that an earlier rule has.

    Two ids of gitleaks can differ in characters that ours do not have: capital letters, spaces, dots.
    """
    used = {rule.id for rule in rules}
    by_id: dict[str, Rule] = {}
    for rule in rules:
        rule_id = rule.id
        if rule_id in by_id:
            candidates = (f"{rule.id[: _MAX_ID - len(str(n)) - 1]}-{n}" for n in count(2))
            rule_id = next(candidate for candidate in candidates if candidate not in used)
            used.add(rule_id)
        by_id[rule_id] = rule._replace(id=rule_id)
    return list(by_id.values())
