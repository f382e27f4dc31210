"""Made-up credentials in made-up files: written as templates, so that no whole credential stands in the tree.

`«stripe_secret_key alive shop|sk_live_{{base62 24}}»` is a credential: the rule that finds it, what the stand-in for its issuer says of
it, a name, and what it looks like. The same mark is the same credential, wherever it stands. A companion that the issuer is asked with,
such as the id of a key pair, is marked in the same way.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from outcrop.scanner.rules.example_templates import expand_template

_MARK = re.compile(r"«([a-z0-9_]+) ([a-z]+) ([a-z0-9-]+)\|(.*?)»", re.DOTALL)


class Fate(StrEnum):
    """What a stand-in says of a credential."""

    ALIVE = "alive"
    NARROW = "narrow"  # alive, and opens less
    DEAD = "dead"
    FAULT = "fault"  # the issuer has a fault of its own
    DOWN = "down"  # the issuer does not answer
    UNASKED = "unasked"  # nobody is asked about it


@dataclass(frozen=True, slots=True)
class Planted:
    rule: str
    fate: Fate


def grow(template: str) -> str:
    """Fill a template, the same way every time."""
    return _MARK.sub(_value, template)


def planted_in(templates: Iterable[str]) -> dict[str, Planted]:
    """Give what is planted in templates, by its value."""
    return {
        _value(mark): Planted(mark[1], Fate(mark[2]))
        for template in templates
        for mark in _MARK.finditer(template)
    }


def _value(mark: re.Match[str]) -> str:
    return expand_template(mark[4], f"demo {mark[1]} {mark[3]}")
