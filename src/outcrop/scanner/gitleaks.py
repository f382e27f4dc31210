"""Rules in the format of `gitleaks.toml`, so that people keep what they have written."""

import re
import tomllib
from pathlib import Path
from typing import Any

from outcrop.domain.finding import Confidence
from outcrop.scanner import regex
from outcrop.scanner.loader import RuleError, compile_regex, own_form
from outcrop.scanner.rule import Impact, Rule, Strength

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
    return [_rule(rule, number, path) for number, rule in enumerate(raw, 1) if rule.get("regex")]


def _rule(raw: dict[str, Any], number: int, path: Path) -> Rule:
    name = str(raw.get("id") or f"rule-{number}")
    pattern, group = str(raw["regex"]), raw.get("secretGroup", 0)
    try:
        form = own_form(
            _secret_group(translate(pattern), group if isinstance(group, int) else 0),
            entropy=float(raw.get("entropy") or 0),
            strength=Strength.CONTEXT,
            confidence=Confidence.HIGH,
            exclude=_excluded(raw),
        )
    except (regex.PatternError, TypeError, ValueError) as error:
        raise RuleError(f"{path}: rule {name}: {error}") from None
    return Rule(
        id=re.sub(r"[^a-z0-9_-]", "-", name.lower())[:80],
        name=str(raw.get("description") or name)[:120],
        secret_type=re.sub(r"[^a-z0-9_-]", "-", name.lower())[:80],
        issuer="gitleaks configuration",
        impact=Impact.MEDIUM,
        forms=(form,),
    )


def _excluded(raw: dict[str, Any]) -> str | None:
    """Make one pattern of the allowed values; its target is the secret, wherever in it."""
    lists = [raw.get("allowlist") or {}, *(raw.get("allowlists") or [])]
    patterns = [translate(str(one)) for entry in lists if isinstance(entry, dict) for one in entry.get("regexes", [])]
    words = [re.escape(str(word)) for entry in lists if isinstance(entry, dict) for word in entry.get("stopwords", [])]
    parts = [f"(?s:.*)(?:{part})(?s:.*)" for part in patterns] + [f"(?is:.*{word}.*)" for word in words]
    whole = "|".join(f"(?:{part})" for part in parts)
    if whole:
        compile_regex(whole)
    return whole or None


def translate(pattern: str) -> str:
    r"""Write a pattern of Go in the syntax both engines share: POSIX classes, `\z`, and flags in the middle."""
    pattern = re.sub(r"\[:(\w+):\]", lambda match: _POSIX.get(match[1], match[0]), pattern).replace(r"\z", "$")
    return _scoped_flags(pattern)


def _scoped_flags(pattern: str) -> str:
    """Turn `…(?i)rest` into `…(?i:rest)`: a flag holds to the end of the group it stands in."""
    match = re.search(r"\(\?([ims]+)\)", pattern)
    while match:
        end = _group_end(pattern, match.end())
        pattern = f"{pattern[: match.start()]}(?{match[1]}:{pattern[match.end() : end]}){pattern[end:]}"
        match = re.search(r"\(\?([ims]+)\)", pattern)
    return pattern


def _group_end(pattern: str, at: int) -> int:
    """Give where the group ends in which a position stands."""
    depth, in_class = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 2
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            at += 1 if pattern[at + 1 : at + 2] != "^" else 2  # a bracket right after the opening is a character
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth < 0:
                return at
        at += 1
    return len(pattern)


def _secret_group(pattern: str, group: int) -> str:
    """Name the group that holds the value: the one the rule says, else the first, else all of it."""
    starts = _group_starts(pattern)
    wanted = group or (1 if starts else 0)
    if wanted > len(starts):
        raise regex.PatternError(f"has no group {group}: {pattern[:80]}")
    if not wanted:
        return f"(?P<secret>{pattern})"
    at = starts[wanted - 1]
    rest = re.sub(r"^\?P?<\w+>", "", pattern[at + 1 :])
    return f"{pattern[:at]}(?P<secret>{rest}"


def _group_starts(pattern: str) -> list[int]:
    starts, at, in_class = [], 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 2
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            at += 1 if pattern[at + 1 : at + 2] in {"]", "^"} else 0
        elif char == "(" and (pattern[at + 1 : at + 2] != "?" or re.match(r"\(\?P?<\w+>", pattern[at:])):
            starts.append(at)
        at += 1
    return starts
