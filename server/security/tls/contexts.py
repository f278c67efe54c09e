"""OpenSSL contexts from the ssl.* settings of a listener.

One context is for clients that connect to the listener, the other for this broker when it connects to the same listener
of another broker. A context never changes: new certificates get a new one, and connections keep their initial context.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from .cipher_suites import NoSuchSuites, cipher_suites
from .principal_rules import InvalidRule, PrincipalRules
from .stores import Identity, ReadFile, StoreSettings, read_identity, read_trusted

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: Java 17 does not negotiate these either, even if they are in the list.
OLD_VERSIONS = frozenset({"SSLv3", "TLSv1", "TLSv1.1"})
VERIFY = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class Credentials(NamedTuple):
    """The result of a listener's ssl.* settings. Shape: `trusted` is None for the system's certificates."""

    identity: Identity | None
    trusted: list[Certificate] | None
    server: ssl.SSLContext
    client: ssl.SSLContext
    rules: PrincipalRules

    @property
    def trusts_anybody(self) -> bool:
        """Whether, as in Apache Kafka, clients are identified by authorities that were not chosen for this purpose."""
        return self.trusted is None and self.server.verify_mode != ssl.CERT_NONE

    @property
    def own(self) -> Certificate | None:
        """This broker's certificate."""
        return None if self.identity is None else self.identity.chain[0]


def load_credentials(settings: StoreSettings, read: ReadFile, *, login: bool) -> Credentials:
    """Read the stores and make both contexts.

    Shape: with `login`, clients of the listener log in with SASL, so `ssl.client.auth` counts only if it is set for
    this listener. Errors: ConfigError, which names the key.
    """
    if settings.get_optional_str("ssl.engine.factory.class"):
        raise settings.refusal("ssl.engine.factory.class", "kwire cannot run Java classes")
    identity, trusted = read_identity(settings, read), read_trusted(settings, read)
    if identity is None:
        raise settings.refusal(
            "ssl.keystore.location",
            "a listener with TLS needs a private key and a certificate: set this,"
            " or ssl.keystore.key and ssl.keystore.certificate.chain",
        )
    try:
        rules = PrincipalRules(settings.get_str("ssl.principal.mapping.rules"))
    except InvalidRule as error:
        raise settings.refusal("ssl.principal.mapping.rules", str(error)) from None
    server = _context(settings, ssl.PROTOCOL_TLS_SERVER, identity, trusted)
    auth = settings.own("ssl.client.auth") if login else settings.get_str("ssl.client.auth")
    server.verify_mode = VERIFY[auth or "none"]
    client = _client_context(settings, identity, trusted)
    return Credentials(identity, trusted, server, client, rules)


def client_context(settings: StoreSettings, read: ReadFile) -> ssl.SSLContext:
    """The context of a client that may have no certificate of its own. Errors: ConfigError, which names the key."""
    return _client_context(settings, read_identity(settings, read), read_trusted(settings, read))


def _client_context(
    settings: StoreSettings, identity: Identity | None, trusted: list[Certificate] | None
) -> ssl.SSLContext:
    context = _context(settings, ssl.PROTOCOL_TLS_CLIENT, identity, trusted)
    algorithm = settings.get_str("ssl.endpoint.identification.algorithm").lower()
    if algorithm not in ("", "https"):
        raise settings.refusal(
            "ssl.endpoint.identification.algorithm", "not supported", "https or empty"
        )
    context.check_hostname = algorithm == "https"
    return context


def _context(
    settings: StoreSettings,
    protocol: int,
    identity: Identity | None,
    trusted: list[Certificate] | None,
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    # A renegotiation costs the server much more than the client, and Kafka's clients never need it.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # As in Java, every certificate of the truststore is trusted, not only those at the end of a chain.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _set_versions_and_suites(context, settings)
    if identity is not None:
        with as_file(identity.pem()) as path:
            try:
                context.load_cert_chain(path)
            except ssl.SSLError as error:
                reason = f"OpenSSL refuses the certificate: {error.reason or error}"
                raise settings.refusal("ssl.keystore.location", reason) from None
    if trusted is None:
        context.load_default_certs(
            ssl.Purpose.CLIENT_AUTH
            if protocol == ssl.PROTOCOL_TLS_SERVER
            else ssl.Purpose.SERVER_AUTH
        )
    else:
        from cryptography.hazmat.primitives.serialization import Encoding

        pem = b"".join(each.public_bytes(Encoding.PEM) for each in trusted)
        try:
            context.load_verify_locations(cadata=pem.decode("ascii"))
        except ssl.SSLError as error:
            reason = f"OpenSSL refuses the certificates: {error.reason or error}"
            raise settings.refusal("ssl.truststore.location", reason) from None
    return context


def _set_versions_and_suites(context: ssl.SSLContext, settings: StoreSettings) -> None:
    named = settings.get_list("ssl.enabled.protocols")
    unknown = [name for name in named if name not in VERSIONS and name not in OLD_VERSIONS]
    versions = {VERSIONS[name] for name in named if name in VERSIONS}
    suites = settings.get_list("ssl.cipher.suites")
    if suites:
        try:
            allowed = cipher_suites(suites)
        except NoSuchSuites as error:
            raise settings.refusal("ssl.cipher.suites", str(error)) from None
        if allowed.older:
            context.set_ciphers(allowed.older)
        else:
            versions.discard(ssl.TLSVersion.TLSv1_2)
        if not allowed.tls_1_3:
            versions.discard(ssl.TLSVersion.TLSv1_3)
    if unknown or not versions:
        reason = f"{', '.join(unknown)} is not supported" if unknown else "no version is left"
        raise settings.refusal("ssl.enabled.protocols", reason, ", ".join(VERSIONS))
    context.minimum_version, context.maximum_version = min(versions), max(versions)


@contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """A temporary file, since OpenSSL loads certificate chains only from files; in memory if Linux allows it."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("kwire"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
