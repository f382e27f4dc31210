"""Checksums that issuers build into their tokens, so that a mistyped or made-up one is told apart offline."""

import zlib
from collections.abc import Callable

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def base62(number: int, length: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 62)
        digits = _BASE62[rest] + digits
    return digits.rjust(length, "0")


def crc32_base62(body: str) -> str:
    """CRC-32 of the random part in six base-62 digits (GitHub, npm)."""
    return base62(zlib.crc32(body.encode()), 6)


def crc32_hex(body: str) -> str:
    """CRC-32 in eight hexadecimal digits."""
    return f"{zlib.crc32(body.encode()):08x}"


def _after_prefix(token: str, tail: int) -> tuple[str, str]:
    """Split a token such as `ghp_…` into the part the checksum is over, without the prefix, and the checksum."""
    body = token[token.index("_") + 1 :]
    return body[:-tail], body[-tail:]


def _github(token: str) -> bool:
    body, given = _after_prefix(token, 6)
    return crc32_base62(body) == given


# A name in a rule file → whether a token's checksum holds.
CHECKSUMS: dict[str, Callable[[str], bool]] = {
    "crc32_base62": _github,
}
