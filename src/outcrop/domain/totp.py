"""Check codes of an authenticator app (RFC 6238: six digits, 30 seconds, SHA-1), and recovery codes."""

import base64
import hashlib
import hmac
import re
from datetime import datetime

import pyotp

from outcrop.lazy_regex import regex
from outcrop.limits import CODE_LENGTH

ISSUER = "Outcrop"
SECRET_BYTES = 20  # what RFC 4226 recommends
RECOVERY_CODES, RECOVERY_BYTES = 10, 10
_STEP = 30
_MAX_DRIFT = 1  # steps by which the clock of a phone may be wrong
_CODE = regex(r"[0-9]{6}")


def secret_text(random: bytes) -> str:
    """Return a secret in base32, as authenticator apps read it."""
    return base64.b32encode(random).decode()


def address(secret: str, email: str) -> str:
    """Return the otpauth URI for the QR code."""
    return pyotp.TOTP(secret).provisioning_uri(name=email, issuer_name=ISSUER)


def used_step(secret: str, code: str, *, after: int, now: datetime) -> int | None:
    """Return the time step of a correct code, or None if the code is wrong or already used.

    `after` is the step of the last code that was used: each code works once.
    """
    if _CODE.fullmatch(bare := _strip_separators(code)) is None:
        return None
    totp = pyotp.TOTP(secret)
    current = int(now.timestamp()) // _STEP
    for step in range(current - _MAX_DRIFT, current + _MAX_DRIFT + 1):
        if hmac.compare_digest(totp.generate_otp(step), bare) and step > after:
            return step
    return None


def recovery_code(random: bytes) -> str:
    """Return 80 random bits as a recovery code: four groups of four characters."""
    text = base64.b32encode(random).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def recovery_digest(code: str) -> bytes:
    """Return the SHA-256 under which a recovery code is stored; case, spaces and dashes do not matter."""
    return hashlib.sha256(_strip_separators(code).lower().encode("utf-8", "surrogatepass")).digest()


def _strip_separators(code: str) -> str:
    """Return the first CODE_LENGTH characters of a code without spaces and dashes."""
    return re.sub(r"[\s-]", "", code[:CODE_LENGTH])
