"""Turns of the loop that take too long are logged and counted."""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from server.event_loop import uses_uvloop
from server.handlers.ceilings import CEILING_3_9
from server.handlers.context import RequestContext
from server.handlers.dispatch import RequestDispatcher
from server.handlers.registry import HandlerTable, handles
from server.watchdog import Watchdog, WatchedSelector
from tests.handlers.test_dispatch import request
from tests.support.clock import ManualClock
from tests.support.services import services_of
from tests.support.transport import connect

LIMIT_MS = 40


def burn(ms: int) -> None:
    """Use this much CPU time."""
    until = time.thread_time_ns() + ms * 1_000_000
    while time.thread_time_ns() < until:
        pass


@contextmanager
def watched(limit_ms: int = LIMIT_MS, *, collects: bool = False) -> Iterator[Watchdog]:
    """Unless it `collects`, no collection of earlier tests' objects makes a turn long."""
    watchdog = Watchdog(limit_ms)
    if not collects:
        gc.disable()
    try:
        yield watchdog
    finally:
        gc.enable()
        watchdog.stop()


def run(watchdog: Watchdog, work: Callable[[], object]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        watchdog.start()
        loop.call_soon(work)
        for _ in range(5):
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(main())


def test_turn_that_is_long_for_a_low_limit_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with watched(limit_ms=5) as watchdog:
        run(watchdog, lambda: burn(40))
    assert "burn (test_watchdog.py" in caplog.text


def test_long_turn_is_logged_with_its_request(caplog: pytest.LogCaptureFixture) -> None:
    @handles(HeartbeatRequest, versions="0-4", authorize=None)
    def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> Any:
        burn(2 * LIMIT_MS)
        return HeartbeatResponse()

    table = HandlerTable([heartbeat], CEILING_3_9)
    transport, _ = connect(RequestDispatcher(table, services_of(), ManualClock()))
    with watched() as watchdog:
        run(watchdog, lambda: transport.receive(request(1)))
        assert watchdog.long_turns == 1
        assert watchdog.long_turns_by_api == {"Heartbeat": 1}
    (line,) = caplog.messages
    assert "a turn of the event loop took" in line
    assert "Heartbeat v4 of client 'me' at 127.0.0.1:" in line
    assert "burn (test_watchdog.py:" in line


def test_long_turn_of_something_else_is_logged_with_its_function(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with watched() as watchdog:
        run(watchdog, lambda: burn(2 * LIMIT_MS))
        assert watchdog.long_turns == 1
        assert not watchdog.long_turns_by_api
    (line,) = caplog.messages
    assert ": in burn (test_watchdog.py:" in line


def test_lines_are_few_but_all_turns_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with watched() as watchdog:
        for _ in range(3):
            watchdog.turn_was_long(LIMIT_MS * 1_000_000)
        watchdog._next_line_s = 0
        watchdog.turn_was_long(LIMIT_MS * 1_000_000)
        assert watchdog.long_turns == 4
    assert len(caplog.messages) == 2
    assert caplog.messages[1].endswith("2 more were not logged")


def test_short_turns_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main(watchdog: Watchdog) -> None:
        watchdog.start()
        for _ in range(4):  # together more than the limit
            burn(LIMIT_MS // 3)
            await asyncio.sleep(0)

    with watched() as watchdog, asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(main(watchdog))
        assert watchdog.long_turns == 0
    assert not caplog.messages


def test_turn_that_waits_is_not_long() -> None:
    with watched() as watchdog:
        run(watchdog, lambda: time.sleep(2 * LIMIT_MS / 1000))
        assert watchdog.long_turns == 0


def test_state_that_takes_long_to_collect_is_kept_from_the_collector() -> None:
    state: list[Any] = []
    before = gc.get_freeze_count()  # objects that the tests have frozen themselves
    with watched(collects=True) as watchdog:
        watchdog.start()
        state.extend([] for _ in range(1_000_000))
        gc.collect()
        frozen = gc.get_freeze_count()
        assert frozen >= before + 500_000
    state.clear()  # and is freed nevertheless
    assert gc.get_freeze_count() < frozen - 500_000


def test_what_short_collections_leave_is_collected_between_two_turns() -> None:
    limit_ms = 100 * LIMIT_MS  # long compared with collecting the heap of this process
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            collected.append(info["generation"])

    async def main(watchdog: Watchdog) -> None:
        watchdog.start()
        watchdog._promoted_ns = limit_ms * 1_000_000  # of earlier collections
        gc.callbacks.append(note)
        gc.collect(1)
        assert 2 not in collected
        await asyncio.sleep(0)
        assert 2 in collected
        gc.callbacks.remove(note)

    with (
        watched(limit_ms, collects=True) as watchdog,
        asyncio.Runner(loop_factory=watchdog.new_loop) as runner,
    ):
        runner.run(main(watchdog))


def test_state_that_replaces_other_state_does_not_add_up_in_the_youngest_generation() -> None:
    most = 0
    old: list[Any] = [[] for _ in range(300_000)]
    new: list[Any] = []

    async def main(watchdog: Watchdog) -> None:
        nonlocal most
        watchdog.start()
        while old:
            for _ in range(1000):
                new.append([])
                old.pop()  # CPython counts one object more, and one less
            most = max(most, len(gc.get_objects(0)) + len(gc.get_objects(1)))
            await asyncio.sleep(0)

    with (
        watched(collects=True) as watchdog,
        asyncio.Runner(loop_factory=watchdog.new_loop) as runner,
    ):
        gc.collect()
        runner.run(main(watchdog))
    assert most < 200_000


def test_longest_turn_and_the_beginning_of_the_turn_are_known() -> None:
    began: list[tuple[int, int]] = []

    def work() -> None:
        before_us = time.monotonic_ns() // 1000
        burn(20)
        began.append((before_us, watchdog.turn_began_us()))

    with watched() as watchdog:
        run(watchdog, work)
        assert 20_000_000 <= watchdog.selector.longest_ns < 1_000_000_000
    ((before_us, told_us),) = began
    # Time in which the thread did not run does not belong to the turn, and never makes its start too early.
    assert told_us >= before_us - 20_000


def test_long_turn_of_uvloop_is_logged_with_its_request(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("uvloop")

    @handles(HeartbeatRequest, versions="0-4", authorize=None)
    def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> Any:
        burn(4 * LIMIT_MS)
        return HeartbeatResponse()

    table = HandlerTable([heartbeat], CEILING_3_9)
    transport, _ = connect(RequestDispatcher(table, services_of(), ManualClock()))

    async def main(watchdog: Watchdog) -> None:
        watchdog.start()
        burn(2)
        asyncio.get_running_loop().call_soon(lambda: transport.receive(request(1)))
        for _ in range(50):
            await asyncio.sleep(0)

    with watched() as watchdog:
        with asyncio.Runner(loop_factory=watchdog.new_uvloop) as runner:
            assert "uvloop" in type(runner.get_loop()).__module__
            runner.run(main(watchdog))
        assert watchdog.long_turns == 1
        assert watchdog.long_turns_by_api == {"Heartbeat": 1}
        assert LIMIT_MS * 1_000_000 <= watchdog.selector.longest_ns < 1_000_000_000
    assert "Heartbeat v4 of client 'me'" in caplog.text


def test_short_turns_of_uvloop_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("uvloop")

    async def main(watchdog: Watchdog) -> None:
        watchdog.start()
        for _ in range(100):
            burn(2)
            await asyncio.sleep(0)

    with watched() as watchdog:
        with asyncio.Runner(loop_factory=watchdog.new_uvloop) as runner:
            runner.run(main(watchdog))
        assert watchdog.long_turns == 0
    assert caplog.text == ""


def test_uvloop_is_used_where_it_is_and_not_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KWIRE_LOOP", raising=False)
    for found in (None, object()):
        monkeypatch.setattr("server.event_loop.find_spec", lambda _, found=found: found)
        assert uses_uvloop() is (found is not None)
    monkeypatch.setenv("KWIRE_LOOP", "asyncio")
    assert not uses_uvloop()


def test_turn_serves_a_bounded_number_of_the_sockets_that_are_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.watchdog.EVENTS_IN_TURN", 2)
    pipes = [os.pipe() for _ in range(7)]
    selector = WatchedSelector(Watchdog(LIMIT_MS))
    try:
        for reader, writer in pipes:
            selector.register(reader, selectors.EVENT_READ)
            os.write(writer, b"x")

        def served() -> list[int]:
            found = [key.fd for key, _ in selector.select(0)]
            for fd in found:
                os.read(fd, 1)
            return found

        first = served()
        assert len(first) == 2
        waiting = [reader for reader, _ in pipes if reader not in first]
        selector.unregister(waiting[0])  # closed
        selector.modify(waiting[1], selectors.EVENT_READ, "other data")  # it is reported anew
        others = [fd for _ in range(4) for fd in served()]
        assert sorted(others) == sorted(waiting[1:])
        assert not served()
    finally:
        selector.close()
        for pair in pipes:
            for fd in pair:
                os.close(fd)
