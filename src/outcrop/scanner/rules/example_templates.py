"""Made-up credentials for the examples in rule files: written as templates, so that no whole token stands in the tree.

`ghp_{{base62 30}}{{crc32_base62}}` becomes a token with a right checksum; `«…»` marks the value that must be found.
The same template always becomes the same text.
"""

import base64
import random
import re
import string
import uuid
from collections.abc import Callable
from urllib.parse import quote

from outcrop.scanner.patterns.checksums import (
    crc32_base36,
    crc32_base62,
    crc32_grafana,
    crc32_hex,
    crc32_upper,
)

_HEX = "0123456789abcdef"
ALPHABETS = {
    "digits": string.digits,
    "hex": _HEX,
    "HEX": _HEX.upper(),
    "lower": string.ascii_lowercase,
    "UPPER": string.ascii_uppercase,
    "letters": string.ascii_letters,
    "base32": string.ascii_uppercase + "234567",
    "base32lower": string.ascii_lowercase + "234567",
    "base36": string.ascii_lowercase + string.digits,
    "BASE36": string.ascii_uppercase + string.digits,
    "base62": string.ascii_letters + string.digits,
    "base64": string.ascii_letters + string.digits + "+/",
    "base64url": string.ascii_letters + string.digits + "-_",
}
# A checksum is over the expansion before it; with a text of its own, it is over that text and stands after it.
_CHECKSUMS: dict[str, Callable[[str], str]] = {
    "crc32_base62": crc32_base62,
    "crc32_base36": crc32_base36,
    "crc32_hex": crc32_hex,
    "crc32_HEX": crc32_upper,
    "crc32_grafana": crc32_grafana,
}
_MOST = 100_000
_INNERMOST = re.compile(r"\{\{([^{}]*)\}\}")


class TemplateError(ValueError):
    """A template that says something unknown."""


def expand_template(template: str, seed: str) -> str:
    """Fill a template: `{{ALPHABET LENGTH}}`, `{{uuid}}`, `{{lines COUNT}}`, `{{b64 TEXT}}`, `{{url TEXT}}`, and the checksums."""
    chance = random.Random(f"{seed}\0{template}")  # noqa: S311 - made-up values that must be the same every time
    before = ""

    def fill(match: re.Match[str]) -> str:
        nonlocal before
        before = _one(match[1], before, chance)
        return before

    text = template
    while _INNERMOST.search(text):
        text = _INNERMOST.sub(fill, text)
    return text


def split_marked_values(text: str) -> tuple[str, list[str]]:
    """Take the marks out of an expanded example: the text, and the values that must be found in it."""
    return text.replace("«", "").replace("»", ""), re.findall(r"«(.*?)»", text, re.DOTALL)


def _one(call: str, before: str, chance: random.Random) -> str:  # noqa: PLR0911 - one line per function
    name, _, rest = call.partition(" ")
    if name in ALPHABETS:
        low, _, high = rest.partition("-")
        return _random(
            ALPHABETS[name], chance.randint(_count(low), _count(high)) if high else _count(low), chance
        )
    if name in _CHECKSUMS:
        return rest + _CHECKSUMS[name](rest or before)
    if name in {"uuid", "UUID"}:
        made = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        return made if name == "uuid" else made.upper()
    if name == "lines":
        return "\n".join(_random(ALPHABETS["base64"], 64, chance) for _ in range(_count(rest)))
    if name == "b64":
        return base64.b64encode(rest.encode()).decode()
    if name == "b64url":
        return base64.urlsafe_b64encode(rest.encode()).decode().rstrip("=")
    if name == "url":
        return quote(rest, safe="")
    raise TemplateError(f"{{{{{call}}}}} is not known in an example")


def _count(text: str) -> int:
    """Read how many of something; no example needs as many as would take long."""
    if int(text) > _MOST:
        raise TemplateError(f"{text} is more than {_MOST:,}")
    return int(text)


def _random(alphabet: str, length: int, chance: random.Random) -> str:
    """Draw a value that looks random: a short one must not repeat itself by chance."""
    return "".join(chance.choice(alphabet) for _ in range(length))
