"""Made-up credentials in made-up files. Files are templates: no complete credential is in the repository.

`«stripe_secret_key alive shop|sk_live_{{base62 24}}»` is one credential: the id of its rule, the answer of
its issuer, a name, and its form. The same mark is the same credential everywhere. A companion that the issuer
needs, such as the id of a key pair, is marked in the same way.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from outcrop.lazy_regex import regex
from outcrop.scanner.rules.example_templates import expand_template

_MARK = regex(r"«([a-z0-9_]+) ([a-z]+) ([a-z0-9-]+)\|(.*?)»", re.DOTALL)


class Fate(StrEnum):
    """Answer of an issuer's stand-in to a credential."""

    ALIVE = "alive"
    NARROW = "narrow"  # valid, with fewer permissions
    DEAD = "dead"
    FAULT = "fault"  # the issuer has an internal error
    DOWN = "down"  # the issuer closes the connection
    UNASKED = "unasked"  # no issuer is asked


@dataclass(frozen=True, slots=True)
class PlantedCredential:
    """Rule and fate of a made-up credential."""

    rule: str
    fate: Fate


def fill_template(template: str) -> str:
    """Return a template with its credentials filled in; the result is the same every time."""
    return _MARK.sub(_value, template)


def planted_in(templates: Iterable[str]) -> dict[str, PlantedCredential]:
    """Return the credentials in the templates, by value."""
    return {
        _value(mark): PlantedCredential(mark[1], Fate(mark[2]))
        for template in templates
        for mark in _MARK.finditer(template)
    }


def _value(mark: re.Match[str]) -> str:
    """Return the credential of a mark, generated from its rule and name."""
    return expand_template(mark[4], f"demo {mark[1]} {mark[3]}")
