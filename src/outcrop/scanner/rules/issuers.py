"""Know which credential types an issuer issues, and by which names people look for a type.

Rule files are searched as text and nothing is compiled, so that a page of the portal shows them at once.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from outcrop.lazy_regex import regex
from outcrop.scanner.rules.model import BUILT_IN_RULES, RuleError, list_rule_files

_KEY = regex(r"""^(issuer|secret_type|name)\s*=\s*(?:"([^"\\\n]*)"|'([^'\n]*)')""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TypeNames:
    """The names of a credential type: those of its rules, and its issuers."""

    rules: frozenset[str]
    issuers: frozenset[str]

    def contain(self, term: str) -> bool:
        """Whether one of the names contains a case-folded term."""
        return any(term in name.casefold() for name in (*self.rules, *self.issuers))


def read_type_names(own_rules: Sequence[Path] = ()) -> dict[str, TypeNames]:
    """Return the names of all credential types of the built-in and the operator's own rules, by type.

    The result is cached: later changes of the files are not seen.
    """
    return _read_type_names((*own_rules, BUILT_IN_RULES))


@lru_cache(maxsize=4)
def _read_type_names(paths: tuple[Path, ...]) -> dict[str, TypeNames]:
    """Return the names of the types of the rule files of these paths. The result is cached."""
    rules: dict[str, set[str]] = {}
    issuers: dict[str, set[str]] = {}
    for path in paths:
        for file in _list_files(path):
            issuer, name = "", ""
            for key, quoted, literal in _KEY.findall(_read(file)):
                value = quoted or literal
                if key == "issuer":
                    issuer = value
                elif key == "name":
                    name = value
                else:  # a rule has its name before its type
                    rules.setdefault(value, set()).add(name)
                    issuers.setdefault(value, set()).add(issuer)
    return {
        secret_type: TypeNames(frozenset(rules[secret_type] - {""}), frozenset(issuers[secret_type] - {""}))
        for secret_type in rules
    }


def _list_files(path: Path) -> list[str]:
    """Return the rule files of a path; none if it cannot be read: the loader reports that."""
    try:
        return list_rule_files(path)
    except RuleError:
        return []


def _read(file: str) -> str:
    """Return the text of a file; an empty one if it cannot be read."""
    try:
        return Path(file).read_text("utf-8")
    except (OSError, ValueError):
        return ""
