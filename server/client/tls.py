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
    """What connections use. Errors: OSError, ValueError.

    Shape: with `ssl_contents`, the files' contents by argument, no files are read: another machine may have them.
    """
    import ssl

    contents: Mapping[str, str] = arguments.get("ssl_contents", {})
    authorities = contents.get("ssl_cafile")
    context = ssl.create_default_context(
        cafile=None if authorities else arguments.get("ssl_cafile"), cadata=authorities
    )
    # Since Python 3.13, this flag would refuse authorities that Apache Kafka's clients accept.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = arguments.get("ssl_check_hostname", True)
    if arguments.get("ssl_crlfile"):
        context.load_verify_locations(cafile=arguments["ssl_crlfile"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if arguments.get("ssl_certfile"):
        # Without a password, OpenSSL would ask for one on the terminal.
        password = arguments.get("ssl_password", "")
        chain = [contents[each] for each in ("ssl_certfile", "ssl_keyfile") if each in contents]
        if chain:
            from ..security.tls.contexts import as_file

            with as_file("\n".join(chain).encode()) as file:
                context.load_cert_chain(file, None, password)
        else:
            context.load_cert_chain(
                arguments["ssl_certfile"], arguments.get("ssl_keyfile"), password
            )
    return context
