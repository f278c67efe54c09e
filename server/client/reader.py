"""Reads partitions with kwire's own codec: while records are printed, the next Fetch to the leader is in flight.

Source: KIP-74 (limits of a Fetch), KIP-98 (aborted transactions), KIP-392 (replicas nearby); Fetcher (Java).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kwire.errors import ErrorCode, WireError
from kwire.records.batch import RecordBatch

from .brokers import Brokers
from .contact import RETRY_S
from .errors import ClientError, Unavailable, is_passing, words_of
from .fetches import Fetches
from .leaders import Leaders
from .requests import (
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    Limits,
    Partition,
    fetch_request,
)
from .visibility import aborted_in, batches_of, visible

#: How long a nearby replica is read before the leader is asked again. Source: metadata.max.age.ms.
REPLICA_S = 300.0
NEVER = float("inf")


class ReadRecords(NamedTuple):
    """The data received from a partition. Shape: records before `begin` were not requested; `next_offset` follows the
    last.
    """

    partition: Partition
    begin: int
    next_offset: int
    batches: list[RecordBatch]


class Trouble(NamedTuple):
    """The reason that a partition cannot be read. Unit: `since` in seconds."""

    since: float
    said: str


class Reader:
    """Reads partitions of topics. Errors: ClientError for permanent errors."""

    def __init__(
        self,
        brokers: Brokers,
        topics: Iterable[str],
        *,
        isolation: int = READ_UNCOMMITTED,
        limits: Limits | None = None,
        rack: str = "",
        request_timeout_ms: int = 30_000,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.positions: dict[Partition, int] = {}
        """The next offset of each partition that is read."""
        self._ends: dict[Partition, int] = {}
        self._brokers = brokers
        self._isolation = isolation
        self._limits = limits or Limits()
        self._rack = rack
        self._now = now
        self._replicas: dict[Partition, tuple[int, float]] = {}
        self._fetches = Fetches(brokers, request_timeout_ms / 1000, now)
        self._troubles: dict[Partition, Trouble] = {}
        self._look_again = NEVER
        self.leaders = Leaders(brokers, topics, isolation, now)

    def close(self) -> None:
        """Close the connections."""
        self._fetches.close()

    def read(self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
        """Read these partitions from now on, up to their ends if they have any; answers in flight are dropped."""
        self.positions = dict(positions)
        self._ends = dict(ends)
        self._troubles = {tp: self._troubles[tp] for tp in positions if tp in self._troubles}

    @property
    def is_done(self) -> bool:
        """Whether every partition has been read to its end."""
        return all(
            tp in self._ends and position >= self._ends[tp]
            for tp, position in self.positions.items()
        )

    @property
    def left(self) -> int:
        """The number of offsets up to the ends."""
        return sum(max(0, end - self.positions[tp]) for tp, end in self._ends.items())

    @property
    def trouble(self) -> tuple[float, str] | None:
        """The longest time for which a partition has been unreadable, and the reason; None if all can be read."""
        if not self._troubles:
            return None
        (topic, number), (since, said) = min(self._troubles.items(), key=lambda item: item[1].since)
        return since, f"{topic}-{number}: {said}"

    def poll(self, timeout_s: float) -> list[ReadRecords]:
        """Wait for records up to a time limit; there may be none. Errors: ClientError."""
        if self._now() >= self._look_again:
            self._recover()
        for node in self._nodes() - self._fetches.asked.keys():
            self._send(node)
        chunks: list[ReadRecords] = []
        ready, overdue = self._fetches.ready(timeout_s)
        for node in overdue:
            self._lost(node, f"{self._brokers.place(node)}: no answer")
        for node in ready:
            some = self._take(node)
            chunks += some
            if some:
                self._send(node)
        return chunks

    def _nodes(self) -> set[int]:
        return {self._node_of(tp) for tp in self.positions if self._is_open(tp)} - {-1}

    def _is_open(self, tp: Partition) -> bool:
        end = self._ends.get(tp)
        return end is None or self.positions[tp] < end

    def _node_of(self, tp: Partition) -> int:
        """The broker from which to read a partition, -1 if there is none now."""
        if tp in self._replicas:
            node, until = self._replicas[tp]
            if self._now() < until:
                return node
            del self._replicas[tp]
        return self.leaders.by_partition.get(tp, -1)

    def _send(self, node: int) -> None:
        """Send a Fetch to a broker, if any partition is read from it."""
        positions = {
            tp: position
            for tp, position in self.positions.items()
            if self._is_open(tp) and self._node_of(tp) == node
        }
        if not positions:
            return
        request = fetch_request(positions, self._limits, self._isolation, self._rack)
        try:
            self._fetches.send(node, request, positions)
        except Unavailable as error:
            self._lost(node, str(error))

    def _take(self, node: int) -> list[ReadRecords]:
        """Process the answer of a broker."""
        try:
            positions, response = self._fetches.receive(node)
        except Unavailable as error:
            self._lost(node, str(error))
            return []
        chunks = []
        for topic in response.responses:
            for row in topic.partitions:
                tp = (topic.topic, row.partition_index)
                position = positions.get(tp)
                # If reading has been moved elsewhere, this answer is of no use.
                if position is not None and self.positions.get(tp) == position:
                    chunk = self._chunk(tp, position, response.error_code or row.error_code, row)
                    if chunk is not None:
                        chunks.append(chunk)
        return chunks

    def _chunk(self, tp: Partition, position: int, error: int, row: Any) -> ReadRecords | None:
        """The chunk in a row of a Fetch. Errors: ClientError."""
        topic, number = tp
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._replicas.pop(tp, None) is None:
                self._back_into_range(tp)
            return None
        if error:
            if not is_passing(error):
                raise ClientError(f"{topic}-{number}: {words_of(error)}")
            self._replicas.pop(tp, None)
            self._wait(tp, words_of(error))
            return None
        self._troubles.pop(tp, None)
        if self._rack and row.preferred_read_replica >= 0:
            self._replicas[tp] = (row.preferred_read_replica, self._now() + REPLICA_S)
        try:
            batches = batches_of(row)
        except WireError as damage:
            raise ClientError(
                f"{topic}-{number}: damaged after offset {position}: {damage}"
            ) from None
        if not batches:
            return None
        next_offset = max(batches[-1].header.next_offset, position)
        # A partition that returned records comes after the others in the next request.
        del self.positions[tp]
        self.positions[tp] = next_offset
        shown = list(visible(batches, aborted_in(row)))
        return ReadRecords(tp, position, min(next_offset, self._ends.get(tp, next_offset)), shown)

    def _back_into_range(self, tp: Partition) -> None:
        """Continue at the nearest existing offset."""
        topic, number = tp
        position = self.positions[tp]
        first = self.leaders.offsets_at([tp], EARLIEST).get(tp, 0)
        if position < first:
            said = f"offsets {position} to {first - 1} were deleted; continuing at {first}"
            self.positions[tp] = first
        else:
            end = self.leaders.offsets_at([tp], LATEST).get(tp, first)
            if end >= position:  # the new leader, a former follower, has caught up
                return
            said = f"offset {position} is beyond the end; continuing at {end}"
            self.positions[tp] = end
        self._brokers.note(f"{topic}-{number}: {said}")

    # -- trouble

    def _lost(self, node: int, said: str) -> None:
        """Close the connection to a broker; new brokers are searched for its partitions."""
        self._fetches.drop(node)
        for tp in [tp for tp in self.positions if self._node_of(tp) == node]:
            self._replicas.pop(tp, None)
            self._wait(tp, said)

    def _wait(self, tp: Partition, said: str) -> None:
        """Search for a partition's broker again, in a moment."""
        now = self._now()
        begun = self._troubles[tp].since if tp in self._troubles else now
        self._troubles[tp] = Trouble(begun, said)
        self._look_again = min(self._look_again, now + RETRY_S)

    def _recover(self) -> None:
        """Find the current leaders. Errors: ClientError."""
        self._look_again = NEVER
        try:
            self.leaders.learn()
        except Unavailable as failure:
            for tp in self._troubles:
                self._wait(tp, str(failure))
        for tp in self.positions:
            if self._node_of(tp) < 0:
                gone = all(tp[0] != topic for topic, _ in self.leaders.by_partition)
                self._wait(
                    tp, words_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if gone else "no leader"
                )
