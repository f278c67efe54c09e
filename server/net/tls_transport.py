"""Reads and writes one socket through TLS, as SocketTransport does without.

OpenSSL works on the socket itself, so an idle connection holds no buffers of ours, and bytes are copied once on
their way in: from OpenSSL's record into the receiver's buffer. What differs from a plain socket:

- Decrypted bytes may be left in OpenSSL when the socket has nothing to read, so `pending` is asked before waiting.
- A read may have to write first, and a write to read (key updates).
- OpenSSL encrypts one record of 16 KiB in a call. Small pieces are joined to a record; a stored slice is read from
  the page cache in pieces of `SLICE_BYTES`, by a thread if it is not there.
- A handshake costs the loop up to a few milliseconds of arithmetic. All handshakes of a broker together get
  `HANDSHAKES_S` in one turn of the loop.
- Records are as short as the peer likes, and one of a byte costs as much as one of a kilobyte. So a turn is bounded in
  records, too (`Records`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kwire.connection import looks_like

from ..clock import time
from . import platform
from .transport import BUFFERS, SHOWN_BYTES, SocketTransport, TlsError, close_slices

if TYPE_CHECKING:
    from .transport import Receiver, StoredSlice, Threads

#: The number of bytes that OpenSSL encrypts at a time.
RECORD_BYTES = 16 * 1024
#: The size of the part of a stored slice that is in memory while it is encrypted.
SLICE_BYTES = 64 * 1024
#: The amount of data of one connection that is decrypted before others get their turn.
READ_TURN_BYTES = 512 * 1024
#: How many records of one connection are decrypted before others get their turn: some 0.2 ms if they are short.
TURN_RECORDS = 128
#: How many records of all connections that send short ones are decrypted in one turn of the loop, apart from
#: FEW_RECORDS of each connection.
ALL_RECORDS = 4096
FEW_RECORDS = 8
#: Longer than any client waits: Kafka's clients give up a connection that is not set up after 10 to 30 seconds.
HANDSHAKE_TIMEOUT_S = 30.0
#: How long the handshakes of one turn of the loop may take together, apart from the last.
HANDSHAKES_S = 0.003

#: Why there is nothing to read: not yet, or no more.
WAITS = BlockingIOError()
ENDED = OSError("the end of the stream")

#: The first byte of a TLS record with a handshake message.
HANDSHAKE_RECORD = 0x16
#: OpenSSL's reasons for a failed handshake, in words.
REASONS = {
    "NO_SHARED_CIPHER": "no cipher suite is allowed on both sides",
    "UNSUPPORTED_PROTOCOL": "no version of TLS is allowed on both sides (ssl.enabled.protocols)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it presented no certificate (ssl.client.auth is required)",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of this broker (unknown authority)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate of this broker",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate of this broker",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that the certificate of this broker has expired",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "no cipher suite or TLS version in common, or a certificate is required",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a certificate (ssl.client.auth)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "no version of TLS is allowed on both sides (ssl.enabled.protocols)",
}


class Handshakes:
    """Bounds the time that all handshakes of a broker take in one turn of the loop."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._end_s = 0.0
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def enter(self, step: Callable[[], None]) -> None:
        """Perform a step of a handshake now, or in one of the next turns, behind those that are waiting already."""
        if not self._scheduled:
            self._begin()
        if not self._waiting and self._now_s() < self._end_s:
            step()
        else:
            self._waiting.append(step)

    def _begin(self) -> None:
        self._scheduled = True
        self._end_s = self._now_s() + HANDSHAKES_S
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._waiting:
            self._begin()
            while self._waiting and self._now_s() < self._end_s:
                self._waiting.popleft()()


class Records:
    """Bounds how many records a broker decrypts in one turn of the loop."""

    def __init__(self) -> None:
        self._left = ALL_RECORDS
        self._scheduled = False

    @property
    def allowed(self) -> int:
        """How many a connection may decrypt now."""
        return TURN_RECORDS if self._left > 0 else FEW_RECORDS

    def took(self, count: int) -> None:
        """Count the records that a connection has decrypted."""
        if count > FEW_RECORDS:
            self._left -= count
            if not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._left = ALL_RECORDS


class TlsTransport(SocketTransport):
    """A connected, non-blocking TCP socket with TLS.

    Shape: `identify` receives the owner of the peer's certificate when the handshake is complete; None if the receiver
    does not need it. As a server, the handshake is part of `start`; as a client, call `secure` first.
    """

    __slots__ = (
        "_flush_wants_read",
        "_handshakes",
        "_identify",
        "_peeked",
        "_read_scheduled",
        "_read_wants_write",
        "_records",
        "_secured",
        "_timer",
        "_tls",
        "_watching",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: ssl.SSLSocket,
        executor: Threads,
        handshakes: Handshakes,
        records: Records,
        identify: Callable[[ssl.SSLSocket], str] | None = None,
    ) -> None:
        super().__init__(loop, sock, executor)
        self._tls = sock
        self._handshakes = handshakes
        self._records = records
        self._identify = identify
        self._peeked = (
            b""  # read to see whether the peer has gone, before there was a buffer for it
        )
        self._read_scheduled = False
        self._read_wants_write = False
        self._flush_wants_read = False
        self._watching = False  # whether the loop reports bytes to read
        #: Done when the handshake is; None if it has not begun.
        self._secured: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- the handshake

    def start(self, receiver: Receiver) -> None:
        """Begin to read, after the handshake if there has been none."""
        self._receiver = receiver
        if self._secured is None:
            self._reading = True
            self._begin_handshake()
            self._await_peer(self._look_at_first_bytes)
        else:
            self.resume_reading()

    async def secure(self) -> None:
        """Make the handshake as a client. Errors: TlsError."""
        secured = self._begin_handshake()
        self._handshakes.enter(self._step)
        await secured

    def _begin_handshake(self) -> asyncio.Future[None]:
        self._secured = self._loop.create_future()
        self._timer = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._too_slow)
        return self._secured

    def _await_peer(self, step: Callable[[], None], *, to_write: bool = False) -> None:
        def ready() -> None:
            self._unwatch()
            self._stop_writing()
            self._handshakes.enter(step)

        if to_write:
            self._writing = True
            self._loop.add_writer(self._fd, ready)
        else:
            self._watching = True
            self._loop.add_reader(self._fd, ready)

    def _look_at_first_bytes(self) -> None:
        if self.closed:
            return
        try:
            first = socket.socket.recv(self._tls, 16, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._await_peer(self._look_at_first_bytes)
            return
        except OSError as error:
            self._lost(error)
            return
        if not first:  # a health check: it connects and goes away
            self._lost(None)
        elif first[0] != HANDSHAKE_RECORD:
            kind = looks_like(first) or ("Kafka without TLS" if not first[0] else "something else")
            self._lost(
                TlsError(f"looks like {kind}, not TLS (first bytes {first[:SHOWN_BYTES]!r})")
            )
        else:
            self._step()

    def _step(self) -> None:
        """Continue with the handshake."""
        if self.closed or self._is_secured:  # by a waiter that has given up
            return
        try:
            self._tls.do_handshake()
            principal = None if self._identify is None else self._identify(self._tls)
        except ssl.SSLWantReadError:
            self._await_peer(self._step)
        except ssl.SSLWantWriteError:
            self._await_peer(self._step, to_write=True)
        except (OSError, ValueError) as error:
            self._lost(TlsError(f"TLS handshake failed: {explain(error)}"))
        else:
            self._handshake_complete(principal)

    def _handshake_complete(self, principal: str | None) -> None:
        self._end_timer()
        assert self._secured is not None
        self._secured.set_result(None)
        receiver = self._receiver
        if receiver is None:
            return
        if principal is not None:
            receiver.secured(principal)
        if self._queue:
            self._flush()
        if self._reading and not self.closed:
            self._watch()
            self._readable()

    def _too_slow(self) -> None:
        self._timer = None
        self._lost(TlsError(f"made no TLS handshake within {HANDSHAKE_TIMEOUT_S:g} s"))

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _is_secured(self) -> bool:
        return self._secured is not None and self._secured.done()

    # -- in

    def pause_reading(self) -> None:
        """Leave what arrives in the kernel, apart from the record that has been decrypted."""
        if self._reading:
            self._reading = False
            if self._is_secured and not self._flush_wants_read:
                self._unwatch()

    def resume_reading(self) -> None:
        """Resume reading."""
        if self._reading or self.closed or self._closing:
            return
        self._reading = True
        if self._is_secured:
            self._watch()
            if self._peeked or self._tls.pending():
                self._read_soon()

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            self._loop.add_reader(self._fd, self._readable)

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._fd)

    def _read_soon(self) -> None:
        """Read data that OpenSSL holds, which the loop does not see."""
        if not self._read_scheduled:
            self._read_scheduled = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._read_scheduled = False
        if self._reading and not self.closed:
            self._readable()

    def _readable(self) -> None:
        if self._flush_wants_read:
            self._flush_wants_read = False
            super()._writable()
            if self.closed:
                return
        if not self._reading:
            if not self._flush_wants_read:
                self._unwatch()
            return
        receiver = self._receiver
        assert receiver is not None
        left, records = READ_TURN_BYTES, self._records.allowed
        while left > 0 and records > 0:
            buffer = receiver.get_buffer()
            if buffer is None:
                if not self.closed:
                    self._no_buffer()
                return
            count, taken, stop = self._fill(buffer, left, records)
            records -= taken
            self._records.took(taken)
            buffer.release()
            if count or stop is WAITS:
                receiver.received(count)
            if stop is not None:
                if stop is not WAITS:
                    self._lost(None if stop is ENDED else stop)
                return
            if self.closed or not self._reading:
                return
            left -= count
        if self._tls.pending():
            self._read_soon()

    def _fill(self, buffer: memoryview, most: int, records: int) -> tuple[int, int, OSError | None]:
        """Decrypt at most the given number of records into a buffer; return the bytes, the records, and why there are
        no more.

        Shape: the reason is WAITS, ENDED or an error; None if there may be more.
        """
        count = len(self._peeked)
        taken = 0
        if count:
            buffer[:1], self._peeked = self._peeked, b""
        size = min(len(buffer), most)
        # recv_into with fewer checks; typeshed takes no other buffer than bytes, and no number for an answer
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]
        while count < size and taken < records:
            try:
                with buffer[count:size] as rest:
                    got = read(size - count, rest)
            except (ssl.SSLWantReadError, BlockingIOError, InterruptedError):
                return count, taken, WAITS
            except ssl.SSLWantWriteError:
                self._read_wants_write = True
                self._want_write()
                return count, taken, WAITS
            except OSError as error:
                return count, taken, TlsError(f"TLS failed: {explain(error)}")
            if not got:
                return count, taken, ENDED
            count += got
            taken += 1
        return count, taken, None

    def _no_buffer(self) -> None:
        """Stop reading if there is data; one byte shows that the peer has not disconnected."""
        if not self._peeked:
            one = bytearray(1)
            count, _, stop = self._fill(memoryview(one), 1, 1)
            if not count:
                if stop is not WAITS:
                    self._lost(None if stop is ENDED else stop)
                return
            self._peeked = bytes(one)
        self.pause_reading()

    # -- out

    def send(self, parts: Sequence[Any]) -> None:
        """Send buffers and stored slices in order; queue what the kernel does not accept now.

        Shape: buffers must not change afterwards; slices are closed once sent.
        """
        if self.closed:
            close_slices(parts)
            return
        queue = self._queue
        was_empty = not queue
        queue.extend(parts)
        for part in parts:
            self.unsent_bytes += len(part)
            if not isinstance(part, BUFFERS):
                self._slice_bytes += len(part)
        if was_empty and self._is_secured:
            self._flush()

    def _writable(self) -> None:
        if self._read_wants_write:
            self._read_wants_write = False
            self._read_soon()
            if self._faulting:  # there is nothing to write before the thread has read it
                self._stop_writing()
        super()._writable()

    def _want_write(self) -> None:
        if not self._flush_wants_read:
            super()._want_write()

    def _send_buffers(self) -> int:
        """Send one record."""
        self._gather()
        head = self._queue[0]
        if not len(head):  # OpenSSL refuses to send nothing
            del self._queue[0]
            return 0
        try:
            sent = self._tls.send(head)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except ssl.SSLWantReadError:
            self._flush_wants_read = True
            self._stop_writing()
            self._watch()
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise TlsError(f"TLS failed: {explain(error)}") from None
        self._drop_sent(sent, 1)
        return sent

    def _gather(self) -> None:
        """Join small pieces at the head of the queue to one record.

        Shape: a piece that OpenSSL was given and could not send stays at the head, as OpenSSL requires.
        """
        queue = self._queue
        total = number = 0
        while total < RECORD_BYTES and number < len(queue):
            part = queue[number]
            if not isinstance(part, BUFFERS):
                if not self._read_slice(number, RECORD_BYTES - total if total else SLICE_BYTES):
                    break
                part = queue[number]
            total += len(part)
            number += 1
        if number > 1:
            if total > RECORD_BYTES:  # the last piece is a large one
                last = memoryview(queue[number - 1])
                end = len(last) - (total - RECORD_BYTES)
                queue[number - 1 : number] = [last[:end], last[end:]]
            queue[:number] = [b"".join(queue[:number])]

    def _read_slice(self, number: int, most: int) -> bool:
        """Put the next bytes of the first stored slice into the queue; return whether they are in memory."""
        part: StoredSlice = self._queue[number]
        count = min(len(part) - self._slice_sent, most)
        if count:
            data = platform.read_cached(part.fileno(), part.position + self._slice_sent, count)
            if data is None:
                return False
        else:
            data = bytearray()
        self._put(number, data)
        return True

    def _put(self, number: int, data: bytearray) -> None:
        """Insert bytes read from the first stored slice before it, or replace it if it is complete."""
        part: StoredSlice = self._queue[number]
        self._slice_sent += len(data)
        self._slice_bytes -= len(data)
        if self._slice_sent == len(part):
            self._slice_sent = 0
            self._queue[number] = data
            part.close()
        else:
            self._queue.insert(number, data)

    def _copy_slice(self, part: StoredSlice, number: int) -> bool:
        return self._read_slice(number, SLICE_BYTES)

    def _send_slice(self, head: StoredSlice) -> int:
        """Have a thread read the slice: its cached part has been read already."""
        self._fault(head, platform.read_file, min(len(head) - self._slice_sent, SLICE_BYTES))
        return -1

    def _faulted(self, end: int, data: bytearray) -> None:
        self._put(0, data)

    # -- end

    def close(self) -> None:
        """Close now, after sending the end of the stream; unsent data is dropped."""
        if self.closed:
            return
        self._end_timer()
        self._unwatch()
        if self._is_secured:
            try:
                self._tls.unwrap()
            except (OSError, ValueError):
                pass  # it does not wait for the peer to agree
        super().close()

    def _lost(self, error: OSError | None) -> None:
        secured = self._secured
        if secured is not None and not secured.done():
            if self._receiver is None:
                secured.set_exception(error or TlsError("closed by the other side"))
            else:
                secured.cancel()
        super()._lost(error)


def explain(error: Exception) -> str:
    """Describe a TLS error in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "it closed the connection"
    if isinstance(error, ssl.SSLError) and error.reason:
        return REASONS.get(error.reason, error.reason.lower().replace("_", " "))
    return str(error)
