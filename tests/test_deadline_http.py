"""HTTP servers that send a byte now and then hold nobody beyond the deadline."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from kwire.testing.certificates import Authority
from server.cli.top import scrape_of
from server.deadline_http import Deadline, DeadlinePassed
from server.security.sasl.documents import FetchFailed, read_url
from tests.support.clock import ManualClock

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def endless(
    beginning: bytes, repeated: bytes = b"1", tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """The port of a server that answers with `beginning`, and then repeats a text until its client leaves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                accepted, _ = listener.accept()
                with (
                    accepted,
                    tls.wrap_socket(accepted, server_side=True) if tls else accepted as sock,
                ):
                    sock.sendall(beginning)
                    while repeated:
                        sock.sendall(repeated)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with suppress(OSError):  # wakes the thread if nobody has connected before the deadline
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join()


PHASES = pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"", id="status"),
        pytest.param(OK + b"X: ", id="header"),
        pytest.param(OK + b"\r\n", id="body"),
        pytest.param(OK + b"Content-Length: 99999999\r\n\r\n", id="body of known size"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n", id="size of a chunk"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n", id="chunk"),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: ", id="redirect"),
        pytest.param(b"HTTP/1.1 404 Not Found\r\n\r\n", id="body of an error"),
    ],
)


@PHASES
def test_answer_that_goes_on_for_ever_ends_at_the_deadline(beginning: bytes) -> None:
    clock = ManualClock()
    with endless(beginning) as port, pytest.raises(FetchFailed, match=r"10000 ms|404"):
        read_url(f"http://127.0.0.1:{port}/keys", lambda: clock.advance(3000))


@PHASES
def test_answer_over_tls_that_goes_on_for_ever_ends_at_the_deadline(
    beginning: bytes, authority: Authority, tmp_path: Path
) -> None:
    clock = ManualClock()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("CN=localhost").write(tmp_path / "server.pem"))
    trusted = authority.write(tmp_path / "ca.pem")
    with endless(beginning, tls=server) as port, pytest.raises(FetchFailed, match=r"10000 ms|404"):
        read_url(f"https://127.0.0.1:{port}/keys", lambda: clock.advance(3000), str(trusted))


@pytest.mark.parametrize(
    ("beginning", "repeated"),
    [
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b"1", id="chunk to the end"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n", id="trailers"),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", b"1", id="body of a redirect"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="interim responses"),
    ],
)
def test_answer_of_any_form_is_read_up_to_its_limit(beginning: bytes, repeated: bytes) -> None:
    clock = ManualClock()
    with (
        endless(beginning, repeated * 10_000) as port,
        pytest.raises(FetchFailed, match="4194304 bytes"),
    ):
        read_url(f"http://127.0.0.1:{port}/keys", lambda: clock.advance(1))


def test_answer_over_tls_is_read_up_to_its_limit(authority: Authority, tmp_path: Path) -> None:
    clock = ManualClock()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("CN=localhost").write(tmp_path / "server.pem"))
    trusted = authority.write(tmp_path / "ca.pem")
    beginning = b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n"
    with (
        endless(beginning, b"1" * 10_000, tls=server) as port,
        pytest.raises(FetchFailed, match="4194304 bytes"),
    ):
        read_url(f"https://127.0.0.1:{port}/keys", lambda: clock.advance(1), str(trusted))


def test_redirects_share_one_deadline() -> None:
    clock = ManualClock()
    with endless(OK + b"\r\n") as last:
        answer = (
            f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{last}/\r\nContent-Length: 0\r\n\r\n"
        )
        with endless(answer.encode(), b"") as first, pytest.raises(FetchFailed, match="10000 ms"):
            read_url(f"http://127.0.0.1:{first}/", lambda: clock.advance(2500))


def test_proxy_that_does_not_end_its_answer_ends_at_the_deadline() -> None:
    clock = ManualClock()
    deadline = Deadline(lambda: clock.advance(3000), 10_000)
    with endless(b"HTTP/1.1 200 OK\r\nX: ") as port:
        opener = build_opener(
            ProxyHandler({"https": f"http://127.0.0.1:{port}"}),
            *deadline.handlers(ssl.create_default_context()),
        )
        with pytest.raises(OSError, match="10000 ms"):
            opener.open("https://keys.invalid/")


def test_addresses_of_one_name_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = listener.getsockname()
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", refusing)] * 1000
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    clock, asked = ManualClock(), []

    def monotonic_ms() -> int:
        asked.append(clock.advance(3000))
        return asked[-1]

    deadline = Deadline(monotonic_ms, 10_000)
    with pytest.raises(DeadlinePassed):
        deadline.connected(("keys.invalid", 443))
    assert len(asked) < 10


def test_metrics_that_go_on_for_ever_end_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.cli.top.TIMEOUT_MS", 100)
    with endless(OK + b"\r\n") as port:
        assert "100 ms" in (scrape_of(f"127.0.0.1:{port}").error or "")


def test_metrics_without_an_end_are_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.deadline_http.MAX_BYTES", 100_000)
    with endless(OK + b"\r\n", b"1" * 10_000) as port:
        assert "100000 bytes" in (scrape_of(f"127.0.0.1:{port}").error or "")


def test_silent_server_ends_at_the_deadline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.cli.top.TIMEOUT_MS", 100)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        assert scrape_of(place).error == "not answered within 100 ms"


def test_step_without_progress_names_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.deadline_http.STILL_S", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(FetchFailed, match="50 ms"),
    ):
        read_url(f"http://127.0.0.1:{silent.getsockname()[1]}/keys", ManualClock().monotonic_ms)
