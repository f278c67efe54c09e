"""TLS of a client, with the authorities, certificate and key that its settings name."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import ContactError
from .words import reason

if TYPE_CHECKING:
    import ssl


def encrypted(sock: socket.socket, host: str, arguments: Mapping[str, Any]) -> ssl.SSLSocket:
    """The TLS connection on a socket. Errors: ContactError."""
    import ssl

    try:
        context = context_of(arguments)
    except (OSError, ValueError) as error:
        raise ContactError(f"TLS: certificates or key cannot be read: {reason(error)}") from None
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        hint = (
            ""
            if arguments.get("ssl_cafile")
            else "; -X ssl.ca.location=FILE gives the trusted authorities"
        )
        raise ContactError(f"TLS: the broker's certificate: {error.verify_message}{hint}") from None
    except OSError as error:
        protocol = arguments["security_protocol"].replace("SSL", "PLAINTEXT")
        raise ContactError(
            f"TLS: {reason(error)}; if this port does not speak TLS: -X security.protocol={protocol}"
        ) from None


def context_of(arguments: Mapping[str, Any]) -> ssl.SSLContext:
    """What connections use. Errors: OSError, ValueError."""
    import ssl

    context = ssl.create_default_context(cafile=arguments.get("ssl_cafile"))
    # Since Python 3.13, this flag would refuse authorities that Apache Kafka's clients accept.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = arguments.get("ssl_check_hostname", True)
    if arguments.get("ssl_certfile"):
        context.load_cert_chain(
            arguments["ssl_certfile"],
            arguments.get("ssl_keyfile"),
            # Without a password, OpenSSL would ask for one on the terminal.
            arguments.get("ssl_password", ""),
        )
    return context
