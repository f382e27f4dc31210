"""Private keys: whether one can be read, what it is, and whether a passphrase guards it. Nobody is asked."""

import asyncio
import base64
import re
from collections.abc import Mapping
from dataclasses import replace

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa

from outcrop.domain.finding import Confidence
from outcrop.net.http import HttpClient
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.http.check import Turn
from outcrop.validation.pem import straighten
from outcrop.validation.verdict import Verdict, invalid, unvalidated

_OPENSSH = b"openssh-key-v1\0"
_PLACE = "where it opens something is not known"


async def private_key(
    _http: HttpClient, _check: CheckSpec, values: Mapping[str, str], _turn: Turn
) -> Verdict:
    """Judge a key by itself; reading a large one takes a while, so another thread does it."""
    return await asyncio.to_thread(read, values["secret"])


def read(text: str) -> Verdict:
    """Say what a key is; one that cannot be read is no key that anybody could use."""
    if text.startswith("PuTTY-User-Key-File-"):
        guarded = re.search(r"Encryption: none\s", text) is None
        return _told("a PuTTY key", guarded=guarded, ssh=True)
    if text.startswith("---- BEGIN SSH2"):
        return _told("an SSH2 key", guarded="ENCRYPTED" in text[:40], ssh=True)
    if not text.startswith("-----BEGIN "):
        return unvalidated(f"a private key; {_PLACE}")
    found = straighten(text)
    if found is None:
        return invalid("the end of the key is missing", Confidence.LOW)
    kind, pem = found
    if kind == "PGP PRIVATE KEY BLOCK":
        return unvalidated(f"a PGP key; {_PLACE}")
    return _openssh(pem) if kind.startswith("OPENSSH") else _pem(kind, pem)


def _openssh(pem: bytes) -> Verdict:
    raw = _bytes(pem)
    if not raw.startswith(_OPENSSH):
        return _unreadable()
    at = len(_OPENSSH)
    size = int.from_bytes(raw[at : at + 4], "big")
    if raw[at + 4 : at + 4 + size] != b"none":
        return _told("an OpenSSH key", guarded=True, ssh=True)
    try:
        key: object = serialization.load_ssh_private_key(pem, None, unsafe_skip_rsa_key_validation=True)
    except UnsupportedAlgorithm:
        return unvalidated(f"an OpenSSH key of a kind that is not read here; {_PLACE}")
    except (ValueError, TypeError):
        return _unreadable()
    return _told(_name(key), guarded=False, ssh=True)


def _pem(kind: str, pem: bytes) -> Verdict:
    if kind.startswith("ENCRYPTED") or b"\nDEK-Info: " in pem:
        return _told("a key", guarded=True) if _bytes(pem) else _unreadable()
    try:
        # Without the costly look at its numbers: a made-up key of tens of thousands of bits would take minutes.
        key: object = serialization.load_pem_private_key(pem, None, unsafe_skip_rsa_key_validation=True)
    except UnsupportedAlgorithm:
        return unvalidated(f"a key of a kind that is not read here; {_PLACE}")
    except (ValueError, TypeError):
        return _unreadable()
    return _told(_name(key), guarded=False)


def _bytes(pem: bytes) -> bytes:
    """Give what stands between the marks and after the headers."""
    lines = [
        line for line in pem.split(b"\n")[1:] if line and b":" not in line and not line.startswith(b"-----")
    ]
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except ValueError:
        return b""


def _name(key: object) -> str:
    match key:
        case rsa.RSAPrivateKey():
            return f"an RSA key of {key.key_size} bits"
        case dsa.DSAPrivateKey():
            return f"a DSA key of {key.key_size} bits"
        case ec.EllipticCurvePrivateKey():
            return f"an elliptic-curve key ({key.curve.name})"
        case ed25519.Ed25519PrivateKey() | ed448.Ed448PrivateKey():
            return "an Edwards-curve key"
        case _:
            return "a key"


def _told(name: str, *, guarded: bool, ssh: bool = False) -> Verdict:
    guard = "it cannot be used without its passphrase" if guarded else "no passphrase guards it"
    return replace(unvalidated(f"{name}, {guard}; {_PLACE}"), services=("ssh",) if ssh else ())


def _unreadable() -> Verdict:
    return invalid("is no whole key: it cannot be read", Confidence.LOW)
