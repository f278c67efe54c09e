"""Drives a shard with consumer groups: the machine of classic groups, and topics, heartbeats and effects."""

from __future__ import annotations

from typing import Any

from kwire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from server.coordinator.common.result import Result
from server.coordinator.group.consumer.draft import ResolveRegexes
from server.coordinator.group.consumer.group import ConsumerGroup
from server.coordinator.group.modern.context import GroupClient, GroupSettings, Metadata
from server.coordinator.group.modern.draft import AssignTarget
from server.coordinator.group.modern.topic_hash import TopicHashes
from server.coordinator.group.shard import GroupShard
from server.coordinator.group.topic_matches import TopicMatches
from server.metadata.image import MetadataImage, PartitionImage, TopicImage
from server.turns import exhaust
from tests.coordinator.machine import GROUP, GroupMachine

SESSION_MS = 45_000
REBALANCE_MS = 60_000


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def topic(name: str, partitions: int) -> TopicImage:
    return TopicImage(
        name,
        topic_id(name),
        {number: PartitionImage(number, 1, 0, (1,), (1,)) for number in range(partitions)},
    )


class ConsumerMachine(GroupMachine):
    """A shard that knows topics `foo` (6 partitions) and `bar` (3).

    Shape: without an interval between targets, unless the test sets one. The coordinator's work outside of the machine
    is done immediately, unless `hold_effects` is set.
    """

    def __init__(self, **config: Any) -> None:
        self.image = MetadataImage().with_topics([topic("foo", 6), topic("bar", 3)])
        self.matches = TopicMatches()
        self.hold_effects = False
        self.hashes = TopicHashes()
        super().__init__(**{"consumer_assignment_interval_ms": 0, **config})

    def new_shard(self) -> GroupShard:
        return GroupShard(
            0,
            self.config,
            metadata=Metadata(
                lambda: self.image,
                self.hashes,
                lambda group_id, kind: GroupSettings.of(self.config, kind),
            ),
        )

    def apply(self, result: Result[Any]) -> None:
        super().apply(result)
        while self.effects and not self.hold_effects:
            self.work(self.effects.pop(0))

    def work(self, effect: AssignTarget | ResolveRegexes) -> None:
        """Do the coordinator's work outside of the machine."""
        consumer = self.shard.consumer
        if isinstance(effect, AssignTarget):
            self.apply(consumer.target_assigned(effect, exhaust(effect.steps), self.now))
            return
        steps = self.matches.steps(effect.regexes, effect.may_describe, self.image.topics)
        self.apply(
            consumer.regexes_resolved(effect, exhaust(steps), self.image, self.now, self.now)
        )

    def add_topics(self, *topics: TopicImage) -> None:
        self.image = self.image.with_topics(topics)

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def state(self) -> Any:
        """The state of the group, of either kind."""
        return self.shard.groups[GROUP].state

    def send(
        self, member: str, epoch: int, *, version: int = 1, denied: str = "", **fields: Any
    ) -> int:
        """Send a heartbeat; return its token."""
        token = self.token()
        fields.setdefault("group_id", GROUP)
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=topic_id(name), partitions=list(some))
                for name, some in owned.items()
            ]
        if epoch == 0:
            fields = {
                "rebalance_timeout_ms": REBALANCE_MS,
                "topic_partitions": [],
                "subscribed_topic_names": ["foo"],
                **fields,
            }
        request = ConsumerGroupHeartbeatRequest(member_id=member, member_epoch=epoch, **fields)
        client = GroupClient(
            "client", "/127.0.0.1", version, lambda name: name != denied, self.account
        )
        self.apply(self.shard.consumer.consumer_heartbeat(request, client, token, self.now))
        return token

    def beat(self, member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat and return its answer."""
        answer = self.answers[self.send(member, epoch, **fields)]
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer


def assigned(answer: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """The partitions in an answer, by topic; None if it has no assignment."""
    if answer.assignment is None:
        return None
    return {
        row.topic_id.rstrip(b"\0").decode(): row.partitions
        for row in answer.assignment.topic_partitions
    }
