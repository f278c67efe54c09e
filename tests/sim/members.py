"""Members of a consumer group (KIP-848) in the simulated cluster: no two live ones ever have the same partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kwire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from server.metadata.topic_partition import TopicPartition
from server.net.broker_channel import ChannelError

from .clients import Client
from .history import Violation

GROUP = "members"
#: The time for which a member certainly has the partitions in an answer: session timeout, and time to give partitions
#: up.
SESSION_S = 6.0
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
#: The time within which all members have their target assignments, once all faults are over.
SETTLED_S = 60.0

JOIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
TRY_AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Views:
    """The assignment in the last answer to each member, and until when its session certainly lasts."""

    def __init__(self) -> None:
        self.owned: dict[str, frozenset[TopicPartition]] = {}
        self.until: dict[str, float] = {}
        self.checks = 0

    def get(
        self, member_id: str, owned: frozenset[TopicPartition], asked: float, now: float
    ) -> None:
        """Record a member's answer to a request sent at a time. Errors: Violation."""
        self.until[member_id] = asked + SESSION_S
        self.checks += 1
        for other, theirs in self.owned.items():
            if other != member_id and now < self.until[other] and theirs & owned:
                raise Violation(
                    f"{member_id} was given {sorted(theirs & owned)}, which {other} still has"
                )
        self.owned[member_id] = owned

    def lose(self, member_id: str) -> None:
        """A member has no more partitions."""
        self.owned.pop(member_id, None)


class GroupMember(Client):
    """Joins, sends heartbeats, gives partitions up when told to, commits with its epoch, and sometimes leaves."""

    def __init__(
        self,
        *args: Any,
        views: Views,
        tps: list[TopicPartition],
        real_coordinator: Callable[[], int],
    ) -> None:
        super().__init__(*args)
        self.views = views
        self.real_coordinator = real_coordinator
        #: Until when the member keeps its partitions without an answer.
        self.until = 0.0
        self.tps = tps
        self.member_id = f"member-{self.id}"
        self.epoch = 0
        self.owned: frozenset[TopicPartition] = frozenset()
        self.known_coordinator = -1
        #: The last answer may have been lost: send the full state, so that the next answer has the full assignment.
        self.says_all = True

    async def run(self) -> None:
        """Be a member until told to stop; then continue until all members have settled."""
        while not self.stopping:
            await self._beat()
            if self.rng.random() < 0.2:
                await self._commit()
            if self.epoch > 0 and self.rng.random() < 0.03:
                await self._leave()
            await asyncio.sleep(0.3 + self.rng.random() * 0.4)

    async def verify(self) -> None:
        """After all faults: every partition has a member, and each as many as another."""
        loop = asyncio.get_running_loop()
        end = loop.time() + SETTLED_S
        while loop.time() < end:
            await self._beat()
            await asyncio.sleep(0.2)
            if self._is_settled():
                return
        raise Violation(f"the group has not settled: {self.views.owned}")

    def _is_settled(self) -> bool:
        live = self.views.owned
        given = [tp for owned in live.values() for tp in owned]
        return sorted(given) == sorted(self.tps)

    async def _ask(self, request: Any, version: int) -> Any:
        if self.known_coordinator < 0:
            self.known_coordinator = await self.coordinator(GROUP)
        try:
            return await self.ask(self.known_coordinator, request, version)
        except ChannelError:
            self.known_coordinator = -1
            return None

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        if self.epoch > 0 and asked >= self.until:
            self._lose()  # as a client does after no answer for this long
        while self.tps[0].topic not in self.topic_ids:
            await self.refresh()
        says_all, self.says_all = self.says_all or self.epoch == 0, True
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=int(SESSION_S * 1000) if says_all else -1,
            subscribed_topic_names=[self.tps[0].topic] if says_all else None,
            topic_partitions=self._rows(),
        )
        answer = await self._ask(request, 1)
        if answer is None:
            return
        error = ErrorCode(answer.error_code)
        if error in JOIN_AGAIN:
            self._lose()
        elif error in TRY_AGAIN:
            self.known_coordinator = -1
            await self.pause()
        elif error:
            raise Violation(f"{self.member_id}: {error.name} {answer.error_message}")
        else:
            self.epoch = answer.member_epoch
            self.says_all = False
            if answer.assignment is not None:
                names = {topic_id: name for name, topic_id in self.topic_ids.items()}
                self.owned = frozenset(
                    TopicPartition(names[row.topic_id], number)
                    for row in answer.assignment.topic_partitions
                    for number in row.partitions
                )
            self.until = asked + SESSION_S
            # A broker that was replaced without knowing it may confirm a session: nothing is written for that. It is not
            # known to the broker that replaced it, as with Apache Kafka.
            if self.known_coordinator == self.real_coordinator():
                self.views.get(self.member_id, self.owned, asked, loop.time())

    def _rows(self) -> list[TopicPartitions]:
        topic_id = self.topic_ids[self.tps[0].topic]
        numbers = [tp.partition for tp in sorted(self.owned)]
        return [TopicPartitions(topic_id=topic_id, partitions=numbers)] if numbers else []

    def _lose(self) -> None:
        self.epoch = 0
        self.owned = frozenset()
        self.views.lose(self.member_id)

    async def _commit(self) -> None:
        """Commit with the member's epoch; only its own partitions may be taken."""
        if self.epoch <= 0 or not self.owned:
            return
        rows = [
            OffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=1)
            for tp in sorted(self.owned)
        ]
        topic = OffsetCommitRequestTopic(name=self.tps[0].topic, partitions=rows)
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id_or_member_epoch=self.epoch,
            topics=[topic],
        )
        await self._ask(request, 9)

    async def _leave(self) -> None:
        self.views.lose(self.member_id)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=-1
        )
        await self._ask(request, 1)
        self._lose()
