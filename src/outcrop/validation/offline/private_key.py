"""Judge private keys: whether one can be read, its kind, and whether a passphrase protects it."""

import asyncio
import base64
import re
from dataclasses import replace

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa

from outcrop.domain.finding import Confidence
from outcrop.validation.attempt import Attempt
from outcrop.validation.pem import restore_pem
from outcrop.validation.verdict import Verdict, invalid, unvalidated

_OPENSSH_MAGIC = b"openssh-key-v1\0"
_UNKNOWN_USE = "it is not known where it is used"


async def check_private_key(attempt: Attempt) -> Verdict:
    """Return the verdict on the attempt's private key, without any request.

    The key is read in a thread, because a large key takes a while.
    """
    return await asyncio.to_thread(judge_private_key, attempt.secret)


def judge_private_key(text: str) -> Verdict:
    """Return `unvalidated` with a description of the private key, or `invalid` if it cannot be read.

    Keys of unsupported kinds are `unvalidated`; so are keys in the formats of PuTTY, SSH2 and PGP, and in
    unknown ones, which are not decoded.
    """
    if text.startswith("PuTTY-User-Key-File-"):
        encrypted = re.search(r"Encryption: none\s", text) is None
        return _readable("a PuTTY key", encrypted=encrypted, ssh=True)
    if text.startswith("---- BEGIN SSH2"):
        return _readable("an SSH2 key", encrypted="ENCRYPTED" in text[:40], ssh=True)
    if not text.startswith("-----BEGIN "):
        return unvalidated(f"a private key; {_UNKNOWN_USE}")
    restored = restore_pem(text)
    if restored is None:
        return invalid("the end of the key is missing", Confidence.LOW)
    label, pem = restored
    if label == "PGP PRIVATE KEY BLOCK":
        return unvalidated(f"a PGP key; {_UNKNOWN_USE}")
    return _judge_openssh(pem) if label.startswith("OPENSSH") else _judge_pem(label, pem)


def _judge_openssh(pem: bytes) -> Verdict:
    """Return the verdict on a private key in OpenSSH's own format.

    It is `invalid` if the key cannot be read, else `unvalidated` with a description; a kind of key that is
    not supported is `unvalidated` too. The first field of the format names the cipher: of an encrypted key
    only that field is read.
    """
    content = _pem_content(pem)
    if not content.startswith(_OPENSSH_MAGIC):
        return _unreadable()
    start = len(_OPENSSH_MAGIC)
    size = int.from_bytes(content[start : start + 4], "big")
    if content[start + 4 : start + 4 + size] != b"none":
        return _readable("an OpenSSH key", encrypted=True, ssh=True)
    try:
        key: object = serialization.load_ssh_private_key(pem, None, unsafe_skip_rsa_key_validation=True)
    except UnsupportedAlgorithm:
        return unvalidated(f"an OpenSSH key of an unsupported kind; {_UNKNOWN_USE}")
    except (ValueError, TypeError):
        return _unreadable()
    return _readable(_describe_key(key), encrypted=False, ssh=True)


def _judge_pem(label: str, pem: bytes) -> Verdict:
    """Return the verdict on a private key in PEM: in PKCS#8, or in an older format such as RSA's or EC's.

    It is `invalid` if the key cannot be read, else `unvalidated` with a description; a kind of key that is
    not supported is `unvalidated` too. `label` is the text after BEGIN, such as `RSA PRIVATE KEY`. Of an
    encrypted key only the base64 is checked.
    """
    if label.startswith("ENCRYPTED") or b"\nDEK-Info: " in pem:
        return _readable("a key", encrypted=True) if _pem_content(pem) else _unreadable()
    try:
        # Skip the validation of RSA numbers: for a made-up key of tens of thousands of bits it takes minutes.
        key: object = serialization.load_pem_private_key(pem, None, unsafe_skip_rsa_key_validation=True)
    except UnsupportedAlgorithm:
        return unvalidated(f"a key of an unsupported kind; {_UNKNOWN_USE}")
    except (ValueError, TypeError):
        return _unreadable()
    return _readable(_describe_key(key), encrypted=False)


def _pem_content(pem: bytes) -> bytes:
    """Return the decoded base64 of a PEM block, without its headers; b"" if it is not base64."""
    lines = [
        line for line in pem.split(b"\n")[1:] if line and b":" not in line and not line.startswith(b"-----")
    ]
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except ValueError:
        return b""


def _describe_key(key: object) -> str:
    """Describe a loaded key by its algorithm and size, such as "an RSA key of 2048 bits".

    The result is "a key" for another algorithm.
    """
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


def _readable(description: str, *, encrypted: bool, ssh: bool = False) -> Verdict:
    """Return the `unvalidated` verdict on a key that can be read.

    `description` says what it is, such as "a PuTTY key". `encrypted` says that a passphrase protects the key.
    `ssh` keys get the service label "ssh".
    """
    protection = "a passphrase protects it" if encrypted else "no passphrase protects it"
    verdict = unvalidated(f"{description}, {protection}; {_UNKNOWN_USE}")
    return replace(verdict, services=("ssh",) if ssh else ())


def _unreadable() -> Verdict:
    """Return the `invalid` verdict, of low confidence, on a key that cannot be read."""
    return invalid("is not a complete key: it cannot be read", Confidence.LOW)
