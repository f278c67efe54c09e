"""From a received request to its reply: admit, decode, handle, observe, reply.

Errors are of three kinds, never mixed: an error code in a response is the handler's business; a
request that cannot be decoded, or that is not served, closes the connection with one log line;
anything else is a bug of ours, logged with its traceback and answered UNKNOWN_SERVER_ERROR where
the API allows it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Any

from kwire.api import ApiKey, response_class
from kwire.codec import decode_prefix, encode_parts
from kwire.connection import Part, RequestReceived, response_frame
from kwire.errors import EncodeError, ErrorCode, WireError
from kwire.schema import schema_of

from ..clock import Clock
from ..coordination.store import StoreClosed
from ..net.connection_info import ConnectionInfo
from ..net.dispatcher import Close, Later
from .api_versions import unsupported_version_response
from .context import Encoded, NoReply, RequestContext, Services
from .gate import Durations, Observer, RequestQuotas
from .registry import HandlerTable

logger = logging.getLogger(__name__)

Reply = Sequence[Part] | Close

API_VERSIONS = int(ApiKey.API_VERSIONS)
PRODUCE = int(ApiKey.PRODUCE)
NOTHING: Sequence[Part] = ()

#: A string holds 32767 bytes, and a character takes up to four.
MAX_MESSAGE_CHARACTERS = 8000


class RequestDispatcher:
    """Answers requests with the handlers of one table."""

    def __init__(
        self,
        handlers: HandlerTable,
        services: Services,
        clock: Clock,
        *,
        observer: Observer | None = None,
        quotas: RequestQuotas | None = None,
    ) -> None:
        self.handlers = handlers
        self.services = services
        self._now_ms = clock.now_ms
        self._clock = clock
        self._observer = observer
        self._quotas = quotas

    def dispatch(
        self, request: RequestReceived, connection: ConnectionInfo
    ) -> Sequence[Part] | Later[Any] | Close:
        """Answer one request; see server.net.dispatcher."""
        # Admit: is it served?
        version = request.api_version
        handler = self.handlers.find(request.api_key, version)
        if handler is None:
            return self._not_served(request, connection)
        observer = self._observer
        began_us = 0 if observer is None else self._clock.monotonic_us()

        # Decode. Left-over bytes are ignored, as Apache Kafka ignores them: librdkafka's Metadata
        # v12 for all topics has three bytes too many.
        try:
            message, _ = decode_prefix(
                handler.request_class, request.frame, version, request.body_offset
            )
        except WireError as error:
            return Close(
                f"cannot decode {handler.name} v{version} of client {request.client_id!r}: {error}",
                (request.api_key, version),
            )
        ctx = RequestContext(
            handler,
            version,
            request.correlation_id,
            request.client_id,
            self._now_ms(),
            connection,
            self.services,
            message,
        )
        ctx.began_us = began_us

        # Handle, if authorized.
        authorize = handler.authorize
        try:
            if authorize is not None and (denied := authorize(ctx, message)):
                return self._reply(ctx, handler.refuse(ctx, message, denied), denied)
            answer = handler.function(ctx, message)
            if type(answer) is not Later:
                return self._reply(ctx, answer)
        except Exception:  # noqa: BLE001 - a bug of ours, logged there
            return self._failed(ctx)
        if handler.api_key == PRODUCE:
            ctx.message = None  # its records are views into the frame, which must not live on
        if observer is not None:
            ctx.handled_us = self._clock.monotonic_us()
        return answer

    def complete(self, later: Later[Any], future: asyncio.Future[Any]) -> Reply:
        """Answer a request that had to wait; see server.net.dispatcher."""
        if future.cancelled():  # the broker is stopping
            return Close("")
        ctx = later.ctx
        try:
            answer = future.result()
            return self._reply(ctx, answer if later.finish is None else later.finish(answer))
        except Exception:  # noqa: BLE001 - as above
            return self._failed(ctx)

    def _reply(self, ctx: RequestContext, answer: Any, error: ErrorCode = ErrorCode.NONE) -> Reply:
        """Encode the response, and report it to the observer."""
        observer = self._observer
        answered_us = 0 if observer is None else self._clock.monotonic_us()
        if self._quotas is not None and ctx.handler.throttled:
            answer = throttled(ctx, answer, self._quotas.throttle_time_ms(ctx))
        version = ctx.version
        reply: Reply
        if type(answer) is NoReply:
            reply = NOTHING if answer.close_reason is None else Close(answer.close_reason)
        else:
            try:
                parts = [answer.body] if type(answer) is Encoded else encode_parts(answer, version)
            except EncodeError:
                # A message may quote names of any length, and then be too long for a string.
                if not shorten_messages(answer):
                    raise
                parts = encode_parts(answer, version)
            flexible = version >= ctx.handler.flexible_from
            reply = response_frame(ctx.correlation_id, flexible, parts)
        if observer is not None:
            self._observe(ctx, answer, error, answered_us)
        return reply

    def _observe(
        self, ctx: RequestContext, response: object, error: ErrorCode, answered_us: int
    ) -> None:
        assert self._observer is not None
        handled_us = ctx.handled_us or answered_us
        durations = Durations(
            handled_us - ctx.began_us,
            answered_us - handled_us,
            self._clock.monotonic_us() - answered_us,
        )
        self._observer.observe(ctx, response, error, durations)

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
            self._observe(ctx, None, code, self._clock.monotonic_us())
        return Close(said)

    def _not_served(self, request: RequestReceived, connection: ConnectionInfo) -> Reply:
        key, version, client = request.api_key, request.api_version, request.client_id
        if key == API_VERSIONS:
            # In v0, which every client can read, whatever version it asked for (KIP-511).
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


def throttled(ctx: RequestContext, answer: Any, throttle_time_ms: int) -> Any:
    """Put the throttle time into a response, if its version has the field."""
    response = response_class(ctx.handler.api_key)
    for place, field in enumerate(schema_of(response).fields):
        if field.name == "throttle_time_ms" and ctx.version in field.versions:
            if type(answer) is Encoded:
                # Patched in a copy, since the original may be kept for others; in Metadata it is
                # first.
                assert place == 0
                return Encoded(throttle_time_ms.to_bytes(4, "big") + answer.body[4:])
            if type(answer) is not NoReply:
                answer.throttle_time_ms = throttle_time_ms
    return answer


def shorten_messages(message: Any) -> bool:
    """Cut error messages that may be too long for a string; False if there are none."""
    shortened = False
    for declared in schema_of(type(message)).fields:
        value = getattr(message, declared.name)
        if isinstance(value, list):
            for element in value:
                if hasattr(element, "unknown_tags"):
                    shortened |= shorten_messages(element)
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
