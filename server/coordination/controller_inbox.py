"""Requests of brokers and tools to the controller, written into the tree.

Brokers write sequential notifications: for in-sync replicas that they changed themselves (inter-broker protocols before
2.7), and for log directories that failed. Tools write one node with a list of partitions: a reassignment, or preferred
leaders to be elected. The controller reads the nodes, acts, and removes them.
Source: ZkData.scala (IsrChangeNotificationSequenceZNode, LogDirEventNotificationSequenceZNode, ReassignPartitionsZNode,
PreferredReplicaElectionZNode).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..metadata.topic_partition import TopicPartition
from .commit import commit
from .events import ChangeKind, ClusterEvent
from .paths import OTHER_FORM, MalformedNode, dump, integer, integers, load, why
from .store import Create, EventKind, NoNode, Store, WatchEvent

logger = logging.getLogger(__name__)

ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"

#: The only kind of log directory event. Source: LogDirEventNotificationZNode.
LOG_DIR_FAILURE = 1


class ControllerInbox:
    """Reads the notifications and requests, and leaves a watch each time."""

    def __init__(self, store: Store, emit: Callable[[ClusterEvent], None]) -> None:
        self._store = store
        self._emit = emit

    def _fired(self, event: WatchEvent, change: ChangeKind) -> None:
        if event.kind is EventKind.SESSION:
            change = ChangeKind.RECONNECTED
        self._emit(ClusterEvent(change))

    def _isr_fired(self, event: WatchEvent) -> None:
        self._fired(event, ChangeKind.ISR_CHANGES)

    def _log_dirs_fired(self, event: WatchEvent) -> None:
        self._fired(event, ChangeKind.LOG_DIRS)

    def _reassignment_fired(self, event: WatchEvent) -> None:
        self._fired(event, ChangeKind.REASSIGNMENT)

    def _election_fired(self, event: WatchEvent) -> None:
        self._fired(event, ChangeKind.PREFERRED_ELECTION)

    async def isr_changes(self) -> tuple[list[str], set[TopicPartition]]:
        """The notifications' paths, and the partitions whose in-sync replicas changed."""
        paths = await self._notifications(ISR_CHANGES, self._isr_fired)
        changed: set[TopicPartition] = set()
        for path, node in zip(paths, await self._store.get_many(paths), strict=True):
            if node is None:
                continue
            try:
                changed.update(decode_partitions(node[0], path))
            except MalformedNode as error:
                logger.warning("Skipping an unreadable notification: %s", error)
        return paths, changed

    async def log_dir_events(self) -> tuple[list[str], set[int]]:
        """The notifications' paths, and the brokers that lost a log directory."""
        paths = await self._notifications(LOG_DIR_EVENTS, self._log_dirs_fired)
        brokers: set[int] = set()
        for path, node in zip(paths, await self._store.get_many(paths), strict=True):
            if node is None:
                continue
            try:
                brokers.add(decode_log_dir_event(node[0], path))
            except MalformedNode as error:
                logger.warning("Skipping an unreadable notification: %s", error)
        return paths, brokers

    async def _notifications(self, parent: str, watch: Callable[[WatchEvent], None]) -> list[str]:
        names = await self._store.children(parent, watch)
        return [f"{parent}/{name}" for name in sorted(names)]

    async def announce_log_dir_failure(self, broker_id: int) -> None:
        """Inform the controller that a log directory of this broker failed."""
        node = encode_log_dir_event(broker_id)
        await commit(
            self._store, [Create(f"{LOG_DIR_EVENTS}/log_dir_event_", node, sequential=True)]
        )

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """The target replicas that a tool requests; None if there is no request."""
        data = await self._requested(REASSIGN_PARTITIONS, self._reassignment_fired)
        return None if data is None else decode_reassignments(data)

    async def preferred_elections(self) -> set[TopicPartition] | None:
        """The partitions whose preferred leaders a tool requests; None without a request."""
        data = await self._requested(PREFERRED_ELECTION, self._election_fired)
        return None if data is None else set(decode_partitions(data, PREFERRED_ELECTION))

    async def _requested(self, path: str, watch: Callable[[WatchEvent], None]) -> bytes | None:
        if await self._store.exists(path, watch) is None:
            return None
        try:
            return (await self._store.get(path))[0] or b""
        except NoNode:
            return None


def decode_partitions(data: bytes | None, path: str) -> list[TopicPartition]:
    """`{"version":1,"partitions":[{"topic":T,"partition":P}]}`. Errors: MalformedNode."""
    return [tp for tp, _ in _rows(data, path)]


def encode_reassignments(wanted: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    """The node of a reassignment, version 1."""
    return dump(
        {
            "version": 1,
            "partitions": [
                {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
                for tp, replicas in wanted.items()
            ],
        }
    )


def decode_reassignments(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Target replicas by partition. Errors: MalformedNode."""
    try:
        return {tp: integers(row["replicas"]) for tp, row in _rows(data, REASSIGN_PARTITIONS)}
    except OTHER_FORM as error:
        raise MalformedNode(REASSIGN_PARTITIONS, why(error)) from error


def _rows(data: bytes | None, path: str) -> list[tuple[TopicPartition, dict[str, Any]]]:
    try:
        return [
            (TopicPartition(str(row["topic"]), integer(row["partition"])), row)
            for row in load(data, path)["partitions"]
        ]
    except OTHER_FORM as error:
        raise MalformedNode(path, why(error)) from error


def encode_log_dir_event(broker_id: int) -> bytes:
    """The notification that a log directory of this broker failed."""
    return dump({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes | None, path: str) -> int:
    """The broker that lost a log directory. Errors: MalformedNode."""
    try:
        return integer(load(data, path)["broker"])
    except OTHER_FORM as error:
        raise MalformedNode(path, why(error)) from error
