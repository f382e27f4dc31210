"""Compute and test the checksums inside tokens: a wrong one reveals a mistyped or invented token offline."""

import zlib
from collections.abc import Callable

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def _to_base(number: int, alphabet: str, length: int) -> str:
    """Return a number in the digits of `alphabet`, padded in front with "0" to at least `length` digits.

    The length of the alphabet is the base.
    """
    digits = ""
    while number:
        number, remainder = divmod(number, len(alphabet))
        digits = alphabet[remainder] + digits
    return digits.rjust(length, "0")


def crc32_base62(body: str) -> str:
    """Return the CRC-32 of a token's random part in six base-62 digits (GitHub, npm, Vercel, Polar).

    `body` is the random part.
    """
    return _to_base(zlib.crc32(body.encode()), _BASE62, 6)


def crc32_base36(body: str) -> str:
    """Return the CRC-32 of `body`, all of a token before its checksum, in seven base-36 digits (GitLab)."""
    return _to_base(zlib.crc32(body.encode()), _BASE36, 7)


def crc32_hex(body: str) -> str:
    """Return the CRC-32 of a token's random part, `body`, in eight lower-case hex digits (Cloudflare)."""
    return f"{zlib.crc32(body.encode()):08x}"


def crc32_upper(body: str) -> str:
    """Return the CRC-32 of `body`, all of a token before the checksum, in eight upper-case hex digits.

    Atlassian has such tokens.
    """
    return crc32_hex(body).upper()


def crc32_grafana(body: str) -> str:
    """Return the CRC-32 of `glsa_` + `body` in eight lower-case hex digits, the lowest byte first (Grafana).

    `body` is the random part of a token.
    """
    return zlib.crc32(f"glsa_{body}".encode()).to_bytes(4, "little").hex()


def _check_github(token: str) -> bool:
    """Whether the last six characters of a token are the base-62 checksum of its random part, as GitHub's.

    The random part is between the last `_` of the token and the checksum.
    """
    body = token.rpartition("_")[2]  # the prefix can have several underscores, the random part has none
    # A file may be full of near misses: the last digit alone refuses nearly all of them.
    last_digit = _BASE62[zlib.crc32(body[:-6].encode()) % len(_BASE62)]
    return body[-1:] == last_digit and crc32_base62(body[:-6]) == body[-6:]


def _check_cloudflare(token: str) -> bool:
    """Whether the last eight characters of a Cloudflare token are the checksum, in hex, of its random part.

    The random part is between the first `_` of the token and the checksum.
    """
    body = token.partition("_")[2]  # the random part can have underscores too
    return crc32_hex(body[:-8]) == body[-8:]


def _check_atlassian(token: str) -> bool:
    """Whether an Atlassian token ends with the upper-case hexadecimal checksum of everything before it."""
    return crc32_upper(token[:-8]) == token[-8:]


def _check_gitlab(token: str) -> bool:
    """Whether a GitLab token ends with the base-36 checksum of everything before it."""
    return crc32_base36(token[:-7]) == token[-7:]


def _check_grafana(token: str) -> bool:
    """Whether the last of the three parts of a Grafana token is the checksum of the second.

    Raise ValueError if the token does not have three parts between underscores.
    """
    _, body, checksum = token.split("_")
    return crc32_grafana(body) == checksum.lower()


# `checksum` in a rule file -> whether the checksum of a token is correct.
CHECKSUMS: dict[str, Callable[[str], bool]] = {
    "crc32_base62": _check_github,
    "crc32_base36": _check_gitlab,
    "crc32_hex": _check_cloudflare,
    "crc32_HEX": _check_atlassian,
    "crc32_grafana": _check_grafana,
}
