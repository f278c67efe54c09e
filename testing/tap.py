"""Copies the requests and replies of a broker's connections while there is a recorder, and leaves no trace else."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .client.connections import HELPERS
from .exchange import Exchange
from .handlers import WatchedHandlers, is_of_broker

if TYPE_CHECKING:
    from .loop import LoopClock
    from .recorder import Recorder


#: Counts all requests and replies, so that those of several brokers can be put in order.
_order = itertools.count(1)


class Tap:
    """The recorders of one broker; everything is called on its loop. Shape: `image` returns its current metadata."""

    def __init__(
        self,
        listeners: Sequence[Any],
        handlers: WatchedHandlers,
        clock: LoopClock,
        image: Callable[[], Any],
    ) -> None:
        self._listeners = listeners
        self._handlers = handlers
        self._clock = clock
        self._image = image
        self._recorders: tuple[Recorder, ...] = ()

    def record(self, recorders: tuple[Recorder, ...]) -> None:
        """Have these recorders, and no others, told of what comes and goes from now on."""
        was_on, self._recorders = bool(self._recorders), recorders
        if bool(recorders) == was_on:
            return
        for listener in self._listeners:
            if recorders:
                listener._make_session = self._tapped(listener._make_session)
                for session in listener.sessions:
                    self._connect(session)
            else:
                listener._make_session = listener._make_session.usual
                for session in listener.sessions:
                    if type(session._connection) is TappedConnection:
                        session._connection = session._connection.usual

    def _tapped(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **options: Any) -> Any:
            session = usual(*args, **options)
            self._connect(session)
            return session

        make.usual = usual  # type: ignore[attr-defined]
        return make

    def _connect(self, session: Any) -> None:
        session._connection = TappedConnection(session._connection, session.info, self)

    # -- called by the connections

    def came(self, request: Any, info: Any) -> Exchange | None:
        """A request has come; None if it is not a client's."""
        if request.client_id == HELPERS or is_of_broker(request.client_id):
            return None
        exchange = Exchange(
            api_key=request.api_key,
            version=request.api_version,
            correlation_id=request.correlation_id,
            client_id=request.client_id,
            connection=self._handlers.number_of(info),
            principal=info.principal,
            at_ms=self._clock.now_ms(),
            frame=bytes(request.frame),
            body_offset=request.body_offset,
            image=self._image(),
            order=next(_order),
        )
        for recorder in self._recorders:
            recorder.exchanges.append(exchange)
        return exchange

    def goes(self, exchange: Exchange, parts: Sequence[Any]) -> None:
        """Its reply goes, in parts, some of which may be in files."""
        frame = b"".join(part.read() if hasattr(part, "fileno") else part for part in parts)
        exchange.replied(frame, self._clock.now_ms(), next(_order))


class TappedConnection:
    """In place of a session's ServerConnection: passes everything on, and tells the tap."""

    def __init__(self, usual: Any, info: Any, tap: Tap) -> None:
        self.usual = usual
        self._info = info
        self._tap = tap
        self._exchanges: dict[Any, Exchange] = {}

    def request_of(self, frame: Any) -> Any:
        request = self.usual.request_of(frame)
        exchange = self._tap.came(request, self._info)
        if exchange is not None:
            self._exchanges[request] = exchange
        return request

    def reply(self, request: Any, parts: Sequence[Any] = ()) -> None:
        exchange = self._exchanges.pop(request, None)
        if exchange is not None and parts:
            self._tap.goes(exchange, parts)
        self.usual.reply(request, parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.usual, name)
