"""How long responses wait and how long it takes to send them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from server.metrics import timed_session
from server.metrics.requests import READY, ApiMetrics, TimedResponse
from server.metrics.timed_session import TimedSession
from server.net.session import Session

SENDING_US = 300


class Clock:
    us = 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    def send(_: Any) -> None:
        clock.us += SENDING_US

    monkeypatch.setattr(timed_session, "SEND", send)
    monkeypatch.setattr(Session, "drained", lambda _: None)
    READY.clear()
    return clock


def session_of(unsent: int = 0) -> TimedSession:
    session = TimedSession.__new__(TimedSession)
    session.info = SimpleNamespace()  # type: ignore[assignment]
    session.transport = SimpleNamespace(unsent_bytes=unsent)  # type: ignore[assignment]
    session._connection = SimpleNamespace(take_output=list)  # type: ignore[assignment]
    return session


def sums(api: ApiMetrics) -> tuple[int, int]:
    return api.response_queue.sum_us, api.send.sum_us


def test_timed_response_is_followed_to_the_kernel(clock: Clock) -> None:
    session = session_of()
    api = ApiMetrics()
    READY.append(TimedResponse(session.info, api, 1, lambda: clock.us, 900))
    session._send()
    assert sums(api) == (100, SENDING_US)
    session._send()
    assert sums(api) == (100, SENDING_US)


def test_response_of_another_connection_is_left_to_it(clock: Clock) -> None:
    session = session_of()
    api = ApiMetrics()
    READY.append(TimedResponse(object(), api, 1, lambda: clock.us, 900))
    session._send()
    assert sums(api) == (0, 0)
    assert READY
    READY.clear()


def test_response_that_is_read_slowly_is_sent_when_the_last_byte_is(clock: Clock) -> None:
    session = session_of(unsent=1)
    api = ApiMetrics()
    READY.append(TimedResponse(session.info, api, 1, lambda: clock.us, 1000))
    session._send()
    assert sums(api) == (0, 0)
    clock.us += 5000
    session.drained()
    session.drained()
    assert sums(api) == (0, SENDING_US + 5000)
