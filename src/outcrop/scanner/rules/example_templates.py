"""Fill the templates of example credentials in rule files, so that no complete token is in the source tree.

`ghp_{{base62 30}}{{crc32_base62}}` becomes a token with a correct checksum; `«…»` marks the value that must
be found. The same template always becomes the same text.
"""

import base64
import random
import re
import string
import uuid
from collections.abc import Callable
from urllib.parse import quote

from outcrop.lazy_regex import regex
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
_CHECKSUMS: dict[str, Callable[[str], str]] = {
    "crc32_base62": crc32_base62,
    "crc32_base36": crc32_base36,
    "crc32_hex": crc32_hex,
    "crc32_HEX": crc32_upper,
    "crc32_grafana": crc32_grafana,
}
_ENCODINGS: dict[str, Callable[[str], str]] = {
    "b64": lambda text: base64.b64encode(text.encode()).decode(),
    "b64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "url": lambda text: quote(text, safe=""),
}
_MAX_COUNT = 100_000  # characters or lines of one expansion; no example needs more, and more takes long
_INNERMOST = regex(r"\{\{([^{}]*)\}\}")


class TemplateError(ValueError):
    """A template that cannot be filled."""


def expand_template(template: str, seed: str) -> str:
    """Return a template with its expressions replaced by random values; docs/rules.md describes them.

    The values depend on `seed` and the template alone. Raise TemplateError or ValueError for a wrong
    expression.
    """
    rng = random.Random(f"{seed}\0{template}")  # noqa: S311 - invented values that must be the same every time
    previous = ""

    def fill(match: re.Match[str]) -> str:
        """Return the text for a matched expression, and store it as `previous` for a later checksum."""
        nonlocal previous
        previous = _evaluate(match[1], previous, rng)
        return previous

    text = template
    while _INNERMOST.search(text):
        text = _INNERMOST.sub(fill, text)
    return text


def split_marked_values(text: str) -> tuple[str, list[str]]:
    """Return an expanded example without its marks « and », and the values between them."""
    return text.replace("«", "").replace("»", ""), re.findall(r"«(.*?)»", text, re.DOTALL)


def _evaluate(expression: str, previous: str, rng: random.Random) -> str:
    """Return the text for an expression such as `hex 32`; `previous` is the result of the one before it.

    A checksum is that of `previous`. With an argument, it is that of the argument and is appended to it.
    Raise TemplateError if the expression is unknown or asks for too much, and ValueError for a wrong number.
    """
    name, _, argument = expression.partition(" ")
    if name in ALPHABETS:
        low, _, high = argument.partition("-")
        length = rng.randint(_parse_count(low), _parse_count(high)) if high else _parse_count(low)
        return _random_text(ALPHABETS[name], length, rng)
    if name in _CHECKSUMS:
        return argument + _CHECKSUMS[name](argument or previous)
    if name in {"uuid", "UUID"}:
        random_uuid = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        return random_uuid if name == "uuid" else random_uuid.upper()
    if name == "lines":
        return "\n".join(_random_text(ALPHABETS["base64"], 64, rng) for _ in range(_parse_count(argument)))
    if name in _ENCODINGS:
        return _ENCODINGS[name](argument)
    raise TemplateError(f"{{{{{expression}}}}} is unknown in an example")


def _parse_count(text: str) -> int:
    """Return a text as an integer; raise TemplateError if it is more than _MAX_COUNT.

    Raise ValueError if the text is no integer. A negative number is returned as it is.
    """
    if int(text) > _MAX_COUNT:
        raise TemplateError(f"{text} is more than {_MAX_COUNT:,}")
    return int(text)


def _random_text(alphabet: str, length: int, rng: random.Random) -> str:
    """Return a text of `length` random characters of the alphabet."""
    return "".join(rng.choice(alphabet) for _ in range(length))
