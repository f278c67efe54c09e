"""HTTP requests that block, with one deadline for everything: addresses, connection, TLS, headers and body.

All that is received counts for one limit as well: Python's client reads the body of a redirect as a whole, and believes
a chunk that has no end.

The timeout of Python's HTTP client applies to each read, so that a server which sends a byte now and then would hold
its caller for as long as it likes. Only the system's search for a name's addresses is not interrupted.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.request import HTTPHandler, HTTPSHandler, Request

if TYPE_CHECKING:
    import ssl

#: The end of one read or write that gets no further, before the deadline of the whole. Unit: seconds.
STILL_S = 5.0
#: The maximum number of bytes that are received for one request, unless its caller expects fewer.
MAX_BYTES = 1 << 26


class Deadline:
    """The end of a request, in time and size. Unit: `monotonic_ms` and `limit_ms` are in ms, `most` in bytes."""

    def __init__(
        self, monotonic_ms: Callable[[], int], limit_ms: int, most: int | None = None
    ) -> None:
        self._monotonic_ms = monotonic_ms
        self._end_ms = monotonic_ms() + limit_ms
        self._limit_ms = limit_ms
        self._most = self._left = MAX_BYTES if most is None else most

    def left_s(self) -> float:
        """How long the next step may take. Unit: seconds. Errors: DeadlinePassed."""
        left_ms = self._end_ms - self._monotonic_ms()
        if left_ms <= 0:
            raise DeadlinePassed(f"not answered within {self._limit_ms} ms")
        return min(left_ms / 1000, STILL_S)

    def received(self, count: int) -> int:
        """Count received bytes. Errors: AnswerTooLarge."""
        self._left -= count
        if self._left < 0:
            raise AnswerTooLarge(f"more than {self._most} bytes were sent")
        return count

    def connected(self, address: tuple[str, int]) -> socket.socket:
        """A connection whose reads end at the deadline. Errors: OSError."""
        failed: OSError = OSError("the name has no address")
        for family, kind, protocol, _, place in socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM
        ):
            left_s = self.left_s()
            sock = _Socket(family, kind, protocol)
            try:
                sock.deadline = self
                sock.settimeout(left_s)
                with self.timeouts():
                    sock.connect(place)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                sock.close()
                failed = error
            else:
                return sock
        raise failed

    @contextmanager
    def timeouts(self) -> Iterator[None]:
        """Say which limit ended a step: a socket's own error names none. Errors: DeadlinePassed."""
        try:
            yield
        except TimeoutError:
            self.left_s()
            raise DeadlinePassed(f"no byte within {STILL_S * 1000:.0f} ms") from None

    def handlers(self, context: ssl.SSLContext | None = None) -> list[Any]:
        """Handlers for `urllib.request.build_opener`. Shape: `context` is for https; None if there is none."""
        handlers: list[Any] = [_Handler(self)]
        if context is not None:
            handlers.append(_TlsHandler(self, context))
        return handlers


class DeadlinePassed(OSError):
    """A request took longer than its whole time."""


class AnswerTooLarge(OSError):
    """A server has sent more than is read for one request."""


class _Socket(socket.socket):
    deadline: Deadline

    def recv_into(self, *args: Any) -> int:
        self.settimeout(self.deadline.left_s())
        with self.deadline.timeouts():
            return self.deadline.received(super().recv_into(*args))


def _with_deadline(tls: ssl.SSLSocket, deadline: Deadline) -> None:
    """Let each read of a TLS connection end at the deadline, and count."""
    read = tls.recv_into

    def recv_into(*args: Any) -> int:
        tls.settimeout(deadline.left_s())
        with deadline.timeouts():
            return deadline.received(read(*args))

    tls.recv_into = recv_into  # type: ignore[assignment, method-assign]


class DeadlineConnection(HTTPConnection):
    """A connection without TLS."""

    def __init__(self, host: str, deadline: Deadline) -> None:
        super().__init__(host, timeout=STILL_S)
        self._create_connection = lambda address, *_: deadline.connected(address)


class _TlsConnection(HTTPSConnection):
    def __init__(self, host: str, deadline: Deadline, context: ssl.SSLContext) -> None:
        super().__init__(host, timeout=STILL_S, context=context)
        self._deadline = deadline
        self._create_connection = lambda address, *_: deadline.connected(address)

    def connect(self) -> None:
        with self._deadline.timeouts():
            super().connect()
        _with_deadline(self.sock, self._deadline)


class _Handler(HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: Request) -> Any:
        return self.do_open(lambda host, **_: DeadlineConnection(host, self._deadline), req)


class _TlsHandler(HTTPSHandler):
    def __init__(self, deadline: Deadline, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._deadline = deadline
        self._tls = context

    def https_open(self, req: Request) -> Any:
        return self.do_open(lambda host, **_: _TlsConnection(host, self._deadline, self._tls), req)
