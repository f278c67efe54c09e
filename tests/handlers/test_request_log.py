"""The lines of the log for requests."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from server.handlers.ceilings import CEILING_3_9
from server.handlers.context import RequestContext
from server.handlers.dispatch import RequestDispatcher
from server.handlers.gate import Durations
from server.handlers.registry import HandlerTable, handles
from server.handlers.request_log import RequestLog
from tests.support.clock import ManualClock
from tests.support.services import services_of
from tests.support.transport import connect

from .test_dispatch import request


class Sampled:
    """A counter that times every second request."""

    def __init__(self) -> None:
        self.versions = [0] * 10
        self.mask = 1
        self.errors = {0: 0}


class Other:
    """An observer."""

    counts_rows = False

    def __init__(self) -> None:
        self.apis: defaultdict[int, Sampled] = defaultdict(Sampled)
        self.seen: list[Durations | None] = []

    def observe(self, ctx: Any, response: object, error: ErrorCode, durations: Any) -> None:
        self.seen.append(durations)


@handles(HeartbeatRequest, versions="0-4", authorize=None)
def heartbeat(ctx: RequestContext, message: HeartbeatRequest) -> HeartbeatResponse:
    if message.group_id == "g2":
        raise RuntimeError("broken")
    return HeartbeatResponse(error_code=0)


def logged(caplog: pytest.LogCaptureFixture, then: Other | None) -> list[str]:
    clock = ManualClock(now_ms=42)
    log = RequestLog(then)
    table = HandlerTable([heartbeat], CEILING_3_9)
    transport, _ = connect(RequestDispatcher(table, services_of(), clock, observer=log))
    with caplog.at_level(logging.DEBUG, "kafka.request.logger"):
        transport.receive(request(1) + request(2))
    return [each.getMessage() for each in caplog.records if each.name == "kafka.request.logger"]


def test_request_is_logged_with_client_and_time(caplog: pytest.LogCaptureFixture) -> None:
    first, second = logged(caplog, None)
    assert first.startswith("Heartbeat v4 of client 'me' at ")
    assert first.endswith(" as User:ANONYMOUS: 0.0 ms")
    assert second.endswith(", UNKNOWN_SERVER_ERROR")


def test_other_observer_still_decides_what_is_timed(caplog: pytest.LogCaptureFixture) -> None:
    other = Other()
    first, second = logged(caplog, other)
    assert ("not timed" in first, "not timed" in second) == (False, True)
    assert [durations is None for durations in other.seen] == [False, True]


def test_request_that_switches_its_own_log_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    log = RequestLog(None)
    observers = iter([log, None, None])

    @handles(HeartbeatRequest, versions="0-4", authorize=None)
    def switching(ctx: RequestContext, message: HeartbeatRequest) -> HeartbeatResponse:
        dispatcher.observe_with(next(observers))
        return HeartbeatResponse(error_code=0)

    table = HandlerTable([switching], CEILING_3_9)
    dispatcher = RequestDispatcher(table, services_of(), ManualClock(now_ms=42))
    transport, _ = connect(dispatcher)
    with caplog.at_level(logging.DEBUG, "kafka.request.logger"):
        sizes = []
        for number in range(3):
            transport.receive(request(number))
            sizes.append(len(transport.sent))
    assert 0 < sizes[0] < sizes[1] < sizes[2]
    assert len(caplog.records) == 1
