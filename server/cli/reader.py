"""Reads partitions with kwire's own codec: while records are printed, the next Fetch to the leader is in flight.

Source: KIP-74 (limits of a Fetch), KIP-98 (aborted transactions), KIP-392 (replicas nearby); Fetcher (Java).
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kwire.errors import ErrorCode, WireError
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.records.batch import RecordBatch, iter_batches

from ..explain.asking import (
    CONSUMER,
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    Unavailable,
    metadata_of,
    partitions_of,
    words_of,
)
from .brokers import PATIENCE_S, RETRY_S, Brokers, version_for
from .client import CommandError
from .contact import Wire, reason
from .positions import Partition

#: The last version in which topics are identified by name; version 13 uses ids.
MAX_FETCH_VERSION = 12
#: How long a nearby replica is read before the leader is asked again. Source: metadata.max.age.ms.
REPLICA_S = 300.0
NEVER = float("inf")


class Limits(NamedTuple):
    """The limits of a Fetch. Unit: bytes and ms. Source: the defaults of Apache Kafka's consumer."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_bytes: int = 1024 * 1024


class Chunk(NamedTuple):
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


class Asked(NamedTuple):
    """A Fetch in flight. Unit: `since` in seconds."""

    positions: dict[Partition, int]
    since: float


# -- rules, pure -----------------------------------------------------------------------------------


def visible(batches: Iterable[RecordBatch], aborted: Iterable[Any]) -> Iterator[RecordBatch]:
    """The batches that a consumer sees: no control records, and no aborted transactions.

    Shape: `aborted` are those of a Fetch's response, each with its producer and first offset.
    """
    to_come = sorted(aborted, key=lambda row: int(row.first_offset), reverse=True)
    producers: set[int] = set()
    for batch in batches:
        header = batch.header
        while to_come and to_come[-1].first_offset <= header.last_offset:
            producers.add(to_come.pop().producer_id)
        if header.is_control:
            producers.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in producers):
            yield batch


def is_passing(error: int) -> bool:
    """Whether an error may disappear after a new request for the leader."""
    try:
        return ErrorCode(error).retriable and error != ErrorCode.CORRUPT_MESSAGE
    except ValueError:
        return False


def fetch_request(
    positions: Mapping[Partition, int], limits: Limits, isolation: int, rack: str
) -> FetchRequest:
    """A Fetch without a session. Shape: the order of partitions is kept, except that partitions are grouped by topic."""
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, number), offset in positions.items():
        topics.setdefault(topic, []).append(
            FetchPartition(
                partition=number, fetch_offset=offset, partition_max_bytes=limits.partition_bytes
            )
        )
    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=rows) for topic, rows in topics.items()],
        forgotten_topics_data=[],
        rack_id=rack,
    )


# -- reading ---------------------------------------------------------------------------------------


class Reader:
    """Reads partitions of topics. Errors: CommandError for permanent errors."""

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
        self._topics = list(dict.fromkeys(topics))
        self._isolation = isolation
        self._limits = limits or Limits()
        self._rack = rack
        self._timeout_s = request_timeout_ms / 1000
        self._now = now
        self._leaders: dict[Partition, int] = {}
        self._replicas: dict[Partition, tuple[int, float]] = {}
        self._wires: dict[int, Wire] = {}
        self._asked: dict[int, Asked] = {}
        self._troubles: dict[Partition, Trouble] = {}
        self._look_again = NEVER
        self._await_leaders()

    def close(self) -> None:
        """Close the connections."""
        for wire in self._wires.values():
            wire.close()

    # -- partitions and offsets

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return sorted(number for name, number in self._leaders if name == topic)

    def _learn_leaders(self) -> int:
        """Find the leaders of the partitions; returns the remaining error. Errors: CommandError, Unavailable."""
        response = self._brokers.ask(metadata_of(self._topics))
        self._brokers.take_nodes(response)
        leaders: dict[Partition, int] = {}
        error = 0
        for topic in response.topics:
            if topic.error_code and not is_passing(topic.error_code):
                raise CommandError(f"{topic.name}: {words_of(topic.error_code)}")
            error = error or topic.error_code
            for number, placed in partitions_of(topic).items():
                leaders[topic.name, number] = placed.leader
        self._leaders = leaders
        return error

    def _await_leaders(self) -> None:
        """Find the leaders of the topics, which exist. Errors: CommandError, Unavailable."""
        give_up = self._now() + PATIENCE_S
        while error := self._learn_leaders():
            if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self._now() > give_up:
                missing = set(self._topics) - {topic for topic, _ in self._leaders}
                raise CommandError(f"{min(missing or self._topics)}: {words_of(error)}")
            time.sleep(RETRY_S)

    def offsets_at(self, tps: Sequence[Partition], at: int) -> dict[Partition, int]:
        """The first offset at or after a time; partitions without one are omitted. Errors: CommandError.

        Shape: `at` is a Unix time in ms, EARLIEST or LATEST; the latest is the last offset that the isolation level
        permits to read.
        """
        found: dict[Partition, int] = {}
        left = list(tps)
        give_up = self._now() + PATIENCE_S
        while left:
            problem = ""
            by_leader: dict[int, list[Partition]] = {}
            for tp in left:
                by_leader.setdefault(self._leaders.get(tp, -1), []).append(tp)
            left = by_leader.pop(-1, [])
            if left:
                problem = f"{left[0][0]}-{left[0][1]}: no leader"
            for leader, some in by_leader.items():
                try:
                    errors = self._ask_offsets(leader, some, at, found)
                except Unavailable as failure:
                    problem = str(failure)
                    left += some
                    continue
                for (topic, number), error in errors.items():
                    problem = f"{topic}-{number}: {words_of(error)}"
                    if not is_passing(error):
                        raise CommandError(problem)
                    left.append((topic, number))
            if left:
                if self._now() > give_up:
                    raise CommandError(problem)
                time.sleep(RETRY_S)
                self._learn_leaders()
        return {tp: offset for tp, offset in found.items() if offset >= 0}

    def _ask_offsets(
        self, leader: int, tps: Sequence[Partition], at: int, found: dict[Partition, int]
    ) -> dict[Partition, int]:
        """Send a request to one leader; returns the errors by partition. Errors: Unavailable."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, number in tps:
            topics.setdefault(topic, []).append(
                ListOffsetsPartition(partition_index=number, timestamp=at)
            )
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=self._isolation,
            topics=[
                ListOffsetsTopic(name=topic, partitions=rows) for topic, rows in topics.items()
            ],
        )
        errors: dict[Partition, int] = {}
        for topic_row in self._brokers.ask(request, leader).topics:
            for row in topic_row.partitions:
                tp = (topic_row.name, row.partition_index)
                if row.error_code:
                    errors[tp] = row.error_code
                else:
                    found[tp] = row.offset
        return errors

    # -- what is read

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

    def poll(self, timeout_s: float) -> list[Chunk]:
        """Wait for records up to a time limit; there may be none. Errors: CommandError."""
        if self._now() >= self._look_again:
            self._recover()
        for node in self._nodes() - self._asked.keys():
            self._send(node)
        chunks: list[Chunk] = []
        for node in self._ready(timeout_s):
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
        return self._leaders.get(tp, -1)

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
            if node not in self._wires:
                self._wires[node] = self._brokers.connect(node)
            wire = self._wires[node]
            wire.sock.settimeout(self._timeout_s)
            wire.send(request, version_for(wire, request, MAX_FETCH_VERSION))
        except Unavailable as error:
            self._lost(node, str(error))
        except (OSError, WireError) as error:
            self._lost(node, f"{self._brokers.place(node)}: {reason(error)}")
        else:
            self._asked[node] = Asked(positions, self._now())

    def _ready(self, timeout_s: float) -> list[int]:
        """The brokers whose answers begin to arrive within a time."""
        if not self._asked:
            time.sleep(min(timeout_s, RETRY_S))
            return []
        # select does not see data that TLS has already read.
        ready = [n for n in self._asked if getattr(self._wires[n].sock, "pending", int)()]
        if not ready:
            socks = {self._wires[node].sock: node for node in self._asked}
            ready = [socks[sock] for sock in select.select(list(socks), [], [], timeout_s)[0]]
        late = self._now() - self._timeout_s
        for node in [n for n, asked in self._asked.items() if asked.since < late]:
            if node not in ready:
                self._lost(node, f"{self._brokers.place(node)}: no answer")
        return ready

    def _take(self, node: int) -> list[Chunk]:
        """Process the answer of a broker."""
        asked = self._asked.pop(node)
        try:
            response = self._wires[node].receive()
        except (OSError, WireError) as error:
            self._lost(node, f"{self._brokers.place(node)}: {reason(error)}")
            return []
        chunks = []
        for topic in response.responses:
            for row in topic.partitions:
                tp = (topic.topic, row.partition_index)
                position = asked.positions.get(tp)
                # If reading has been moved elsewhere, this answer is of no use.
                if position is not None and self.positions.get(tp) == position:
                    chunk = self._chunk(tp, position, response.error_code or row.error_code, row)
                    if chunk is not None:
                        chunks.append(chunk)
        return chunks

    def _chunk(self, tp: Partition, position: int, error: int, row: Any) -> Chunk | None:
        """The chunk in a row of a Fetch. Errors: CommandError."""
        topic, number = tp
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._replicas.pop(tp, None) is None:
                self._back_into_range(tp)
            return None
        if error:
            if not is_passing(error):
                raise CommandError(f"{topic}-{number}: {words_of(error)}")
            self._replicas.pop(tp, None)
            self._wait(tp, words_of(error))
            return None
        self._troubles.pop(tp, None)
        if self._rack and row.preferred_read_replica >= 0:
            self._replicas[tp] = (row.preferred_read_replica, self._now() + REPLICA_S)
        try:
            batches = list(iter_batches(row.records or b""))
        except WireError as damage:
            raise CommandError(
                f"{topic}-{number}: damaged after offset {position}: {damage}"
            ) from None
        if not batches:
            return None
        next_offset = max(batches[-1].header.next_offset, position)
        # A partition that returned records comes after the others in the next request.
        del self.positions[tp]
        self.positions[tp] = next_offset
        shown = list(visible(batches, row.aborted_transactions or ()))
        return Chunk(tp, position, min(next_offset, self._ends.get(tp, next_offset)), shown)

    def _back_into_range(self, tp: Partition) -> None:
        """Continue at the nearest existing offset."""
        topic, number = tp
        position = self.positions[tp]
        first = self.offsets_at([tp], EARLIEST).get(tp, 0)
        if position < first:
            said = f"offsets {position} to {first - 1} were deleted; continuing at {first}"
            self.positions[tp] = first
        else:
            end = self.offsets_at([tp], LATEST).get(tp, first)
            if end >= position:  # the new leader, a former follower, has caught up
                return
            said = f"offset {position} is beyond the end; continuing at {end}"
            self.positions[tp] = end
        print(f"kwire: {topic}-{number}: {said}", file=sys.stderr)

    # -- trouble

    def _lost(self, node: int, said: str) -> None:
        """Close the connection to a broker; new brokers are searched for its partitions."""
        self._asked.pop(node, None)
        wire = self._wires.pop(node, None)
        if wire is not None:
            wire.close()
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
        """Find the current leaders. Errors: CommandError."""
        self._look_again = NEVER
        try:
            self._learn_leaders()
        except Unavailable as failure:
            for tp in self._troubles:
                self._wait(tp, str(failure))
        for tp in self.positions:
            if self._node_of(tp) < 0:
                gone = all(tp[0] != topic for topic, _ in self._leaders)
                self._wait(
                    tp, words_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if gone else "no leader"
                )
