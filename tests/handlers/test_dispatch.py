"""What comes of handlers that answer later, not at all, or fail."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.metadata import MetadataRequest, MetadataResponse
from server.handlers.ceilings import CEILING_3_9
from server.handlers.context import NO_REPLY, NoReply, RequestContext
from server.handlers.dispatch import RequestDispatcher
from server.handlers.registry import HandlerTable, handles
from server.net.session import Session
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


def test_mistake_of_an_api_without_an_error_code_closes_or_asks_its_refusal() -> None:
    def metadata_request(number: int) -> bytes:
        header = struct.pack(">hhih", 3, 1, number, 2) + b"me"
        body = encode(MetadataRequest(topics=None), 1)
        return struct.pack(">i", len(header) + len(body)) + header + body

    def refuse(ctx: RequestContext, request: MetadataRequest, error: ErrorCode) -> Any:
        return MetadataResponse(controller_id=-int(error))

    for refusal in (None, refuse):
        metadata = handles(MetadataRequest, versions="0-12", authorize=None, refusal=refusal)(fail)
        table = HandlerTable([metadata], CEILING_3_9)
        transport, session = connect(RequestDispatcher(table, services_of(), ManualClock()))
        transport.receive(metadata_request(1))
        assert session.closed == (refusal is None)
        assert len(transport.frames()) == (refusal is not None)


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
    """As Apache Kafka does: librdkafka's Metadata v12 for all topics has three bytes too many."""
    transport, _ = open_with(lambda ctx, request: HeartbeatResponse(error_code=27))
    longer = request(3)[4:] + b"\0\0\0"
    transport.receive(struct.pack(">i", len(longer)) + longer)
    assert replies(transport) == [(3, 27)]
    assert not transport.closed
