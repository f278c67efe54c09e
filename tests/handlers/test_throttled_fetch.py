"""Fetches of consumers that are over a quota (KIP-219)."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.messages.fetch import FetchResponse
from server.handlers.charge import Charge
from server.handlers.context import RequestContext
from server.handlers.fetch import fetch
from server.quotas.entities import Entity
from tests.support.replicas import Replicas
from tests.support.steps import finished

from .fetches import BY_NAME, fetch_request, only, partitions_at_once, rows  # noqa: F401 - a fixture

CLIENT = Entity(None, "test")


def charged(room: Replicas) -> RequestContext:
    ctx = room.context(BY_NAME, "test", fetch)
    ctx.charge = Charge(100, 0)
    return ctx


def ask(room: Replicas, *asked: Any, **options: Any) -> tuple[FetchResponse, int | None]:
    """The answer, and for how long the client is throttled."""
    ctx = charged(room)
    answer = finished(fetch(ctx, fetch_request(*asked, **options)))
    assert isinstance(answer, FetchResponse)
    assert ctx.charge is not None
    return answer, ctx.charge.throttle_ms


def test_consumer_over_its_quota_gets_nothing_and_is_not_charged_for_it(room: Replicas) -> None:
    room.create("a")
    room.produce("a", b"x" * 6000)
    room.services.quotas.set(CLIENT, {"consumer_byte_rate": 1000.0})
    answer, throttle_ms = ask(room, ("a", 0, 0))
    assert throttle_ms == 0 and len(only(answer).records) > 6000
    for _ in range(3):
        answer, throttle_ms = ask(room, ("a", 0, 0))
        assert answer.responses == [] and answer.session_id == 0
        # 2 x 6144 bytes in 10 s, for a quota of 1000 a second
        assert throttle_ms == pytest.approx(2 * 6144 - 10_000, abs=200)
    room.clock.advance(11_000)
    answer, throttle_ms = ask(room, ("a", 0, 0))
    assert throttle_ms == 0 and len(only(answer).records) > 6000


def test_session_whose_first_answer_is_throttled_does_not_begin(room: Replicas) -> None:
    room.create("a")
    room.produce("a", b"x" * 12_000)
    room.services.quotas.set(CLIENT, {"consumer_byte_rate": 1000.0})
    answer, throttle_ms = ask(room, ("a", 0, 0), session_epoch=0)
    assert throttle_ms and answer.session_id == 0
    assert room.services.fetch_sessions.sessions == {}


def test_session_goes_on_after_a_throttled_answer(room: Replicas) -> None:
    room.create("a")
    room.create("b")
    answer, _ = ask(room, ("a", 0, 0), ("b", 0, 0), session_epoch=0)
    room.produce("a", b"x" * 12_000)
    room.services.quotas.set(CLIENT, {"consumer_byte_rate": 1000.0})
    session = {"session_id": answer.session_id}
    answer, throttle_ms = ask(room, **session, session_epoch=1)
    assert throttle_ms and answer.responses == []
    assert answer.session_id == session["session_id"]
    room.services.quotas.set(CLIENT, {})
    answer, throttle_ms = ask(room, **session, session_epoch=2)
    assert throttle_ms == 0 and rows(answer).keys() == {("a", 0)}


def test_follower_is_exempt(room: Replicas) -> None:
    room.create("a", replicas=(0, 2))
    room.produce("a", b"x" * 50_000)
    room.services.quotas.set(CLIENT, {"consumer_byte_rate": 1.0, "request_percentage": 0.0001})
    answer, throttle_ms = ask(room, ("a", 0, 0), replica_id=2)
    assert throttle_ms == 0 and len(only(answer).records) > 50_000


def test_consumer_is_given_no_more_than_its_quota_of_a_window(room: Replicas) -> None:
    """More would be throttled each time, forever."""
    room.create("a")
    for _ in range(30):
        room.produce("a", b"x" * 1000)
    room.services.quotas.set(CLIENT, {"consumer_byte_rate": 1000.0})
    answer, throttle_ms = ask(room, ("a", 0, 0))
    assert throttle_ms == 0
    assert 8000 < len(only(answer).records) <= 10_000
