"""Requests of many parts are handled in steps, so that they do not hold up the clients with small ones."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.coordination.acl import ADMIN, ANYONE, OPEN, ZnodeAclEntry
from server.coordination.zookeeper_server import machine, requests, served_tree
from server.coordination.zookeeper_server.connection import (
    AwaitedMessage,
    Effects,
    ZookeeperConnection,
)
from server.coordination.zookeeper_server.jute import JuteReader
from server.coordination.zookeeper_server.records import (
    MAX_OPS,
    Code,
    CreateRequest,
    EventType,
    MultiOp,
    OpCode,
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
from server.coordination.zookeeper_server.watches import WatchMode, WatchTable

from .raw_client import decode_results, multi_body
from .test_bounds import a_client, a_server, framed, run, turns
from .test_machine import Desk, errors, events, finish, sent


def begin(desk: Desk, connection: ZookeeperConnection, opcode: int, record: Any) -> Effects:
    """The first step of a request."""
    body = record if isinstance(record, bytes) else encode(record)
    message = encode(RequestHeader(1, opcode)) + body
    return desk.machine.received(connection, message, desk.now)


def creates(prefix: str, count: int, flags: int = 0) -> list[MultiOp]:
    """Ops that create nodes."""
    return [
        MultiOp(OpCode.CREATE, CreateRequest(f"{prefix}{n}", b"", OPEN, flags))
        for n in range(count)
    ]


def create_many(
    desk: Desk, client: ZookeeperConnection, prefix: str, count: int, flags: int = 0
) -> None:
    """Create nodes."""
    effects = begin(desk, client, OpCode.MULTI, multi_body(creates(prefix, count, flags)))
    assert errors(finish(desk, client, effects), client) == [Code.OK]


def codes(effects: Effects, client: ZookeeperConnection) -> list[int]:
    """The results of a multi: 0 for one without an error of its own."""
    reader = JuteReader(sent(effects, client)[0] or b"")
    assert decode(ReplyHeader, reader).err == 0
    return [
        record.value if opcode == OpCode.ERROR else 0 for opcode, record in decode_results(reader)
    ]


def test_other_clients_see_nothing_of_a_multi_before_its_last_step() -> None:
    desk = Desk()
    client, other = desk.session(), desk.session()
    effects = begin(desk, client, OpCode.MULTI, multi_body(creates("/n", MAX_OPS)))
    steps = 1
    while client.unfinished is not None:
        assert not effects.frames and not effects.applied
        read = desk.ask(other, OpCode.EXISTS, WatchingRequest("/n0", False))
        assert errors(read, other) == [Code.NO_NODE]
        desk.create(other, f"/own{steps}")
        effects = desk.machine.go_on(client, desk.now)
        steps += 1
    assert MAX_OPS / requests.OPS_IN_STEP <= steps <= MAX_OPS / requests.OPS_IN_STEP + 2
    assert codes(effects, client) == [0] * MAX_OPS
    assert len(desk.tree.nodes["/"].children or ()) == MAX_OPS + steps - 1


def test_steps_of_a_multi_are_shorter_if_its_ops_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BYTES_IN_STEP", 1000)
    desk = Desk()
    client = desk.session()
    ops = [MultiOp(OpCode.SET_DATA, SetDataRequest("/", b"x" * 600, -1))] * 10
    effects = begin(desk, client, OpCode.MULTI, multi_body(ops))
    steps = 1
    while client.unfinished is not None:
        effects = desk.machine.go_on(client, desk.now)
        steps += 1
    assert steps == 6
    assert codes(effects, client) == [0] * 10


@pytest.mark.parametrize("failing", [0, 1, 9, 10, 11, 24])
@pytest.mark.parametrize("invalid", [False, True])
def test_multi_of_several_steps_fails_at_its_first_wrong_op(
    failing: int, invalid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "OPS_IN_STEP", 10)
    desk = Desk()
    client = desk.session()
    before = desk.tree.zxid
    ops = creates("/n", 25)
    wrong = CreateRequest("/n", b"", OPEN, 99 if invalid else 0)
    if not invalid:
        wrong = wrong._replace(path="/missing/n")
    for at in {failing, 24}:
        ops[at] = MultiOp(OpCode.CREATE, wrong)
    effects = finish(desk, client, begin(desk, client, OpCode.MULTI, multi_body(ops)))
    code = Code.BAD_ARGUMENTS if invalid else Code.NO_NODE
    rest = [Code.RUNTIME_INCONSISTENCY] * (25 - failing - 1)
    assert codes(effects, client) == [0] * failing + [code] + rest
    assert list(desk.tree.nodes) == ["/"]
    assert desk.tree.zxid == before + 1


def test_unreadable_op_in_a_later_step_applies_none() -> None:
    desk = Desk()
    client = desk.session()
    body = multi_body([*creates("/n", 2500), MultiOp(OpCode.SYNC, VersionRequest("/", 1))])
    effects = finish(desk, client, begin(desk, client, OpCode.MULTI, body))
    assert errors(effects, client) == [Code.MARSHALLING_ERROR]
    assert list(desk.tree.nodes) == ["/"]


@pytest.mark.parametrize("end", ["timeout", "disconnect", "takeover"])
def test_unfinished_request_is_given_up_with_its_connection(end: str) -> None:
    desk = Desk()
    client = desk.session(3000)
    begin(desk, client, OpCode.MULTI, multi_body(creates("/n", 2500)))
    assert client.unfinished is not None
    if end == "timeout":
        desk.wait(3001)
    elif end == "disconnect":
        desk.machine.disconnected(client)
    else:
        password = desk.tree.sessions[client.session_id].password
        desk.connect(3000, client.session_id, password)
    assert client.unfinished is None
    assert not desk.machine.go_on(client, desk.now).frames
    assert list(desk.tree.nodes) == ["/"]


@pytest.mark.parametrize("opcode", [OpCode.SET_WATCHES, OpCode.SET_WATCHES2])
def test_watches_that_are_set_in_steps_miss_no_change_between_them(
    opcode: OpCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WATCHES_IN_STEP", 10)
    desk = Desk()
    client, other = desk.session(), desk.session()
    paths = tuple(f"/n{n}" for n in range(100))
    for path in paths:
        desk.create(other, path)
    record: Any = SetWatchesRequest(desk.tree.zxid, paths, (), ())
    if opcode == OpCode.SET_WATCHES2:
        record = SetWatches2Request(desk.tree.zxid, (), (), (), paths, ())
    effects = begin(desk, client, opcode, record)
    steps, told = 1, events(effects, client)
    while client.unfinished is not None:
        for path in (paths[steps - 1], paths[-steps]):  # watched already, and not yet
            changed = desk.ask(other, OpCode.SET_DATA, SetDataRequest(path, b"", -1))
            told += events(changed, client)
        effects = desk.machine.go_on(client, desk.now)
        told += events(effects, client)
        steps += 1
    assert steps == 11
    assert errors(effects, client)[-1] == Code.OK
    changed_paths = [*paths[: steps - 1], *paths[-steps + 1 :]]
    if opcode == OpCode.SET_WATCHES:
        assert sorted(event.path for event in told) == sorted(changed_paths)
    desk.ask(other, OpCode.SET_DATA, SetDataRequest(paths[50], b"", -1))
    left = desk.machine.served.data_watches.by_watcher[client]
    assert len(left) == (100 - 2 * (steps - 1) - 1 if opcode == OpCode.SET_WATCHES else 100)


def test_session_with_many_nodes_ends_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DELETES_IN_TICK", 10)
    desk = Desk()
    client, small, watcher = [desk.session() for _ in range(3)]
    create_many(desk, client, "/n", 95, flags=1)
    desk.create(small, "/small", 1)
    desk.ask(watcher, OpCode.ADD_WATCH, WatchTypeRequest("/", 1))
    effects = desk.ask(client, OpCode.CLOSE_SESSION)
    told = events(effects, watcher)
    steps = 1
    while client.stage is not AwaitedMessage.CLOSED:
        assert not sent(effects, client)
        assert client.session_id in desk.tree.sessions  # for a crash in between
        assert not desk.ask(client, OpCode.PING).frames
        again, refused = desk.connect(5000, client.session_id, b"p" * 16)
        assert sent(refused, again)[-1] is None
        assert desk.machine.next_tick_ms() <= desk.now.monotonic_ms
        if steps == 3:
            assert errors(desk.ask(small, OpCode.CLOSE_SESSION), small) == [0]
        effects = desk.wait(0)
        told += events(effects, watcher)
        steps += 1
    assert steps == 10
    assert errors(effects, client) == [0]
    assert sent(effects, client)[-1] is None
    assert list(desk.tree.nodes) == ["/"]
    assert client.session_id not in desk.tree.sessions
    assert len([event for event in told if event.type == EventType.DELETED]) == 95
    assert desk.machine.next_tick_ms() > desk.now.monotonic_ms


def test_watches_of_a_lost_connection_are_removed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_tree, "TIDY_STEPS", 10)
    desk = Desk()
    client, other = desk.session(), desk.session()
    paths = tuple(f"/n{n}" for n in range(50))
    desk.ask(client, OpCode.SET_WATCHES2, SetWatches2Request(0, (), (), (), paths, ()))
    desk.machine.disconnected(client)
    table = desk.machine.served.data_watches
    assert table.count() == 40
    created = begin(desk, other, OpCode.MULTI, multi_body(creates("/n", 50)))
    assert not sent(created, client)
    steps = 0
    while desk.machine.next_tick_ms() <= desk.now.monotonic_ms:
        desk.wait(0)
        steps += 1
    assert 8 <= steps <= 9
    assert not table.by_path and not table.by_watcher and not table.total_bytes


def test_events_of_a_multi_are_sent_to_each_watcher_in_one_piece() -> None:
    desk = Desk()
    writer = desk.session()
    watchers = [desk.session() for _ in range(30)]
    for watcher in watchers:
        desk.ask(watcher, OpCode.ADD_WATCH, WatchTypeRequest("/", 1))
    body = multi_body(creates("/n", 500))
    effects = begin(desk, writer, OpCode.MULTI, body)
    assert [to for to, _ in effects.frames] == [*watchers, writer]
    assert effects.sent == 30 * 500 + 1
    for watcher in watchers:
        assert [event.path for event in events(effects, watcher)] == [f"/n{n}" for n in range(500)]


def test_events_reach_only_watchers_that_may_read_and_keep_their_order() -> None:
    desk = Desk()
    writer, first, second = [desk.session() for _ in range(3)]
    hidden = (ZnodeAclEntry(31 & ~1, ANYONE), ZnodeAclEntry(ADMIN, ANYONE))
    for path, acl in (("/a", OPEN), ("/b", OPEN), ("/hidden", hidden)):
        desk.ask(writer, OpCode.CREATE, CreateRequest(path, b"", acl, 0))
    for client, paths in ((first, ("/a", "/b", "/hidden")), (second, ("/b",))):
        for path in paths:
            desk.ask(client, OpCode.ADD_WATCH, WatchTypeRequest(path, 0))
    order = ["/a", "/b", "/hidden", "/b", "/a", "/a"]
    ops = [MultiOp(OpCode.SET_DATA, SetDataRequest(path, b"", -1)) for path in order]
    effects = begin(desk, writer, OpCode.MULTI, multi_body(ops))
    assert [event.path for event in events(effects, first)] == ["/a", "/b", "/b", "/a", "/a"]
    assert [event.path for event in events(effects, second)] == ["/b", "/b"]


def test_small_requests_are_answered_between_the_steps_of_a_large_one() -> None:
    async def body() -> None:
        server = await a_server()
        server.rotation._cpu_us = itertools.count(0, 1000).__next__
        busy, honest = await a_client(server), await a_client(server)
        assert busy.protocol is not None and honest.protocol is not None
        busy.protocol.data_received(
            framed(OpCode.MULTI, multi_body(creates("/n", MAX_OPS))) + framed(OpCode.PING, b"")
        )
        answered = 0
        while not busy.written or busy.unsent == 0:
            before = honest.written
            honest.protocol.data_received(framed(OpCode.EXISTS, WatchingRequest("/n0", False)))
            await turns(1)
            answered += honest.written > before
        assert answered >= MAX_OPS / requests.OPS_IN_STEP
        assert len(busy.protocol._buffer) == len(framed(OpCode.PING, b""))
        busy.read_all()
        await turns()
        assert not busy.protocol._buffer

    run(body)


NAMES = st.sampled_from("abc")
PATHS = st.sampled_from(["/", "/x", "/x/y", "/é"])
ACTIONS = st.one_of(
    st.tuples(st.just("add"), PATHS, NAMES, st.sampled_from(WatchMode)),
    st.tuples(st.just("remove"), PATHS, NAMES, st.none()),
    st.tuples(st.just("trigger"), PATHS, st.sampled_from(EventType), st.none()),
    st.tuples(st.just("tidy"), st.just("/"), st.integers(1, 3), st.none()),
)


@given(st.lists(ACTIONS, max_size=30))
def test_watches_fire_as_if_nothing_were_left_behind(actions: list[Any]) -> None:
    table: WatchTable[str] = WatchTable()
    expected: dict[tuple[str, str], WatchMode] = {}
    for action, path, value, mode in actions:
        if action == "add":
            table.add(path, value, mode)
            expected[path, value] = mode
        elif action == "remove":
            assert table.remove(path, value) is (expected.pop((path, value), None) is not None)
        elif action == "tidy":
            table.tidy(value)
        else:
            told = set()
            for (at, name), kind in list(expected.items()):
                if kind is WatchMode.PERSISTENT_RECURSIVE:
                    below = at in ("/", path) or path.startswith(f"{at}/")
                    if below and value is not EventType.CHILDREN_CHANGED:
                        told.add(name)
                elif at == path:
                    told.add(name)
                    if kind is WatchMode.ONCE:
                        del expected[at, name]
            found = table.trigger(path, value)
            assert (set(found), len(found)) == (told, len(told))
        assert table.count() == len(expected)
    table.tidy(1000)
    assert not table.untidy
    watched = {(path, name) for name, paths in table.by_watcher.items() for path in paths}
    assert watched == set(expected)
    for name in "abc":
        table.remove_watcher(name)
    while table.untidy:
        table.tidy(2)
    assert not table.by_path and not table.by_watcher and not table.held_bytes
    assert table.total_bytes == 0
