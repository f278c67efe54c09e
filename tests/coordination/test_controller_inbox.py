"""The nodes for the controller in the tree, with both stores; in Apache Kafka's format."""

from __future__ import annotations

import asyncio

import pytest

from server.coordination.cluster import ClusterStore
from server.coordination.controller_inbox import (
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    decode_partitions,
    decode_reassignments,
    encode_log_dir_event,
    encode_reassignments,
)
from server.coordination.events import ChangeKind, ClusterEvent
from server.coordination.paths import MalformedNode
from server.coordination.store import NodeExists
from server.metadata.topic_partition import TopicPartition
from tests.support.clock import ManualClock

from .conftest import StoreMaker
from .test_contract import Run

T0 = TopicPartition("t", 0)
ROW = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'


class Events:
    """The events of a cluster, for which a test can wait."""

    def __init__(self, cluster: ClusterStore) -> None:
        self._queue: asyncio.Queue[ClusterEvent] = asyncio.Queue()
        cluster.on_event(self._queue.put_nowait)

    async def next(self) -> ChangeKind:
        """The next change."""
        return (await asyncio.wait_for(self._queue.get(), 5)).change


async def cluster_of(maker: StoreMaker) -> ClusterStore:
    cluster = ClusterStore(await maker.session(), ManualClock())
    await cluster.ensure_paths()
    return cluster


def test_notifications_are_read_in_order_and_watched(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await cluster_of(maker)
        events = Events(cluster)
        assert await cluster.inbox.isr_changes() == ([], set())
        assert await cluster.inbox.log_dir_events() == ([], set())
        other = await maker.session()
        await other.create("/isr_change_notification/isr_change_", ROW, sequential=True)
        assert await events.next() is ChangeKind.ISR_CHANGES
        await other.create("/isr_change_notification/isr_change_", b"{}", sequential=True)
        paths, changed = await cluster.inbox.isr_changes()
        assert [path[-1] for path in paths] == ["0", "1"]
        assert changed == {T0}
        await cluster.inbox.announce_log_dir_failure(7)
        assert await events.next() is ChangeKind.LOG_DIRS
        paths, brokers = await cluster.inbox.log_dir_events()
        assert brokers == {7}
        assert (await other.get(paths[0]))[0] == b'{"version":1,"broker":7,"event":1}'

    run(body)


def test_wishes_are_watched_while_there_are_none(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await cluster_of(maker)
        events = Events(cluster)
        other = await maker.session()
        assert await cluster.inbox.reassignments() is None
        assert await cluster.inbox.preferred_elections() is None
        await other.create(REASSIGN_PARTITIONS, encode_reassignments({T0: (2, 1)}))
        assert await events.next() is ChangeKind.REASSIGNMENT
        assert await cluster.inbox.reassignments() == {T0: (2, 1)}
        await other.create(PREFERRED_ELECTION, ROW)
        assert await events.next() is ChangeKind.PREFERRED_ELECTION
        assert await cluster.inbox.preferred_elections() == {T0}

    run(body)


def test_controller_removes_what_it_has_done_and_nobody_else_does(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        cluster = await cluster_of(maker)
        controller = await cluster.elect_controller(1)
        assert controller is not None
        writes = cluster.as_controller(controller)
        await cluster.store.create(REASSIGN_PARTITIONS, b"x")
        await writes.replace_node(REASSIGN_PARTITIONS, b"y")
        assert (await cluster.store.get(REASSIGN_PARTITIONS))[0] == b"y"
        await writes.remove_nodes([REASSIGN_PARTITIONS, "/admin/none"])
        assert await cluster.store.exists(REASSIGN_PARTITIONS) is None
        await writes.replace_node(REASSIGN_PARTITIONS, b"z")
        assert await cluster.store.exists(REASSIGN_PARTITIONS) is None
        await cluster.request_deletion("t")
        with pytest.raises(NodeExists):
            await cluster.request_deletion("t")
        await writes.forget_deletion("t")
        assert await cluster.deletions() == []

    run(body)


def test_nodes_are_those_of_apache_kafka() -> None:
    assert encode_reassignments({T0: (1, 2)}) == (
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    )
    assert decode_reassignments(encode_reassignments({T0: (1, 2)})) == {T0: (1, 2)}
    assert encode_log_dir_event(3) == b'{"version":1,"broker":3,"event":1}'
    for data in (b"", b"[]", b"{}", b'{"partitions":[{"topic":"t"}]}'):
        with pytest.raises(MalformedNode):
            decode_partitions(data, PREFERRED_ELECTION)
        with pytest.raises(MalformedNode):
            decode_reassignments(data)
