"""Stores and reads offsets of a consumer group without joining it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

Settings = Mapping[str, str | int | float | bool]

#: For a client that never joins a group.
_ALONE: Settings = {
    "enable.auto.commit": False,
    # How long a request waits for a coordinator before it fails.
    "coordinator.query.interval.ms": 1000,
    # How long closing waits for an unreachable broker.
    "session.timeout.ms": 2000,
    "heartbeat.interval.ms": 500,
}


class Committed(NamedTuple):
    """An offset, and its metadata string."""

    offset: int
    metadata: str | None


def committed(
    settings: Settings,
    group: str,
    places: Iterable[tuple[str, int]],
    timeout_s: float,
    logger: object,
) -> dict[tuple[str, int], Committed]:
    """What a group has committed for these (topic, partition), without offsets of open transactions.

    Uses a consumer, for the same reason as Committer. Raises KafkaException if refused or not answered in time.
    """
    asked = [TopicPartition(*place) for place in places]
    if not asked:
        return {}
    # With read_committed the request would wait for transactions that a killed process left open.
    own: Settings = {"group.id": group, "isolation.level": "read_uncommitted"}
    consumer = Consumer({**settings, **_ALONE, **own}, logger=logger)
    try:
        answers = consumer.committed(asked, timeout_s)
    finally:
        consumer.close()
    for place in answers:
        if place.error is not None and place.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(place.error)
    return {
        (place.topic, place.partition): Committed(place.offset, place.metadata)
        for place in answers
        if place.offset >= 0
    }


class OffsetCommitter:
    """A consumer that only commits.

    AdminClient could do it too, but its requests to a group's coordinator abort the whole process if the broker goes away
    before it answers (librdkafka 2.16, https://github.com/confluentinc/librdkafka/issues/4605).
    """

    def __init__(self, settings: Settings, group: str, logger: object) -> None:
        self._asked = 0
        self._answers: list[KafkaError | None] = []
        self._consumer = Consumer(
            {**settings, **_ALONE, "group.id": group, "on_commit": self._answered},
            logger=logger,
        )

    def _answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._answers.append(error or next((p.error for p in places if p.error), None))

    def commit(self, offsets: Mapping[tuple[str, int], int], timeout_s: float) -> None:
        """Store offsets of (topic, partition). Raises KafkaException if refused or not answered in time."""
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        self._consumer.commit(offsets=places, asynchronous=True)
        self._asked += 1
        deadline = time.monotonic() + timeout_s
        # Answers, even late ones, come in the order of the requests.
        while len(self._answers) < self._asked:
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            self._consumer.poll(0.05)
        if self._answers[-1] is not None:
            raise KafkaException(self._answers[-1])

    def close(self) -> None:
        """End the client's threads."""
        self._consumer.close()
