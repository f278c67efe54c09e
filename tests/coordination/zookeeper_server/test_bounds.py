"""What one client can make the server hold, and how it is refused: a real server stays up by the size of its heap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from server.coordination.acl import OPEN, AclId, ZnodeAclEntry
from server.coordination.embedded import EmbeddedTree
from server.coordination.zookeeper_server import machine, requests, served_tree, words
from server.coordination.zookeeper_server.access import MAX_ACL_ENTRIES, MAX_IDS, ip_network
from server.coordination.zookeeper_server.jute import JuteReader
from server.coordination.zookeeper_server.records import (
    MAX_OPS,
    AuthPacket,
    Code,
    ConnectRequest,
    CreateRequest,
    MultiOp,
    OpCode,
    PathRequest,
    ReplyHeader,
    RequestHeader,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
    VersionRequest,
    WatchingRequest,
    WatchTypeRequest,
    decode,
    encode,
)
from server.coordination.zookeeper_server.rotation import RequestRotation
from server.coordination.zookeeper_server.server import (
    MAX_HELD_BYTES,
    ClientProtocol,
    ServerSettings,
    ZooKeeperServer,
)
from server.coordination.zookeeper_server.watches import WatchMode, WatchTable
from tests.support.clock import ManualClock

from .raw_client import Closed, RawClient, multi_body
from .serving import ServerThread
from .test_machine import Desk, errors, finish, sent

BIG = b"x" * 1_000_000


def framed(opcode: int, record: object) -> bytes:
    """A request with its length."""
    body = record if isinstance(record, bytes) else encode(record)
    message = encode(RequestHeader(1, opcode)) + body
    return len(message).to_bytes(4, "big") + message


class FakeTransport(asyncio.Transport):
    """A client that reads nothing until told; counts what waits for it."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        super().__init__()
        self.host = host
        self.unsent = 0
        self.written = 0
        self.most_unsent = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self.protocol: ClientProtocol | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.host, 5)

    def write(self, data: Any) -> None:
        self.unsent += len(data)
        self.written += len(data)
        self.most_unsent = max(self.most_unsent, self.unsent)
        if self.unsent > 65536 and self.protocol is not None:
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def read_all(self) -> None:
        """The client reads what is there."""
        self.unsent = 0
        assert self.protocol is not None
        self.protocol.resume_writing()


async def a_server(settings: ServerSettings = ServerSettings()) -> ZooKeeperServer:  # noqa: B008 - a value
    """A server in memory that listens nowhere."""
    clock = ManualClock()
    return ZooKeeperServer(await EmbeddedTree.open(None, clock), clock, settings)


async def a_client(server: ZooKeeperServer, host: str = "10.0.0.1") -> FakeTransport:
    """A client with a session."""
    transport = FakeTransport(host)
    protocol = ClientProtocol(server)
    transport.protocol = protocol
    protocol.connection_made(transport)
    if not transport.closed:
        message = encode(ConnectRequest(0, 0, 30_000, 0, bytes(16))) + b"\0"
        protocol.data_received(len(message).to_bytes(4, "big") + message)
        await turns()
        transport.unsent = 0
    return transport


async def turns(number: int = 20) -> None:
    """Some turns of the loop."""
    for _ in range(number):
        await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the body of a test on a loop."""
    asyncio.run(test())


def test_requests_wait_while_their_client_does_not_read_the_replies() -> None:
    async def body() -> None:
        server = await a_server()
        client = await a_client(server)
        assert client.protocol is not None
        client.protocol.data_received(
            framed(OpCode.CREATE, CreateRequest("/big", BIG, OPEN, 0))
            + framed(OpCode.GET_DATA, WatchingRequest("/big", False)) * 2000
        )
        await turns()
        assert len(BIG) < client.most_unsent < 1.2 * len(BIG)
        assert not client.reading
        for _ in range(10):
            client.read_all()
            await turns(3)
        assert 10 * len(BIG) < client.written < 12.2 * len(BIG)
        assert client.most_unsent < 1.2 * len(BIG)

    run(body)


def test_requests_wait_while_many_replies_wait_for_a_commit() -> None:
    async def body() -> None:
        server = await a_server()
        client = await a_client(server)
        assert client.protocol is not None

        from server.coordination.embedded import WriteGroup

        group = WriteGroup()
        server._tree._writing = group  # a commit that takes long
        client.protocol.data_received(framed(OpCode.PING, b"") * 10_000)
        await turns(100)
        assert MAX_HELD_BYTES < client.protocol.held_bytes < MAX_HELD_BYTES + 1000
        assert not client.reading
        server._tree._writing = None
        for tell in group.after:
            tell(None)
        for _ in range(5):
            await turns(100)
            client.read_all()
        assert client.protocol.held_bytes == 0
        assert client.written > 10_000 * 20

    run(body)


def test_client_with_the_most_unread_bytes_is_dropped_if_all_have_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.coordination.zookeeper_server.server.MAX_UNSENT_BYTES", 150_000)

    async def body() -> None:
        server = await a_server()
        much, little, writer = [await a_client(server) for _ in range(3)]
        for client, number in ((much, 1), (little, 0)):
            assert client.protocol is not None
            client.protocol.data_received(framed(OpCode.ADD_WATCH, WatchTypeRequest("/", number)))
            client.protocol.data_received(framed(OpCode.ADD_WATCH, WatchTypeRequest("/a", 0)))
        await turns()
        assert writer.protocol is not None
        writer.protocol.data_received(
            framed(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
            + framed(OpCode.CREATE, CreateRequest("/b", b"", OPEN, 0))
        )
        change = [MultiOp(OpCode.SET_DATA, SetDataRequest("/b", b"", -1))] * 100
        both = [MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"", -1))] * 100
        for _ in range(25):
            writer.protocol.data_received(framed(OpCode.MULTI, multi_body(both + change)))
            await turns()
            writer.read_all()
        assert much.aborted
        assert not little.aborted
        assert not writer.aborted

    run(body)


def test_connections_of_one_address_are_limited() -> None:
    async def body() -> None:
        server = await a_server(ServerSettings(max_client_connections=3))
        first = [await a_client(server) for _ in range(4)]
        assert [client.closed for client in first] == [False, False, False, True]
        assert not (await a_client(server, "10.0.0.2")).closed
        for client in (first[3], first[0]):
            assert client.protocol is not None
            client.protocol.connection_lost(None)
        assert not (await a_client(server)).closed
        assert (await a_client(server)).closed
        unlimited = await a_server(ServerSettings(max_client_connections=0))
        assert not any([(await a_client(unlimited)).closed for _ in range(100)])

    run(body)


def test_closed_connection_is_cut_if_its_client_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.coordination.zookeeper_server.server.CLOSING_S", 0)

    async def body() -> None:
        server = await a_server()
        client = await a_client(server)
        assert client.protocol is not None
        client.unsent = 10
        client.protocol.close()
        assert client.closed and not client.aborted
        await turns()
        assert client.aborted

    run(body)


class Requests:
    """A client whose requests take the given times."""

    def __init__(self, name: str, took_us: list[int], told: list[str], clock: list[int]) -> None:
        self.name = name
        self.took_us = took_us
        self.told = told
        self.clock = clock
        self.cost_us = 0.0

    def handle_next(self) -> bool:
        self.told.append(self.name)
        self.clock[0] += self.took_us.pop(0)
        return bool(self.took_us)


def test_short_requests_are_not_held_up_by_clients_with_long_ones() -> None:
    async def body() -> None:
        told: list[str] = []
        clock = [0]
        rotation = RequestRotation(asyncio.get_running_loop(), lambda: clock[0])
        for n in range(5):
            rotation.add(Requests(f"long {n}", [50_000] * 4, told, clock))
        while len(told) < 5:
            await asyncio.sleep(0)
        honest = Requests("short", [10] * 300, told, clock)
        rotation.add(honest)
        began = len(told)
        while honest.took_us:
            await asyncio.sleep(0)
        others = [name for name in told[began:] if name != "short"]
        assert len(others) <= 2
        assert len(set(others)) == len(others)  # the long ones are in rotation

    run(body)


def test_multi_read_of_a_large_node_is_refused_before_its_reply_is_made() -> None:
    desk = Desk()
    client = desk.session()
    desk.ask(client, OpCode.CREATE, CreateRequest("/big", BIG, OPEN, 0))
    for count, code in ((4, Code.OK), (5, Code.MARSHALLING_ERROR), (3000, Code.MARSHALLING_ERROR)):
        reads = [MultiOp(OpCode.GET_DATA, WatchingRequest("/big", False))] * count
        effects = ask(desk, client, OpCode.MULTI_READ, multi_body(reads))
        assert errors(effects, client) == [code]
    assert 4 * len(BIG) <= requests.MAX_MULTI_READ_BYTES


def ask(desk: Desk, client: Any, opcode: int, body: bytes) -> Any:
    """Send a request with a body."""
    message = encode(RequestHeader(1, opcode)) + body
    return finish(desk, client, desk.machine.received(client, message, desk.now))


@pytest.mark.parametrize("opcode", [OpCode.MULTI, OpCode.MULTI_READ])
def test_multi_of_too_many_ops_is_refused(opcode: OpCode) -> None:
    op = MultiOp(OpCode.CHECK, VersionRequest("/", -1))
    if opcode == OpCode.MULTI_READ:
        op = MultiOp(OpCode.GET_DATA, WatchingRequest("/", False))
    desk = Desk()
    client = desk.session()
    for count, code in ((MAX_OPS, Code.OK), (MAX_OPS + 1, Code.MARSHALLING_ERROR)):
        assert errors(ask(desk, client, opcode, multi_body([op] * count)), client) == [code]


def test_recursive_watches_look_only_at_ancestors_of_their_lengths() -> None:
    table: WatchTable[str] = WatchTable()
    table.add("/", "root", WatchMode.PERSISTENT_RECURSIVE)
    table.add("/a/b", "branch", WatchMode.PERSISTENT_RECURSIVE)
    deep = "/a" * 60_000
    began = time.thread_time()
    for _ in range(100):
        assert table.has(deep, "root")
        assert not table.has(deep, "branch")
    assert time.thread_time() - began < 2  # every ancestor: 3.6 GB of text for each of them
    for path, covered in (("/a/b", True), ("/a/b/c", True), ("/a/bc", False), ("/a", False)):
        assert table.has(path, "branch") is covered
        assert table.has(path, "root")
    for path in ("", "a", "a/b", "/"):
        assert table.has(path, "root") is (path == "/")
    table.remove("/a/b", "branch")
    assert not table.has("/a/b/c", "branch")
    assert table.has("/a/b/c", "root")
    assert set(table.held_bytes) == {"root"}
    table.remove_watcher("root")
    table.tidy(1)
    assert table.total_bytes == 0


WATCHES = [
    (OpCode.GET_DATA, lambda path: WatchingRequest(path, True)),
    (OpCode.EXISTS, lambda path: WatchingRequest(path, True)),
    (OpCode.GET_CHILDREN, lambda path: WatchingRequest(path, True)),
    (OpCode.GET_CHILDREN2, lambda path: WatchingRequest(path, True)),
    (OpCode.ADD_WATCH, lambda path: WatchTypeRequest(path, 0)),
    (OpCode.ADD_WATCH, lambda path: WatchTypeRequest(path, 1)),
]


@pytest.mark.parametrize(("opcode", "record"), WATCHES)
def test_watches_beyond_a_connections_share_are_refused(
    opcode: OpCode, record: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_tree, "CONNECTION_WATCH_BYTES", 5000)
    desk = Desk()
    client, other = desk.session(), desk.session()
    for n in range(20):
        desk.create(client, f"/n{n}")
    told = [errors(desk.ask(client, opcode, record(f"/n{n}")), client)[0] for n in range(20)]
    allowed = told.index(Code.THROTTLED_OP)
    assert 4 < allowed < 12
    assert set(told[allowed:]) == {Code.THROTTLED_OP}
    assert errors(desk.ask(other, opcode, record("/n1")), other) == [0]
    again = errors(desk.ask(client, opcode, record("/n0")), client)
    assert again == [0] or opcode == OpCode.ADD_WATCH
    desk.machine.disconnected(client)
    third = desk.session()
    assert errors(desk.ask(third, opcode, record("/n1")), third) == [0]


def test_watches_of_all_connections_leave_a_rest_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_tree, "ALL_WATCH_BYTES", 5000)
    monkeypatch.setattr(served_tree, "MIN_WATCH_BYTES", 1000)
    desk = Desk()
    greedy, modest = desk.session(), desk.session()

    def watch(client: Any, n: int) -> int:
        return errors(desk.ask(client, OpCode.EXISTS, WatchingRequest(f"/{n}", True)), client)[0]

    assert Code.THROTTLED_OP in [watch(greedy, n) for n in range(20)]
    assert [watch(modest, n) for n in range(2)] == [Code.NO_NODE, Code.NO_NODE]
    assert watch(modest, 3) == Code.THROTTLED_OP


@pytest.mark.parametrize("kind", range(5))
def test_set_watches_without_room_leaves_none_and_closes_the_connection(
    kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_tree, "CONNECTION_WATCH_BYTES", 50_000)
    desk = Desk()
    client = desk.session()
    lists: list[tuple[str, ...]] = [()] * 5
    lists[kind] = tuple(f"/{n}" for n in range(1000))
    if kind < 3:
        effects = desk.ask(client, OpCode.SET_WATCHES, SetWatchesRequest(0, *lists[:3]))
    else:
        effects = desk.ask(client, OpCode.SET_WATCHES2, SetWatches2Request(0, *lists))
    assert sent(effects, client) == [None]
    assert desk.machine.served.data_watches.count() == 0
    assert desk.machine.served.child_watches.count() == 0


def test_ids_of_a_connection_are_limited() -> None:
    desk = Desk()
    client = desk.session()
    told = []
    for n in range(MAX_IDS):
        packet = AuthPacket(0, "digest", b"user%d:p" % n)
        effects = desk.machine.received(
            client, encode(RequestHeader(-4, OpCode.AUTH), packet), desk.now
        )
        told += errors(effects, client)
    assert told == [0] * (MAX_IDS - 1) + [Code.AUTH_FAILED]  # its address is an id too
    other = desk.session()
    long = AuthPacket(0, "digest", b"u" * 2000 + b":p")
    effects = desk.machine.received(other, encode(RequestHeader(-4, OpCode.AUTH), long), desk.now)
    assert errors(effects, other) == [Code.AUTH_FAILED]


def test_access_control_list_is_limited_also_once_expanded() -> None:
    desk = Desk()
    client = desk.session()

    def made(path: str, acl: tuple[ZnodeAclEntry, ...]) -> list[int]:
        return errors(desk.ask(client, OpCode.CREATE, CreateRequest(path, b"", acl, 0)), client)

    ids = [ZnodeAclEntry(1, AclId("digest", f"u{n}:p")) for n in range(MAX_ACL_ENTRIES + 1)]
    assert made("/a", tuple(ids[1:])) == [0]
    assert made("/b", tuple(ids)) == [Code.INVALID_ACL]
    for n in range(20):
        packet = AuthPacket(0, "digest", b"user%d:p" % n)
        desk.machine.received(client, encode(RequestHeader(-4, OpCode.AUTH), packet), desk.now)
    own = tuple(ZnodeAclEntry(perms, AclId("auth", "")) for perms in range(100))
    assert made("/c", own) == [Code.INVALID_ACL]
    assert made("/d", own[:10]) == [0]


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("1.2.3.4", (0x01020304, 32)),
        ("0001.2.3.+4/08", (0x01020304, 8)),
        ("0" * 5000 + "1.2.3.4", (0x01020304, 32)),
        ("1" * 5000 + ".2.3.4", None),
        ("1.2.3.4/" + "9" * 5000, None),
        ("1.2.3.4.5", None),
        ("1.2.3.", None),
        ("1.2.3.4/", None),
    ],
)
def test_numbers_of_any_length_are_read_as_java_does(
    text: str, network: tuple[int, int] | None
) -> None:
    assert ip_network(text) == network


def test_sessions_of_one_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_SESSIONS", 3)
    desk = Desk()
    for _ in range(3):
        desk.machine.disconnected(desk.session())
    connection, effects = desk.connect()
    assert sent(effects, connection) == [None]
    desk.wait(6000)  # the others end
    assert desk.session()


def test_many_sessions_end_in_steps_and_none_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SESSIONS_IN_TICK", 2)
    desk = Desk()
    clients = [desk.session(3000) for _ in range(5)]
    kept = clients[0]
    desk.wait(2000)
    desk.ask(kept, OpCode.PING)
    desk.wait(1500)
    assert len(desk.machine.sessions) > 1
    while desk.machine.next_tick_ms() <= desk.now.monotonic_ms:
        desk.wait(0)
    assert list(desk.machine.sessions) == [kept.session_id]
    desk.wait(1500)
    assert not desk.machine.sessions


def test_session_resumed_with_a_shorter_timeout_ends_by_it() -> None:
    desk = Desk()
    first, _ = desk.connect(9000)
    session_id = first.session_id
    password = desk.tree.sessions[session_id].password
    desk.connect(1000, session_id, password)
    desk.wait(1100)
    assert not desk.machine.sessions


def test_names_of_many_children_are_encoded_once_until_they_change() -> None:
    desk = Desk()
    client = desk.session()
    desk.create(client, "/p")
    for n in range(served_tree.KEPT_NAMES):
        desk.create(client, f"/p/{n}")
    served = desk.machine.served

    def names() -> set[str]:
        effects = desk.ask(client, OpCode.GET_CHILDREN, WatchingRequest("/p", False))
        reader = JuteReader(sent(effects, client)[0] or b"")
        decode(ReplyHeader, reader)
        from server.coordination.zookeeper_server.jute import STRINGS

        return set(STRINGS.read(reader))

    assert len(names()) == served_tree.KEPT_NAMES
    first = served.names("/p", desk.tree.nodes["/p"])
    assert served.names("/p", desk.tree.nodes["/p"]) is first
    desk.create(client, "/p/more")
    assert "more" in names()
    desk.ask(client, OpCode.DELETE, VersionRequest("/p/more", -1))
    assert "more" not in names()


def test_ephemeral_nodes_are_listed_by_session() -> None:
    desk = Desk()
    client, other = desk.session(), desk.session()
    desk.create(client, "/mine", 1)
    desk.create(other, "/theirs", 1)
    desk.create(other, "/lasting")
    assert {key: list(paths) for key, paths in desk.tree.ephemerals.items()} == {
        client.session_id: ["/mine"],
        other.session_id: ["/theirs"],
    }
    effects = desk.ask(client, OpCode.GET_EPHEMERALS, PathRequest("/"))
    assert b"/mine" in (sent(effects, client)[0] or b"")
    desk.ask(client, OpCode.CLOSE_SESSION)
    assert list(desk.tree.ephemerals) == [other.session_id]
    desk.ask(other, OpCode.DELETE, VersionRequest("/theirs", -1))
    assert not desk.tree.ephemerals


def test_long_lists_of_the_words_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MAX_TEXT", 1000)
    assert words.listed([("a", ["b", "c"])]) == "a\n\tb\n\tc\n"
    text = words.listed([("a", [f"row {n}" for n in range(1000)])])
    assert len(text) < 1100
    assert text.endswith("... cut off after 1000 characters\n")


def test_deep_path_and_long_names_are_answered_over_a_socket() -> None:
    with ServerThread() as server:
        client = RawClient(server.port)
        client.connect()
        client.call(OpCode.ADD_WATCH, WatchTypeRequest("/", 1))
        deep = "/a" * 60_000
        reply = client.call(OpCode.CHECK_WATCHES, WatchTypeRequest(deep, 3))
        assert reply.header.err == 0
        half = framed(OpCode.CREATE, CreateRequest("/half", BIG, OPEN, 0))[:-1]
        client.socket.sendall(half)
        other = RawClient(server.port)
        other.connect()
        assert other.events() == []
        client.close()
        other.socket.sendall(b"\x7f\xff\xff\xff")
        with pytest.raises(Closed):
            other.receive()
        other.close()
