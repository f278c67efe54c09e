"""Long requests of the controller in slices, so that others get their turn while roles are taken.

A new partition costs about half a millisecond: its log is a directory with four files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kwire.messages.leader_and_isr import LeaderAndIsrTopicState
from kwire.messages.stop_replica import StopReplicaTopicState

#: How many partitions take their roles, or are stopped, before others get their turn.
AT_ONCE = 32


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
