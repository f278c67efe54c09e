"""Drives one connection: requests from its transport to the dispatcher, replies back in order.

Requests are processed one at a time. The next one waits in these cases: a request without `overlap` has no reply yet;
too many replies are missing or wait behind an earlier one; the peer does not read its replies; the other connections
have not had their turn (`rotation.py`); too many of the peer's batches wait to be appended (`append.py`); or the client
is throttled. In the last case the reply is sent immediately, and nothing is read until the throttle time is over
(KIP-219).
Data that the peer sends in the meantime stays in the kernel, except for data received together with the last request.
Requests that were received before the peer closed its stream are still processed in their turn, as in Apache Kafka
(Selector.maybeReadFromClosingChannel): a producer with acks=0 waits for nothing before it disconnects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kwire.connection import Part, RequestReceived, ServerConnection, looks_like
from kwire.errors import WireError
from kwire.framing import FRAME_SIZE, SIZE_BYTES, FrameReader, ReceiveMemory, SharedBlock

from .connection_info import ConnectionInfo
from .dispatcher import Close, Dispatcher, Later
from .limits import NetLimits
from .log_limit import LineLimiter
from .output_memory import OutputMemory
from .rotation import TURN_REQUESTS, Rotation
from .transport import SHOWN_BYTES, TlsError

if TYPE_CHECKING:
    from ..clock import Clock
    from .transport import Transport

logger = logging.getLogger(__name__)

# Why the next request waits; any number of them at once.
WAITS_FOR_REPLY = 1
WAITS_FOR_OVERLAPPING = 2
WAITS_FOR_READER = 4
WAITS_FOR_TURN = 8
ENDS = 16
WAITS_FOR_QUOTA = 32
WAITS_FOR_APPENDS = 64

#: Replies at least this long are sent before the next request of the same batch is taken up.
CORK_BYTES = 64 * 1024


class Session:
    """One connection, from accept to close."""

    __slots__ = (
        "_clock",
        "_connection",
        "_dispatcher",
        "_held",
        "_left",
        "_limiter",
        "_limits",
        "_on_closed",
        "_output",
        "_overlapping",
        "_pending",
        "_rotation",
        "_throttle",
        "_waits",
        "_was_at_once",
        "closed",
        "info",
        "last_active_ms",
        "requests",
        "transport",
    )

    def __init__(
        self,
        transport: Transport,
        info: ConnectionInfo,
        dispatcher: Dispatcher,
        memory: ReceiveMemory,
        limits: NetLimits,
        clock: Clock,
        limiter: LineLimiter,
        on_closed: Callable[[Session], None],
        *,
        output: OutputMemory,
        rotation: Rotation,
    ) -> None:
        self.transport = transport
        self.info = info
        self.closed = False
        self.requests = 0
        self.last_active_ms = clock.monotonic_ms()
        self._dispatcher = dispatcher
        self._limits = limits
        self._clock = clock
        self._limiter = limiter
        self._on_closed = on_closed
        self._output = output
        self._rotation = rotation
        self._connection = ServerConnection(FrameReader(memory, limits.request_max_bytes, self))
        self._waits = 0
        self._left = False  # the peer has ended its stream, but requests of it wait
        self._was_at_once = False  # whether the last request was answered natively, from its frame
        self._held = 0  # memory of what its peer has not read, when last counted
        self._overlapping = 0
        self._pending: dict[Later[Any], None] = {}
        self._throttle: asyncio.TimerHandle | None = None
        info.on_throttle = self.throttle
        info.on_hold = self.hold

    # -- Receiver, called by the transport

    def get_buffer(self) -> memoryview | None:
        if self._waits:
            return None
        try:
            return self._connection.frames.get_buffer()
        except OSError as error:
            self.close(f"no memory for its request: {error}", "memory")
            return None

    def received(self, count: int) -> None:
        self.last_active_ms = self._clock.monotonic_ms()
        self._connection.frames.advance(count)
        self._process()

    # -- AtOnceReceiver, called by the transport

    def shared_block(self) -> SharedBlock | None:
        """Where plain requests go that are answered where they lie; None if anything is under way."""
        connection = self._connection
        if not self._was_at_once or self._waits or self._held or connection.pending:
            return None
        return connection.frames.shared_block()

    def received_at_once(self, block: SharedBlock, count: int) -> None:
        """Answer what is plain, and leave the rest to `_process`. Does for the usual requests what that does, in fewer steps."""
        self.last_active_ms = self._clock.monotonic_ms()
        at_once = self._dispatcher.at_once
        connection, rotation = self._connection, self._rotation
        most = connection.frames.max_frame_bytes
        left = batch = self._limits.max_batch if rotation.taken < TURN_REQUESTS else 1
        view = block.view
        replies: list[Part] = []
        end = 0
        while left and at_once is not None:
            start = end
            end += SIZE_BYTES + int.from_bytes(view[start : start + SIZE_BYTES], "big")
            if end > count or count - start < SIZE_BYTES or end - start - SIZE_BYTES > most:
                break
            frame = view[start + SIZE_BYTES : end]
            result = at_once(frame, self.info)
            frame.release()
            if result is None:
                self._was_at_once = False
                break
            self.requests += 1
            left -= 1
            if isinstance(result, Close):
                connection.reply_at_once(replies)
                self._refuse(None, result)
                return
            replies += result
            if end == count:
                start = end
                break
        else:
            start = end
        if start < count:
            connection.reply_at_once(replies)
            connection.frames.take_over(block, start, count)
            self._process(batch - left)
            return
        if count > block.warm:
            block.warmed(count)
        if batch - left > 1:
            rotation.took(batch - left)
        if replies:
            transport = self.transport
            transport.send(replies)
            if transport.unsent_bytes:
                self._hold(replies)

    def drained(self) -> None:
        self.last_active_ms = self._clock.monotonic_ms()
        if self._held:
            self._hold(())
        if self._waits & WAITS_FOR_READER:
            self._go_on(WAITS_FOR_READER)

    def secured(self, principal: str) -> None:
        self.info.principal = principal

    def lost(self, error: OSError | None) -> None:
        if type(error) is TlsError:
            self.close(str(error), "tls")
        elif error is None and not self._waits & ENDS and self._connection.frames.has_frame():
            self._take_up_rest()
            return
        self._end()

    def _take_up_rest(self) -> None:
        """Process the requests received before the peer left, as soon as they may start; replies are dropped."""
        self._left = True
        waiting = list(self._pending)
        self._give_up_waits()
        for later in waiting:
            if not later.overlap:
                self._waits &= ~WAITS_FOR_REPLY
        self._go_on(WAITS_FOR_READER | WAITS_FOR_OVERLAPPING)

    # -- FrameOwner, called by the frame memory

    @property
    def blocked(self) -> bool:
        """Whether it does not read, for reasons other than memory that are not its client's fault.

        A throttled client is at fault: the memory of a request that it has begun goes to others if they need it.
        """
        return self._waits & ~WAITS_FOR_QUOTA != 0

    def room(self) -> None:
        """Resume reading, unless requests have to wait."""
        if not self._waits:
            self.transport.resume_reading()

    # -- Reader, called by the output memory

    @property
    def held_up_bytes(self) -> int:
        """Replies that are ready, but wait for an earlier one."""
        return self._connection.held_up_bytes

    def evict(self, reason: str) -> None:
        """Close, because other connections need the memory."""
        guess = looks_like(self._connection.frames.beginning)
        self.close(f"looks like {guess}; {reason}" if guess else reason, "evict")

    # -- requests

    @property
    def pending(self) -> int:
        """Requests without a reply."""
        return self._connection.pending

    @property
    def is_throttled(self) -> bool:
        """Whether its client waits because it is over a quota."""
        return self._waits & WAITS_FOR_QUOTA != 0

    def serve(self, dispatcher: Dispatcher, max_request_bytes: int | None = None) -> None:
        """Have the next requests answered by another dispatcher; within `dispatch`, from the next batch on.

        Shape: longer requests than `max_request_bytes` end the connection; None: `socket.request.max.bytes`.
        """
        limit = self._limits.request_max_bytes
        if max_request_bytes is not None:
            limit = min(limit, max_request_bytes)
        self._dispatcher = dispatcher
        self._connection.frames.max_frame_bytes = limit

    def expect_tokens(self, bare: bool) -> None:
        """Say whether bare SASL tokens follow, instead of requests."""
        self._connection.expect_tokens(bare)

    def _process(self, taken: int = 0) -> None:  # noqa: C901 - on the path of each request
        """Process requests that have arrived, as far as they may start, and send replies that are ready.

        Shape: `taken` is the number of requests that this turn has processed before.
        """
        connection = self._connection
        frames = connection.frames
        dispatch = self._dispatcher.dispatch
        at_once = self._dispatcher.at_once
        rotation = self._rotation
        batch = self._limits.max_batch if rotation.taken < TURN_REQUESTS else 1
        left = max(batch - taken, 1)
        try:
            while not self._waits:
                frame = frames.next_frame()
                if frame is None:
                    break
                request: RequestReceived | None = None
                result: Sequence[Part] | Later[Any] | Close | None = None
                if at_once is not None and not connection.pending:
                    result = at_once(frame, self.info)
                    self._was_at_once = result is not None
                if result is None:
                    request = connection.request_of(frame)
                    result = dispatch(request, self.info)
                frame.release()
                self.requests += 1
                if isinstance(result, Later):
                    assert request is not None
                    self._wait_for(request, result)
                elif isinstance(result, Close):
                    self._refuse(request, result)
                    return
                else:
                    if request is None:
                        connection.reply_at_once(result)
                    else:
                        connection.reply(request, result)
                    if len(result) > 1 or (result and len(result[0]) >= CORK_BYTES):
                        self._send()
                if self._overlapping:
                    if self._has_many_replies():
                        self._waits |= WAITS_FOR_OVERLAPPING
                    if connection.held_up_bytes:
                        self._hold(())
                left -= 1
                if not left and not self._waits and connection.frames.held_bytes:
                    self._waits |= WAITS_FOR_TURN
                    rotation.wait(self._next_turn)
                if frames.is_empty:
                    break
            if batch - left > 1:
                rotation.took(batch - left)
            if self.closed:
                return
            connection.frames.rest()
        except WireError as error:
            self._send()  # the earlier requests of the same batch still get their replies
            self._broken(error)
            return
        except OSError as error:
            self.close(f"no memory for its request: {error}", "memory")
            return
        except Exception:  # a bug of kwire's must not affect other connections
            logger.exception("connection of %s ends with an internal error", self.info.peer)
            self.close("", None)
            return
        self._send()

    def _send(self) -> None:
        output = self._connection.take_output()
        if output and not self.closed:
            transport = self.transport
            transport.send(output)
            if transport.unsent_bytes or self._held:
                self._hold(output)

    def _hold(self, output: Sequence[Part]) -> None:
        """Count unread output, and accept no more requests if there is too much."""
        self._held = self._output.hold(self, output)
        unsent = self.transport.unsent_bytes
        if unsent > self._limits.max_unsent_bytes or (unsent and self._output.pressed):
            self._waits |= WAITS_FOR_READER

    def _next_turn(self) -> None:
        self._go_on(WAITS_FOR_TURN)

    def throttle(self, throttle_ms: int) -> None:
        """Accept no more requests for the given time; longer, if the client is already throttled for longer."""
        if self.closed:
            return
        loop = asyncio.get_running_loop()
        end_s = loop.time() + throttle_ms / 1000
        if self._throttle is not None:
            if self._throttle.when() >= end_s:
                return
            self._throttle.cancel()
        self._waits |= WAITS_FOR_QUOTA
        self._throttle = loop.call_at(end_s, self._throttled)

    def hold(self, held: bool) -> None:
        """Accept no more requests until this is called with False: earlier ones wait to be appended."""
        if held:
            self._waits |= WAITS_FOR_APPENDS
        elif self._waits & WAITS_FOR_APPENDS:
            self._go_on(WAITS_FOR_APPENDS)

    def _throttled(self) -> None:
        self._throttle = None
        self._go_on(WAITS_FOR_QUOTA)

    def _go_on(self, reason: int) -> None:
        """One reason to wait is gone: process the requests that were received, then resume reading."""
        self._waits &= ~reason
        if not self._waits:
            if self._connection.frames.held_bytes:
                self._process()
            if not self._waits:
                if self._left:
                    self._end()
                else:
                    self.transport.resume_reading()

    # -- delayed replies

    def _wait_for(self, request: RequestReceived, later: Later[Any]) -> None:
        future = later.awaitable
        if not isinstance(future, asyncio.Future):  # equivalent to ensure_future, with fewer calls
            future = asyncio.ensure_future(future)
        if future.done():
            self._finish(request, later, future)
            return
        given_up = self._left and later.on_disconnect is not None
        if given_up:
            pass
        elif later.overlap:
            self._overlapping += 1
        else:
            self._waits |= WAITS_FOR_REPLY
        if later.on_disconnect is not None:
            self._pending[later] = None

        def done(future: asyncio.Future[Any]) -> None:
            answer = partial(self._answer, request, later, future)
            self._rotation.answers.give(self.info.client_host, answer)

        future.add_done_callback(done)
        if given_up:
            self._give_up_waits()

    def _answer(
        self, request: RequestReceived, later: Later[Any], future: asyncio.Future[Any]
    ) -> None:
        """Reply to a request that had to wait, and go on with the next if that waits for it."""
        self._pending.pop(later, None)
        if self.closed or (self._left and later.on_disconnect is not None):
            if not future.cancelled():
                future.exception()  # marks the exception as retrieved; there is no receiver
            return
        if later.overlap:
            self._overlapping -= 1
        else:
            self._waits &= ~WAITS_FOR_REPLY
        self._finish(request, later, future)
        self._send()
        if self._connection.held_up_bytes:
            self._hold(())
        reason = 0
        if not later.overlap and not self._waits & WAITS_FOR_REPLY:  # else it waits again
            reason = WAITS_FOR_REPLY
        if self._waits & WAITS_FOR_OVERLAPPING and not self._has_many_replies():
            reason |= WAITS_FOR_OVERLAPPING
        if reason:
            self._go_on(reason)

    def _has_many_replies(self) -> bool:
        """Whether too many requests have no reply yet, or a reply that an earlier request holds up."""
        return self._connection.pending >= self._limits.max_overlapping and not self._left

    def _finish(
        self, request: RequestReceived, later: Later[Any], future: asyncio.Future[Any]
    ) -> None:
        try:
            result = self._dispatcher.complete(later, future)
        except Exception:  # as in _process
            logger.exception("connection of %s ends with an internal error", self.info.peer)
            self.close("", None)
            return
        if isinstance(result, Close):
            self._refuse(request, result)
        elif isinstance(result, Later):
            self._wait_for(request, result)
        else:
            self._connection.reply(request, result)

    # -- the end

    def _broken(self, error: WireError) -> None:
        """The peer does not speak the protocol: log what it seems to speak, and close."""
        if error.path == FRAME_SIZE:
            beginning = self._connection.frames.beginning
            first = beginning[:SHOWN_BYTES]
            guess = looks_like(beginning)
            if guess:
                self.close(f"looks like {guess}, not Kafka (first bytes {first!r})", "guess")
            else:
                self.close(f"{error} (first bytes {first!r})", "size")
        else:
            self.close(f"not a Kafka request: {error}", "header")

    def _refuse(self, request: RequestReceived | None, result: Close) -> None:
        if request is not None and result.reply:
            self._connection.reply(request, result.reply)
        self._connection.frames.close()
        self._send()
        self.close(result.reason, result.kind)

    def close(self, reason: str, kind: object) -> None:
        """Close and log one line; the number of lines of a kind and host is limited."""
        if self.closed:
            return
        if reason:
            self._limiter.log(
                logging.WARNING,
                (kind, self.info.client_host),
                "closed connection of %s: %s",
                self.info.peer,
                reason,
            )
        self.transport.close()
        self._end()

    def finish(self) -> None:
        """Accept no more requests, and close when the replies that are ready have been sent."""
        if not self.closed:
            self._waits |= ENDS
            self.transport.close_when_sent()
            if self._left:
                self._end()

    def _end(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._waits |= ENDS
        self.info.on_throttle = None
        self.info.on_hold = None
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
        self._connection.frames.close()
        self._output.release(self)
        self._give_up_waits()
        if self.info.on_close is not None:
            try:
                self.info.on_close()
            except Exception:  # as in _process
                logger.exception("internal error when %s went away", self.info.peer)
        self._on_closed(self)

    def _give_up_waits(self) -> None:
        """Notify the handlers whose replies are no longer wanted."""
        pending, self._pending = self._pending, {}
        for each in pending:
            if each.on_disconnect is not None:
                try:
                    each.on_disconnect()
                except Exception:  # as in _process
                    logger.exception("internal error when %s went away", self.info.peer)

    # -- housekeeping

    def check_idle(self, now_ms: int) -> None:
        """Close if nothing was sent or received for `connections.max.idle.ms`, or if the peer reads too slowly.

        A peer reads too slowly if the segment being sent was removed in the meantime (`file.delete.delay.ms`), as in
        Apache Kafka.
        """
        if self.transport.unsent_bytes and self.transport.holds_removed_file():
            self.close("has not read records before they were deleted", "deleted")
            return
        idle_ms = now_ms - self.last_active_ms
        if idle_ms < self._limits.idle_ms or self._waits & WAITS_FOR_QUOTA:
            return
        if self.transport.unsent_bytes:
            self.close(f"has not read its replies for {idle_ms} ms", "idle")
        elif self._connection.frames.held_bytes and not self._waits:
            self.close(f"has sent part of a request and nothing for {idle_ms} ms", "idle")
        elif not self.requests:
            self.close(f"has sent no request in {idle_ms} ms", "idle")
        elif not self.pending:
            logger.debug("closed connection of %s: idle for %d ms", self.info.peer, idle_ms)
            self.close("", None)
