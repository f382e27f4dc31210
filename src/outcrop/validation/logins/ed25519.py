"""Ed25519 as MariaDB uses it: the key is made from a password of any length, which libraries refuse, so the curve is worked out here.

One signature with a password that is not ours to guard for long: that it takes longer for some numbers than for others gives nothing away
that the server is not told anyway.
"""

import hashlib

_P = 2**255 - 19  # the field
_L = 2**252 + 27742317777372353535851937790883648493  # the order of the base point
_D = -121665 * pow(121666, -1, _P) % _P
_Point = tuple[int, int, int, int]  # extended coordinates: X, Y, Z and T = XY/Z


def _base() -> _Point:
    y = 4 * pow(5, -1, _P) % _P
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if x * x % _P != square:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    x = _P - x if x & 1 else x
    return x, y, 1, x * y % _P


def _add(one: _Point, two: _Point) -> _Point:
    a = (one[1] - one[0]) * (two[1] - two[0]) % _P
    b = (one[1] + one[0]) * (two[1] + two[0]) % _P
    c = 2 * _D * one[3] * two[3] % _P
    d = 2 * one[2] * two[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(count: int) -> bytes:
    """Give so many times the base point, as it is sent."""
    total: _Point = (0, 1, 1, 0)
    power = _base()
    while count:
        if count & 1:
            total = _add(total, power)
        power = _add(power, power)
        count >>= 1
    inverse = pow(total[2], -1, _P)
    x, y = total[0] * inverse % _P, total[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def sign(password: bytes, message: bytes) -> bytes:
    """Sign with the key that a password makes. With 32 bytes for a password this is RFC 8032."""
    digest = hashlib.sha512(password).digest()
    secret = int.from_bytes(digest[:32], "little") & (1 << 254) - 8 | 1 << 254
    once = _number(digest[32:] + message)
    shown = _times(once)
    proof = (_number(shown + _times(secret) + message) * secret + once) % _L
    return shown + proof.to_bytes(32, "little")


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.sha512(data).digest(), "little") % _L
