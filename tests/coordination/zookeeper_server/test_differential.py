"""The same requests are sent to a real ZooKeeper 3.8.4 and to this server, with equal replies.

Both begin empty and have the same history, so that whole Stats can be compared, even of the root.
To be comparable, transaction ids count from the first session, times are 0 or not, sessions are
numbered by the order in which they began, and names and ids are sorted.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from server.coordination.acl import OPEN, AclId, ZnodeAclEntry
from server.coordination.store import Stat
from server.coordination.zookeeper_server.records import (
    AuthPacket,
    Code,
    CreateRequest,
    CreateTtlRequest,
    EventType,
    MultiOp,
    OpCode,
    PathRequest,
    ReconfigRequest,
    SetAclRequest,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
    TokenRecord,
    VersionRequest,
    WatchingRequest,
    WatchTypeRequest,
)
from tests.support.zookeeper import ZooKeeperServer

from .raw_client import Closed, RawClient, multi_body
from .serving import ServerThread

pytestmark = pytest.mark.zookeeper

LONG = os.environ.get("KWIRE_LONG") == "1"


class Side:
    """One of the two servers, with its clients."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clients: list[RawClient] = []
        self.sessions: dict[int, str] = {0: "none"}
        self.first_zxid: int | None = None

    def connect(self, timeout_ms: int = 30_000) -> None:
        """Another client with its own session."""
        client = RawClient(self.port)
        client.connect(timeout_ms)
        self.sessions[client.session.session_id] = f"session {len(self.sessions)}"
        self.clients.append(client)
        if self.first_zxid is None:
            self.first_zxid = client.call(OpCode.SYNC, PathRequest("/")).header.zxid

    def zxid(self, zxid: int) -> int:
        """A transaction id in a form that both sides share."""
        assert self.first_zxid is not None
        return zxid if zxid <= 0 else zxid - self.first_zxid + 1_000_000

    def comparable(self, value: Any) -> Any:
        """The value without the parts that must differ."""
        if isinstance(value, Stat):
            return value._replace(
                czxid=self.zxid(value.czxid),
                mzxid=self.zxid(value.mzxid),
                pzxid=self.zxid(value.pzxid),
                ctime_ms=int(value.ctime_ms > 0),
                mtime_ms=int(value.mtime_ms > 0),
                ephemeral_owner=self.sessions[value.ephemeral_owner],
            )
        if isinstance(value, list):
            return [self.comparable(each) for each in value]
        if isinstance(value, tuple):
            names = not isinstance(value, AclId) and all(isinstance(v, (str, AclId)) for v in value)
            if names:
                return tuple(sorted(value, key=str))
            return tuple(self.comparable(each) for each in value)
        return value

    def do(self, index: int, opcode: int, record: Any) -> Any:
        """The reply to a request, and the notifications of all clients."""
        client = self.clients[index]
        try:
            reply = client.call(opcode, record)
        except Closed:
            return "closed"
        told: list[Any] = [sorted(reply.events)]
        told += [sorted(other.events()) for other in self.clients if other is not client]
        header = reply.header._replace(zxid=self.zxid(reply.header.zxid))
        return header, self.comparable(reply.record), told

    def close(self) -> None:
        """End the sessions; one that expired later would use up a transaction id at any time."""
        for client in self.clients:
            try:
                client.end()
            except (Closed, OSError):
                client.close()
                again = RawClient(self.port)
                again.connect(30_000, client.session.session_id, client.session.password or b"")
                again.end()
        self.clients = []


class Pair:
    """Both servers."""

    def __init__(self, real: Side, ours: Side) -> None:
        self.real = real
        self.ours = ours
        self.log: list[str] = []
        self.errors: set[int] = set()
        self.events: set[int] = set()

    def connect(self) -> None:
        """Another client on each."""
        self.real.connect()
        self.ours.connect()

    def do(self, index: int, opcode: int, record: Any = b"") -> Any:
        """Send one request to both, and return the common reply."""
        real = self._compared(index, opcode, record)
        # A request that no server can read would close both connections, and all that follows would be equal.
        assert real != "closed", self.log[-1]
        header, _, told = real
        self.errors.add(header.err)
        self.events.update(event.type for events in told for event in events)
        return real

    def expect_closed(self, index: int) -> None:
        """Both servers have closed the client's connection."""
        assert self._compared(index, OpCode.PING) == "closed"

    def _compared(self, index: int, opcode: int, record: Any = b"") -> Any:
        self.log.append(f"{index} {OpCode(opcode).name} {record}")
        real = self.real.do(index, opcode, record)
        ours = self.ours.do(index, opcode, record)
        assert ours == real, "\n".join(self.log[-12:])
        return real

    def close(self) -> None:
        """End all sessions of a test."""
        self.real.close()
        self.ours.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Side, Side]]:
    """A real server and ours, both empty."""
    real = ZooKeeperServer()
    try:
        real.start()
        with ServerThread() as ours:
            yield Side(real.port), Side(ours.port)
    finally:
        real.close()


@pytest.fixture
def pair(servers: tuple[Side, Side]) -> Iterator[Pair]:
    """Both servers with two clients each; all nodes of a test are created on both."""
    made = Pair(*servers)
    made.connect()
    made.connect()
    yield made
    made.close()


ANYONE_READS = (ZnodeAclEntry(1, AclId("world", "anyone")),)
HERE = (ZnodeAclEntry(31, AclId("ip", "127.0.0.0/8")),)
ELSEWHERE = (ZnodeAclEntry(31, AclId("ip", "10.0.0.1")), ZnodeAclEntry(1, AclId("world", "anyone")))
MINE = (ZnodeAclEntry(31, AclId("auth", "")), ZnodeAclEntry(1, AclId("world", "anyone")))
ANNA = (ZnodeAclEntry(31, AclId("digest", "anna:Cq4mRWdQbhF9M8Gbtj1xEjF0t4Y=")),)
BAD_ACLS = (
    (),
    None,
    (ZnodeAclEntry(31, AclId("sasl", "bob")),),
    (ZnodeAclEntry(31, AclId("digest", "anna")),),
    (ZnodeAclEntry(31, AclId("digest", "anna:")),),
    (ZnodeAclEntry(31, AclId("ip", "1.2.3")),),
    (ZnodeAclEntry(31, AclId("ip", "1.2.3.4/33")),),
    (ZnodeAclEntry(31, AclId("world", "everybody")),),
    (ZnodeAclEntry(31, AclId("nobody", "x")),),
)


def test_plain_life_of_nodes_is_the_same(pair: Pair) -> None:
    top = "/plain"
    pair.do(0, OpCode.EXISTS, WatchingRequest("/", False))
    pair.do(0, OpCode.GET_CHILDREN2, WatchingRequest("/zookeeper", False))
    pair.do(0, OpCode.EXISTS, WatchingRequest("/zookeeper/quota", False))
    pair.do(0, OpCode.GET_ACL, PathRequest("/zookeeper/config"))
    pair.do(0, OpCode.SET_DATA, SetDataRequest("/zookeeper/config", b"", -1))
    pair.do(0, OpCode.EXISTS, WatchingRequest(top, True))
    pair.do(0, OpCode.CREATE, CreateRequest(top, b"x", OPEN, 0))
    pair.do(0, OpCode.CREATE, CreateRequest(top, b"x", OPEN, 0))
    pair.do(0, OpCode.CREATE2, CreateRequest(top + "/null", None, OPEN, 0))
    pair.do(1, OpCode.GET_DATA, WatchingRequest(top + "/null", True))
    pair.do(0, OpCode.SET_DATA, SetDataRequest(top + "/null", b"", 0))
    pair.do(0, OpCode.SET_DATA, SetDataRequest(top + "/null", None, 0))
    pair.do(0, OpCode.SET_DATA, SetDataRequest(top + "/null", None, -1))
    pair.do(1, OpCode.GET_DATA, WatchingRequest(top + "/null", False))
    for flags in (1, 2, 3, 4, 5, 6, 7, -1):
        pair.do(1, OpCode.CREATE2, CreateRequest(f"{top}/f{flags}-", b"", OPEN, flags))
    pair.do(1, OpCode.CREATE, CreateRequest(f"{top}/", b"", OPEN, 2))
    pair.do(1, OpCode.CREATE, CreateRequest(f"{top}/f1-/below", b"", OPEN, 0))
    pair.do(1, OpCode.CREATE_CONTAINER, CreateRequest(f"{top}/c", b"", OPEN, 4))
    pair.do(1, OpCode.CREATE_CONTAINER, CreateRequest(f"{top}/c/d", b"", OPEN, 4))
    pair.do(1, OpCode.CREATE_TTL, CreateTtlRequest(f"{top}/t", b"", OPEN, 5, 1000))
    pair.do(0, OpCode.GET_EPHEMERALS, PathRequest(""))
    pair.do(1, OpCode.GET_EPHEMERALS, PathRequest("/"))
    pair.do(1, OpCode.GET_EPHEMERALS, PathRequest("/other"))
    pair.do(1, OpCode.GET_ALL_CHILDREN_NUMBER, PathRequest("/"))
    pair.do(1, OpCode.GET_ALL_CHILDREN_NUMBER, PathRequest(top))
    pair.do(1, OpCode.GET_ALL_CHILDREN_NUMBER, PathRequest("/none"))
    pair.do(0, OpCode.GET_CHILDREN, WatchingRequest(top, False))
    pair.do(0, OpCode.DELETE, VersionRequest(top, -1))
    pair.do(0, OpCode.DELETE, VersionRequest(top + "/null", 7))
    pair.do(0, OpCode.DELETE, VersionRequest(top + "/null", -1))
    pair.do(0, OpCode.DELETE, VersionRequest(top + "/null", -1))
    pair.do(0, OpCode.EXISTS, WatchingRequest(top, False))
    pair.do(0, OpCode.RECONFIG, ReconfigRequest(None, None, None, -1))
    pair.do(0, OpCode.SYNC, PathRequest(top))
    pair.do(0, OpCode.SASL, TokenRecord(b""))
    assert pair.errors >= {
        Code.OK,
        Code.NO_NODE,
        Code.NODE_EXISTS,
        Code.BAD_VERSION,
        Code.BAD_ARGUMENTS,
        Code.NOT_EMPTY,
        Code.NO_CHILDREN_FOR_EPHEMERALS,
        Code.RECONFIG_DISABLED,
    }
    assert pair.events >= {EventType.CREATED, EventType.DATA_CHANGED}


BAD, NO_NODE, THERE = Code.BAD_ARGUMENTS, Code.NO_NODE, Code.NODE_EXISTS


@pytest.mark.parametrize(
    ("path", "created"),
    [("", BAD), ("/", THERE), ("a", BAD), ("//a", BAD), ("/a//b", NO_NODE), ("/a/", NO_NODE), ("/./a", NO_NODE),
     ("/a/..", NO_NODE), ("/a/.b", NO_NODE), ("/a\0", BAD), ("/a\x1f", BAD), ("/\x7f", BAD),
     ("/\U0001f600", BAD), ("/ä", Code.OK), ("/zookeeper", THERE), ("/zookeeper/quota", THERE),
     ("/none/a", NO_NODE), ("/..a", Code.OK), ("/a.", Code.OK), ("/\ue000", BAD)],
)  # fmt: skip
def test_odd_paths_are_taken_and_refused_the_same(pair: Pair, path: str, created: Code) -> None:
    assert pair.do(0, OpCode.CREATE, CreateRequest(path, b"", OPEN, 0))[0].err == created
    pair.do(0, OpCode.CREATE, CreateRequest(path, b"", (), 0))
    pair.do(0, OpCode.CREATE, CreateRequest(path, b"", OPEN, 2))
    pair.do(0, OpCode.EXISTS, WatchingRequest(path, False))
    pair.do(0, OpCode.GET_DATA, WatchingRequest(path, False))
    pair.do(0, OpCode.GET_CHILDREN, WatchingRequest(path, False))
    pair.do(0, OpCode.SET_DATA, SetDataRequest(path, b"1", 5))
    pair.do(0, OpCode.SET_ACL, SetAclRequest(path, OPEN, 5))
    pair.do(0, OpCode.GET_ACL, PathRequest(path))
    pair.do(0, OpCode.DELETE, VersionRequest(path, 5))
    pair.do(0, OpCode.MULTI, multi_body([MultiOp(OpCode.CHECK, VersionRequest(path, 3))]))


def test_access_lists_are_kept_and_checked_the_same(pair: Pair) -> None:
    pair.do(0, OpCode.CREATE, CreateRequest("/acl", b"", OPEN, 0))
    for acl in BAD_ACLS:
        pair.do(0, OpCode.CREATE, CreateRequest("/acl/bad", b"", acl, 0))
        pair.do(0, OpCode.SET_ACL, SetAclRequest("/acl", acl, -1))
    pair.do(0, OpCode.CREATE, CreateRequest("/acl/mine", b"", MINE, 0))
    pair.do(0, OpCode.AUTH, AuthPacket(0, "digest", b"anna:secret"))
    pair.do(0, OpCode.AUTH, AuthPacket(0, "digest", b"anna:secret"))
    pair.do(0, OpCode.AUTH, AuthPacket(0, "ip", b""))
    pair.do(0, OpCode.WHO_AM_I)
    pair.do(1, OpCode.WHO_AM_I)
    lists = {"read": ANYONE_READS, "here": HERE, "away": ELSEWHERE, "mine": MINE, "anna": ANNA}
    for name, acl in lists.items():
        path = f"/acl/{name}"
        pair.do(0, OpCode.CREATE, CreateRequest(path, b"", acl + acl, 0))
        for client in (0, 1):
            pair.do(client, OpCode.GET_ACL, PathRequest(path))
            pair.do(client, OpCode.EXISTS, WatchingRequest(path, True))
            pair.do(client, OpCode.GET_DATA, WatchingRequest(path, True))
            pair.do(client, OpCode.GET_CHILDREN2, WatchingRequest(path, True))
            pair.do(client, OpCode.SET_DATA, SetDataRequest(path, b"x", -1))
            pair.do(client, OpCode.CREATE, CreateRequest(f"{path}/{client}", b"", OPEN, 0))
            pair.do(client, OpCode.DELETE, VersionRequest(f"{path}/{client}", -1))
            pair.do(client, OpCode.DELETE, VersionRequest(f"{path}/none", -1))
            pair.do(client, OpCode.GET_ALL_CHILDREN_NUMBER, PathRequest(path))
            pair.do(client, OpCode.SET_ACL, SetAclRequest(path, acl, 3))
            pair.do(client, OpCode.SET_ACL, SetAclRequest(path, acl, 0))
            check = MultiOp(OpCode.CHECK, VersionRequest(path, 0))
            pair.do(client, OpCode.MULTI, multi_body([check]))
    pair.do(1, OpCode.AUTH, AuthPacket(0, "digest", b"anna:secret"))
    pair.do(1, OpCode.GET_ACL, PathRequest("/acl/mine"))
    pair.do(1, OpCode.DELETE, VersionRequest("/acl/anna", -1))
    assert pair.errors >= {
        Code.OK,
        Code.INVALID_ACL,
        Code.NO_AUTH,
        Code.NO_NODE,
        Code.BAD_VERSION,
    }


@pytest.mark.parametrize("scheme", ["sasl", "nobody", None])
def test_unknown_credentials_close_the_connection(pair: Pair, scheme: str | None) -> None:
    assert pair.do(0, OpCode.AUTH, AuthPacket(0, scheme, b"x"))[0].err == -115
    pair.expect_closed(0)


def test_unknown_opcode_is_answered_and_closes_the_connection(pair: Pair) -> None:
    assert pair.do(0, OpCode.NOTIFICATION)[0].err == -6
    pair.expect_closed(0)


def test_watches_fire_the_same(pair: Pair) -> None:
    pair.do(0, OpCode.CREATE, CreateRequest("/watch", b"", OPEN, 0))
    for path in ("/watch", "/watch/a"):
        pair.do(0, OpCode.EXISTS, WatchingRequest(path, True))
        pair.do(0, OpCode.GET_CHILDREN, WatchingRequest(path, True))
        pair.do(1, OpCode.GET_DATA, WatchingRequest(path, True))
    pair.do(1, OpCode.CREATE, CreateRequest("/watch/a", b"", OPEN, 0))
    pair.do(1, OpCode.GET_DATA, WatchingRequest("/watch/a", True))
    pair.do(1, OpCode.GET_CHILDREN, WatchingRequest("/watch/a", True))
    pair.do(0, OpCode.DELETE, VersionRequest("/watch/a", -1))
    for mode, path in ((0, "/watch"), (1, "/watch"), (0, "/watch/b"), (1, "/")):
        pair.do(0, OpCode.ADD_WATCH, WatchTypeRequest(path, mode))
        for step in (1, 2):
            pair.do(1, OpCode.CREATE, CreateRequest("/watch/b", b"", OPEN, 0))
            pair.do(1, OpCode.CREATE, CreateRequest("/watch/b/c", b"", OPEN, 0))
            pair.do(1, OpCode.SET_DATA, SetDataRequest("/watch/b/c", b"%d" % step, -1))
            pair.do(1, OpCode.SET_DATA, SetDataRequest("/watch", b"%d" % step, -1))
            pair.do(1, OpCode.DELETE, VersionRequest("/watch/b/c", -1))
            pair.do(1, OpCode.DELETE, VersionRequest("/watch/b", -1))
    for type_ in (3, 2, 1, 3):
        pair.do(0, OpCode.REMOVE_WATCHES, WatchTypeRequest("/watch", type_))
    pair.do(0, OpCode.REMOVE_WATCHES, WatchTypeRequest("/", 3))
    pair.do(0, OpCode.REMOVE_WATCHES, WatchTypeRequest("/", 9))
    pair.do(1, OpCode.SET_DATA, SetDataRequest("/watch", b"last", -1))
    assert pair.errors >= {Code.OK, Code.NO_WATCHER, Code.NO_NODE, Code.MARSHALLING_ERROR}
    assert pair.events == set(EventType)


def test_watches_left_again_after_a_reconnect_fire_the_same(pair: Pair) -> None:
    pair.do(0, OpCode.CREATE, CreateRequest("/again", b"", OPEN, 0))
    pair.do(0, OpCode.CREATE, CreateRequest("/again/a", b"", OPEN, 0))
    for since in (0, 1 << 62):
        paths = ("/again", "/again/a", "/again/none")
        pair.do(0, OpCode.SET_WATCHES, SetWatchesRequest(since, paths, paths, paths))
        lasting = ("/again/a",)
        pair.do(1, OpCode.SET_WATCHES2, SetWatches2Request(since, (), (), (), lasting, ("/again",)))
        pair.do(0, OpCode.CREATE, CreateRequest("/again/none", b"", OPEN, 0))
        pair.do(0, OpCode.SET_DATA, SetDataRequest("/again/a", b"", -1))
        pair.do(1, OpCode.DELETE, VersionRequest("/again/none", -1))
    assert pair.events == set(EventType)


def test_unreadable_requests_are_answered_the_same(pair: Pair) -> None:
    for opcode in (
        OpCode.CREATE,
        OpCode.DELETE,
        OpCode.EXISTS,
        OpCode.GET_DATA,
        OpCode.SET_DATA,
        OpCode.GET_CHILDREN,
        OpCode.MULTI,
        OpCode.SET_WATCHES,
    ):
        assert pair.do(0, opcode, b"\0\0\0\x05/")[0].err == Code.MARSHALLING_ERROR
    pair.do(0, OpCode.MULTI, multi_body([MultiOp(OpCode.EXISTS, WatchingRequest("/", False))]))
    pair.do(0, OpCode.MULTI, multi_body([]))
    pair.do(0, OpCode.MULTI_READ, multi_body([]))


def random_op(rng: random.Random, paths: list[str], top: str) -> MultiOp:
    """A write, mostly on paths that may exist."""
    path = rng.choice(paths) if rng.random() < 0.9 else f"{top}/q-"
    version = rng.choice((-1, -1, -1, 0, 1))
    kind = rng.randrange(10)
    if kind < 5:
        # Not create2, which real multis answer with nothing (ZooKeeper's DataTree does not support it).
        flags = rng.choice((0, 0, 0, 1, 2, 3))
        return MultiOp(OpCode.CREATE, CreateRequest(path, b"%d" % rng.randrange(9), OPEN, flags))
    if kind < 7:
        data = rng.choice((b"a", b"", None))
        return MultiOp(OpCode.SET_DATA, SetDataRequest(path, data, version))
    if kind < 9:
        return MultiOp(OpCode.DELETE, VersionRequest(path, version))
    return MultiOp(OpCode.CHECK, VersionRequest(path, version))


def step(rng: random.Random, pair: Pair, paths: list[str], top: str) -> None:
    """One random request."""
    client = rng.randrange(2)
    path = rng.choice(paths)
    watch = rng.random() < 0.4
    kind = rng.randrange(12)
    if kind < 4:
        op = random_op(rng, paths, top)
        if op.opcode != OpCode.CHECK:
            pair.do(client, op.opcode, op.record)
    elif kind < 6:
        ops = [random_op(rng, paths, top) for _ in range(rng.randrange(1, 5))]
        pair.do(client, OpCode.MULTI, multi_body(ops))
    elif kind < 9:
        opcode = rng.choice(
            (OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2)
        )
        pair.do(client, opcode, WatchingRequest(path, watch))
    elif kind == 9:
        reads = [
            MultiOp(
                rng.choice((OpCode.GET_DATA, OpCode.GET_CHILDREN)),
                WatchingRequest(rng.choice(paths), watch),
            )
            for _ in range(3)
        ]
        pair.do(client, OpCode.MULTI_READ, multi_body(reads))
    elif kind == 10:
        acl = rng.choice((OPEN, OPEN, ANYONE_READS, HERE))
        pair.do(client, OpCode.SET_ACL, SetAclRequest(path, acl, rng.choice((-1, 0))))
    else:
        pair.do(client, OpCode.GET_EPHEMERALS, PathRequest(top))


@pytest.mark.parametrize("seed", range(40 if LONG else 4))
def test_random_requests_are_answered_the_same(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    top = f"/random{seed}"
    paths = [top, f"{top}/a", f"{top}/b", f"{top}/a/x", f"{top}/a/y", f"{top}/a/x/1", f"{top}/none"]
    pair.do(0, OpCode.CREATE, CreateRequest(top, b"", OPEN, 0))
    for _ in range(1000 if LONG else 250):
        step(rng, pair, paths, top)
    assert pair.errors >= {Code.OK, Code.NO_NODE, Code.NODE_EXISTS}
    assert len(pair.events) >= 3
    # A third session sees the state after the end of the first two.
    pair.connect()
    pair.do(2, OpCode.ADD_WATCH, WatchTypeRequest(top, 1))
    for index in (1, 0):
        pair.do(index, OpCode.CLOSE_SESSION)
        for side in (pair.real, pair.ours):
            side.clients[index].close()
            del side.clients[index]
        last = len(pair.real.clients) - 1
        for path in paths:
            pair.do(last, OpCode.GET_CHILDREN2, WatchingRequest(path, False))


def handshake(port: int) -> list[Any]:
    """The result of a server's handshake, apart from passwords and session ids."""
    seen: list[Any] = []
    for timeout_ms in (-1, 0, 399, 1234, 60_001):
        client = RawClient(port)
        seen.append(client.connect(timeout_ms).timeout_ms)
        client.end()
    old = RawClient(port)  # a client older than 3.4
    old.connect(5000, read_only=b"")
    seen.append(len(old.session.password or b""))
    for session_id, password in (
        (old.session.session_id, b"x" * 16),
        (old.session.session_id, b""),
        (12345, bytes(16)),
    ):
        wrong = RawClient(port)
        seen.append(wrong.connect(5000, session_id, password))
        try:
            wrong.receive()
        except Closed:
            seen.append("closed")
        wrong.close()
    ahead = RawClient(port)
    try:
        ahead.connect(5000, last_zxid=1 << 62)
    except Closed:
        seen.append("sent away")
    ahead.close()
    other = RawClient(port)
    session = other.connect(7000)
    taken = RawClient(port)
    seen.append(taken.connect(2000, session.session_id, session.password or b"").timeout_ms)
    try:
        other.receive()
    except Closed:
        seen.append("taken over")
    other.close()
    taken.end()
    gone = RawClient(port)
    seen.append(gone.connect(2000, session.session_id, session.password or b""))
    gone.close()
    # The session whose password was guessed continues; a real server closes its connection.
    old.close()
    back = RawClient(port)
    back.connect(5000, old.session.session_id, old.session.password or b"")
    seen.append(back.call(OpCode.EXISTS, WatchingRequest("/", False)).header.err)
    back.end()
    return seen


def test_sessions_are_granted_and_refused_the_same(pair: Pair) -> None:
    assert handshake(pair.ours.port) == handshake(pair.real.port)
    pair.do(0, OpCode.SYNC, PathRequest("/"))  # the same number of transactions on both
