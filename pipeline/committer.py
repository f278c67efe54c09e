"""Stores offsets for a consumer group without joining it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition


class Committer:
    """A consumer that only commits.

    AdminClient could do it, too, but its requests to a group's coordinator abort the whole process when the broker goes
    away meanwhile (librdkafka 2.16, https://github.com/confluentinc/librdkafka/issues/4605).
    """

    def __init__(
        self, settings: Mapping[str, str | int | float | bool], group: str, logger: object
    ) -> None:
        self._asked = 0
        self._answers: list[KafkaError | None] = []
        self._consumer = Consumer(
            {
                **settings,
                "group.id": group,
                "enable.auto.commit": False,
                # How long a commit waits for a coordinator at most before it fails.
                "coordinator.query.interval.ms": 1000,
                # It never joins; so long does closing wait for a broker that is away.
                "session.timeout.ms": 2000,
                "heartbeat.interval.ms": 500,
                "on_commit": self._answered,
            },
            logger=logger,
        )

    def _answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._answers.append(error or next((p.error for p in places if p.error), None))

    def commit(self, offsets: Mapping[tuple[str, int], int], timeout_s: float) -> None:
        """Store offsets of (topic, partition). Raises KafkaException when refused, or not answered in time."""
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        self._consumer.commit(offsets=places, asynchronous=True)
        self._asked += 1
        deadline = time.monotonic() + timeout_s
        # Answers come in the order of the questions, late ones too.
        while len(self._answers) < self._asked:
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            self._consumer.poll(0.05)
        if self._answers[-1] is not None:
            raise KafkaException(self._answers[-1])

    def close(self) -> None:
        """End the client's threads."""
        self._consumer.close()
