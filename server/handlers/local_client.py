"""Requests that the broker sends to itself for a user who inspects it, through the handlers that serve clients.

They are checked and counted like those of a client with the connection's principal; quotas do not apply. A long request
runs in turns of the loop like any other.
"""

from __future__ import annotations

from collections.abc import Generator
from types import GeneratorType
from typing import Any

from kwire.api import response_class
from kwire.codec import decode_steps
from kwire.errors import ErrorCode
from kwire.schema import schema_of

from ..cause import caused_by
from ..clock import Clock
from ..net.connection_info import ConnectionInfo
from .context import Encoded, Later, NoReply, RequestContext
from .dispatch import RequestDispatcher
from .gate import Observer


class Unanswered(Exception):
    """The request got no response; the message says why."""


class LocalClient:
    """Asks as the principal of `connection`."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        connection: ConnectionInfo,
        client_id: str,
        clock: Clock,
        observer: Observer | None = None,
    ) -> None:
        self.connection = connection
        self._dispatcher = dispatcher
        self._client_id = client_id
        self._clock = clock
        self._observer = observer

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """Return the response to a request, at the highest version that is served or at the given one.

        Shape: records in the response are those that the handler returned: bytes, or a slice of a file that the caller
        has to close. Errors: Unanswered if the API is not served, or needs a permission that the principal lacks and
        has no field for the error; any exception of the handler.
        """
        dispatcher = self._dispatcher
        key = schema_of(type(request)).api_key
        assert key is not None
        served = dispatcher.handlers.ranges.get(int(key))
        if served is None:
            raise Unanswered(f"this broker does not serve {type(request).__name__}")
        version = served.max_version if version is None else min(version, served.max_version)
        handler = dispatcher.handlers.by_key[int(key)]
        observer = self._observer
        if observer is not None:
            observer.apis[handler.api_key].versions[version] += 1
        ctx = RequestContext(
            handler,
            version,
            0,
            self._client_id,
            self._clock.now_ms(),
            self.connection,
            dispatcher.services,
            request,
        )
        if handler.authorize is not None and (denied := handler.authorize(ctx, request)):
            answer = handler.refuse(ctx, request, denied)
            if observer is not None:
                observer.observe(ctx, answer, denied, None)
            if answer is None:
                raise Unanswered(f"{self.connection.principal} may not do this: {denied.name}")
            return answer
        with caused_by(self.connection):
            answer = handler.in_steps(ctx, request)
        while True:
            if type(answer) is GeneratorType:
                answer = await dispatcher.turns.run(answer, self.connection)
            elif type(answer) is Later:
                result = await answer.awaitable
                with caused_by(self.connection):
                    answer = result if answer.finish is None else answer.finish(result)
            else:
                break
        if type(answer) is NoReply:
            raise Unanswered(answer.close_reason or "the request has no response")
        if type(answer) is Encoded:
            answer = await dispatcher.turns.run(
                decoded(handler.api_key, answer.body, version), self.connection
            )
        if observer is not None:
            observer.observe(ctx, answer, ErrorCode.NONE, None)
        return answer


def decoded(api_key: int, body: bytes, version: int) -> Generator[None, None, Any]:
    """Decode the body of a response, in steps."""
    cls: type[Any] = response_class(api_key)
    message, _ = yield from decode_steps(cls, memoryview(body), version)
    return message
