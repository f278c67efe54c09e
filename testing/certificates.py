"""The authority of a test run, and the certificates that it issues: elliptic curves, whose keys cost no time."""

from __future__ import annotations

import datetime
import functools
import ipaddress
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from .real_time import now

DAY = timedelta(days=1)
YEARS = 3650 * DAY
#: The names by which clients connect to brokers of a test.
HOSTS = ("localhost", "127.0.0.1", "::1")

#: The key usage of an authority; without it, Python 3.13 and later do not trust it.
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
    """A private key and its certificate, both as objects and in PEM."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.key = key
        self.certificate = certificate
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.key_pem = pem.decode()
        self.certificate_pem = certificate.public_bytes(Encoding.PEM).decode()

    @property
    def principal(self) -> str:
        """The principal of a client with this certificate: "User:CN=app"."""
        from kwire.server.security.tls.distinguished_name import name_text, subject_of

        return f"User:{name_text(subject_of(self.certificate.public_bytes(Encoding.DER)))}"

    def write(self, path: Path) -> Path:
        """Write the key and the certificate to one file."""
        path.write_text(self.key_pem + self.certificate_pem)
        return path


class Certificate:
    """A certificate for a client, with its files.

    Shape: `path` has the key and the certificate, the other files have one of them.
    """

    def __init__(self, issued: Issued, folder: Path, name: str) -> None:
        #: The principal of a client with this certificate, for `allow`: "User:CN=app".
        self.principal = issued.principal
        self.path = issued.write(folder / f"{name}.pem")
        self.certificate_path = folder / f"{name}.crt"
        self.key_path = folder / f"{name}.key"
        self.certificate_path.write_text(issued.certificate_pem)
        self.key_path.write_text(issued.key_pem)

    def __repr__(self) -> str:
        return f"<certificate of {self.principal}>"


class Authority:
    """Issues certificates. Shape: `name` is its common name."""

    def __init__(self, name: str = "kwire.testing authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(self._name, self._key.public_key(), YEARS)
        builder = builder.add_extension(constraints, critical=True)
        self.certificate = self._signed(builder.add_extension(SIGNS_CERTIFICATES, critical=True))
        self.pem = self.certificate.public_bytes(Encoding.PEM).decode()

    def write(self, path: Path) -> Path:
        """Write the certificate of the authority."""
        path.write_text(self.pem)
        return path

    def issue(
        self,
        subject: str | x509.Name,
        *,
        hosts: tuple[str, ...] = HOSTS,
        valid_for: timedelta = YEARS,
    ) -> Issued:
        """Issue a certificate, which is also valid for the given hosts.

        Shape: `subject` is as in RFC 4514, "CN=app,O=Example"; a negative time makes one that has expired. Errors:
        ValueError.
        """
        name = subject if isinstance(subject, x509.Name) else _subject(subject)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(name, key.public_key(), valid_for)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Issued(key, self._signed(builder))

    def _signed(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        """Sign with Python's own class of dates in place: cryptography keeps the one that it finds first, for good.

        If that were freezegun's, no certificate could be made any more once the time is no longer frozen.
        """
        found = datetime.datetime
        own = next(each for each in found.__mro__ if each.__module__ == each.__name__ == "datetime")
        datetime.datetime = own  # type: ignore[assignment, misc]
        try:
            return builder.sign(self._key, hashes.SHA256())
        finally:
            datetime.datetime = found  # type: ignore[misc]

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid_for: timedelta
    ) -> x509.CertificateBuilder:
        today = now()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(today + min(valid_for, timedelta()) - DAY)
            .not_valid_after(today + valid_for)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _subject(text: str) -> x509.Name:
    try:
        return x509.Name.from_rfc4514_string(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not the subject of a certificate, such as 'CN=app' or 'CN=app,O=Example'"
        ) from None


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@functools.cache
def authority() -> Authority:
    """The authority of this process."""
    return Authority()


@functools.cache
def of_brokers() -> Issued:
    """The certificate of the brokers of this process."""
    return authority().issue("CN=broker")


@functools.cache
def of_helpers() -> Issued:
    """The certificate with which the helpers of tests connect."""
    return authority().issue("CN=kwire-testing", hosts=())
