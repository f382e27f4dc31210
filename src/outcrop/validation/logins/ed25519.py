"""Sign with Ed25519 as MariaDB's `client_ed25519` plugin does.

MariaDB derives the key from a password of any length. Libraries accept seeds of 32 bytes only, so the
arithmetic of the curve is written out here (RFC 8032). It does not run in constant time. That is acceptable:
it signs once, and the timing reveals nothing that the server does not learn from the signature.
"""

import hashlib

_P = 2**255 - 19  # the prime of the field
_L = 2**252 + 27742317777372353535851937790883648493  # the order of the base point
_D = -121665 * pow(121666, -1, _P) % _P  # the curve's constant
_Point = tuple[int, int, int, int]  # extended coordinates: X, Y, Z and T = XY/Z


def _base_point() -> _Point:
    """Return the base point B of the Ed25519 curve, whose y is 4/5 and whose x is even."""
    y = 4 * pow(5, -1, _P) % _P
    x_squared = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(x_squared, (_P + 3) // 8, _P)
    if x * x % _P != x_squared:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    x = _P - x if x & 1 else x
    return x, y, 1, x * y % _P


def _add_points(p: _Point, q: _Point) -> _Point:
    """Return the sum of two points of the Ed25519 curve."""
    a = (p[1] - p[0]) * (q[1] - q[0]) % _P
    b = (p[1] + p[0]) * (q[1] + q[0]) % _P
    c = 2 * _D * p[3] * q[3] % _P
    d = 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiply_base_point(scalar: int) -> bytes:
    """Return `scalar` times the base point, in the 32-byte encoding."""
    total: _Point = (0, 1, 1, 0)
    power = _base_point()
    while scalar:
        if scalar & 1:
            total = _add_points(total, power)
        power = _add_points(power, power)
        scalar >>= 1
    inverse = pow(total[2], -1, _P)
    x, y = total[0] * inverse % _P, total[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def sign(password: bytes, message: bytes) -> bytes:
    """Return the Ed25519 signature (64 bytes) of a message, with the key that is derived from the password.

    For a password of 32 bytes this is Ed25519 of RFC 8032.
    """
    digest = hashlib.sha512(password).digest()
    secret_scalar = int.from_bytes(digest[:32], "little") & (1 << 254) - 8 | 1 << 254
    nonce = _hash_to_scalar(digest[32:] + message)
    nonce_point = _multiply_base_point(nonce)
    challenge = _hash_to_scalar(nonce_point + _multiply_base_point(secret_scalar) + message)
    s = (challenge * secret_scalar + nonce) % _L
    return nonce_point + s.to_bytes(32, "little")


def _hash_to_scalar(data: bytes) -> int:
    """Return the SHA-512 of the data as a number below the order of the base point."""
    return int.from_bytes(hashlib.sha512(data).digest(), "little") % _L
