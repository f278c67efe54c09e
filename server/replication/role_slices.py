"""Splits long requests of the controller into slices, so that other work gets its turn in between.

A new partition costs about half a millisecond: its log is a directory with four files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from copy import copy
from typing import Protocol

from kwire.errors import ErrorCode
from kwire.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from kwire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)

#: The number of partitions that change their roles, or are stopped, before other work gets its turn.
AT_ONCE = 32


class LocalReplicas(Protocol):
    """The replicas of this broker, which the controller reaches without a network."""

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, *, more_follows: bool = False
    ) -> LeaderAndIsrResponse:
        """Take roles; with `more_follows`, more roles follow immediately."""
        ...

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop, and maybe delete, replicas."""
        ...


#: Lets other work run first.
Pause = Callable[[], Awaitable[None]]
#: The error with which the rest of a request is refused, or NONE.
Refusal = Callable[[], ErrorCode]


def _never() -> ErrorCode:
    return ErrorCode.NONE


async def take_roles(
    replicas: LocalReplicas,
    request: LeaderAndIsrRequest,
    topics: Iterable[LeaderAndIsrTopicState],
    pause: Pause,
    refusal: Refusal = _never,
) -> LeaderAndIsrResponse:
    """Take the roles of these topics, a few at a time; the other fields of the request apply to all of them.

    Shape: the errors are both by name and by topic id. Errors: that of `refusal`, which is checked before each slice,
    or STALE_CONTROLLER_EPOCH if a newer controller sends a request in the meantime; roles that were taken before
    remain.
    """
    whole = LeaderAndIsrResponse(partition_errors=[], topics=[])
    slices = list(some_roles(topics)) or [[]]
    for number, some in enumerate(slices):
        if number:
            await pause()
        if error := refusal():
            return LeaderAndIsrResponse(error_code=error)
        part = copy(request)
        part.topic_states, part.ungrouped_partition_states = some, []
        answer = replicas.become_leader_or_follower(part, more_follows=number < len(slices) - 1)
        if answer.error_code:
            return answer
        whole.partition_errors += answer.partition_errors
        whole.topics += answer.topics
    return whole


async def stop_replicas(
    replicas: LocalReplicas,
    request: StopReplicaRequest,
    topics: Iterable[StopReplicaTopicState],
    pause: Pause,
    refusal: Refusal = _never,
) -> StopReplicaResponse:
    """Stop the partitions of these topics, a few at a time: each deletion renames a directory on disk.

    Errors: as in `take_roles`.
    """
    rows: list[StopReplicaPartitionError] = []
    for number, some in enumerate(list(some_stops(topics)) or [[]]):
        if number:
            await pause()
        if error := refusal():
            return StopReplicaResponse(error_code=error)
        part = copy(request)
        part.topic_states = some
        answer = replicas.stop_replicas(part)
        if answer.error_code:
            return answer
        rows += answer.partition_errors
    return StopReplicaResponse(partition_errors=rows)


def some_roles(
    topics: Iterable[LeaderAndIsrTopicState],
) -> Iterator[list[LeaderAndIsrTopicState]]:
    """Split the topics of a LeaderAndIsr request into slices of few partitions."""
    taken: list[LeaderAndIsrTopicState] = []
    room = AT_ONCE
    for topic in topics:
        states = topic.partition_states
        position = 0
        while position < len(states):
            piece = states[position : position + room]
            taken.append(
                LeaderAndIsrTopicState(
                    topic_name=topic.topic_name, topic_id=topic.topic_id, partition_states=piece
                )
            )
            position += len(piece)
            room -= len(piece)
            if not room:
                yield taken
                taken, room = [], AT_ONCE
    if taken:
        yield taken


def some_stops(topics: Iterable[StopReplicaTopicState]) -> Iterator[list[StopReplicaTopicState]]:
    """Split the topics of a StopReplica request into slices of few partitions."""
    for topic in topics:
        states = topic.partition_states
        for position in range(0, len(states), AT_ONCE):
            yield [
                StopReplicaTopicState(
                    topic_name=topic.topic_name,
                    partition_states=states[position : position + AT_ONCE],
                )
            ]
