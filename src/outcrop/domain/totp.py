"""Codes of an authenticator app (RFC 6238: six digits, 30 seconds, SHA-1), and the codes for who has lost it."""

import base64
import hashlib
import hmac
import re
from datetime import datetime

import pyotp

ISSUER = "Outcrop"
SECRET_BYTES = 20  # what RFC 4226 recommends
RECOVERY_CODES, RECOVERY_BYTES = 10, 10
_STEP = 30
_DRIFT = 1  # steps that a telephone's clock may be off
_CODE = re.compile(r"[0-9]{6}")


def secret_text(random: bytes) -> str:
    """Write a secret as apps take it."""
    return base64.b32encode(random).decode()


def address(secret: str, email: str) -> str:
    """Give the otpauth address that a QR code shows."""
    return pyotp.TOTP(secret).provisioning_uri(name=email, issuer_name=ISSUER)


def used_step(secret: str, code: str, *, after: int, now: datetime) -> int | None:
    """Tell which step a code is of, if it is a right one and later than the last that was used: a code works once."""
    if _CODE.fullmatch(bare := _bare(code)) is None:
        return None
    totp = pyotp.TOTP(secret)
    current = int(now.timestamp()) // _STEP
    for step in range(current - _DRIFT, current + _DRIFT + 1):
        if hmac.compare_digest(totp.generate_otp(step), bare) and step > after:
            return step
    return None


def recovery_code(random: bytes) -> str:
    """Write 80 random bits to be read and typed: four groups of four."""
    text = base64.b32encode(random).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def recovery_digest(code: str) -> bytes:
    """Give what is stored of a recovery code, however it was typed."""
    return hashlib.sha256(_bare(code).lower().encode("utf-8", "surrogatepass")).digest()


def _bare(code: str) -> str:
    return re.sub(r"[\s-]", "", code)
