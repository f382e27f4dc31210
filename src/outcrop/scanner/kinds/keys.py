"""Fingerprints and ids of keys, keys that a passphrase protects, tokens that nobody signed."""

import base64
import binascii
import json
import re

from outcrop.domain.finding import Confidence
from outcrop.lazy_regex import regex
from outcrop.scanner.kinds.kind import Kind, Sample

KEY_FINGERPRINT = Kind("key-fingerprint", "the fingerprint or the id of a public key")
ENCRYPTED_KEY = Kind("encrypted-key", "a private key that a passphrase protects", Confidence.MEDIUM)
EMPTY_KEY = Kind("empty-key", "the first and last line of a key in base64, with no key between them")
UNSIGNED_TOKEN = Kind("unsigned-token", "a JSON web token without a signature")

_FINGERPRINT = regex(r"(?:0x)?(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{16}|[0-9A-Fa-f]{40})|(?:[0-9A-F]{4}\s?){10}")
_FINGERPRINT_WORDS = regex(
    rb"(?i)gpg|pgp|fingerprint|keyserver|recv-?keys?|key[ -]?id|release|signed[ -]by|signing key|pubkey"
    rb"|dearmor|apt-key|trusted"
)
_ENCRYPTED_HEADER = regex(
    r"BEGIN ENCRYPTED |Proc-Type: ?4, ?ENCRYPTED|DEK-Info:|\nEncryption: (?!none)[a-z0-9-]+"
)
_OPENSSH_MAGIC = b"openssh-key-v1\x00"
_KEY_BODY = regex(r"-----\s*([A-Za-z0-9+/=\s\\]{24,})")
_PEM_START = "LS0tLS1CRUdJTi"  # `-----BEGIN`
_MAX_EMPTY_KEY, _MIN_KEY_BODY = 200, 40
_TWO_PARTS = regex(r"eyJ[\w-]{8,}\.[\w-]{8,}\.?")


def is_key_fingerprint(sample: Sample) -> bool:
    """Whether hexadecimal digits of the length of a key id are in a line about public keys."""
    return (
        sample.is_generic
        and _FINGERPRINT.fullmatch(sample.value) is not None
        and _FINGERPRINT_WORDS.search(sample.before[-120:]) is not None
        and "secret" not in sample.name.lower()
        and "pass" not in sample.name.lower()
    )


def is_encrypted_key(sample: Sample) -> bool:
    """Whether a key block says that it is encrypted: PEM, PuTTY or OpenSSH."""
    value = sample.value
    if not value.startswith(("-----BEGIN", "PuTTY-User-Key")):
        return False
    if _ENCRYPTED_HEADER.search(value):
        return True
    body = _KEY_BODY.search(value) if "OPENSSH PRIVATE KEY" in value else None
    if body is None:
        return False
    text = re.sub(r"\\[nr]|\s|\\", "", body[1])[:48]
    decoded = base64.b64decode(text[: len(text) // 4 * 4] + "===", validate=False)
    cipher = decoded[len(_OPENSSH_MAGIC) + 4 :]
    return decoded.startswith(_OPENSSH_MAGIC) and bool(cipher) and not cipher.startswith(b"none")


def is_empty_key(sample: Sample) -> bool:
    """Whether the value is base64 of a certificate, or of the lines around a key with no key between."""
    value = sample.value
    if not sample.is_generic or not value.startswith(_PEM_START) or len(value) > _MAX_EMPTY_KEY:
        return False
    text = base64.b64decode(value + "=" * (-len(value) % 4), validate=False)
    return b"CERTIFICATE" in text[:40] or len(re.sub(rb"-----[A-Z ]*-*|\s", b"", text)) < _MIN_KEY_BODY


def is_unsigned_token(sample: Sample) -> bool:
    """Whether a JSON web token has only two parts, or a header with the algorithm `none`."""
    value = sample.value
    if not value.startswith("eyJ"):
        return False
    if _TWO_PARTS.fullmatch(value):
        return True
    header = value.partition(".")[0]
    try:
        fields = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except (binascii.Error, ValueError):
        return False
    return isinstance(fields, dict) and str(fields.get("alg", "")).lower() == "none"
