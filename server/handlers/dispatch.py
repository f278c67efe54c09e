"""From a received request to its reply: admit, decode, handle, observe, reply.

A handler whose work grows with the request, or with what is stored, is a generator function: it yields (nothing)
between rows, and returns what any handler returns. The dispatcher steps it immediately for as long as a slice lasts,
which suffices for most requests. The remaining steps run in turns (`server/turns.py`), with other requests in between,
and the answer is encoded in turns, too. During that time the connection's next request waits, regardless of the
handler's `overlap`. A generator is closed between steps when its connection ends, so each step has to leave everything
in a consistent state. The `finish` of a Later may be a generator function as well.

Errors are of three kinds, which are never mixed: an error code in a response is the handler's business; a request that
cannot be decoded, or that is not served, closes the connection with one log line; anything else is a bug, logged with
its traceback and answered with UNKNOWN_SERVER_ERROR where the API allows it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Generator, Sequence
from types import GeneratorType
from typing import Any

from kwire.api import ApiKey, response_class
from kwire.codec import DECODED_BYTES, decode_at_once, decode_steps, encode_parts, encode_steps
from kwire.connection import Part, RequestReceived, response_frame
from kwire.errors import EncodeError, ErrorCode, MessageTooLarge, WireError
from kwire.header import decode_request_header
from kwire.schema import schema_of

from .. import native
from ..cause import CAUSE, caused_by
from ..clock import Clock
from ..coordination.store import StoreClosed
from ..net.connection_info import ConnectionInfo
from ..net.dispatcher import Close, Later, Plain
from ..quotas.clients import ClientQuotas
from ..turns import Turns, exhaust
from .api_versions import unsupported_version_response
from .charge import Charge
from .context import SHORT_STEPS, Encoded, Handler, NoReply, RequestContext, Services
from .gate import Durations, Observer, throttle_time_ms, timed
from .registry import HandlerTable

logger = logging.getLogger(__name__)

Reply = Sequence[Part] | Close
Steps = Generator[None, None, "Reply | Later[Any]"]

#: Key, version, correlation id, client id.
MIN_HEADER_BYTES = 10
API_VERSIONS = int(ApiKey.API_VERSIONS)
PRODUCE = int(ApiKey.PRODUCE)
NOTHING: Sequence[Part] = ()

#: The setting that bounds the memory of a decoded request.
MAX_DECODED_BYTES = "kwire.request.decoded.max.bytes"

#: A string holds 32767 bytes, and a character takes up to four.
MAX_MESSAGE_CHARACTERS = 8000


class RequestDispatcher:
    """Answers requests with the handlers of one table. Shape: `turns` are shared with all other long work."""

    def __init__(
        self,
        handlers: HandlerTable,
        services: Services,
        clock: Clock,
        *,
        turns: Turns | None = None,
        max_decoded_bytes: int = DECODED_BYTES,
        observer: Observer | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self.handlers = handlers
        self.turns = turns or Turns(clock.monotonic_us)
        self.max_decoded_bytes = max_decoded_bytes
        self.services = services
        self._now_ms = clock.now_ms
        self._clock = clock
        self._quotas = quotas
        self.observe_with(observer)

    def observe_with(self, observer: Observer | None) -> None:
        """Report all following requests to this observer."""
        self._observer = observer
        if native.form() != "native" or not (observer is None or observer.counts_rows):
            # `dispatch` handles requests that are logged or counted in other ways. A bound method instead of None would
            # keep the broker's open files until a garbage collection.
            self.at_once = None  # type: ignore[assignment,method-assign]
        else:
            vars(self).pop("at_once", None)

    def dispatch(  # noqa: C901 - on the path of each request, which a further call would make longer
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Part] | Later[Any] | Close:
        """Answer one request; see server.net.dispatcher."""
        # Admit: is it served?
        version = request.api_version
        handler = self.handlers.find(request.api_key, version)
        if handler is None:
            return self._not_served(request, connection)
        observer = self._observer
        began_us = 0
        if observer is not None:
            # Counted here, not in a call, since it is a part of each request.
            counter = observer.apis[handler.api_key]
            versions = counter.versions
            before = versions[version]
            versions[version] = before + 1
            if not before & counter.mask:
                began_us = self._clock.monotonic_us()
        quotas = self._quotas
        charge = None
        if quotas is not None and quotas.active:
            charge = Charge(len(request.frame), self._clock.monotonic_us())

        ctx = RequestContext(
            handler,
            version,
            request.correlation_id,
            request.client_id,
            self._now_ms(),
            connection,
            self.services,
        )
        ctx.began_us = began_us
        answer = None
        try:
            if charge is not None:
                ctx.charge = charge
            if handler.plain is not None:
                answer = handler.plain(ctx, request.frame, request.body_offset)
            if answer is None:
                # Decode. Left-over bytes are ignored, as Apache Kafka ignores them: librdkafka's
                # Metadata v12 for all topics has three bytes too many.
                message = ctx.message = decode_at_once(
                    handler.request_class, request.frame, version, request.body_offset
                )
                if message is None:
                    # A separate view keeps the frame alive while the session releases it.
                    steps = self._decode_in_turns(ctx, request.frame[:], request.body_offset)
                    return self._in_turns(ctx, steps, can_wait=True)
                # Handle, if authorized.
                authorize = handler.authorize
                if authorize is not None and (denied := authorize(ctx, message)):
                    return self._reply(ctx, handler.refuse(ctx, message, denied), denied)
                causing = CAUSE.set(connection)  # what the request sets off belongs to its client
                try:
                    answer = handler.function(ctx, message)
                finally:
                    CAUSE.reset(causing)
            kind = type(answer)
            if kind is GeneratorType:
                return self._in_turns(ctx, self._handle_in_turns(ctx, answer))
            if kind is not Later:
                return self._reply(ctx, answer)
        except Exception:  # noqa: BLE001 - a bug of ours, logged there
            return self._failed(ctx)
        if handler.api_key == PRODUCE:
            ctx.message = None  # its records are views into the frame, which must not live on
        if began_us:
            ctx.handled_us = self._clock.monotonic_us()
        if charge is not None:
            charge.stop(self._clock.monotonic_us())
        return answer  # type: ignore[no-any-return]

    def at_once(
        self, frame: memoryview, connection: ConnectionInfo
    ) -> Sequence[Part] | Close | None:
        """Answer a plain request natively, unless it is timed or counts for quotas; else None, with nothing done."""
        if len(frame) < MIN_HEADER_BYTES or frame[0] or frame[2]:
            return None
        key, version = frame[1], frame[3]
        served = self.handlers.ranges.get(key)
        if served is None or not served.min_version <= version <= served.max_version:
            return None
        handler = self.handlers.by_key[key]
        if handler.plain is None or handler.plain_frame is None:
            return None
        if self._quotas is not None and self._quotas.active:
            return None
        observer = self._observer
        before = 0
        if observer is not None:
            counter = observer.apis[key]
            before = counter.versions[version]
            if not before & counter.mask:
                return None
            counter.versions[version] = before + 1
        try:
            done = handler.plain_frame(self.services, frame, version, self._now_ms())
            if type(done) is tuple:
                reply, rows = done
                if observer is not None:
                    counter.errors[0] += rows
                return (reply,) if reply else NOTHING
            if done is not None:
                body_offset = decode_request_header(frame)[1]
                ctx = self._context(handler, frame, connection)
                return self._reply(ctx, handler.plain(ctx, frame, body_offset, done))
        except Exception:  # noqa: BLE001 - a bug of ours, logged there
            return self._failed(self._context(handler, frame, connection))
        if observer is not None:
            counter.versions[version] = before  # `dispatch` counts it
        return None

    def _context(
        self, handler: Handler[Any], frame: memoryview, connection: ConnectionInfo
    ) -> RequestContext:
        """The context of a request that was begun without one."""
        header, _ = decode_request_header(frame)
        return RequestContext(
            handler,
            header.api_version,
            header.correlation_id,
            header.client_id,
            self._now_ms(),
            connection,
            self.services,
        )

    def complete(
        self, later: Later[Any], future: asyncio.Future[Any]
    ) -> Sequence[Part] | Later[Any] | Close:
        """Answer a request that had to wait; see server.net.dispatcher."""
        if future.cancelled():  # the broker is stopping
            return Close("")
        ctx = later.ctx
        if ctx.charge is not None:
            ctx.charge.go_on(self._clock.monotonic_us())
        try:
            answer = future.result()
            if type(answer) is Ready:
                return answer.reply
            if later.finish is not None:
                with caused_by(ctx.connection):
                    answer = later.finish(answer)
                if type(answer) is GeneratorType:
                    return self._in_turns(ctx, self._handle_in_turns(ctx, answer))
            return self._reply(ctx, answer)
        except Exception:  # noqa: BLE001 - as above
            return self._failed(ctx)

    # -- in turns

    def _in_turns(
        self, ctx: RequestContext, steps: Steps, *, can_wait: bool = False
    ) -> Reply | Later[Any]:
        """Answer with the result of the steps, immediately if they end within their first slice."""
        if ctx.charge is not None:
            steps = timed(ctx.charge, steps, self._clock.monotonic_us)
        started = self.turns.start(ready(steps), ctx.connection, can_wait=can_wait)
        if type(started) is Ready:
            return started.reply
        assert isinstance(started, asyncio.Future)
        return Later(ctx, started, None, started.cancel, overlap=False)

    def _decode_in_turns(self, ctx: RequestContext, frame: memoryview, body_offset: int) -> Steps:
        """Decode a long or malformed request, and answer it."""
        handler = ctx.handler
        try:
            message, _ = yield from decode_steps(
                handler.request_class, frame, ctx.version, body_offset, self.max_decoded_bytes
            )
        except WireError as error:
            setting = f" ({MAX_DECODED_BYTES})" if isinstance(error, MessageTooLarge) else ""
            return Close(
                f"cannot decode {handler.name} v{ctx.version} of client {ctx.client_id!r}:"
                f" {error}{setting}",
                (handler.api_key, ctx.version),
            )
        del frame
        ctx.message = message
        try:
            authorize = handler.authorize
            if authorize is not None and (denied := authorize(ctx, message)):
                refused = handler.refuse_in_steps(ctx, message, denied)
                return (yield from self._handle_in_turns(ctx, refused, denied))
            answer = handler.in_steps(ctx, message)
        except Exception:  # noqa: BLE001 - as above
            return self._failed(ctx)
        return (yield from self._handle_in_turns(ctx, answer))

    def _handle_in_turns(
        self, ctx: RequestContext, answer: Any, error: ErrorCode = ErrorCode.NONE
    ) -> Steps:
        """Step a handler if it is a generator, and encode its response; `error` if the whole request is refused."""
        is_short = False
        try:
            if type(answer) is GeneratorType:
                for _ in range(SHORT_STEPS):
                    try:
                        next(answer)
                    except StopIteration as end:
                        answer, is_short = end.value, True
                        break
                    yield
                else:
                    answer = yield from answer
            if type(answer) is Later:
                if ctx.handler.api_key == PRODUCE:
                    ctx.message = None  # as in `dispatch`
                if ctx.began_us:
                    ctx.handled_us = self._clock.monotonic_us()
                return answer
            if is_short and not error:
                return self._reply(ctx, answer)
            reply = yield from self._reply_in_turns(ctx, answer, error)
        except Exception:  # noqa: BLE001 - as above
            return self._failed(ctx)
        is_long = (
            isinstance(reply, list) and sum(map(len, reply)) > MANY_ROWS
        )  # bytes, of some per row
        if is_long and sys.getrefcount(answer) < UNSHARED:
            yield from take_apart(answer)
        return reply

    # -- the reply

    def _reply(self, ctx: RequestContext, answer: Any, error: ErrorCode = ErrorCode.NONE) -> Reply:
        """Encode the response, and report it to the observer."""
        observer = self._observer
        answered_us = self._clock.monotonic_us() if ctx.began_us else 0
        if ctx.charge is not None:
            answer = self._throttle(ctx, ctx.charge, answer)
        version = ctx.version
        reply: Reply
        if type(answer) is NoReply:
            reply = NOTHING if answer.close_reason is None else Close(answer.close_reason)
        else:
            try:
                if type(answer) is Plain:
                    parts = answer.parts
                else:
                    parts = (
                        [answer.body] if type(answer) is Encoded else encode_parts(answer, version)
                    )
            except EncodeError:
                # A message may quote names of any length, and then be too long for a string.
                if not exhaust(shorten_messages(answer)):
                    raise
                parts = encode_parts(answer, version)
            flexible = version >= ctx.handler.flexible_from
            reply = response_frame(ctx.correlation_id, flexible, parts)
        if observer is not None:
            if answered_us:
                self._observe(observer, ctx, answer, error, answered_us)
            else:
                observer.observe(ctx, answer, error, None)
        return reply

    def _reply_in_turns(
        self, ctx: RequestContext, answer: Any, error: ErrorCode = ErrorCode.NONE
    ) -> Steps:
        """Do the same in steps, for a response that may be long."""
        if type(answer) is NoReply or type(answer) is Encoded:
            return self._reply(ctx, answer, error)
        answered_us = self._clock.monotonic_us() if ctx.began_us else 0
        if ctx.charge is not None:
            answer = self._throttle(ctx, ctx.charge, answer)
        version = ctx.version
        try:
            parts = yield from encode_steps(answer, version)
        except EncodeError:
            if not (yield from shorten_messages(answer)):  # as above
                raise
            parts = yield from encode_steps(answer, version)
        if self._observer is not None:
            self._observe(self._observer, ctx, answer, error, answered_us)
        return response_frame(ctx.correlation_id, version >= ctx.handler.flexible_from, parts)

    def _throttle(self, ctx: RequestContext, charge: Charge, answer: Any) -> Any:
        """Count the request for the quotas of its client, and throttle that if it is over one."""
        assert self._quotas is not None
        answered = type(answer) is not NoReply
        throttle_ms = throttle_time_ms(ctx, charge, self._quotas, self._clock, answered=answered)
        if not throttle_ms:
            return answer
        if ctx.connection.on_throttle is not None:
            ctx.connection.on_throttle(throttle_ms)
        return throttled(ctx, answer, throttle_ms)

    def _observe(
        self,
        observer: Observer,
        ctx: RequestContext,
        response: object,
        error: ErrorCode,
        answered_us: int,
    ) -> None:
        durations = None
        if ctx.began_us:
            handled_us = ctx.handled_us or answered_us
            durations = Durations(
                handled_us - ctx.began_us,
                answered_us - handled_us,
                self._clock.monotonic_us() - answered_us,
            )
        observer.observe(ctx, response, error, durations)

    def _failed(self, ctx: RequestContext) -> Reply:
        """Log the exception being handled and answer UNKNOWN_SERVER_ERROR, or close."""
        name = ctx.handler.name
        said = f"{name} v{ctx.version} of client {ctx.client_id!r} failed"
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        cause = sys.exc_info()[1]
        if isinstance(cause, StoreClosed):  # not a bug, and the broker is about to stop
            logger.error("%s: %s", said, cause)
            code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            logger.exception("%s", said)
        try:
            response = ctx.handler.refuse(ctx, ctx.message, code)
            if response is not None:
                return self._reply(ctx, response, code)
        except Exception:
            logger.exception("refusing %s failed as well", name)
        if self._observer is not None:
            self._observe(self._observer, ctx, None, code, self._clock.monotonic_us())
        return Close(said)

    def _not_served(self, request: RequestReceived, connection: ConnectionInfo) -> Reply:
        key, version, client = request.api_key, request.api_version, request.client_id
        if key == API_VERSIONS:
            # In v0, which every client can read, regardless of the requested version (KIP-511).
            body = encode_parts(unsupported_version_response(self.handlers.ranges), 0)
            return response_frame(request.correlation_id, False, body)
        served = self.handlers.ranges.get(key)
        if served is not None:
            name = self.handlers.by_key[key].name
            why = (
                f"{name} (key {key}) version {version} is not supported, only"
                f" {served.min_version} to {served.max_version}"
            )
        else:
            why = f"{api_name(key)} version {version} is not supported"
        return Close(f"{why}; client id {client!r}", (key, version))


#: Lists of more rows than this are released in steps of this many rows.
MANY_ROWS = 4096
ROWS_FREED = 256


def _unshared() -> int:
    """`sys.getrefcount` of an object that only its owner and a local variable refer to; Python 3.14 counts one less."""
    owner: list[list[object]] = [[]]
    rows = owner[0]
    return sys.getrefcount(rows)


UNSHARED = _unshared()


def take_apart(message: Any) -> Generator[None, None, None]:
    """Free the rows of a long response in steps: a million at once would take 0.1 s.

    Shape: lists that anything else refers to, or whose rows do, stay as they are.
    """
    if not hasattr(message, "unknown_tags"):  # `Encoded`, `NoReply`
        return
    yield
    for declared in schema_of(type(message)).fields:
        rows = getattr(message, declared.name)
        if type(rows) is not list or not rows or not hasattr(rows[0], "unknown_tags"):
            continue
        if len(rows) <= ROWS_FREED:  # each of them may have many
            for row in rows:
                if sys.getrefcount(row) <= UNSHARED:
                    yield from take_apart(row)
        elif len(rows) > MANY_ROWS and sys.getrefcount(rows) <= UNSHARED:
            while rows:
                yield
                del rows[-ROWS_FREED:]


class Ready:
    """The result of a request in turns: its reply, or the Later of its handler."""

    __slots__ = ("reply",)

    def __init__(self, reply: Reply | Later[Any]) -> None:
        self.reply = reply


def ready(steps: Steps) -> Generator[None, None, Ready]:
    return Ready((yield from steps))


def throttled(ctx: RequestContext, answer: Any, throttle_time_ms: int) -> Any:
    """Put the throttle time into a response, if its version has the field."""
    response = response_class(ctx.handler.api_key)
    for place, field in enumerate(schema_of(response).fields):
        if field.name == "throttle_time_ms" and ctx.version in field.versions:
            # Patched in copies, since the originals may be kept for others.
            written = throttle_time_ms.to_bytes(4, "big")
            if type(answer) is Encoded:  # in Metadata it is first
                assert place == 0
                return Encoded(written + answer.body[4:])
            if type(answer) is Plain:  # in Fetch it is first, in Produce before the tagged fields
                first, *rest = answer.parts
                patched = written + first[4:] if place == 0 else first[:-5] + written + first[-1:]
                return answer._replace(parts=[patched, *rest])
            if type(answer) is not NoReply:
                answer.throttle_time_ms = throttle_time_ms
    return answer


def shorten_messages(message: Any) -> Generator[None, None, bool]:
    """Cut error messages that may be too long for a string; return False if there are none."""
    yield
    shortened = False
    for declared in schema_of(type(message)).fields:
        value = getattr(message, declared.name)
        if isinstance(value, list):
            for element in value:
                if hasattr(element, "unknown_tags"):
                    shortened |= yield from shorten_messages(element)
        elif (
            isinstance(value, str)
            and declared.name.endswith("error_message")
            and len(value) > MAX_MESSAGE_CHARACTERS
        ):
            setattr(message, declared.name, value[:MAX_MESSAGE_CHARACTERS] + "...")
            shortened = True
    return shortened


def api_name(key: int) -> str:
    """Return an API key as shown in log lines."""
    try:
        return f"{ApiKey(key).name.title().replace('_', '')} (key {key})"
    except ValueError:
        return f"API key {key}"
