"""The ZooKeeper store's own behavior: servers that become unavailable."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from server.coordination.commit import commit
from server.coordination.store import (
    ConnectionLost,
    Create,
    EventKind,
    SessionState,
    SetData,
    StoreClosed,
    WatchEvent,
)
from server.coordination.zookeeper import ZooKeeperStore, split_chroot
from tests.support.broker_process import free_port
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def own_server() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server that the test may kill."""
    server = ZooKeeperServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.mark.parametrize(
    ("connect", "expected"),
    [
        ("h:2181", ("h:2181", "")),
        ("h:2181/", ("h:2181", "")),
        ("a:1,b:2/kafka", ("a:1,b:2", "/kafka")),
        ("a:1,b:2/kafka/x/", ("a:1,b:2", "/kafka/x")),
    ],
)
def test_chroot_is_cut_from_the_connect_string(connect: str, expected: tuple[str, str]) -> None:
    assert split_chroot(connect) == expected


@pytest.mark.parametrize("connect", ["", "/kafka", "h:1//x"])
def test_connect_string_without_sense_is_refused(connect: str) -> None:
    with pytest.raises(ValueError, match=r"connect string|node path"):
        split_chroot(connect)


def test_server_that_does_not_answer_is_an_error_in_time() -> None:
    async def body() -> None:
        with pytest.raises(StoreClosed, match=r"no ZooKeeper server at 127\.0\.0\.1"):
            await ZooKeeperStore.connect(f"127.0.0.1:{free_port()}", connection_timeout_ms=100)

    before = threading.active_count()
    asyncio.run(body())
    assert threading.active_count() <= before + 1  # the loop's own executor


@pytest.mark.zookeeper
def test_session_outlives_a_restart_of_the_server(own_server: ZooKeeperServer) -> None:
    async def body() -> None:
        store = await ZooKeeperStore.connect(
            own_server.connect + "/root", session_timeout_ms=40_000
        )
        states: list[SessionState] = []
        suspended = asyncio.Event()

        def told(state: SessionState) -> None:
            states.append(state)
            if state is SessionState.SUSPENDED:
                suspended.set()

        store.on_session(told)
        await store.multi([Create("/a", b"0"), Create("/e", b"x", ephemeral=True)])
        session = store.session_id
        fired: asyncio.Future[WatchEvent] = asyncio.get_running_loop().create_future()
        await store.get("/a", fired.set_result)

        own_server.kill()
        await asyncio.wait_for(suspended.wait(), 60)
        assert await fired == WatchEvent(EventKind.SESSION, "/a")
        # Requested while no server is there: answered when one is.
        read = asyncio.create_task(store.get("/a"))
        write = asyncio.create_task(commit(store, [SetData("/a", b"1", 0)]))
        await asyncio.sleep(0)
        assert not read.done()
        await asyncio.to_thread(own_server.start)
        await asyncio.wait_for(asyncio.gather(read, write), 60)
        assert (await store.get("/a"))[0] == b"1"
        assert (await store.get("/e"))[1].ephemeral_owner == session == store.session_id
        assert SessionState.EXPIRED not in states
        await store.close()

    asyncio.run(body())


@pytest.mark.zookeeper
def test_what_is_under_way_when_the_server_dies_is_read_again_or_of_unknown_outcome(
    own_server: ZooKeeperServer,
) -> None:
    async def body() -> None:
        store = await ZooKeeperStore.connect(own_server.connect, session_timeout_ms=10_000)
        await store.create("/a")
        assert own_server.process is not None
        # Stopped, so that the request is sent and not answered.
        os.kill(own_server.process.pid, signal.SIGSTOP)
        write = asyncio.create_task(store.set("/a", b"1"))
        read = asyncio.create_task(store.get("/a"))
        await asyncio.sleep(0)
        own_server.kill()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(write, 60)
        await asyncio.to_thread(own_server.start)
        # An attempt that reaches the server while it starts may wait as long as a session timeout.
        assert (await asyncio.wait_for(read, 60))[1].czxid > 0
        await store.close()

    asyncio.run(body())


def test_attempt_to_connect_to_a_silent_server_can_be_given_up_at_once() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            connecting = asyncio.ensure_future(ZooKeeperStore.connect(address))
            peer, _ = await asyncio.to_thread(silent.accept)
            began = asyncio.get_running_loop().time()
            connecting.cancel()
            await asyncio.wait([connecting])
            assert asyncio.get_running_loop().time() - began < 5  # 16 s when it was waited for
            peer.close()

    asyncio.run(run())
