"""Handlers that answer later or not at all, or that fail."""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.metadata import MetadataRequest
from kwire.messages.produce import ProduceRequest
from server.handlers.ceilings import CEILING_3_9
from server.handlers.context import NO_REPLY, NoReply, RequestContext
from server.handlers.dispatch import RequestDispatcher, take_apart
from server.handlers.registry import HandlerTable, handles
from server.metrics.requests import ApiMetrics
from server.net.session import Session
from server.quotas.clients import ClientQuotas
from server.quotas.entities import Entity
from server.turns import Turns, exhaust
from tests.support.clock import ManualClock
from tests.support.services import services_of
from tests.support.transport import MemoryTransport, connect


def open_with(answer: Any, **declared: Any) -> tuple[MemoryTransport, Session]:
    @handles(HeartbeatRequest, versions="0-4", **{"authorize": None, **declared})
    def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> Any:
        return answer(ctx, request)

    table = HandlerTable([heartbeat], CEILING_3_9)
    return connect(RequestDispatcher(table, services_of(), ManualClock(now_ms=42)))


def request(number: int, version: int = 4) -> bytes:
    header = struct.pack(">hhih", 12, version, number, 2) + b"me" + b"\0" * (version == 4)
    body = encode(HeartbeatRequest(group_id=f"g{number}", member_id="m"), version)
    return struct.pack(">i", len(header) + len(body)) + header + body


def replies(transport: MemoryTransport, version: int = 4) -> list[tuple[int, int]]:
    flexible = version == 4
    return [
        (
            struct.unpack(">i", frame[:4])[0],
            decode(HeartbeatResponse, frame[4 + flexible :], version).error_code,
        )
        for frame in transport.frames()
    ]


@pytest.mark.parametrize("version", range(5))
def test_response_goes_back_with_the_header_of_its_version(version: int) -> None:
    transport, _ = open_with(lambda ctx, request: HeartbeatResponse(error_code=27))
    transport.receive(request(3, version))
    assert replies(transport, version) == [(3, 27)]


def test_context_tells_header_time_and_connection() -> None:
    seen: list[RequestContext] = []

    def answer(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        seen.append(ctx)
        return HeartbeatResponse()

    transport, session = open_with(answer)
    transport.receive(request(3))
    (ctx,) = seen
    assert (ctx.handler.api_key, ctx.version, ctx.correlation_id, ctx.client_id) == (12, 4, 3, "me")
    assert ctx.now_ms == 42
    assert ctx.connection is session.info


def test_later_answers_when_its_future_does_and_in_order() -> None:
    async def run() -> None:
        futures: dict[str, asyncio.Future[int]] = {}

        def answer(ctx: RequestContext, request: HeartbeatRequest) -> Any:
            future = futures[request.group_id] = asyncio.get_running_loop().create_future()
            return ctx.later(future, lambda code: HeartbeatResponse(error_code=code))

        transport, _ = open_with(answer, overlap=True)
        transport.receive(request(1) + request(2))
        futures["g2"].set_result(22)
        await asyncio.sleep(0)
        assert transport.frames() == []
        futures["g1"].set_result(25)
        await asyncio.sleep(0)
        assert replies(transport) == [(1, 25), (2, 22)]

    asyncio.run(run())


def test_coroutine_may_answer_later_too() -> None:
    async def run() -> None:
        async def soon() -> HeartbeatResponse:
            await asyncio.sleep(0)
            return HeartbeatResponse(error_code=5)

        transport, _ = open_with(lambda ctx, request: ctx.later(soon()))
        transport.receive(request(1))
        for _ in range(4):
            await asyncio.sleep(0)
        assert replies(transport) == [(1, 5)]

    asyncio.run(run())


def test_future_that_is_done_is_answered_at_once() -> None:
    async def run() -> None:
        future = asyncio.get_running_loop().create_future()
        future.set_result(HeartbeatResponse(error_code=6))
        transport, _ = open_with(lambda ctx, request: ctx.later(future))
        transport.receive(request(1))
        assert replies(transport) == [(1, 6)]

    asyncio.run(run())


def test_no_reply_is_no_reply() -> None:
    transport, session = open_with(lambda ctx, request: NO_REPLY)
    transport.receive(request(1))
    assert not transport.sent and not session.closed and session.pending == 0


def test_no_reply_with_a_reason_closes(caplog: pytest.LogCaptureFixture) -> None:
    transport, session = open_with(lambda ctx, request: NoReply("acks=0 and it failed"))
    transport.receive(request(1))
    assert session.closed
    assert "acks=0 and it failed" in caplog.text


def test_disconnect_is_told_to_who_asked() -> None:
    async def run() -> None:
        gone: list[str] = []
        future = asyncio.get_running_loop().create_future()
        transport, _ = open_with(
            lambda ctx, request: ctx.later(future, on_disconnect=lambda: gone.append("gone"))
        )
        transport.receive(request(1))
        transport.hang_up()
        assert gone == ["gone"]
        assert not future.cancelled()

    asyncio.run(run())


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("a mistake")


def test_mistake_in_a_handler_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    transport, session = open_with(fail)
    transport.receive(request(1))
    assert replies(transport) == [(1, ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert not session.closed
    assert "ZeroDivisionError" in caplog.text
    assert "Heartbeat v4 of client 'me' failed" in caplog.text


def test_mistake_later_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        future = asyncio.get_running_loop().create_future()
        transport, _ = open_with(lambda ctx, request: ctx.later(future, fail))
        transport.receive(request(1))
        future.set_result(None)
        await asyncio.sleep(0)
        assert replies(transport) == [(1, ErrorCode.UNKNOWN_SERVER_ERROR)]

    asyncio.run(run())
    assert "ZeroDivisionError" in caplog.text


def test_response_that_cannot_be_encoded_is_a_mistake(caplog: pytest.LogCaptureFixture) -> None:
    transport, _ = open_with(lambda ctx, request: HeartbeatResponse(error_code=1 << 20))
    transport.receive(request(1))
    assert replies(transport) == [(1, ErrorCode.UNKNOWN_SERVER_ERROR)]


@pytest.mark.parametrize(
    ("message", "is_answered"),
    [(MetadataRequest(topics=None), True), (ProduceRequest(acks=1, timeout_ms=1), False)],
)
def test_mistake_of_an_api_without_an_error_code_is_answered_in_rows_or_closes(
    message: Any, is_answered: bool
) -> None:
    failing = handles(type(message), versions="0-9", authorize=None)(fail)
    header = struct.pack(">hhih", failing.api_key, 3, 1, 2) + b"me"
    frame = header + encode(message, 3)
    table = HandlerTable([failing], CEILING_3_9)
    transport, session = connect(RequestDispatcher(table, services_of(), ManualClock()))
    transport.receive(struct.pack(">i", len(frame)) + frame)
    assert session.closed != is_answered
    assert len(transport.frames()) == is_answered


def test_cancelled_work_closes_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        future = asyncio.get_running_loop().create_future()
        transport, session = open_with(lambda ctx, request: ctx.later(future))
        transport.receive(request(1))
        future.cancel()
        await asyncio.sleep(0)
        assert session.closed

    asyncio.run(run())
    assert not caplog.records


def test_bytes_after_the_message_are_let_be() -> None:
    """As in Apache Kafka: librdkafka's Metadata v12 for all topics has three extra bytes."""
    transport, _ = open_with(lambda ctx, request: HeartbeatResponse(error_code=27))
    longer = request(3)[4:] + b"\0\0\0"
    transport.receive(struct.pack(">i", len(longer)) + longer)
    assert replies(transport) == [(3, 27)]
    assert not transport.closed


# -- handlers that are generators


def open_in_turns(answer: Any, **declared: Any) -> tuple[MemoryTransport, Session, Turns]:
    """A connection to a broker whose slices have a hundred steps."""

    @handles(HeartbeatRequest, versions="0-4", **{"authorize": None, **declared})
    def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> Any:
        return (yield from answer(ctx, request))

    clock = ManualClock()
    turns = Turns(clock.monotonic_us, slice_steps=100)
    table = HandlerTable([heartbeat], CEILING_3_9)
    transport, session = connect(RequestDispatcher(table, services_of(), clock, turns=turns))
    return transport, session, turns


def steps(count: int, answer: Any) -> Iterator[None]:
    for _ in range(count):
        yield
    return answer  # type: ignore[return-value]


async def turn(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_generator_that_ends_within_its_slice_answers_at_once() -> None:
    transport, _, _ = open_in_turns(lambda ctx, request: steps(5, HeartbeatResponse(error_code=3)))
    transport.receive(request(1))
    assert replies(transport) == [(1, 3)]


def test_long_generator_answers_in_turns_and_its_connections_next_request_waits() -> None:
    async def run() -> None:
        seen: list[str] = []

        def answer(ctx: RequestContext, request: HeartbeatRequest) -> Any:
            seen.append(request.group_id)
            long = request.group_id == "g1"
            return steps(1000 if long else 1, HeartbeatResponse(error_code=7))

        transport, session, _ = open_in_turns(answer, overlap=True)
        transport.receive(request(1) + request(2))
        assert seen == ["g1"] and session.pending == 1
        await turn(5)
        assert replies(transport) == [] and seen == ["g1"]
        await turn(10)
        assert replies(transport) == [(1, 7), (2, 7)]
        assert session.pending == 0

    asyncio.run(run())


def test_generator_may_wait_and_finish_in_turns_too() -> None:
    async def run() -> None:
        future = asyncio.get_running_loop().create_future()

        def answer(ctx: RequestContext, request: HeartbeatRequest) -> Any:
            return steps(
                1000,
                ctx.later(future, lambda code: steps(1000, HeartbeatResponse(error_code=code))),
            )

        transport, session, turns = open_in_turns(answer)
        transport.receive(request(1) + request(2)[:7])
        await turn(15)
        assert turns.waiting == 0 and session.pending == 1
        future.set_result(9)
        await turn(2)
        assert turns.waiting == 1 and replies(transport) == []
        await turn(15)
        assert replies(transport) == [(1, 9)]
        transport.receive(request(2)[7:])
        await turn(30)
        assert replies(transport) == [(1, 9), (2, 9)]

    asyncio.run(run())


def test_future_that_is_done_when_a_generator_ends_is_answered_at_once() -> None:
    async def run() -> None:
        future = asyncio.get_running_loop().create_future()
        future.set_result(HeartbeatResponse(error_code=6))
        transport, _, _ = open_in_turns(lambda ctx, request: steps(1, ctx.later(future)))
        transport.receive(request(1))
        assert replies(transport) == [(1, 6)]

    asyncio.run(run())


def test_work_of_a_connection_that_is_gone_is_given_up() -> None:
    async def run() -> None:
        closed: list[str] = []

        def answer(ctx: RequestContext, request: HeartbeatRequest) -> Any:
            try:
                return (yield from steps(100_000, HeartbeatResponse()))
            finally:
                closed.append("closed")

        transport, _, turns = open_in_turns(answer)
        transport.receive(request(1))
        assert turns.waiting == 1
        transport.hang_up()
        await turn(2)
        assert closed == ["closed"] and turns.waiting == 0

    asyncio.run(run())


def test_generator_that_fails_in_a_later_turn_is_answered_as_any_mistake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        def answer(ctx: RequestContext, request: HeartbeatRequest) -> Any:
            yield from steps(1000, None)
            raise ZeroDivisionError("a mistake")

        transport, session, _ = open_in_turns(answer)
        transport.receive(request(1))
        await turn(15)
        assert replies(transport) == [(1, ErrorCode.UNKNOWN_SERVER_ERROR)]
        assert "a mistake" in caplog.text and not session.closed

    asyncio.run(run())


def test_connection_closes_when_turns_end_with_the_broker() -> None:
    async def run() -> None:
        transport, session, turns = open_in_turns(
            lambda ctx, request: steps(100_000, HeartbeatResponse())
        )
        transport.receive(request(1))
        turns.close()
        await turn(2)
        assert session.closed and transport.frames() == []

    asyncio.run(run())


def test_long_generator_is_observed_and_throttled_once() -> None:
    async def run() -> None:
        observed: list[ErrorCode] = []

        class Notes:
            counts_rows = False

            def __init__(self) -> None:
                self.apis = defaultdict(lambda: ApiMetrics((2,)))

            def observe(self, ctx: Any, response: Any, error: ErrorCode, durations: Any) -> None:
                observed.append(error)

        quotas = ClientQuotas()
        quotas.set(Entity("ANONYMOUS", None), {"controller_mutation_rate": 1.0})

        @handles(HeartbeatRequest, versions="0-4", authorize=None)
        def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> Any:
            assert ctx.charge is not None
            ctx.charge.throttled_until_ms = clock.monotonic_ms() + 250
            return (yield from steps(1000, HeartbeatResponse()))

        clock = ManualClock()
        dispatcher = RequestDispatcher(
            HandlerTable([heartbeat], CEILING_3_9),
            services_of(),
            clock,
            turns=Turns(clock.monotonic_us, slice_steps=100),
            observer=Notes(),
            quotas=quotas,
        )
        transport, _ = connect(dispatcher)
        transport.receive(request(1))
        await turn(15)
        (frame,) = transport.frames()
        assert decode(HeartbeatResponse, frame[5:], 4).throttle_time_ms == 250
        assert observed == [ErrorCode.NONE]

    asyncio.run(run())


def test_long_response_is_taken_apart_unless_something_else_refers_to_it() -> None:
    def response(count: int) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[DescribedGroup() for _ in range(count)])

    long, short, kept = response(10_000), response(10), response(10_000)
    rows = kept.groups
    for each in (long, short, kept):
        exhaust(take_apart(each))
    assert (len(long.groups), len(short.groups), len(rows)) == (0, 10, 10_000)
    nested = response(1)
    nested.groups[0].members = [DescribedGroupMember() for _ in range(10_000)]
    shared = response(1)
    group = shared.groups[0]
    group.members = [DescribedGroupMember() for _ in range(10_000)]
    exhaust(take_apart(nested))
    exhaust(take_apart(shared))
    assert (len(nested.groups[0].members), len(group.members)) == (0, 10_000)


def test_long_answer_to_which_something_refers_stays_whole() -> None:
    async def run() -> None:
        seen: list[Any] = []

        @handles(DescribeGroupsRequest, versions="0-6", authorize=None)
        def describe(ctx: RequestContext, request: DescribeGroupsRequest) -> Any:
            yield
            response = DescribeGroupsResponse(groups=[DescribedGroup() for _ in range(10_000)])
            seen.append(response.groups)
            return response

        clock = ManualClock()
        turns = Turns(clock.monotonic_us, slice_steps=20)
        dispatcher = RequestDispatcher(
            HandlerTable([describe], CEILING_3_9), services_of(), clock, turns=turns
        )
        transport, _ = connect(dispatcher)
        header = struct.pack(">hhih", 15, 4, 1, -1)
        body = encode(DescribeGroupsRequest(groups=["g"]), 4)
        transport.receive(struct.pack(">i", len(header) + len(body)) + header + body)
        await turn(100)
        (frame,) = transport.frames()
        assert len(decode(DescribeGroupsResponse, frame[4:], 4).groups) == 10_000
        assert len(seen[0]) == 10_000  # the test refers to it

    asyncio.run(run())
