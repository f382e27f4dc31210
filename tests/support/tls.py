"""Make certificates for servers on loopback."""

from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    """Return a key of 2,048 bits, the same for all tests of a process: to make one takes long."""
    return rsa.generate_private_key(65537, 2048)


def make_certificate(
    folder: Path, *names: str, hours: tuple[int, int] = (-1, 1), address: bool = True
) -> tuple[Path, Path]:
    """Write a self-signed certificate and its key to `folder` and return both paths.

    It is for these names, and with `address` for 127.0.0.1. `hours` are its start and end, counted from now.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"outcrop test {names}"[:64])])
    now = datetime.now(UTC)
    addresses = [x509.IPAddress(ip_address("127.0.0.1"))] if address else []
    hosts = x509.SubjectAlternativeName([*(x509.DNSName(name) for name in names), *addresses])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(hours=hours[0]))
        .not_valid_after(now + timedelta(hours=hours[1]))
        .add_extension(hosts, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert_file, key_file
