"""Keys and certificates from the ssl.keystore.* and ssl.truststore.* settings of a listener.

PEM (KIP-651), in a file or in the setting itself, and PKCS12. As in Java, a PKCS12 file is read even if the type says
JKS, which is the default. JKS files are refused. Source: DefaultSslEngineFactory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

JKS_MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"
DER_SEQUENCE = b"\x30"
TYPES = ("JKS", "PKCS12", "PEM")

#: Reads a file. Errors: OSError.
ReadFile = Callable[[str], bytes]


class StoreSettings(Protocol):
    """The settings of one listener."""

    def own(self, key: str) -> str | None: ...
    def get_list(self, key: str) -> list[str]: ...
    def get_str(self, key: str) -> str: ...
    def get_optional_str(self, key: str) -> str | None: ...
    def refusal(self, key: str, reason: str, allowed: str | None = None) -> Exception: ...


class Identity(NamedTuple):
    """A private key and the certificates that prove its owner, its own first."""

    key: PrivateKeyTypes
    chain: list[Certificate]

    def pem(self) -> bytes:
        """Both, unencrypted, in OpenSSL's format."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)


def read_identity(settings: StoreSettings, read: ReadFile) -> Identity | None:
    """The identity in the ssl.keystore.* settings; None without one. Errors: ConfigError."""
    location = settings.get_optional_str("ssl.keystore.location")
    key = settings.get_optional_str("ssl.keystore.key")
    chain = settings.get_optional_str("ssl.keystore.certificate.chain")
    password = settings.get_optional_str("ssl.keystore.password")
    key_password = settings.get_optional_str("ssl.key.password")
    is_pem = store_type(settings, "ssl.keystore.type") == "PEM"
    if key is not None or chain is not None:
        if not is_pem:
            raise settings.refusal(
                "ssl.keystore.type", "ssl.keystore.key needs ssl.keystore.type=PEM"
            )
        if key is None:
            raise settings.refusal(
                "ssl.keystore.certificate.chain",
                "SSL certificate chain is specified, but private key is not specified",
            )
        if chain is None:
            raise settings.refusal(
                "ssl.keystore.key",
                "SSL private key is specified, but certificate chain is not specified",
            )
        if location is not None:
            raise settings.refusal(
                "ssl.keystore.location",
                "Both SSL key store location and separate private key are specified",
            )
    if is_pem and password is not None:
        raise settings.refusal(
            "ssl.keystore.password",
            "SSL key store password cannot be specified with PEM format, only key password may be specified",
        )
    if key is not None and chain is not None:
        return _pem_identity(
            settings, key.encode(), chain.encode(), key_password, "ssl.keystore.key"
        )
    if location is None:
        if password is not None:
            raise settings.refusal(
                "ssl.keystore.password",
                "SSL key store is not specified, but key store password is specified",
            )
        return None
    data = _read_store(settings, "ssl.keystore", location, is_pem, read)
    if is_pem:
        return _pem_identity(settings, data, data, key_password, "ssl.keystore.location")
    if password is None:
        raise settings.refusal(
            "ssl.keystore.location",
            "SSL key store is specified, but key store password is not specified",
        )
    if key_password is not None and key_password != password:
        raise settings.refusal(
            "ssl.key.password", "kwire reads a PKCS12 file with one password, ssl.keystore.password"
        )
    return _pkcs12_identity(settings, data, password)


def read_trusted(settings: StoreSettings, read: ReadFile) -> list[Certificate] | None:
    """The certificates in the ssl.truststore.* settings; None without any. Errors: ConfigError."""
    location = settings.get_optional_str("ssl.truststore.location")
    inline = settings.get_optional_str("ssl.truststore.certificates")
    password = settings.get_optional_str("ssl.truststore.password")
    is_pem = store_type(settings, "ssl.truststore.type") == "PEM"
    if inline is not None:
        if not is_pem:
            raise settings.refusal(
                "ssl.truststore.type", "ssl.truststore.certificates needs ssl.truststore.type=PEM"
            )
        if location is not None:
            raise settings.refusal(
                "ssl.truststore.location",
                "Both SSL trust store location and separate trust certificates are specified",
            )
    if is_pem and password is not None:
        raise settings.refusal(
            "ssl.truststore.password",
            "SSL trust store password cannot be specified for PEM format",
        )
    if inline is not None:
        return _pem_certificates(settings, inline.encode(), "ssl.truststore.certificates")
    if location is None:
        if password is not None:
            raise settings.refusal(
                "ssl.truststore.password",
                "SSL trust store is not specified, but trust store password is specified",
            )
        return None
    data = _read_store(settings, "ssl.truststore", location, is_pem, read)
    if is_pem:
        return _pem_certificates(settings, data, "ssl.truststore.location")
    found = _open_pkcs12(settings, data, password, "ssl.truststore")
    trusted = [each.certificate for each in (found.cert, *found.additional_certs) if each]
    if not trusted:
        raise settings.refusal("ssl.truststore.location", "the file has no certificates")
    return trusted


def store_type(settings: StoreSettings, key: str) -> str:
    """The type of a store. Errors: ConfigError for a type that kwire does not read."""
    name = settings.get_str(key).upper()
    if name not in TYPES:
        raise settings.refusal(key, f"kwire does not read {name}", ", ".join(TYPES[1:]))
    return name


def _read_store(
    settings: StoreSettings, prefix: str, location: str, is_pem: bool, read: ReadFile
) -> bytes:
    """Read a store's file, and refuse content that does not look like its type. Errors: ConfigError."""
    key = f"{prefix}.location"
    try:
        data = read(location)
    except OSError as error:
        raise settings.refusal(key, f"cannot be read: {error.strerror or error}") from None
    if data[:4] in (JKS_MAGIC, JCEKS_MAGIC):
        raise settings.refusal(
            key,
            "this is a JKS file, which kwire does not read. Convert it: keytool -importkeystore"
            f" -srckeystore {location} -destkeystore {location.removesuffix('.jks')}.p12 -deststoretype PKCS12",
        )
    looks_pem = b"-----BEGIN " in data
    if is_pem and not looks_pem:
        what = "a PKCS12 file" if data[:1] == DER_SEQUENCE else "no PEM file"
        raise settings.refusal(key, f"this is {what}, but {prefix}.type is PEM")
    if looks_pem and not is_pem:
        raise settings.refusal(key, f"this is a PEM file: set {prefix}.type=PEM")
    return data


def _pem_identity(
    settings: StoreSettings, key: bytes, chain: bytes, password: str | None, source: str
) -> Identity:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    encrypted = b"ENCRYPTED" in key
    if encrypted and password is None:
        raise settings.refusal(source, "the private key is encrypted: set ssl.key.password")
    if b"PRIVATE KEY-----" not in key:
        raise settings.refusal(source, "there is no private key (BEGIN PRIVATE KEY)")
    try:
        private = load_pem_private_key(
            _block(key), password.encode() if encrypted and password is not None else None
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if encrypted:
            reason = "does not open the private key: it is wrong, or the key is damaged"
            raise settings.refusal("ssl.key.password", reason) from None
        raise settings.refusal(source, f"the private key cannot be read: {error}") from None
    where = "ssl.keystore.certificate.chain" if source == "ssl.keystore.key" else source
    return _checked(settings, where, Identity(private, _pem_certificates(settings, chain, where)))


def _block(pem: bytes) -> bytes:
    """The first private key of a PEM text."""
    begin = pem.rindex(b"-----BEGIN ", 0, pem.index(b"PRIVATE KEY-----") + 1)
    return pem[begin:]


def _pem_certificates(settings: StoreSettings, pem: bytes, source: str) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(pem)
    except ValueError as error:
        if b"BEGIN CERTIFICATE" not in pem:
            raise settings.refusal(source, "there is no certificate (BEGIN CERTIFICATE)") from None
        raise settings.refusal(source, f"the certificates cannot be read: {error}") from None


def _pkcs12_identity(settings: StoreSettings, data: bytes, password: str) -> Identity:
    found = _open_pkcs12(settings, data, password, "ssl.keystore")
    if found.key is None or found.cert is None:
        raise settings.refusal(
            "ssl.keystore.location", "the file has no private key with its certificate"
        )
    # The chain in order, each certificate followed by that of its issuer.
    chain = [found.cert.certificate]
    rest = [each.certificate for each in found.additional_certs]
    while issuer := next((each for each in rest if each.subject == chain[-1].issuer), None):
        rest.remove(issuer)
        chain.append(issuer)
    return _checked(settings, "ssl.keystore.location", Identity(found.key, chain))


def _open_pkcs12(
    settings: StoreSettings, data: bytes, password: str | None, prefix: str
) -> PKCS12KeyAndCertificates:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        if "password" in str(error).lower():
            reason = "does not open the file: it is wrong, or the file is damaged"
            raise settings.refusal(f"{prefix}.password", reason) from None
        raise settings.refusal(
            f"{prefix}.location", f"this is not a PKCS12 file: {error}"
        ) from None


def _checked(settings: StoreSettings, source: str, identity: Identity) -> Identity:
    leaf = identity.chain[0]
    if leaf.public_key() != identity.key.public_key():
        raise settings.refusal(
            source,
            f"the private key does not belong to the first certificate ({leaf.subject.rfc4514_string()})",
        )
    return identity
