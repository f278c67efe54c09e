"""Writes reserved for the controller: topics, partition states, features.

Every transaction begins with `Check(/controller_epoch)`, so that it is refused if another controller has been elected.
Source: KafkaZkClient, "Controller epoch check".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..metadata.topic_partition import TopicPartition
from . import paths
from .commit import commit, stat_of
from .paths import FinalizedFeatures, LeaderAndIsr, NewTopic, TopicAssignment
from .store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SetData,
    Store,
)

#: The size limit of one transaction in bytes; ZooKeeper's `jute.maxbuffer` is 1 MiB by default.
MULTI_BYTES = 400_000
#: The approximate size of an op without its path and data.
OP_BYTES = 60


class NotController(Exception):
    """This broker is not the controller, or no longer is."""


class ControllerEpoch(NamedTuple):
    """The number of a controller, and the version of /controller_epoch that fences its writes."""

    epoch: int
    version: int


class ControllerWrites:
    """The writes of one controller in one epoch. Errors of each: NotController after the epoch."""

    def __init__(self, store: Store, controller: ControllerEpoch) -> None:
        self._store = store
        self.controller = controller

    async def _fenced(self, ops: Sequence[Op]) -> list[OpResult]:
        """Run a transaction as this controller; an error's `index` does not count the check."""
        try:
            check = Check(paths.CONTROLLER_EPOCH, self.controller.version)
            return (await commit(self._store, [check, *ops]))[1:]
        except (BadVersion, NoNode, NodeExists) as error:
            if error.index == 0:
                raise NotController(
                    f"controller epoch {self.controller.epoch} has ended"
                ) from error
            error.index -= 1
            raise

    async def confirm(self) -> None:
        """Return if no other controller has been elected so far, according to the store's order."""
        await self._fenced([])

    async def create_topic(
        self,
        topic: NewTopic,
        states: Mapping[int, LeaderAndIsr],
    ) -> dict[int, LeaderAndIsr]:
        """Write a new topic with its config and the state of each partition.

        Shape: one transaction, or several for thousands of partitions; the first one creates the topic. Returns the
        states with their partition epochs. Errors: NodeExists if the topic exists.
        """
        config = Create(paths.config_path("topics", topic.name), paths.encode_config(topic.configs))
        node = paths.encode_topic(TopicAssignment(topic.topic_id, topic.partitions))
        first: list[Op] = [
            config,  # before the topic, as its readers look for it
            Create(paths.topic_path(topic.name), node),
            Create(paths.partitions_path(topic.name)),
        ]
        chunks = in_chunks(first, (new_partition(topic.name, *item) for item in states.items()))
        try:
            await self._fenced(chunks[0])
        except NodeExists as error:
            if error.index != 0:
                raise
            # A deleted topic left its config behind.
            chunks[0][0] = SetData(config.path, config.data)
            await self._fenced(chunks[0])
        await asyncio.gather(*(self._fenced(ops) for ops in chunks[1:]))
        return {number: state._replace(partition_epoch=0) for number, state in states.items()}

    async def set_assignment(self, topic: str, assignment: TopicAssignment) -> TopicAssignment:
        """Replace a topic's assignment (with reassignments) if `assignment.version` is current.

        Errors: BadVersion, NoNode.
        """
        op = SetData(paths.topic_path(topic), paths.encode_topic(assignment), assignment.version)
        return assignment._replace(version=stat_of((await self._fenced([op]))[0]).version)

    async def create_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Write the first states of partitions, with missing parent nodes.

        Errors: NodeExists if one has a state.
        """
        by_topic: dict[str, list[list[Op]]] = {}
        above = [paths.partitions_path(topic) for topic in {tp.topic for tp in states}]
        above += [paths.partition_path(*tp) for tp in states]
        found = await self._store.get_many(above)
        there = {path for path, node in zip(above, found, strict=True) if node is not None}
        for tp, state in states.items():
            ops = new_partition(*tp, state)
            by_topic.setdefault(tp.topic, []).append(
                ops[1:] if paths.partition_path(*tp) in there else ops
            )
        for topic, partitions in by_topic.items():
            path = paths.partitions_path(topic)
            for chunk in in_chunks([] if path in there else [Create(path)], partitions):
                await self._fenced(chunk)
        return {tp: state._replace(partition_epoch=0) for tp, state in states.items()}

    async def cas_partition_state(self, tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
        """Replace a partition's state if `state.partition_epoch` is current.

        Returns it with the new partition epoch. Errors: BadVersion, NoNode.
        """
        op = SetData(paths.state_path(*tp), paths.encode_state(state), state.partition_epoch)
        stat = stat_of((await self._fenced([op]))[0])
        return state._replace(partition_epoch=stat.version)

    async def delete_topic(self, topic: str) -> None:
        """Remove all nodes of a topic and the request to delete it."""
        try:
            numbers = await self._store.children(paths.partitions_path(topic))
            usual = [paths.state_path(topic, int(number)) for number in numbers]
            usual += [paths.partition_path(topic, int(number)) for number in numbers]
            usual += [paths.partitions_path(topic), paths.topic_path(topic)]
            usual += [paths.config_path("topics", topic), paths.delete_topic_path(topic)]
            await self._delete_all(usual)
        except (NoNode, NotEmpty, ValueError):
            # The topic's nodes are not as usual; find out which ones exist.
            nodes = await self._tree_below(paths.topic_path(topic))
            nodes.reverse()  # deepest first
            for path in (paths.config_path("topics", topic), paths.delete_topic_path(topic)):
                if await self._store.exists(path) is not None:
                    nodes.append(path)
            await self._delete_all(nodes)

    async def forget_deletion(self, topic: str) -> None:
        """Remove the request to delete a topic. Source: deleteTopicDeletions."""
        await self.remove_nodes([paths.delete_topic_path(topic)])

    async def remove_nodes(self, nodes: Sequence[str]) -> None:
        """Delete those of these nodes that exist."""

        async def remove(path: str) -> None:
            try:
                await self._fenced([Delete(path)])
            except NoNode:
                pass

        await asyncio.gather(*(remove(path) for path in nodes))

    async def replace_node(self, path: str, data: bytes) -> None:
        """Set the data of an existing node; a deleted node is not created again."""
        try:
            await self._fenced([SetData(path, data)])
        except NoNode:
            pass

    async def _delete_all(self, nodes: Sequence[str]) -> None:
        for chunk in in_chunks([], ([Delete(path)] for path in nodes)):
            await self._fenced(chunk)

    async def set_features(self, features: FinalizedFeatures) -> FinalizedFeatures:
        """Write the finalized features; with `features.epoch` -1, the node is created.

        Errors: NodeExists, BadVersion.
        """
        data = paths.encode_features(features)
        if features.epoch < 0:
            await self._fenced([Create(paths.FEATURE, data)])
            return features._replace(epoch=0)
        made = await self._fenced([SetData(paths.FEATURE, data, features.epoch)])
        return features._replace(epoch=stat_of(made[0]).version)

    async def _tree_below(self, path: str) -> list[str]:
        """A node and all its descendants, parents first."""
        found = [path] if await self._store.exists(path) is not None else []
        for parent in found:  # the list grows during the loop
            found += [f"{parent}/{name}" for name in await self._store.children(parent)]
        return found


def new_partition(topic: str, partition: int, state: LeaderAndIsr) -> list[Op]:
    """The ops that create a partition's nodes, the parent of the state first."""
    return [
        Create(paths.partition_path(topic, partition)),
        Create(paths.state_path(topic, partition), paths.encode_state(state)),
    ]


def in_chunks(first: list[Op], groups: Iterable[list[Op]]) -> list[list[Op]]:
    """Combine groups of ops that belong together into transactions within the stores' limits."""
    chunks = [first]
    size = sum(map(op_size, first))
    for group in groups:
        more = sum(map(op_size, group))
        if size + more > MULTI_BYTES and chunks[-1]:
            chunks.append([])
            size = 0
        chunks[-1] += group
        size += more
    return chunks if chunks[-1] else chunks[:-1]


def op_size(op: Op) -> int:
    """The approximate size of an op in a transaction, in bytes."""
    data = op.data if isinstance(op, Create | SetData) else None
    return OP_BYTES + len(op.path) + len(data or b"")
