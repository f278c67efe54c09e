"""Drives a shard with share groups: heartbeats, and share coordinators that agree immediately."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from server.coordinator.group.modern.context import GroupClient
from server.coordinator.group.modern.draft import AssignTarget
from server.coordinator.group.share.group import ShareGroup
from server.coordinator.group.share.states import InitializeStates
from server.coordinator.group.stored import decode_record
from server.coordinator.share_state.rows import StateOutcome
from server.turns import exhaust
from tests.coordinator.consumer_group.group_machine import ConsumerMachine, topic_id
from tests.coordinator.machine import GROUP

SESSION_MS = 45_000
RETRY_MS = 30_000


class ShareMachine(ConsumerMachine):
    """A shard that knows topics `foo` (6 partitions) and `bar` (3).

    Shape: without an interval between targets, unless the test sets one. `asked` are the states that were requested
    from share coordinators; they agree immediately, or refuse with `state_error`, unless `hold_effects` is set.
    """

    def __init__(self, **config: Any) -> None:
        self.asked: list[InitializeStates] = []
        self.state_error = ErrorCode.NONE
        super().__init__(**{"share_assignment_interval_ms": 0, **config})

    def work(self, effect: Any) -> None:
        """Do the coordinator's work outside of the machine."""
        if isinstance(effect, AssignTarget):
            self.apply(self.shard.target_assigned(effect, exhaust(effect.steps), self.now))
            return
        assert isinstance(effect, InitializeStates)
        self.asked.append(effect)
        rows = [StateOutcome(row.topic_id, row.partition, self.state_error) for row in effect.rows]
        self.apply(self.shard.share.states_made(effect.group_id, rows, self.now))

    def initialized_lately(self) -> dict[str, list[int]]:
        """The last requests to the share coordinators, by topic."""
        found: dict[str, list[int]] = {}
        for row in self.asked[-1].rows:
            found.setdefault(name(row.topic_id), []).append(row.partition)
        return found

    @property
    def share(self) -> ShareGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def send_share(self, member: str, epoch: int, *topics: str, **fields: Any) -> int:
        """Send a heartbeat; return its token. Without topics, it does not contain a subscription."""
        token = self.token()
        request = ShareGroupHeartbeatRequest(
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=list(topics) or None,
            **{"group_id": GROUP, **fields},
        )
        client = GroupClient("client", "/127.0.0.1", 1, lambda name: True, self.account)
        self.apply(self.shard.share.share_heartbeat(request, client, token, self.now))
        return token

    def share_beat(
        self, member: str, epoch: int, *topics: str, **fields: Any
    ) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat and return its answer."""
        answer = self.answers[self.send_share(member, epoch, *topics, **fields)]
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        return answer

    def settle(self, *members: str) -> None:
        """Let members send heartbeats until nothing changes."""
        for _ in range(3):
            for member in members:
                answer = self.share_beat(member, self.share.members[member].member_epoch)
                assert answer.error_code == 0

    def has(self, member: str) -> dict[str, list[int]]:
        """A member's partitions, by topic."""
        return by_name(self.share.members[member].assigned)

    def sharing(self) -> Counter[tuple[str, int]]:
        """The number of members that have each partition."""
        return Counter(
            (topic, number)
            for member in self.share.members
            for topic, some in self.has(member).items()
            for number in some
        )

    def written_share(self, since: int) -> list[Any]:
        """The records of batches that were committed since then."""
        return [
            decode_record(key, value) for batch in self.log[since:] for key, value in batch.stored
        ]


def name(of: bytes) -> str:
    return of.rstrip(b"\0").decode()


def by_name(partitions: Any) -> dict[str, list[int]]:
    return {name(each): sorted(some) for each, some in partitions.items()}


def given(answer: ShareGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """The partitions in an answer, by topic; None if it has no assignment."""
    if answer.assignment is None:
        return None
    return {name(row.topic_id): row.partitions for row in answer.assignment.topic_partitions}


__all__ = ["GROUP", "topic_id"]
