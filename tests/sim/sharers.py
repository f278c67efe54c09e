"""Members of a share group (KIP-932) in the simulated cluster: accepted records stay accepted, and none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kwire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kwire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from kwire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from server.metadata.topic_partition import TopicPartition
from server.net.broker_channel import ChannelError

from .clients import Client
from .history import Violation

GROUP = "sharers"
SETTINGS = {
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.initialize.retry.interval.ms": "5000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.delivery.count.limit": "10",
    "share.coordinator.state.topic.num.partitions": "3",
}
#: The time in which all records have been accepted, once all is well.
SETTLED_S = 90.0

ACCEPT, RELEASE = 1, 2
JOIN_AGAIN = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class Deliveries:
    """What members of the group were told.

    Shape: `accepted` maps an offset of a partition to when a leader answered that it is accepted, and that leader's
    epoch; `seen` counts how often a member was given it.
    """

    def __init__(self) -> None:
        self.accepted: dict[tuple[TopicPartition, int], tuple[float, int]] = {}
        self.seen: dict[tuple[TopicPartition, int], int] = {}
        #: Records that may have been accepted: a member sent the request and got no answer.
        self.perhaps: set[tuple[TopicPartition, int]] = set()
        self.begun = False

    def give(self, tp: TopicPartition, offset: int, asked: float, leader_epoch: int) -> None:
        """A member got a record for a request that it sent at a time to the leader of an epoch. Errors: Violation.

        Shape: an earlier leader, which does not know yet that it is replaced, may deliver again what it has in
        memory; it can accept nothing.
        """
        key = tp, offset
        self.seen[key] = self.seen.get(key, 0) + 1
        at, by = self.accepted.get(key, (asked, -1))
        if at < asked and by <= leader_epoch:
            raise Violation(f"{tp}: offset {offset} was delivered again after it was accepted")

    def accept(self, tp: TopicPartition, offset: int, now: float, leader_epoch: int) -> None:
        """Record that a member was told that a record is accepted. Errors: Violation, if it was accepted before."""
        at, by = self.accepted.setdefault((tp, offset), (now, leader_epoch))
        if (at, by) != (now, leader_epoch):
            raise Violation(f"{tp}: offset {offset} was accepted in epochs {by} and {leader_epoch}")


class Sharer(Client):
    """Joins, takes records, accepts most of them, and sometimes leaves without a word."""

    def __init__(self, *args: Any, deliveries: Deliveries, tps: list[TopicPartition]) -> None:
        super().__init__(*args)
        self.deliveries = deliveries
        self.tps = tps
        self.member_id = f"sharer-{self.id}"
        self.epoch = 0
        self.assigned: list[TopicPartition] = []
        self.known_coordinator = -1

    async def run(self) -> None:
        """Be a member until told to stop."""
        while not self.stopping:
            await self._turn()
            if self.epoch > 0 and self.rng.random() < 0.03:
                self.member_id += "x"  # the old one is silent from now on
                self.epoch = 0
                self.assigned = []

    async def verify(self) -> None:
        """Check after all faults that every committed record has been accepted."""
        loop = asyncio.get_running_loop()
        end = loop.time() + SETTLED_S
        while loop.time() < end:
            await self._turn()
            if not self._missing():
                return
        missing = self._missing()
        seen = {key: self.deliveries.seen.get(key, 0) for key in missing[:5]}
        raise Violation(f"{len(missing)} records were never accepted, such as {seen}")

    def _missing(self) -> list[tuple[TopicPartition, int]]:
        accepted, perhaps = self.deliveries.accepted, self.deliveries.perhaps
        wanted = ((tp, offset) for (tp, _), offset in self.history.acknowledged.items())
        return [
            key
            for key in wanted
            if key[0] in self.tps and key not in accepted and key not in perhaps
        ]

    async def _turn(self) -> None:
        if not self.deliveries.begun:
            await self._begin()
        else:
            await self._beat()
            for tp in self.assigned:
                await self._consume(tp)
        await asyncio.sleep(0.1 + self.rng.random() * 0.4)

    async def _ask(self, request: Any, version: int) -> Any:
        if self.known_coordinator < 0:
            self.known_coordinator = await self.coordinator(GROUP)
        try:
            return await self.ask(self.known_coordinator, request, version)
        except ChannelError:
            self.known_coordinator = -1
            return None

    async def _begin(self) -> None:
        """Have the group begin with the first record of each partition."""
        while self.tps[0].topic not in self.topic_ids:
            await self.refresh()
        rows = [
            AlterShareGroupOffsetsRequestPartition(partition_index=tp.partition, start_offset=0)
            for tp in self.tps
        ]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=self.tps[0].topic, partitions=rows)
        request = AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])
        answer = await self._ask(request, 0)
        if answer is None:
            return
        failed = [row.error_code for each in answer.responses for row in each.partitions]
        if answer.error_code or any(failed):
            self.known_coordinator = -1
            # The answer to another one's request may have been lost, and a member be there already.
            self.deliveries.begun = answer.error_code == ErrorCode.NON_EMPTY_GROUP
            await self.pause()
        else:
            self.deliveries.begun = True

    async def _beat(self) -> None:
        joins = self.epoch == 0
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=[self.tps[0].topic],
        )
        answer = await self._ask(request, 1)
        if answer is None:
            return
        error = ErrorCode(answer.error_code)
        if error in JOIN_AGAIN:
            if joins and error is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise Violation(f"{self.member_id} joins: {error.name} {answer.error_message}")
            self.epoch = 0
            self.assigned = []
        elif error:
            self.known_coordinator = -1
            await self.pause()
        else:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                names = {topic_id: name for name, topic_id in self.topic_ids.items()}
                self.assigned = [
                    TopicPartition(names[row.topic_id], number)
                    for row in answer.assignment.topic_partitions
                    for number in row.partitions
                ]

    async def _consume(self, tp: TopicPartition) -> None:
        """Acquire records of a partition, in a separate session, and acknowledge them."""
        loop = asyncio.get_running_loop()
        leader = await self.leader(tp)
        leader_epoch = self.epochs[tp]
        topic_id = self.topic_ids[tp.topic]
        asked = loop.time()
        partition = FetchPartition(partition_index=tp.partition)
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=0,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=100,
            batch_size=100,
            topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        try:
            answer = await self.ask(leader, request, 1)
        except ChannelError:
            self.leaders.clear()
            return
        acquired: list[tuple[int, int]] = []
        for topic in answer.responses:
            for row in topic.partitions:
                if row.error_code:
                    self.leaders.clear()
                acquired += ((each.first_offset, each.last_offset) for each in row.acquired_records)
        if not acquired:
            return
        for first, last in acquired:
            for offset in range(first, last + 1):
                self.deliveries.give(tp, offset, asked, leader_epoch)
        if self.rng.random() < 0.05:
            return  # the locks expire
        kind = RELEASE if self.rng.random() < 0.05 else ACCEPT
        await self._acknowledge(tp, leader, leader_epoch, acquired, kind)

    async def _acknowledge(
        self,
        tp: TopicPartition,
        leader: int,
        leader_epoch: int,
        acquired: list[tuple[int, int]],
        kind: int,
    ) -> None:
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last in acquired
        ]
        row = AcknowledgePartition(partition_index=tp.partition, acknowledgement_batches=batches)
        topic = AcknowledgeTopic(topic_id=self.topic_ids[tp.topic], partitions=[row])
        request = ShareAcknowledgeRequest(
            group_id=GROUP, member_id=self.member_id, share_session_epoch=1, topics=[topic]
        )
        keys = [(tp, each) for first, last in acquired for each in range(first, last + 1)]
        try:
            answer = await self.ask(leader, request, 1)
        except ChannelError:
            self.leaders.clear()
            if kind is ACCEPT:
                self.deliveries.perhaps.update(keys)
            return
        errors = [row.error_code for each in answer.responses for row in each.partitions]
        if answer.error_code or not errors or kind is not ACCEPT:
            return
        if any(errors):
            self.deliveries.perhaps.update(keys)
            return
        now = asyncio.get_running_loop().time()
        for key in keys:
            self.deliveries.accept(*key, now, leader_epoch)
