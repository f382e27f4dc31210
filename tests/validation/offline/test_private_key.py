"""Tokens and private keys, read by themselves."""

import base64
import json
import time

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from outcrop.net.guard import Egress
from outcrop.validation.offline.jwt import judge_jwt
from outcrop.validation.offline.private_key import judge_private_key
from tests.support.checks import load_check, run_check

NOW = 1_700_000_000


def part(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


def token(header: object, claims: object, proof: str = "s" * 43) -> str:
    return ".".join([part(header), part(claims), *([proof] if proof else [])])


@pytest.mark.parametrize(
    ("given", "status", "confidence", "words"),
    [
        (token({"alg": "RS256"}, {"exp": NOW - 1}), "invalid", "high", "has expired"),
        (token({"alg": "none"}, {"exp": NOW - 1}, ""), "invalid", "high", "has expired"),
        (
            token({"alg": "RS256"}, {"exp": NOW + 60}),
            "unvalidated",
            "low",
            "has not expired; its signature was not verified",
        ),
        (
            token({"alg": "HS256"}, {"exp": NOW + 60.5}),
            "unvalidated",
            "low",
            "has not expired; it is signed with a shared key",
        ),
        (token({"alg": "HS256"}, {}), "unvalidated", "low", "never expires"),
        (token({"alg": "ES256"}, {"nbf": NOW + 60}), "unvalidated", "low", "not valid yet"),
        (token({"alg": "nOnE"}, {}), "invalid", "low", "not signed"),
        (token({"alg": "RS256"}, {}, ""), "invalid", "low", "not signed"),
        (token({"alg": "RS256"}, {"exp": True}), "unvalidated", "low", "never expires"),
        (token({"alg": "RS256"}, {"exp": "soon"}), "unvalidated", "low", "never expires"),
        (token({"alg": "RS256"}, {"exp": 10**400}), "unvalidated", "low", "never expires"),
        (token({"alg": "RS256"}, {"exp": float("inf")}), "unvalidated", "low", "never expires"),
        (token({"alg": ["x"]}, {}), "unvalidated", "low", "never expires"),
        (token([], {}), "invalid", "low", "not a complete token"),
        ("eyJ" + "[" * 5000 + ".eyJ.s", "invalid", "low", "not a complete token"),
        (token({"alg": "RS256"}, {})[:-60], "invalid", "low", "not a complete token"),
    ],
)
def test_a_token_is_judged_by_what_it_says(given, status, confidence, words):
    verdict = judge_jwt(given, NOW)
    assert (verdict.status, verdict.confidence) == (status, confidence)
    assert words in verdict.reason


def pem(key, form: str = "PKCS8", passphrase: bytes | None = None) -> str:
    guard = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return (
        key.private_bytes(serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), guard)
        .decode()
        .strip()
    )


RSA, EC, ED = (
    rsa.generate_private_key(65537, 2048),
    ec.generate_private_key(ec.SECP384R1()),
    ed25519.Ed25519PrivateKey.generate(),
)
DSA = dsa.generate_private_key(1024)  # larger ones take seconds to be made
HUGE = "-----BEGIN PRIVATE KEY-----\n" + "MIIE" * 8000 + "\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "words", "services"),
    [
        (pem(RSA), "an RSA key of 2048 bits, no passphrase protects it", ()),
        (pem(RSA, "TraditionalOpenSSL"), "an RSA key of 2048 bits, no passphrase", ()),
        (pem(RSA).replace("\n", "\\n"), "an RSA key of 2048 bits", ()),
        (pem(EC, "TraditionalOpenSSL"), "an elliptic-curve key (secp384r1)", ()),
        (pem(DSA), "a DSA key of 1024 bits", ()),
        (pem(ED, "OpenSSH"), "an Edwards-curve key, no passphrase protects it", ("ssh",)),
        (pem(RSA, "OpenSSH"), "an RSA key of 2048 bits, no passphrase protects it", ("ssh",)),
        (pem(RSA, "PKCS8", b"pass"), "a key, a passphrase protects it", ()),
        (pem(RSA, "TraditionalOpenSSL", b"pass"), "a key, a passphrase protects it", ()),
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
def test_a_key_tells_what_it_is(text, words, services):
    verdict = judge_private_key(text)
    assert (verdict.status, verdict.services) == ("unvalidated", services)
    assert words in verdict.reason


def test_a_key_on_an_unknown_curve_is_told_and_not_called_broken():
    raw = EC.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    unknown = raw.replace(bytes.fromhex("06052b81040022"), bytes.fromhex("06052b8104007f"))
    assert unknown != raw
    verdict = judge_private_key(
        f"-----BEGIN PRIVATE KEY-----\n{base64.b64encode(unknown).decode()}\n-----END PRIVATE KEY-----"
    )
    assert (verdict.status, "of an unsupported kind" in verdict.reason) == ("unvalidated", True)


def test_an_openssh_key_with_a_passphrase_is_not_opened():
    inner = b"openssh-key-v1\0" + b"\0\0\0\x0aaes256-ctr" + b"\0\0\0\x06bcrypt" + bytes(200)
    verdict = judge_private_key(
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{base64.b64encode(inner).decode()}\n-----END OPENSSH PRIVATE KEY-----"
    )
    assert "a passphrase protects it" in verdict.reason


@pytest.mark.parametrize(
    "text",
    [
        pem(RSA)[:700],
        pem(RSA).replace("M", "N", 30),
        pem(ED, "OpenSSH").replace("b3BlbnNzaC", "b3BlbnNzaD"),
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU=\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n-----END ENCRYPTED PRIVATE KEY-----",
        HUGE,
    ],
    ids=["cut off", "changed", "no OpenSSH", "short OpenSSH", "empty", "empty encrypted", "huge"],
)
def test_what_does_not_load_is_no_key(text):
    began = time.monotonic()
    verdict = judge_private_key(text)
    assert (verdict.status, verdict.confidence) == ("invalid", "low")
    assert time.monotonic() - began < 2


def test_both_are_checks_by_name():
    assert (
        run_check(Egress(), load_check("jwt", "jwt"), token({"alg": "RS256"}, {"exp": 5})).reason
        == "has expired"
    )
    assert "RSA" in run_check(Egress(), load_check("private_key", "private_key"), pem(RSA)).reason
