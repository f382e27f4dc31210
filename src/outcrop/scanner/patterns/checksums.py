"""Checksums that issuers build into their tokens, so that a mistyped or made-up one is told apart offline."""

import zlib
from collections.abc import Callable

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def _in_base(number: int, alphabet: str, length: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, len(alphabet))
        digits = alphabet[rest] + digits
    return digits.rjust(length, "0")


def crc32_base62(body: str) -> str:
    """CRC-32 of the random part in six base-62 digits (GitHub, npm, Vercel, Polar)."""
    return _in_base(zlib.crc32(body.encode()), _BASE62, 6)


def crc32_base36(body: str) -> str:
    """CRC-32 of all that stands before it in seven base-36 digits (GitLab's routable tokens)."""
    return _in_base(zlib.crc32(body.encode()), _BASE36, 7)


def crc32_hex(body: str) -> str:
    """CRC-32 in eight hexadecimal digits: of the random part (Cloudflare)."""
    return f"{zlib.crc32(body.encode()):08x}"


def crc32_upper(body: str) -> str:
    """CRC-32 in eight upper-case hexadecimal digits: of all that stands before it (Atlassian)."""
    return crc32_hex(body).upper()


def crc32_grafana(body: str) -> str:
    """CRC-32 of the prefix and the random part, its bytes from the last to the first in hexadecimal (Grafana)."""
    return zlib.crc32(f"glsa_{body}".encode()).to_bytes(4, "little").hex()


def _github(token: str) -> bool:
    body = token.rpartition("_")[2]  # a prefix may have several underscores, the random part has none
    last = _BASE62[
        zlib.crc32(body[:-6].encode()) % len(_BASE62)
    ]  # a file may be full of near misses, and one digit tells nearly all
    return body[-1:] == last and crc32_base62(body[:-6]) == body[-6:]


def _cloudflare(token: str) -> bool:
    body = token.partition("_")[2]  # the random part may have underscores too
    return crc32_hex(body[:-8]) == body[-8:]


def _atlassian(token: str) -> bool:
    return crc32_upper(token[:-8]) == token[-8:]


def _gitlab(token: str) -> bool:
    return crc32_base36(token[:-7]) == token[-7:]


def _grafana(token: str) -> bool:
    _, body, given = token.split("_")
    return crc32_grafana(body) == given.lower()


# A name in a rule file → whether a token's checksum holds.
CHECKSUMS: dict[str, Callable[[str], bool]] = {
    "crc32_base62": _github,
    "crc32_base36": _gitlab,
    "crc32_hex": _cloudflare,
    "crc32_HEX": _atlassian,
    "crc32_grafana": _grafana,
}
