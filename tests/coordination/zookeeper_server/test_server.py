"""The server's sockets and its file, with clients that show every frame."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server.coordination.acl import OPEN
from server.coordination.embedded import EmbeddedStore
from server.coordination.node_file import NodeChanges
from server.coordination.zookeeper_server.machine import SessionTimeoutLimits
from server.coordination.zookeeper_server.records import (
    CreateRequest,
    OpCode,
    PathRequest,
    SetDataRequest,
    WatcherEvent,
    WatchingRequest,
)
from server.coordination.zookeeper_server.server import MAX_MESSAGE_BYTES
from server.coordination.zookeeper_server.words import WORDS

from .raw_client import Closed, RawClient
from .serving import ServerThread


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServerThread]:
    """A server with a file."""
    with ServerThread(tmp_path / "coordination.db") as server:
        yield server


def say(port: int, word: bytes) -> str:
    """The answer to a four-letter word."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(word)
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def test_words_are_answered(served: ServerThread) -> None:
    client = RawClient(served.port)
    client.connect()
    client.call(OpCode.CREATE, CreateRequest("/e", b"", OPEN, 1))
    client.call(OpCode.GET_DATA, WatchingRequest("/e", True))
    session = f"0x{client.session.session_id:x}"
    assert say(served.port, b"ruok") == "imok"
    assert say(served.port, b"isro\n") == "rw"
    assert "Zookeeper version: 3.8.4-kwire" in say(served.port, b"srvr")
    assert "Mode: standalone\nNode count: 5\n" in say(served.port, b"srvr")
    assert f"/127.0.0.1:{client.socket.getsockname()[1]}[1]" in say(served.port, b"stat")
    assert f"sid={session},lop=GET_DATA" in say(served.port, b"cons")
    assert "zk_znode_count\t5\n" in say(served.port, b"mntr")
    assert "zk_ephemerals_count\t1\n" in say(served.port, b"mntr")
    assert f"clientPort={served.port}\n" in say(served.port, b"conf")
    assert "Environment:\n" in say(served.port, b"envi")
    assert f"{session}:\n\t/e\n" in say(served.port, b"dump")
    assert say(served.port, b"wchs") == "1 connections watching 1 paths\nTotal watches:1\n"
    assert say(served.port, b"wchc") == f"{session}\n\t/e\n"
    assert say(served.port, b"wchp") == f"/e\n\t{session}\n"
    client.end()


def test_word_that_is_not_allowed_is_refused() -> None:
    server = ServerThread(words=frozenset({"ruok"}))
    with server:
        assert say(server.port, b"ruok") == "imok"
        for word in set(WORDS) - {"ruok"}:
            assert say(server.port, word.encode()).endswith("not in the whitelist.")


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES + 1, 0x7FFFFFFF, -1])
def test_message_beyond_the_limit_closes_the_connection(served: ServerThread, size: int) -> None:
    client = RawClient(served.port)
    client.connect()
    client.socket.sendall(size.to_bytes(4, "big", signed=True))
    with pytest.raises(Closed):
        client.receive()
    client.close()


def test_largest_message_is_taken_in_pieces(served: ServerThread) -> None:
    client = RawClient(served.port)
    client.connect()
    data = b"x" * (MAX_MESSAGE_BYTES - 100)
    assert client.call(OpCode.CREATE, CreateRequest("/big", data, OPEN, 0)).header.err == 0
    assert client.call(OpCode.GET_DATA, WatchingRequest("/big", False)).record.data == data
    client.end()


def test_requests_in_one_packet_are_answered_in_order(served: ServerThread) -> None:
    client = RawClient(served.port)
    client.connect()
    asked = []
    for n in range(50):
        asked.append((OpCode.CREATE, CreateRequest(f"/n{n}", b"", OPEN, 0)))
        asked.append((OpCode.GET_CHILDREN, WatchingRequest("/", False)))
    xids = [(opcode, client.request(opcode, record)) for opcode, record in asked]
    counts = []
    for opcode, xid in xids:
        reply = client.reply(opcode, xid)
        if opcode == OpCode.GET_CHILDREN:
            counts.append(len(reply.record.names))
    assert counts == list(range(2, 52))
    client.end()


def test_session_and_its_nodes_survive_a_restart(served: ServerThread) -> None:
    client = RawClient(served.port)
    session = client.connect(5000)
    client.call(OpCode.CREATE, CreateRequest("/e", b"mine", OPEN, 1))
    served.stop()
    with pytest.raises(Closed):
        client.receive()
    client.close()
    served.start()

    again = RawClient(served.port)
    assert again.connect(5000, session.session_id, session.password or b"") == session
    assert again.call(OpCode.GET_DATA, WatchingRequest("/e", False)).record.data == b"mine"
    assert again.call(OpCode.GET_EPHEMERALS, PathRequest("")).record.names == ("/e",)
    again.end()
    served.stop()
    served.start()
    other = RawClient(served.port)
    other.connect()
    assert other.call(OpCode.EXISTS, WatchingRequest("/e", False)).header.err == -101
    other.end()


def test_session_that_nobody_comes_back_for_ends_after_a_restart(tmp_path: Path) -> None:
    served = ServerThread(tmp_path / "coordination.db", SessionTimeoutLimits(100, 60_000))
    with served:
        client = RawClient(served.port)
        client.connect(100)
        client.call(OpCode.CREATE, CreateRequest("/e", b"", OPEN, 1))
        client.close()
        served.stop()
        served.start()
        watcher = RawClient(served.port)
        watcher.connect(30_000)
        reply = watcher.call(OpCode.EXISTS, WatchingRequest("/e", True))
        if reply.header.err == 0:
            assert b"/e" in watcher.receive()  # the event
        assert watcher.call(OpCode.EXISTS, WatchingRequest("/e", False)).header.err == -101
        watcher.end()


def test_nobody_is_told_of_a_write_before_it_is_durable(served: ServerThread) -> None:
    assert served.server is not None
    file = served.server._tree._file
    assert file is not None
    allowed, begun = threading.Event(), threading.Event()
    plain = file.commit

    def slow(changes: NodeChanges) -> None:
        begun.set()
        assert allowed.wait(10)
        plain(changes)

    writer, reader = RawClient(served.port), RawClient(served.port)
    writer.connect()
    reader.connect()
    reader.call(OpCode.EXISTS, WatchingRequest("/a", True))
    file.commit = slow  # type: ignore[method-assign]
    xid = writer.request(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    assert begun.wait(10)
    read = reader.request(OpCode.EXISTS, WatchingRequest("/a", False))
    for client in (writer, reader):
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.receive()
        client.socket.settimeout(10)
    allowed.set()
    assert writer.reply(OpCode.CREATE, xid).record.path == "/a"
    reply = reader.reply(OpCode.EXISTS, read)
    assert reply.events == [WatcherEvent(1, 3, "/a")]
    assert reply.header.err == 0
    file.commit = plain  # type: ignore[method-assign]
    writer.end()
    reader.end()


def test_file_that_fails_ends_the_server_before_any_answer(served: ServerThread) -> None:
    assert served.server is not None
    file = served.server._tree._file
    assert file is not None
    client = RawClient(served.port)
    client.connect()

    def broken(changes: NodeChanges) -> None:
        raise OSError("no space left")

    file.commit = broken  # type: ignore[method-assign]
    with pytest.raises(Closed):
        client.call(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    client.close()
    assert "no space left" in str(served.server.failed.result())


def test_store_in_the_same_process_and_clients_see_each_other(served: ServerThread) -> None:
    server = served.server
    assert server is not None
    client = RawClient(served.port)
    client.connect()
    client.call(OpCode.GET_CHILDREN, WatchingRequest("/", True))
    seen: list[str] = []

    async def write() -> EmbeddedStore:
        store = server._tree.session()
        await store.create("/ours", b"1", ephemeral=True)
        await store.get("/ours", lambda event: seen.append(event.path))
        return store

    store: EmbeddedStore = served.run(write())
    assert client.events() == [WatcherEvent(4, 3, "/")]
    got = client.call(OpCode.GET_DATA, WatchingRequest("/ours", True)).record
    assert got.stat.ephemeral_owner == store.session_id
    changed = client.call(OpCode.SET_DATA, SetDataRequest("/ours", b"2", 0))
    assert changed.events == [WatcherEvent(3, 3, "/ours")]
    client.call(OpCode.GET_DATA, WatchingRequest("/ours", True))
    served.run(store.close())
    assert seen == ["/ours"]
    assert client.events() == [WatcherEvent(2, 3, "/ours")]
    client.end()


def test_connection_that_says_nothing_is_closed(
    served: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.coordination.zookeeper_server.server.SESSIONLESS_S", 0.05)
    silent, speaking = RawClient(served.port), RawClient(served.port)
    speaking.connect()
    with pytest.raises(Closed):
        silent.receive()
    silent.close()
    assert speaking.events() == []
    speaking.end()


def test_clock_found_late_gives_the_clients_time_to_be_heard(served: ServerThread) -> None:
    """As after a suspension of the process: clients' messages from that time are read first."""
    client = RawClient(served.port)
    client.connect(400)
    server = served.server
    assert server is not None
    session = server.machine.sessions[client.session.session_id]

    def silent_for_long() -> None:
        session.deadline_ms = server.now().monotonic_ms - 600
        server.machine._look_later(client.session.session_id, session)

    silent_for_long()
    served.run(as_coroutine(lambda: server._tick(session.deadline_ms)))
    assert client.events() == []  # still there
    silent_for_long()
    served.run(as_coroutine(lambda: server._tick(session.deadline_ms)))
    with pytest.raises(Closed):
        client.receive()
    client.close()


async def as_coroutine(call: Callable[[], None]) -> None:
    """A plain call as a coroutine, for the server's loop."""
    call()
