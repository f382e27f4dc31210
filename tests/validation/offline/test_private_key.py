"""Private keys, judged by their content."""

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519

from outcrop.validation.offline.private_key import judge_private_key
from tests.support.growth import grows_linearly
from tests.support.tls import rsa_key


def make_pem(key, form: str = "PKCS8", passphrase: bytes | None = None) -> str:
    encryption = (
        serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    )
    return (
        key.private_bytes(serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), encryption)
        .decode()
        .strip()
    )


RSA, EC, ED = (
    rsa_key(),
    ec.generate_private_key(ec.SECP384R1()),
    ed25519.Ed25519PrivateKey.generate(),
)
DSA = dsa.generate_private_key(1024)  # generating a larger one takes seconds
SHORT_OPENSSH = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU=\n-----END OPENSSH PRIVATE KEY-----"
)
HUGE = "-----BEGIN PRIVATE KEY-----\n" + "MIIE" * 8000 + "\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "description", "services"),
    [
        (make_pem(RSA), "an RSA key of 2048 bits, no passphrase protects it", ()),
        (make_pem(RSA, "TraditionalOpenSSL"), "an RSA key of 2048 bits, no passphrase", ()),
        (make_pem(RSA).replace("\n", "\\n"), "an RSA key of 2048 bits", ()),
        (make_pem(EC, "TraditionalOpenSSL"), "an elliptic-curve key (secp384r1)", ()),
        (make_pem(DSA), "a DSA key of 1024 bits", ()),
        (make_pem(ED, "OpenSSH"), "an Edwards-curve key, no passphrase protects it", ("ssh",)),
        (make_pem(RSA, "OpenSSH"), "an RSA key of 2048 bits, no passphrase protects it", ("ssh",)),
        (make_pem(RSA, "PKCS8", b"pass"), "a key, a passphrase protects it", ()),
        (make_pem(RSA, "TraditionalOpenSSL", b"pass"), "a key, a passphrase protects it", ()),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n" + "A" * 64 + "\n-----END PGP PRIVATE KEY BLOCK-----",
            "a PGP key",
            (),
        ),
        (
            "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nComment: x\n",
            "a PuTTY key, no passphrase",
            ("ssh",),
        ),
        (
            "PuTTY-User-Key-File-3: ssh-rsa\nEncryption: aes256-cbc\nComment: x\n",
            "a PuTTY key, a passphrase protects it",
            ("ssh",),
        ),
        ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n", "an SSH2 key, a passphrase protects it", ("ssh",)),
        ("A" * 43, "a private key", ()),
    ],
)
def test_a_key_is_described_by_kind_and_protection(text, description, services):
    verdict = judge_private_key(text)
    assert (verdict.status, verdict.services) == ("unvalidated", services)
    assert description in verdict.reason


def test_a_key_on_an_unknown_curve_is_not_called_broken():
    raw = EC.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    unknown = raw.replace(bytes.fromhex("06052b81040022"), bytes.fromhex("06052b8104007f"))
    assert unknown != raw
    verdict = judge_private_key(
        f"-----BEGIN PRIVATE KEY-----\n{base64.b64encode(unknown).decode()}\n-----END PRIVATE KEY-----"
    )
    assert (verdict.status, "of an unsupported kind" in verdict.reason) == ("unvalidated", True)


def test_an_openssh_key_with_a_passphrase_is_recognized():
    inner = b"openssh-key-v1\0" + b"\0\0\0\x0aaes256-ctr" + b"\0\0\0\x06bcrypt" + bytes(200)
    verdict = judge_private_key(
        "-----BEGIN OPENSSH PRIVATE KEY-----\n"
        f"{base64.b64encode(inner).decode()}\n-----END OPENSSH PRIVATE KEY-----"
    )
    assert "a passphrase protects it" in verdict.reason


@pytest.mark.parametrize(
    "text",
    [
        make_pem(RSA)[:700],
        make_pem(RSA).replace("M", "N", 30),
        make_pem(ED, "OpenSSH").replace("b3BlbnNzaC", "b3BlbnNzaD"),
        SHORT_OPENSSH,
        "-----BEGIN RSA PRIVATE KEY-----\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n-----END ENCRYPTED PRIVATE KEY-----",
        HUGE,
    ],
    ids=["truncated", "changed", "wrong OpenSSH magic", "short OpenSSH", "empty", "empty encrypted", "huge"],
)
def test_a_key_that_cannot_be_read_is_invalid(text):
    verdict = judge_private_key(text)
    assert (verdict.status, verdict.confidence) == ("invalid", "low")


def test_a_huge_key_is_read_in_linear_time():
    assert grows_linearly(lambda size: judge_private_key(HUGE.replace("MIIE" * 8_000, "MIIE" * size)), 8_000)
