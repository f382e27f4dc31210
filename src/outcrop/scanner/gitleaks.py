"""Rules in the format of `gitleaks.toml`, so that people keep what they have written."""

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from outcrop.domain.finding import Confidence
from outcrop.scanner import regex
from outcrop.scanner.form import own_form
from outcrop.scanner.match import compile_regex
from outcrop.scanner.rule import Impact, Rule, RuleError, Strength

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
    "space": r"\s", "word": r"\w", "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip


def load_gitleaks(path: Path) -> list[Rule]:
    """Load the rules of a gitleaks configuration; path-only rules and what is inherited are left to the built-in ones."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: {getattr(error, 'strerror', None) or 'is not UTF-8'}") from None
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"{path}: {error}") from None
    raw = data.get("rules", [])
    if not isinstance(raw, list) or not all(isinstance(rule, dict) for rule in raw):
        raise RuleError(f"{path}: rules: is not a list of tables")
    rules = [_rule(rule, number, path, data) for number, rule in enumerate(raw, 1) if rule.get("regex")]
    return list({rule.id: rule for rule in rules}.values())


def _rule(raw: dict[str, Any], number: int, path: Path, everywhere: dict[str, Any]) -> Rule:
    name = str(raw.get("id") or f"rule-{number}")
    pattern, group = str(raw["regex"]), raw.get("secretGroup", 0)
    try:
        form = own_form(
            _secret_group(translate(pattern), group if isinstance(group, int) else 0),
            entropy=float(raw.get("entropy") or 0),
            strength=Strength.CONTEXT,
            confidence=Confidence.HIGH,
            exclude=_excluded([*_allowed(raw), *_allowed(everywhere, name)]),
        )
        words = tuple(str(word).lower() for word in raw.get("keywords") or ())
    except (regex.PatternError, TypeError, ValueError) as error:
        raise RuleError(f"{path}: rule {name}: {error}") from None
    return Rule(
        id=re.sub(r"[^a-z0-9_-]", "-", name.lower())[:80],
        name=str(raw.get("description") or name)[:120],
        secret_type=re.sub(r"[^a-z0-9_-]", "-", name.lower())[:80],
        issuer="gitleaks configuration",
        origin=str(path),
        impact=Impact.MEDIUM,
        forms=(form._replace(keywords=words),),
    )


def _allowed(table: dict[str, Any], rule: str | None = None) -> list[dict[str, Any]]:
    """Give the lists of allowed values in a table; one that also asks for a path or a commit is no reason to keep silent."""
    lists = [table.get("allowlist") or {}, *(table.get("allowlists") or [])]
    return [
        entry
        for entry in lists
        if isinstance(entry, dict)
        and not (str(entry.get("condition", "")).upper() in {"AND", "&&"} and (entry.get("paths") or entry.get("commits")))
        and (rule is None or rule in (entry.get("targetRules") or [rule]))
    ]


def _excluded(lists: list[dict[str, Any]]) -> str | None:
    """Make one pattern of the allowed values; its target is the secret, wherever in it."""
    patterns = [translate(str(one)) for entry in lists for one in entry.get("regexes") or ()]
    words = [_bytewise(re.escape(str(word))) for entry in lists for word in entry.get("stopwords") or ()]
    parts = [f"(?s:.*)(?:{part})(?s:.*)" for part in patterns] + [f"(?is:.*{word}.*)" for word in words]
    whole = "|".join(f"(?:{part})" for part in parts)
    if whole:
        compile_regex(whole)
    return whole or None


def translate(pattern: str) -> str:
    r"""Write a pattern of Go in the syntax both engines share: POSIX classes, `\z`, and flags in the middle."""
    pattern = re.sub(r"\[:(\w+):\]", lambda match: _POSIX.get(match[1], match[0]), _bytewise(pattern))
    pattern = re.sub(r"\\(x\{([0-9A-Fa-f]{1,2})\}|.)", _escape, pattern, flags=re.DOTALL)
    return _scoped_flags(pattern)


def _bytewise(pattern: str) -> str:
    return pattern if pattern.isascii() else pattern.encode().decode("latin-1")


def _escape(match: re.Match[str]) -> str:
    if match[2]:
        return f"\\x{int(match[2], 16):02x}"
    return "$" if match[1] == "z" else match[0]


_FLAGS = re.compile(r"\(\?([ims]*(?:-[ims]+)?)\)")


def _scoped_flags(pattern: str) -> str:
    """Turn `a(?i)b|c` into `a(?i:b)|(?i:c)`: a flag holds to the end of the group it stands in, over its alternatives."""
    for at, char in _syntax(pattern):
        match = _FLAGS.match(pattern, at) if char == "(" else None
        if match:
            borders = _alternatives(pattern, match.end())
            scoped = [f"(?{match[1]}:{pattern[left + 1 : right]})" for left, right in pairwise([match.end() - 1, *borders])]
            return _scoped_flags(pattern[:at] + "|".join(scoped) + pattern[borders[-1] :])
    return pattern


def _alternatives(pattern: str, start: int) -> list[int]:
    """Give where the alternatives of the group end in which a position stands, from there on."""
    depth = 0
    borders: list[int] = []
    for at, char in _syntax(pattern):
        if at < start:
            continue
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0:
            return [*borders, at]
        if char == "|" and depth == 0:
            borders.append(at)
    return [*borders, len(pattern)]


def _syntax(pattern: str) -> Iterator[tuple[int, str]]:
    """Give the characters of a pattern that are neither escaped nor in a class."""
    at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
        elif pattern[at] == "[":
            at += 2 if pattern[at + 1 : at + 2] == "^" else 1
            at += pattern[at : at + 1] == "]"  # a bracket right after the opening is a character
            while at < len(pattern) and pattern[at] != "]":
                at += 2 if pattern[at] == "\\" else 1
            at += 1
        else:
            yield at, pattern[at]
            at += 1


_NAMED = re.compile(r"\?P?<\w+>")


def _secret_group(pattern: str, group: int) -> str:
    """Name the group that holds the value: the one the rule says, else the first, else all of it."""
    starts = [at + 1 for at, char in _syntax(pattern) if char == "(" and (pattern[at + 1 : at + 2] != "?" or _NAMED.match(pattern, at + 1))]
    wanted = group or (1 if starts else 0)
    if wanted > len(starts):
        raise regex.PatternError(f"has no group {group}: {pattern[:80]}")
    out, last = "", 0
    for number, at in enumerate(starts, 1):
        named = _NAMED.match(pattern, at)
        out += pattern[last:at] + ("?P<secret>" if number == wanted else "")
        last = named.end() if named else at
    out += pattern[last:]
    return out if wanted else f"(?P<secret>{out})"
