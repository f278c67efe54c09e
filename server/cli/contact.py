"""The first contact of a client command with a broker, in which problems are reported immediately and in words."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kwire.connection import ClientConnection
from kwire.errors import EncodeError, ErrorCode, OtherProtocol, WireError
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.messages.metadata import MetadataRequest
from kwire.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    import ssl

TIMEOUT_S = 10.0
#: The end of a response that comes in small pieces, for ever; the `request.timeout.ms` of Apache Kafka's clients.
WHOLE_S = 30.0
CLIENT_ID = "kwire-cli"


class CommandError(Exception):
    """An error message for the user; the command ends with exit code 1."""


class NoWholeAnswer(TimeoutError):
    """A response has begun and does not end."""


class ContactError(Exception):
    """The reason that a broker cannot be used; the text is for the user and contains no secret."""


def make_contact(sock: socket.socket, host: str, arguments: Mapping[str, Any]) -> Wire:
    """Do the first steps of a client on a connected socket: TLS, ApiVersions, a login, a request.

    Shape: `arguments` are those of `client_arguments`. Errors: ContactError.
    """
    protocol = arguments.get("security_protocol", "PLAINTEXT")
    sock.settimeout(TIMEOUT_S)
    if protocol in ("SSL", "SASL_SSL"):
        sock = encrypted(sock, host, arguments)
    wire = Wire(sock, arguments.get("client_id", CLIENT_ID))
    try:
        wire.learn_versions()
    except (OSError, WireError) as error:
        raise ContactError(no_answer(error, protocol)) from None
    if protocol.startswith("SASL_"):
        log_in(wire, host, arguments)
    elif not wire.can(MetadataRequest(topics=[]), 1):
        raise ContactError(
            "the broker requires a login: -X security.protocol="
            f"{'SASL_SSL' if protocol == 'SSL' else 'SASL_PLAINTEXT'}, with sasl.mechanism, sasl.username and"
            " sasl.password"
        )
    return wire


class Wire:
    """Requests, one after the other, on a blocking socket."""

    def __init__(self, sock: socket.socket, client_id: str = CLIENT_ID) -> None:
        self.sock = sock
        self.versions: dict[int, tuple[int, int]] = {}
        """The versions that the broker serves, by API key."""
        self._client = ClientConnection(client_id)

    def learn_versions(self) -> None:
        """Request the versions that the broker serves. Errors: OSError, WireError."""
        response = self.ask(ApiVersionsRequest(), 0)
        self.versions = {
            row.api_key: (row.min_version, row.max_version) for row in response.api_keys
        }

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def ask(self, request: object, version: int) -> Any:
        """Send a request and return the response. Errors: OSError, WireError."""
        self.send(request, version)
        return self.receive()

    def send(self, request: object, version: int, *, answered: bool = True) -> None:
        """Send a request. Errors: OSError; CommandError for a value that cannot be sent to any broker."""
        try:
            self._client.request(request, version, answered=answered)
        except EncodeError as error:
            raise CommandError(f"cannot be sent: {error}") from None
        self.sock.sendall(b"".join(self._client.take_output()))

    def receive(self) -> Any:
        """The response to the oldest unanswered request. Errors: OSError, also for one that never ends; WireError."""
        client = self._client
        whole_s = max(WHOLE_S, self.sock.gettimeout() or 0)
        until = time.monotonic() + whole_s
        while (response := client.next_response()) is None:
            with client.get_buffer() as buffer:
                count = self.sock.recv_into(buffer)
            if not count:
                raise ConnectionResetError
            client.received(count)
            if time.monotonic() > until:
                raise NoWholeAnswer(f"no whole answer within {whole_s:.0f} seconds")
        return response.message()

    def can(self, request: object, version: int) -> bool:
        """Whether the broker answers a request, instead of closing the connection."""
        try:
            self.ask(request, version)
        except (OSError, WireError):
            return False
        return True


def encrypted(sock: socket.socket, host: str, arguments: Mapping[str, Any]) -> ssl.SSLSocket:
    """The TLS connection on a socket. Errors: ContactError."""
    import ssl

    try:
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


def is_of_tls(error: Exception) -> bool:
    """Whether an error comes from OpenSSL; without TLS, its module is not imported."""
    return type(error).__module__ == "ssl"


def reason(error: Exception) -> str:
    """The message of the system or OpenSSL, without numbers and function names."""
    if is_of_tls(error) and getattr(error, "reason", None):
        return str(error.reason).replace("_", " ").lower()  # type: ignore[attr-defined]
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "closed by the broker"
    if isinstance(error, NoWholeAnswer):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no answer for {TIMEOUT_S:.0f} seconds"
    if isinstance(error, UnicodeError):  # of the codec for names of hosts
        return "not the name of a host"
    return getattr(error, "strerror", None) or str(error)


def no_answer(error: Exception, protocol: str) -> str:
    """The reason that a broker does not answer its first request."""
    if isinstance(error, OtherProtocol):
        return f"{error}; {other_port(error.protocol, protocol)}"
    if is_of_tls(error):
        return f"TLS: {reason(error)}; it may require a client certificate: -X ssl.certificate.location=FILE"
    if isinstance(error, TimeoutError):
        return reason(error)
    if protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        wanted = protocol.replace("PLAINTEXT", "SSL")
        return f"{reason(error)}; it may require TLS: -X security.protocol={wanted}"
    return reason(error)


def other_port(found: str, protocol: str) -> str:
    """What helps if a port speaks another protocol."""
    if found == "HTTP":
        return "this is a port of --http or --control, or no port of a broker"
    if "TLS" in found:
        return f"it requires TLS: -X security.protocol={protocol.replace('PLAINTEXT', 'SSL')}"
    return "this is no port of a broker"


def login_client(host: str, arguments: Mapping[str, Any]) -> Any:
    """The client's half of the mechanism. Errors: LoginFailed, ContactError."""
    from ..security.sasl.clients import PlainClient, ScramClient

    mechanism = arguments["sasl_mechanism"]
    if mechanism == "GSSAPI":
        from ..security.sasl.gssapi_login import GssapiClient

        service = arguments.get("sasl_kerberos_service_name") or "kafka"
        try:
            return GssapiClient(service, host, None)
        except ImportError:
            raise ContactError("login with GSSAPI: pip install 'kwire[gssapi]'") from None
    user, password = arguments["sasl_plain_username"], arguments["sasl_plain_password"]
    if mechanism == "PLAIN":
        return PlainClient(user, password)
    return ScramClient(mechanism, user, password)


def log_in(wire: Wire, host: str, arguments: Mapping[str, Any]) -> None:
    """Log in. Errors: ContactError."""
    from ..security.sasl.mechanism import LoginFailed

    mechanism = arguments["sasl_mechanism"]
    user = arguments.get("sasl_plain_username", "the owner of the Kerberos ticket")
    try:
        client = login_client(host, arguments)
        shaken = wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            plain = arguments["security_protocol"].removeprefix("SASL_")
            raise ContactError(f"this port has no logins: -X security.protocol={plain}")
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            said = ErrorCode(shaken.error_code).name.replace("_", " ").lower()
            raise ContactError(f"login with {mechanism}: {said}; the broker offers {offered}")
        token: bytes | None = client.start()
        while token is not None:
            answer = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 0)
            if answer.error_code:
                raise ContactError(f"login as {user} with {mechanism}: {answer.error_message}")
            token = client.evaluate(bytes(answer.auth_bytes))
    except LoginFailed as error:
        raise ContactError(f"login as {user} with {mechanism}: {error}") from None
    except (OSError, WireError) as error:
        raise ContactError(f"login as {user} with {mechanism}: {reason(error)}") from None
