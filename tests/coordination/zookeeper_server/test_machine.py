"""Sessions, connections and time, without sockets; `test_differential` compares requests."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from server.coordination.acl import OPEN
from server.coordination.tree import NodeTree
from server.coordination.zookeeper_server.connection import (
    AwaitedMessage,
    Effects,
    Now,
    ZookeeperConnection,
)
from server.coordination.zookeeper_server.jute import BUFFER, JuteReader
from server.coordination.zookeeper_server.machine import (
    CONTAINER_CHECK_MS,
    Machine,
    SessionTimeoutLimits,
)
from server.coordination.zookeeper_server.records import (
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    OpCode,
    ReplyHeader,
    RequestHeader,
    VersionRequest,
    WatcherEvent,
    WatchingRequest,
    WatchTypeRequest,
    decode,
    encode,
)

LIMITS = SessionTimeoutLimits(1000, 9000)


class Desk:
    """A machine with a clock that the test moves."""

    def __init__(self, tree: NodeTree | None = None, session_ids: int = 1) -> None:
        self.now = Now(1_000_000, 0)
        self.tree = tree or NodeTree(1 << 32)
        ids = itertools.count(session_ids)
        self.machine = Machine(
            self.tree,
            self.now,
            new_session_id=lambda: next(ids),
            new_password=lambda: b"p" * 16,
            limits=LIMITS,
        )
        self.xids = itertools.count(1)

    def wait(self, wait_ms: int) -> Effects:
        """Let time pass, and run due work."""
        self.now = Now(self.now.wall_ms + wait_ms, self.now.monotonic_ms + wait_ms)
        return self.machine.tick(self.now)

    def connect(
        self,
        timeout_ms: int = 5000,
        session_id: int = 0,
        password: bytes = bytes(16),
        seen: int = 0,
    ) -> tuple[ZookeeperConnection, Effects]:
        """A connection that requests a session."""
        connection = self.machine.connected("127.0.0.1", 5, self.now)
        request = ConnectRequest(0, seen, timeout_ms, session_id, password)
        effects = self.machine.received(connection, encode(request) + b"\0", self.now)
        return connection, effects

    def session(self, timeout_ms: int = 5000) -> ZookeeperConnection:
        """A connection with a session."""
        connection, _ = self.connect(timeout_ms)
        assert connection.session_id
        return connection

    def ask(self, connection: ZookeeperConnection, opcode: int, record: Any = None) -> Effects:
        """Send a request."""
        body = b"" if record is None else encode(record)
        message = encode(RequestHeader(next(self.xids), opcode)) + body
        return finish(self, connection, self.machine.received(connection, message, self.now))

    def create(self, connection: ZookeeperConnection, path: str, flags: int = 0) -> None:
        """Create a node."""
        effects = self.ask(connection, OpCode.CREATE, CreateRequest(path, b"", OPEN, flags))
        assert errors(effects, connection) == [0]


def finish(desk: Desk, connection: ZookeeperConnection, effects: Effects) -> Effects:
    """Handle the remaining steps of a request."""
    while connection.unfinished is not None:
        more = desk.machine.go_on(connection, desk.now)
        effects.applied += more.applied
        effects.frames += more.frames
        effects.sent += more.sent
    return effects


def sent(effects: Effects, connection: ZookeeperConnection) -> list[bytes | None]:
    """The frames sent to one connection."""
    found: list[bytes | None] = []
    for to, frames in effects.frames:
        if to is not connection:
            continue
        if frames is None:
            found.append(None)
            continue
        reader = JuteReader(frames)
        while not reader.at_end():
            found.append(BUFFER.read(reader))
    return found


def errors(effects: Effects, connection: ZookeeperConnection) -> list[int]:
    """The `err` of each reply."""
    return [decode(ReplyHeader, JuteReader(m)).err for m in sent(effects, connection) if m]


def granted(effects: Effects) -> ConnectResponse:
    """The answer to a connect request."""
    (message, *_) = sent(effects, effects.frames[0][0])
    assert message is not None
    return decode(ConnectResponse, JuteReader(message))


def events(effects: Effects, connection: ZookeeperConnection) -> list[WatcherEvent]:
    """The notifications sent to a connection."""
    found = []
    for message in sent(effects, connection):
        reader = JuteReader(message or b"")
        if message and decode(ReplyHeader, reader).xid == -1:
            found.append(decode(WatcherEvent, reader))
    return found


def test_timeout_is_kept_within_limits() -> None:
    for asked, got in ((0, 1000), (1500, 1500), (100_000, 9000)):
        assert granted(Desk().connect(asked)[1]).timeout_ms == got


def test_client_of_old_is_not_told_whether_the_server_is_read_only() -> None:
    desk = Desk()
    connection = desk.machine.connected("127.0.0.1", 5, desk.now)
    request = ConnectRequest(0, 0, 5000, 0, bytes(16))
    effects = desk.machine.received(connection, encode(request), desk.now)
    assert len(sent(effects, connection)[0] or b"") == 36
    assert len(sent(desk.connect()[1], next(reversed(desk.machine.connections)))[0] or b"") == 37


def test_client_that_knows_a_later_tree_is_sent_away() -> None:
    desk = Desk()
    connection, effects = desk.connect(seen=desk.tree.zxid + 1)
    assert sent(effects, connection) == [None]
    assert not desk.machine.sessions


def test_silent_session_ends_and_its_nodes_go() -> None:
    desk = Desk()
    silent, other = desk.session(2000), desk.session(9000)
    desk.create(silent, "/e", flags=1)
    desk.ask(other, OpCode.EXISTS, WatchingRequest("/e", True))
    assert desk.machine.next_tick_ms() == 2000
    assert not desk.wait(1999).applied
    effects = desk.wait(1)
    assert sent(effects, silent) == [None]
    assert events(effects, other) == [WatcherEvent(2, 3, "/e")]
    assert "/e" not in desk.tree.nodes
    assert list(desk.tree.sessions) == [other.session_id]


def test_ping_keeps_a_session() -> None:
    desk = Desk()
    connection = desk.session(2000)
    for _ in range(5):
        assert not desk.wait(1500).applied
        assert errors(desk.ask(connection, OpCode.PING), connection) == [0]


def test_lost_connection_ends_its_watches_but_not_its_session() -> None:
    desk = Desk()
    gone, other = desk.session(5000), desk.session(9000)
    desk.create(gone, "/e", flags=1)
    desk.ask(gone, OpCode.GET_CHILDREN, WatchingRequest("/", True))
    desk.machine.disconnected(gone)
    desk.create(other, "/x")
    assert not desk.machine.served.child_watches.by_path
    assert "/e" in desk.tree.nodes
    back, effects = desk.connect(5000, gone.session_id, b"p" * 16)
    assert granted(effects).session_id == gone.session_id
    assert back.stage is AwaitedMessage.OPEN


def test_session_taken_over_leaves_the_old_connection_closed() -> None:
    desk = Desk()
    first = desk.session()
    second, effects = desk.connect(5000, first.session_id, b"p" * 16)
    assert sent(effects, first) == [None]
    desk.machine.disconnected(first)  # when its socket is gone, later
    assert desk.machine.sessions[second.session_id].connection is second


def test_wrong_password_and_unknown_session_are_refused() -> None:
    desk = Desk()
    owner = desk.session()
    for session_id, password in ((owner.session_id, b"q" * 16), (77, b"p" * 16)):
        connection, effects = desk.connect(5000, session_id, password)
        assert granted(effects) == ConnectResponse(0, 0, 0, bytes(16))
        assert sent(effects, connection)[-1] is None
    assert owner.stage is AwaitedMessage.OPEN


def test_session_outlives_a_restart_and_gets_its_whole_timeout() -> None:
    desk = Desk()
    before = desk.session(3000)
    desk.create(before, "/e", flags=1)
    desk.wait(2999)
    again = Desk(desk.tree, session_ids=100)
    assert not again.wait(2999).applied
    connection, effects = again.connect(3000, before.session_id, b"p" * 16)
    assert granted(effects).session_id == before.session_id
    assert not again.wait(2999).applied
    again.machine.disconnected(connection)
    assert again.wait(1).applied
    assert "/e" not in again.tree.nodes


def test_closed_session_is_answered_and_its_connection_closed() -> None:
    desk = Desk()
    connection = desk.session()
    desk.create(connection, "/e", flags=1)
    effects = desk.ask(connection, OpCode.CLOSE_SESSION)
    assert errors(effects, connection) == [0]
    assert sent(effects, connection)[-1] is None
    assert "/e" not in desk.tree.nodes
    assert not desk.machine.sessions


def test_container_goes_after_its_last_child() -> None:
    desk = Desk()
    connection = desk.session(9000)
    for path in ("/c", "/never"):
        desk.ask(connection, OpCode.CREATE_CONTAINER, CreateRequest(path, b"", OPEN, 4))
    desk.create(connection, "/c/child")
    desk.ask(connection, OpCode.CREATE, CreateRequest("/c/child/below", b"", OPEN, 0))

    def pass_time() -> None:
        for _ in range(CONTAINER_CHECK_MS // 5000 + 1):
            desk.wait(5000)
            desk.ask(connection, OpCode.PING)

    pass_time()
    assert {"/c", "/never"} <= set(desk.tree.nodes)
    desk.ask(connection, OpCode.DELETE, VersionRequest("/c/child/below", -1))
    desk.ask(connection, OpCode.DELETE, VersionRequest("/c/child", -1))
    pass_time()
    assert "/c" not in desk.tree.nodes
    assert "/never" in desk.tree.nodes  # had no child yet


def test_frame_too_short_for_a_header_closes_the_connection() -> None:
    desk = Desk()
    connection = desk.session()
    effects = desk.machine.received(connection, b"\0\0", desk.now)
    assert sent(effects, connection) == [None]


def test_own_nodes_are_made_once() -> None:
    desk = Desk()
    touched = desk.machine.prepare().applied[0].touched
    assert touched == {"/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
    assert desk.tree.node("/").stat().cversion == -1
    assert not Desk(desk.tree).machine.prepare().applied[0].touched


PIECES = st.sampled_from(
    [b"\0" * 4, b"\xff" * 4, b"\0\0\0\x01", b"\0\0\0\x02/a", b"\0\0\0\x01x", b"\x01", b"\0\0\0\x05"]
)


@given(
    st.sampled_from([*OpCode, 77]),
    st.one_of(st.binary(max_size=40), st.lists(PIECES, max_size=8).map(b"".join)),
)
def test_any_bytes_are_answered_or_close_the_connection(opcode: int, body: bytes) -> None:
    desk = Desk()
    connection = desk.session()
    desk.create(connection, "/a")
    desk.ask(connection, OpCode.ADD_WATCH, WatchTypeRequest("/", 1))
    before = dict(desk.tree.nodes)
    effects = desk.machine.received(
        connection, encode(RequestHeader(5, int(opcode))) + body, desk.now
    )
    frames = sent(effects, connection)
    assert frames
    if frames[-1] is not None:
        assert errors(effects, connection)[-1] <= 0
    if not any(applied.results for applied in effects.applied):
        assert desk.tree.nodes == before or opcode == OpCode.CLOSE_SESSION
