"""An authority made for the test run, and the certificates that it issues: elliptic curves, which cost no time."""

from __future__ import annotations

import functools
import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)

#: What the key of an authority is for; without it, Python from 3.13 on does not trust it.
SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Issued:
    """A private key with its certificate, and the certificate of who issued it."""

    def __init__(
        self,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        authority: x509.Certificate,
    ) -> None:
        self.key = key
        self.certificate = certificate
        self.authority = authority

    @property
    def certificate_der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def chain_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pem(self, password: str | None = None) -> str:
        return self.key_pem(password) + self.chain_pem

    def pkcs12(self, password: str) -> bytes:
        return serialize_key_and_certificates(
            b"own",
            self.key,
            self.certificate,
            [self.authority],
            BestAvailableEncryption(password.encode()),
        )

    def write(self, path: Path) -> Path:
        """Write key and certificate as PEM."""
        path.write_text(self.pem())
        return path


class Authority:
    """Issues certificates, by default for localhost and 127.0.0.1."""

    def __init__(self, name: str = "Test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            self._builder(self._name, self._key.public_key(), DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write(self, path: Path) -> Path:
        """Write the certificate of the authority as PEM."""
        path.write_text(self.pem)
        return path

    def issue(
        self,
        name: str,
        *,
        organization: str | None = None,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        valid_for: timedelta = DAY * 30,
    ) -> Issued:
        """Issue a certificate. Shape: a negative `valid_for` makes one that has expired."""
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization is not None:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name(parts), key.public_key(), valid_for)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Issued(key, builder.sign(self._key, hashes.SHA256()), self.certificate)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid_for: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY * 2)
            .not_valid_after(now + valid_for)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@functools.cache
def shared_authority() -> Authority:
    """The authority of this test run."""
    return Authority()
