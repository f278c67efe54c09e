"""The messages of a client command that cannot use a broker."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from kwire.codec import encode
from kwire.connection import ServerConnection, response_frame
from kwire.framing import FrameReader, PlainMemory
from kwire.messages.api_versions import ApiVersionsResponse
from kwire.messages.metadata import MetadataResponse
from kwire.messages.sasl_authenticate import SaslAuthenticateResponse
from kwire.messages.sasl_handshake import SaslHandshakeResponse
from kwire.testing.certificates import Authority
from server.client import wire
from server.client.contact import make_contact
from server.client.errors import ContactError
from server.client.properties import client_arguments
from server.client.wire import Wire
from server.client.words import reason

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "secret",
}
API_VERSIONS = ApiVersionsResponse(error_code=0, api_keys=[])


def answer(sock: socket.socket, responses: list[Any]) -> None:
    """Answer requests with the responses, then close."""
    connection = ServerConnection(FrameReader(PlainMemory(), 1 << 20))
    with sock:
        while responses:
            buffer = connection.frames.get_buffer()
            assert buffer is not None
            count = sock.recv_into(buffer)
            buffer.release()
            if not count:
                return
            connection.frames.advance(count)
            while (request := connection.next_request()) is not None:
                version = request.api_version
                request.release()
                body = encode(responses.pop(0), version)
                connection.reply(request, response_frame(request.correlation_id, False, [body]))
                for part in connection.take_output():
                    sock.sendall(part)
                if not responses:
                    return
            connection.frames.rest()


@contextmanager
def broker(serve: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """A socket connected to a peer that a thread drives."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs:
            try:
                serve(theirs)
            except OSError:
                return

    thread = threading.Thread(target=run)
    thread.start()
    with ours:
        yield ours
    thread.join(10)
    assert not thread.is_alive()


def refused(responses: list[Any], arguments: dict[str, Any]) -> str:
    """The message about a broker that sends these answers, then closes the connection."""
    served = broker(lambda sock: answer(sock, responses))
    with served as sock, pytest.raises(ContactError) as error:
        make_contact(sock, "localhost", arguments)
    return str(error.value)


def test_plain_broker_is_contacted_without_a_word() -> None:
    responses: list[Any] = [API_VERSIONS, MetadataResponse(brokers=[], controller_id=0, topics=[])]
    with broker(lambda sock: answer(sock, responses)) as sock:
        make_contact(sock, "localhost", {})
    assert not responses


def test_login_that_is_accepted_is_complete() -> None:
    responses: list[Any] = [
        API_VERSIONS,
        SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]),
        SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b""),
    ]
    with broker(lambda sock: answer(sock, responses)) as sock:
        make_contact(sock, "localhost", LOGIN)
    assert not responses


@pytest.mark.parametrize(
    ("responses", "arguments", "said"),
    [
        ([], {}, "closed by the broker; it may require TLS: -X security.protocol=SSL"),
        ([], LOGIN, "closed by the broker; it may require TLS: -X security.protocol=SASL_SSL"),
        ([API_VERSIONS], {}, "the broker requires a login: -X security.protocol=SASL_PLAINTEXT"),
        (
            [API_VERSIONS, SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256"])],
            LOGIN,
            "login with PLAIN: unsupported sasl mechanism; the broker offers SCRAM-SHA-256",
        ),
        (
            [
                API_VERSIONS,
                SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]),
                SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b""),
            ],
            LOGIN,
            "login as alice with PLAIN: no",
        ),
        (
            [
                API_VERSIONS,
                SaslHandshakeResponse(error_code=0, mechanisms=["SCRAM-SHA-256"]),
                SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"x"),
            ],
            {**LOGIN, "sasl_mechanism": "SCRAM-SHA-256"},
            "login as alice with SCRAM-SHA-256: the other broker's first SCRAM message is malformed",
        ),
    ],
)
def test_what_is_wrong_is_said_in_words(
    responses: list[Any], arguments: dict[str, Any], said: str
) -> None:
    found = refused(list(responses), arguments)
    assert found.startswith(said)
    assert "secret" not in found


def test_certificate_that_is_not_trusted_is_named_with_what_to_do(
    authority: Authority, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("CN=broker").write(tmp_path / "broker.pem"))

    def serve(sock: socket.socket) -> None:
        context.wrap_socket(sock, server_side=True)

    said = r"^TLS: the broker's certificate: .*; -X ssl\.ca\.loc"
    with broker(serve) as sock, pytest.raises(ContactError, match=said):
        make_contact(sock, "localhost", {"security_protocol": "SSL"})


@pytest.mark.parametrize("is_revoked", [True, False])
def test_certificate_that_its_authority_has_revoked_is_refused(
    authority: Authority, tmp_path: Path, is_revoked: bool
) -> None:
    issued = authority.issue("CN=broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.write(tmp_path / "broker.pem"))
    number = issued.certificate.serial_number + (not is_revoked)
    now = datetime.now(UTC)
    revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now)
    listed = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now - timedelta(days=1))
        .next_update(now + timedelta(days=1))
        .add_revoked_certificate(revoked.build())
        .sign(authority._key, hashes.SHA256())
    )
    (tmp_path / "crl.pem").write_bytes(listed.public_bytes(Encoding.PEM))
    arguments = client_arguments(
        {
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.write(tmp_path / "ca.pem")),
            "ssl.crl.location": str(tmp_path / "crl.pem"),
        }
    )
    responses: list[Any] = [API_VERSIONS, MetadataResponse(brokers=[], controller_id=0, topics=[])]

    def serve(sock: socket.socket) -> None:
        answer(context.wrap_socket(sock, server_side=True), responses)

    with broker(serve) as sock:
        if is_revoked:
            with pytest.raises(ContactError, match="broker's certificate: certificate revoked"):
                make_contact(sock, "localhost", arguments)
        else:
            make_contact(sock, "localhost", arguments).close()


def test_port_without_tls_is_named() -> None:
    said = "if this port does not speak TLS: -X security.protocol=PLAINTEXT"
    with broker(socket.socket.close) as sock, pytest.raises(ContactError, match=said):
        make_contact(sock, "localhost", {"security_protocol": "SSL"})


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "the answer looks like HTTP, not Kafka; this is a port of --http or --control, or no port of a broker",
        ),
        (
            b"\x15\x03\x03\x00\x02\x02\x32",
            "the answer looks like a TLS alert, not Kafka; it requires TLS: -X security.protocol=SSL",
        ),
        (b"SSH-2.0-x", "the answer looks like SSH, not Kafka; this is no port of a broker"),
    ],
)
def test_port_of_another_protocol_is_named(answered: bytes, said: str) -> None:
    def serve(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(answered)

    with broker(serve) as sock, pytest.raises(ContactError) as found:
        make_contact(sock, "localhost", {})
    assert str(found.value) == said


class DrippingSocket:
    """A broker that sends one byte of a response every nine seconds, of a clock that nobody waits for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._bytes = iter(b"\0\1\0\0" + bytes(1000))

    def sendall(self, data: bytes) -> None: ...

    def gettimeout(self) -> float:
        return 10.0

    def recv_into(self, buffer: memoryview) -> int:
        self.now_s += 9
        buffer[0] = next(self._bytes)
        return 1


def test_response_that_comes_in_small_pieces_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    sock = DrippingSocket()
    monkeypatch.setattr(wire.time, "monotonic", lambda: sock.now_s)
    with pytest.raises(OSError, match="no whole answer within 30 seconds") as ended:
        Wire(sock).learn_versions()  # type: ignore[arg-type]
    assert sock.now_s < 45
    assert reason(ended.value) == "no whole answer within 30 seconds"
