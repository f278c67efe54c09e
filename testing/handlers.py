"""Stands in front of a broker's handlers: notes each request, and carries out the rules for faults."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections import deque
from collections.abc import Callable
from copy import copy
from types import GeneratorType
from typing import Any

from kwire.codec import encode_parts
from kwire.connection import response_frame
from kwire.errors import ErrorCode
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.messages.produce import ProduceRequest
from kwire.server.handlers.context import Encoded, Handler, NoReply, RequestContext
from kwire.server.handlers.refusals import refused_in_rows
from kwire.server.handlers.registry import ByKey
from kwire.server.net import platform
from kwire.server.net.dispatcher import Later

from . import rows
from .client.connections import HELPERS
from .faults import Fault, Request

#: The client ids of brokers, as Apache Kafka has them too.
OF_BROKER = re.compile(r"broker-\d+-[a-z0-9-]+")
#: The number of requests that are kept for the report of a failed test.
REMEMBERED = 40

#: The fields of requests that name groups, and those that name transactional ids.
GROUPS = ("group_id", "groups", "groups_names", "group_ids")
TRANSACTIONAL_IDS = ("transactional_id", "transactional_ids", "v3_and_below_transactional_id")


class WatchedHandlers:
    """Handles the requests of one broker before its handlers see them.

    Shape: everything except `rules` is used on the broker's loop only; `rules` is replaced, never changed.
    """

    def __init__(self, jump: Callable[[int], None], broker: int = 1) -> None:
        self.rules: tuple[Fault, ...] = ()
        self.requests: deque[str] = deque(maxlen=REMEMBERED)
        #: Called after each request while a helper waits for an event; None otherwise.
        self.on_request: Callable[[], None] | None = None
        self.session_of: Callable[[Any], Any] = lambda _: None
        self._jump = jump
        self._broker = broker
        self._connections: dict[str, int] = {}

    def stand_before(self, handlers: ByKey) -> None:
        """Take the place of the handlers of a broker's table."""

        def front(inner: Handler[Any]) -> Handler[Any]:
            outer = copy_of(inner)
            outer.function = self._watched(inner, inner.function)
            outer.in_steps = self._watched(inner, inner.in_steps)
            outer.plain = None  # rules look at messages
            return outer

        handlers.stand_before(front)

    def number_of(self, connection: Any) -> int:
        """The number of a client's connection: the first is 1."""
        return self._connections.setdefault(connection.connection_id, len(self._connections) + 1)

    def _watched(self, inner: Handler[Any], function: Callable[..., Any]) -> Callable[..., Any]:
        def handle(ctx: RequestContext, message: Any) -> Any:
            if ctx.client_id == HELPERS:
                return function(ctx, message)
            if is_of_broker(ctx.client_id):
                return of_broker(ctx, message)
            number = self.number_of(ctx.connection)
            self.requests.append(
                f"{ctx.services.clock.now_ms()} {inner.name} v{ctx.version}"
                f" client_id={ctx.client_id!r} connection={number}"
            )
            if self.on_request is not None:
                asyncio.get_running_loop().call_soon(self.on_request)
            if not self.rules:
                return function(ctx, message)
            names = topic_names(ctx, message)
            request = described(ctx, inner.name, message, names, number)
            rule = self._acting(request._replace(broker=self._broker))
            if rule is None:
                return function(ctx, message)
            self.requests[-1] += f"  <- {rule}"
            rows.own_bytes(message)
            return self._faulty(RuleRun(rule, inner, function, ctx, message, names))

        def of_broker(ctx: RequestContext, message: Any) -> Any:
            if not any(rule.from_broker is not None for rule in self.rules):
                return function(ctx, message)
            names = topic_names(ctx, message)
            number = self.number_of(ctx.connection)
            sender = int(str(ctx.client_id).split("-")[1])
            request = described(ctx, inner.name, message, names, number)
            rule = self._acting(request._replace(broker=self._broker, from_broker=sender))
            if rule is None:
                return function(ctx, message)
            self.requests.append(
                f"{ctx.services.clock.now_ms()} {inner.name} v{ctx.version} from broker {sender}  <- {rule}"
            )
            rows.own_bytes(message)
            return self._faulty(RuleRun(rule, inner, function, ctx, message, names))

        return handle

    def _acting(self, request: Request) -> Fault | None:
        """The rule that acts on a request."""
        for rule in self.rules:
            if rule.matches(request) and rule.acts(request.at_ms):
                return rule
        return None

    def _faulty(self, run: RuleRun) -> Later[Any]:
        task = asyncio.ensure_future(run.answer(self._jump, self.session_of))
        # The connection's next request waits, even a Produce: else it would overtake.
        return Later(run.ctx, task, None, task.cancel, overlap=False)


def copy_of(handler: Handler[Any]) -> Handler[Any]:
    """Another handler with the same attributes, in a tenth of the time that copy.copy takes; there are 60 a broker."""
    made = object.__new__(Handler)
    for name in Handler.__slots__:
        setattr(made, name, getattr(handler, name))
    return made


@dataclasses.dataclass(slots=True)
class RuleRun:
    """One request on which a rule acts. Shape: `names` are those of the topics that exist, by topic id."""

    rule: Fault
    inner: Handler[Any]
    function: Callable[..., Any]
    ctx: RequestContext
    message: Any
    names: dict[bytes, str]

    async def answer(self, jump: Callable[[int], None], session_of: Callable[[Any], Any]) -> Any:
        """Return the answer for the client."""
        rule, ctx = self.rule, self.ctx
        if rule.jump_ms:
            jump(rule.jump_ms)
        if rule.stale_metadata:
            services = dataclasses.replace(ctx.services, metadata=lambda: rule.image)
            ctx = self.ctx = copy(ctx)
            ctx.services = services
        if rule.code is not None:
            await self._delay(not rule.after_apply)
            response = await self._with_error()
            await self._delay(rule.after_apply)
            return response
        applies = rule.after_apply or not (rule.close or rule.reset or rule.no_answer)
        began_ms = ctx.services.clock.monotonic_ms()
        await self._delay(not rule.after_apply)
        response = await self._handled(self.message) if applies else None
        await self._delay(rule.after_apply)
        if rule.slowdown is not None:
            took_ms = ctx.services.clock.monotonic_ms() - began_ms
            await asyncio.sleep(took_ms * (rule.slowdown - 1) / 1000)
        if rule.no_answer:
            await asyncio.get_running_loop().create_future()
        if rule.reset:
            reset(session_of(ctx.connection))
            return NoReply(str(rule))
        if rule.close:
            return NoReply(str(rule))
        if rule.cut is not None:
            await self._cut(session_of(ctx.connection), response, rule.cut)
            return NoReply(str(rule))
        if (
            rule.throttle_ms is not None
            and response is not None
            and hasattr(response, "throttle_time_ms")
        ):
            response.throttle_time_ms = rule.throttle_ms
        return response

    async def _delay(self, now: bool) -> None:
        if now and self.rule.delay_ms:
            await asyncio.sleep(self.rule.delay_ms / 1000)

    async def _handled(self, message: Any) -> Any:
        """The broker's own answer."""
        turns, connection = self.ctx.services.turns, self.ctx.connection
        self.ctx.now_ms = self.ctx.services.clock.now_ms()
        result = self.function(self.ctx, message)
        while True:
            if type(result) is GeneratorType:
                result = await turns.run(result, connection)
            if type(result) is not Later:
                return result
            value = await result.awaitable
            result = value if result.finish is None else result.finish(value)

    async def _with_error(self) -> Any:
        rule, names = self.rule, self.names
        code = rule.code
        assert code is not None
        message = self.message
        if isinstance(message, FetchRequest) and rule.topic is not None:
            return await self._fetch_with_error(message)
        if rule.topic is None:
            if rule.after_apply:
                await self._handled(message)
            return self._refused(message, code)
        picked = rows.only(message, names, rule.is_for)
        refused = self._refused(picked, code)
        if isinstance(refused, NoReply):
            return refused
        if not rule.after_apply:
            message = rows.only(message, names, lambda *row: not rule.is_for(*row))
            if rows.is_empty(message, names):
                return refused
        response = await self._handled(message)
        if not isinstance(response, NoReply | Encoded):
            rows.put_in(response, refused, names)
        return response

    async def _fetch_with_error(self, message: FetchRequest) -> Any:
        """A fetch may leave its partitions to its session, so they are found by what matched."""
        rule, names = self.rule, self.names
        assert rule.code is not None and rule.topic is not None
        at_once = copy(message)
        at_once.max_wait_ms = 0
        response = await self._handled(at_once)
        ids = {name: topic_id for topic_id, name in names.items()}
        topic = FetchTopic(
            topic=rule.topic,
            topic_id=ids.get(rule.topic, bytes(16)),
            partitions=[
                FetchPartition(partition=partition or 0, fetch_offset=0, partition_max_bytes=0)
                for name, partition in fetched(self.ctx, message, names)
                if rule.is_for(name, partition)
            ],
        )
        whole = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
        refused = self._refused(whole, rule.code)
        if getattr(response, "error_code", 0) == 0:
            rows.put_in(response, refused, names)
        return response

    def _refused(self, message: Any, code: ErrorCode) -> Any:
        """The response that has the error, for a rule with a topic in the rows of a request even where Apache Kafka refuses it as a whole."""
        if isinstance(message, ProduceRequest) and message.acks == 0:
            return NoReply(f"Produce with acks=0: {code.name}")
        response = self.inner.refuse(self.ctx, message, code)
        if response is None or (
            self.rule.topic is not None and rows.is_empty(response, self.names)
        ):
            in_rows = refused_in_rows(self.inner.api_key, self.ctx.version, message, code)
            if not rows.is_empty(in_rows, self.names):
                return in_rows
        if response is None:
            return NoReply(f"{self.rule}: {self.inner.name} has no error code")
        return response

    async def _cut(self, session: Any, response: Any, size: int) -> None:
        ctx = self.ctx
        if session is None or isinstance(response, NoReply):
            return
        parts = (
            [response.body]
            if isinstance(response, Encoded)
            else encode_parts(response, ctx.version)
        )
        frame = response_frame(ctx.correlation_id, ctx.version >= self.inner.flexible_from, parts)
        data = b"".join(part.read() if hasattr(part, "fileno") else part for part in frame)
        session.transport.send([data[:size]])
        session.transport.close_when_sent()


def reset(session: Any) -> None:
    """Make the connection end with a reset (TCP RST) when it is closed."""
    sock = getattr(getattr(session, "transport", None), "_sock", None)
    if sock is not None:
        platform.reset_when_closed(sock)


def is_of_broker(client_id: str | None) -> bool:
    """Whether a request is one that brokers send to each other."""
    return client_id is not None and OF_BROKER.fullmatch(client_id) is not None


def topic_names(ctx: RequestContext, message: Any) -> dict[bytes, str]:
    """The names of the topics that exist, by topic id."""
    return {tid: topic.name for tid, topic in ctx.services.metadata().topics_by_id.items()}


def fetched(
    ctx: RequestContext, message: FetchRequest, names: dict[bytes, str]
) -> list[tuple[str, int | None]]:
    """The partitions that a Fetch is for: those that it names, and those of its session."""
    found = list(rows.rows_of(message, names))
    session = ctx.services.fetch_sessions.sessions.get(message.session_id)
    if session is not None and message.session_epoch > 0:
        for part in session.partitions.values():
            name = part.topic or names.get(part.topic_id, "")
            if (name, part.partition) not in found:
                found.append((name, part.partition))
    return found


def ids_of(api: str, message: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The groups and the transactional ids that a request names."""
    if api == "FindCoordinator":
        keys = tuple(rows.values_of(message, ("key", "coordinator_keys")))
        return (keys, ()) if message.key_type == 0 else ((), keys)
    return (
        tuple(rows.values_of(message, GROUPS)),
        tuple(rows.values_of(message, TRANSACTIONAL_IDS)),
    )


def described(
    ctx: RequestContext, api: str, message: Any, names: dict[bytes, str], connection: int
) -> Request:
    """The properties that rules check."""
    if isinstance(message, FetchRequest):
        named = fetched(ctx, message, names)
    else:
        named = list(rows.rows_of(message, names))
    groups, transactional = ids_of(api, message)
    return Request(
        api,
        ctx.version,
        ctx.client_id,
        connection,
        tuple(named),
        groups,
        transactional,
        ctx.services.clock.monotonic_ms(),
    )
