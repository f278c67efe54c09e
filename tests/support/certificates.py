"""Stores in forms that only tests of the broker need, made of certificates that kwire.testing issues."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from kwire.testing.certificates import Authority, Certificate, Issued


def encrypted_pem(issued: Issued, password: str) -> str:
    """The key, encrypted, and the certificate."""
    encryption = BestAvailableEncryption(password.encode())
    key = issued.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return key.decode() + issued.certificate_pem


def pkcs12(issued: Issued, authority: Authority, password: str) -> bytes:
    """A PKCS #12 store of the key, the certificate and that of the authority."""
    return serialize_key_and_certificates(
        b"own",
        issued.key,
        issued.certificate,
        [authority.certificate],
        BestAvailableEncryption(password.encode()),
    )


def write_client(authority: Authority, subject: str, folder: Path, name: str) -> None:
    """Write a client's key and certificate in each client's form: NAME.pem, .key, .crt, and .p12 with "changeit"."""
    issued = authority.issue(subject)
    Certificate(issued, folder, name)
    (folder / f"{name}.p12").write_bytes(pkcs12(issued, authority, "changeit"))
