"""Rules in the format of `gitleaks.toml`, so that people keep what they have written. What cannot be kept is told in notes."""

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outcrop.domain.finding import Confidence
from outcrop.scanner.patterns.go_regex import name_secret_group, translate_go_regex
from outcrop.scanner.patterns.re2_match import compile_regex
from outcrop.scanner.patterns.regex_ast import PatternError
from outcrop.scanner.rules.allowlist import Allowlist
from outcrop.scanner.rules.form_builder import make_regex_form
from outcrop.scanner.rules.gitleaks_files import MAX_EXTENDED_FILES, list_extended_files, lower_keys
from outcrop.scanner.rules.model import Impact, Rule, RuleError, Strength

_HEADING = re.compile(r"\s*\[\[\s*rules\s*\]\]", re.IGNORECASE)
_REPLACED = (
    "description",
    "regex",
    "path",
    "secretgroup",
    "entropy",
)  # what a rule that extends another says instead of it
_LONGEST_ID = 80


class _Table(BaseModel):
    """A table of the file. Its keys are in small letters: gitleaks does not tell cases apart."""

    model_config = ConfigDict(extra="allow", strict=True)


class _AllowIn(_Table):
    description: str = ""
    condition: str = Field("", pattern=r"(?i)^(and|or|&&|\|\||)$")
    commits: list[str] = []
    paths: list[str] = []
    regextarget: Literal["", "secret", "match", "line"] = ""
    regexes: list[str] = []
    stopwords: list[str] = []
    targetrules: list[str] = []


class _RuleIn(_Table):
    id: str = ""
    description: str = ""
    regex: str = ""
    path: str = ""
    secretgroup: int = Field(0, ge=0)
    entropy: float = 0
    keywords: list[str] = []
    tags: list[str] = []
    allowlist: _AllowIn | None = None
    allowlists: list[_AllowIn] = []
    required: list[dict[str, Any]] = []
    skipreport: bool = False


class _ExtendIn(_Table):
    path: str = ""
    usedefault: bool = False
    disabledrules: list[str] = []


class _FileIn(_Table):
    title: str = ""
    description: str = ""
    minversion: str = ""
    extend: _ExtendIn = _ExtendIn()
    rules: list[dict[str, Any]] = []
    allowlist: _AllowIn | None = None
    allowlists: list[_AllowIn] = []


class GitleaksConfig(NamedTuple):
    rules: list[Rule]
    notes: list[str]  # what the file says and is not done


class _Read(NamedTuple):
    """One file: what it says of all rules, and its rules by id, each with its place."""

    file: _FileIn
    rules: dict[str, tuple[str, _RuleIn]]


def load_gitleaks_config(path: Path) -> GitleaksConfig:
    """Load the rules of a configuration and of those it extends."""
    notes: list[str] = []
    read = [_read(file, notes) for file in (path, *list_extended_files(path))]
    if len(read) > MAX_EXTENDED_FILES and read[-1].file.extend.path:
        notes.append(
            f"{path}: extends more than {MAX_EXTENDED_FILES} files: {read[-1].file.extend.path} is not read"
        )
    rules = read[-1].rules
    for upper in reversed(read[:-1]):
        rules = _over(upper, rules)
    lists = [one for each in read for one in _lists(each.file)]
    _note_file(path, read, rules, notes)
    made = [_rule(at, rule, lists) for at, rule in rules.values() if _is_used(at, rule, notes)]
    return GitleaksConfig(_told_apart(made), notes)


def _told_apart(rules: list[Rule]) -> list[Rule]:
    """Number the later of rules whose ids differ only in what our ids do not have: capitals, spaces, dots."""
    taken = {rule.id for rule in rules}
    apart: dict[str, Rule] = {}
    for rule in rules:
        id_ = rule.id
        if id_ in apart:
            numbered = (f"{rule.id[: _LONGEST_ID - len(str(n)) - 1]}-{n}" for n in count(2))
            id_ = next(one for one in numbered if one not in taken)
            taken.add(id_)
        apart[id_] = rule._replace(id=id_)
    return list(apart.values())


def _read(path: Path, notes: list[str]) -> _Read:
    try:
        text = path.read_text("utf-8-sig")
        data = lower_keys(tomllib.loads(text))
        file = _FileIn.model_validate(data)
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: {getattr(error, 'strerror', None) or 'is not UTF-8'}") from None
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"{path}: {error}") from None
    except ValidationError as error:
        raise RuleError(f"{path}: {_fault(error)}") from None
    except ValueError:
        raise RuleError(f"{path}: has a number of too many digits") from None
    except RecursionError:
        raise RuleError(f"{path}: is nested too deeply") from None
    if file.extend.path and file.extend.usedefault:
        raise RuleError(f"{path}: extend.path and extend.useDefault exclude each other")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if _HEADING.match(line)]
    rules: dict[str, tuple[str, _RuleIn]] = {}
    for number, raw in enumerate(file.rules):
        name = str(raw.get("id") or f"rule-{number + 1}")
        at = f"{path}:{lines[number]}" if number < len(lines) else str(path)
        try:
            rule = _RuleIn.model_validate(raw | {"id": name})
        except ValidationError as error:
            raise RuleError(f"{at}: rule {name}: {_fault(error)}") from None
        if math.isnan(rule.entropy):  # no value has as much: the rule would find nothing
            notes.append(f"{at}: rule {name}: entropy: is not a number, and the rule told without it")
            rule = rule.model_copy(update={"entropy": 0.0})
        rules[name] = at, rule
        notes += (f"{at}: rule {name}: {key}: is not known" for key in _unknown(rule))
    notes += (f"{path}: {key}: is not known" for key in _unknown(file))
    return _Read(file, rules)


def _fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _unknown(table: _RuleIn | _FileIn) -> list[str]:
    """Give the keys of a table, and of the lists in it, that nothing is known of."""
    return [*(table.model_extra or ()), *(key for one in _lists(table) for key in one.model_extra or ())]


def _lists(table: _RuleIn | _FileIn) -> list[_AllowIn]:
    return [*([table.allowlist] if table.allowlist else []), *table.allowlists]


def _over(upper: _Read, base: dict[str, tuple[str, _RuleIn]]) -> dict[str, tuple[str, _RuleIn]]:
    """Put the rules of a file over those of the one that it extends."""
    kept = {name: rule for name, rule in base.items() if name not in upper.file.extend.disabledrules}
    return kept | {
        name: (at, _merged(rule, kept[name][1]) if name in kept else rule)
        for name, (at, rule) in upper.rules.items()
    }


def _merged(rule: _RuleIn, base: _RuleIn) -> _RuleIn:
    said = {key: getattr(rule, key) for key in _REPLACED if getattr(rule, key)}
    lists = {
        "allowlist": None,
        "allowlists": [*_lists(base), *_lists(rule)],
        "keywords": [*base.keywords, *rule.keywords],
    }
    return base.model_copy(update=said | lists)


def _note_file(
    path: Path, read: Sequence[_Read], rules: dict[str, tuple[str, _RuleIn]], notes: list[str]
) -> None:
    if any(each.file.extend.usedefault and each.file.extend.disabledrules for each in read):
        notes.append(
            f"{path}: extend.disabledRules: the built-in rules stand for those of gitleaks and are not switched off"
        )
    lists = [one for each in read for one in _lists(each.file)]
    if any(not one.targetrules for one in lists):
        notes.append(
            f"{path}: its allowlists hold for its own rules, not for the built-in ones; .outcropignore names paths for all"
        )
    missing = sorted({name for one in lists for name in one.targetrules} - rules.keys())
    notes += (f"{path}: targetRules: there is no rule {name} in this file" for name in missing)


def _is_used(at: str, rule: _RuleIn, notes: list[str]) -> bool:
    """Tell whether a rule is looked for; where it is not, or not as it is meant, note why."""
    if rule.skipreport:
        return False
    if not rule.regex:
        why = (
            "is for files by their names alone"
            if rule.path
            else "changes a rule of gitleaks that is not here"
        )
        notes.append(f"{at}: rule {rule.id}: {why}: it finds nothing")
        return False
    if rule.required:
        notes.append(f"{at}: rule {rule.id}: required: is not looked for, and the rule told without it")
    return True


def _rule(at: str, raw: _RuleIn, everywhere: Iterable[_AllowIn]) -> Rule:
    try:
        form = make_regex_form(
            name_secret_group(translate_go_regex(raw.regex), raw.secretgroup),
            strength=Strength.CONTEXT,
            confidence=Confidence.HIGH,
            min_entropy=raw.entropy,
            keywords=tuple(word.lower() for word in raw.keywords),
        )
        lists = [*_lists(raw), *(one for one in everywhere if raw.id in (one.targetrules or [raw.id]))]
        allowed = tuple(_allowed(one) for one in lists)
        only = _joined([raw.path] if raw.path else [])
    except PatternError as error:
        raise RuleError(f"{at}: rule {raw.id}: {error}") from None
    return Rule(
        id=re.sub(r"[^a-z0-9_-]", "-", raw.id.lower())[:_LONGEST_ID],
        name=(raw.description or raw.id)[:120],
        secret_type=re.sub(r"[^a-z0-9_-]", "-", raw.id.lower())[:_LONGEST_ID],
        issuer="gitleaks configuration",
        origin=at,
        impact=Impact.MEDIUM,
        forms=(form,),
        path_regex=only,
        allowlists=allowed,
    )


def _allowed(given: _AllowIn) -> Allowlist:
    return Allowlist(
        needs_all=given.condition.upper() in {"AND", "&&"},
        path_regex=_joined(given.paths),
        commits=tuple(commit.strip().lower() for commit in given.commits),
        regex=_joined(given.regexes),
        regex_target=given.regextarget or "secret",
        stopwords=tuple(word.lower() for word in given.stopwords),
    )


def _joined(patterns: list[str]) -> str:
    """Make one pattern of several."""
    whole = "|".join(f"(?:{translate_go_regex(pattern)})" for pattern in patterns)
    if whole:
        compile_regex(whole)
    return whole
