"""The observations of the simulation, and the invariants that must hold after every step."""

from __future__ import annotations

from typing import NamedTuple

from kwire.records.batch import RecordBatch, iter_batches
from server.log.log import LogSlice
from server.metadata.topic_partition import TopicPartition
from server.replication.partition import Partition


class Violation(AssertionError):
    """An invariant was violated."""


class Committed(NamedTuple):
    """A batch that a leader considered committed: where it begins and ends, and its bytes."""

    base_offset: int
    last_offset: int
    content: bytes


class Follow:
    """The batches of one partition that are known to be committed, in order."""

    def __init__(self) -> None:
        self.batches: list[Committed] = []
        self.end = 0
        #: Leader epoch -> the broker that led in it, and which of its lives.
        self.leaders: dict[int, tuple[int, int]] = {}
        #: (broker, life, leader epoch) -> offset up to which its log was compared.
        self.compared: dict[tuple[int, int, int], int] = {}
        #: Value -> offset, for all committed records except those of aborted transactions.
        self.offsets: dict[bytes, list[int]] = {}


class History:
    """Acknowledged records and committed batches; `check_*` raise Violation."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Follow] = {}
        #: (partition, value) -> the offset in the answer to the producer.
        self.acknowledged: dict[tuple[TopicPartition, bytes], int] = {}
        self.checks = 0

    def follow(self, tp: TopicPartition) -> Follow:
        found = self.partitions.get(tp)
        if found is None:
            found = self.partitions[tp] = Follow()
        return found

    def acknowledge(self, tp: TopicPartition, value: bytes, offset: int) -> None:
        """Record that a producer got the offset of a committed record."""
        self.acknowledged[(tp, value)] = offset

    def check_leader(self, broker_id: int, life: int, partition: Partition) -> None:
        """Compare the records that a leader considers committed with those that earlier leaders committed."""
        if not partition.is_leader:
            return
        self.checks += 1
        follow = self.follow(partition.tp)
        epoch = partition.state.leader_epoch
        led = follow.leaders.setdefault(epoch, (broker_id, life))
        if led[0] != broker_id:
            raise Violation(
                f"{partition.tp}: brokers {led[0]} and {broker_id} both lead in epoch {epoch}"
            )
        key = (broker_id, life, epoch)
        log = partition.log
        compared = follow.compared.get(key, log.log_start_offset)
        committed = log.high_watermark
        if epoch == max(follow.leaders) and key not in follow.compared:
            # A new leader must have everything that was ever committed.
            if log.log_end_offset < follow.end:
                raise Violation(
                    f"{partition.tp}: broker {broker_id} leads in epoch {epoch} with a log up to"
                    f" {log.log_end_offset}, but {follow.end} were committed"
                )
            committed = max(committed, follow.end)
        if compared >= committed:
            follow.compared[key] = compared
            return
        by_base = {
            each.base_offset: each for each in follow.batches if each.last_offset >= compared
        }
        offset = compared
        while offset < committed:
            found = log.read(offset, 1 << 30, log.log_end_offset)
            if not isinstance(found, LogSlice) or not found.size:
                raise Violation(f"{partition.tp}: cannot read {offset} of broker {broker_id}")
            data = found.data if isinstance(found.data, bytes) else found.data.read()
            for batch in iter_batches(data):
                header = RecordBatch(batch.view).header
                if header.last_offset < offset:
                    continue
                if header.base_offset >= committed:
                    break
                if header.base_offset != offset:
                    raise Violation(
                        f"{partition.tp}: broker {broker_id} has {header.base_offset} after {offset - 1}"
                    )
                known = by_base.get(header.base_offset)
                content = bytes(batch.view)
                if known is not None:
                    if known.content != content:
                        raise Violation(
                            f"{partition.tp}: offset {header.base_offset} was committed with other"
                            f" content than broker {broker_id} has in epoch {epoch}"
                        )
                elif header.base_offset < follow.end:
                    raise Violation(
                        f"{partition.tp}: broker {broker_id} divides the batch at {header.base_offset}"
                    )
                else:
                    self._add(follow, partition.tp, header.base_offset, header.last_offset, batch)
                offset = header.last_offset + 1
            else:
                continue
            break
        follow.compared[key] = offset

    def _add(self, follow: Follow, tp: TopicPartition, base: int, last: int, batch: object) -> None:
        view = batch.view  # type: ignore[attr-defined]
        if base != follow.end:
            raise Violation(f"{tp}: {base} was committed after {follow.end - 1}")
        follow.batches.append(Committed(base, last, bytes(view)))
        follow.end = last + 1
        whole = RecordBatch(view)
        if whole.is_control:
            return
        for record in whole.records():
            value = record.value
            if value is None:
                continue
            places = follow.offsets.setdefault(bytes(value), [])
            places.append(record.offset)

    def check_acknowledged(self) -> None:
        """Check that each acknowledged record is committed once, at the offset in its answer."""
        for (tp, value), offset in self.acknowledged.items():
            places = self.follow(tp).offsets.get(value, [])
            if places != [offset]:
                raise Violation(
                    f"{tp}: {value!r} was acknowledged at {offset} and is committed at {places}"
                )

    def check_unique(self) -> None:
        """Check that no record of an idempotent producer occurs twice."""
        for tp, follow in self.partitions.items():
            for value, places in follow.offsets.items():
                if len(places) > 1 and value.startswith(b"p"):
                    raise Violation(f"{tp}: {value!r} is committed at {places}")
