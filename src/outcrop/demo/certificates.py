"""TLS certificates for the stand-ins, signed by a new certificate authority whose key is never stored."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_LIFETIME = timedelta(days=90)  # longer than any demo runs
_AUTHORITY = "Outcrop demo: made up, trusted by nobody else"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files of the server's certificate and key, and of the authority that clients trust."""

    authority: Path
    certificate: Path
    key: Path


def write_certificates(folder: Path, names: Sequence[str], now: datetime) -> CertificateFiles:
    """Write one certificate for all host names; replace the files of an earlier start."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _signed(
        _AUTHORITY,
        _AUTHORITY,
        authority_key.public_key(),
        authority_key,
        extension=x509.BasicConstraints(True, 0),
        now=now,
    )
    hosts = x509.SubjectAlternativeName([x509.DNSName(name) for name in sorted(set(names))])
    certificate = _signed(
        "Outcrop demo stand-ins", _AUTHORITY, key.public_key(), authority_key, extension=hosts, now=now
    )
    files = CertificateFiles(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    _write(files.authority, authority.public_bytes(serialization.Encoding.PEM))
    _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    unlocked = serialization.NoEncryption()  # the key is in a private folder and only this process reads it
    _write(
        files.key, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unlocked)
    )
    return files


def _signed(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    extension: x509.ExtensionType,
    now: datetime,
) -> x509.Certificate:
    """Return a certificate for the subject's key, signed by the issuer's key."""
    builder = (
        x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name(issuer)).public_key(key)
    )
    builder = (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
    )
    return builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints)).sign(
        signer, hashes.SHA256()
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _write(file: Path, content: bytes) -> None:
    """Replace a file; only its owner can read it."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(content)
