"""How far a replay is, by what is committed: the positions of its source partitions, and a line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from .cluster import Cluster, reason, silent
from .problems import Problem
from .replay_plan import Job, Position, Task
from .replay_writer import other_replay

#: Seconds for a group's offsets; the first group of a cluster waits until the topic for them has been made.
GROUP_S = 60.0
#: Seconds between two lines.
INTERVAL_S = 2.0


class Positions:
    """Reads the positions of a replay's source partitions."""

    def __init__(self, cluster: Cluster, job: Job, tasks: Sequence[Task]) -> None:
        self._admin = AdminClient(cluster.settings(log_level=0), logger=silent())
        self._job = job
        self.tasks = tasks

    def read(self) -> list[Position | None]:
        """What is committed of each task, None where nothing is. Raises Problem for what another replay committed."""
        asked: list[tuple[str, Task, Future[Any]]] = []
        for task in self.tasks:
            group = self._job.group(task.source.topic, task.source.partition)
            (answer,) = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=GROUP_S
            ).values()
            asked.append((group, task, answer))
        return [self._position(*one) for one in asked]

    def _position(self, group: str, task: Task, answer: Future[Any]) -> Position | None:
        try:
            places = answer.result().topic_partitions
        except KafkaException as error:
            raise Problem(f"cannot read offsets of group {group}: {reason(error)}") from error
        found = None
        for place in places:
            if place.offset == OFFSET_INVALID:
                continue
            try:
                position = Position.of(place.offset, place.metadata)
            except ValueError as error:
                raise Problem(f"group {group} is in use: {error}; choose another --name") from error
            if position.digest != self._job.digest:
                raise Problem(other_replay(self._job.name))
            if (place.topic, place.partition) == (task.target.topic, 0):
                found = position
        return found

    def left(self, found: Sequence[Position | None]) -> list[int]:
        """How many offsets are still to be replayed of each task."""
        return [
            max(0, task.end - (task.start if position is None else position.offset))
            for task, position in zip(self.tasks, found, strict=True)
        ]


def line(
    positions: Positions, found: Sequence[Position | None], before: int, seconds: float
) -> str:
    """`12,000 records, 61 %, 5,321/s, 2 of 4 partitions done`; `before` of the records came in other runs."""
    left = positions.left(found)
    whole = sum(task.end - task.start for task in positions.tasks)
    share = 100 * (whole - sum(left)) // whole if whole else 100
    records = sum(position.records for position in found if position is not None)
    rate = (records - before) / seconds if seconds > 0 else 0.0
    done = left.count(0)
    return f"{records:,} records, {share} %, {rate:,.0f}/s, {done} of {len(left)} partitions done"


@contextmanager
def shown(positions: Positions, before: Sequence[Position | None]) -> Iterator[None]:
    """Print a line on standard error from time to time, while a replay runs."""
    ended = threading.Event()
    first = sum(position.records for position in before if position is not None)

    def show() -> None:
        at = time.monotonic()
        last = first
        while not ended.wait(INTERVAL_S):
            try:
                found = positions.read()
            except Problem as problem:
                # The tasks know whether this matters.
                print(f"  {problem}", file=sys.stderr, flush=True)
                continue
            now = time.monotonic()
            records = sum(position.records for position in found if position is not None)
            if records > last:
                print(f"  {line(positions, found, last, now - at)}", file=sys.stderr, flush=True)
            last, at = records, now

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
