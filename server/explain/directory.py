"""Reads the facts from the files of log directories, without a running broker.

Facts that only a broker knows are omitted: the replicas that lack records above the high watermark, and configs. No
file is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kwire.errors import CorruptRecord, RecordError
from kwire.records.batch import RecordBatch

from ..client.visibility import control_of
from ..coordinator.transaction.state import TransactionMetadata
from ..log.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, CorruptCheckpoint, read_offsets
from ..log.file_layer import FileLayer
from ..log.segment import offset_of
from ..log.stored_logs import logs_in, segment_files, stored_batches
from ..metadata.topic_partition import TopicPartition
from .facts import (
    GroupFacts,
    GroupMember,
    GroupPartition,
    Marker,
    PendingTransaction,
    RecordFacts,
    TransactionFacts,
)
from .live_groups import assigned_partitions
from .live_transactions import OPEN_STATES
from .searches import KeySearch, OffsetSearch
from .stored_state import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    GroupReading,
    TransactionReading,
)

DELETED = ".log.deleted"


class LogFiles:
    """Log directories of one broker. Errors: OSError, CorruptCheckpoint."""

    def __init__(self, directories: Sequence[str]) -> None:
        layer = FileLayer()
        self.logs: dict[TopicPartition, Path] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        for name in directories:
            directory = Path(name)
            self.logs.update(logs_in(directory))
            for found, file in (
                (self.high_watermarks, directory / HIGH_WATERMARK),
                (self.starts, directory / LOG_START_OFFSET),
            ):
                if file.exists() and not file.is_file():  # reading a pipe may never end
                    raise CorruptCheckpoint(f"{file} is not a file")
                found.update(read_offsets(layer, str(file)))

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic in these directories."""
        return sorted(tp.partition for tp in self.logs if tp.topic == topic)

    def first_offset(self, tp: TopicPartition) -> int:
        """The offset at which the first segment of a log begins; 0 if it has none."""
        segments = segment_files(self.logs[tp])
        return (offset_of(segments[0].name) or 0) if segments else 0

    def batches(self, tp: TopicPartition) -> Iterator[RecordBatch]:
        """All batches of a log. Errors: CorruptRecord for a damaged header."""
        for path in segment_files(self.logs[tp]):
            yield from batches_of(path)

    def of_topic(self, topic: str) -> Iterator[RecordBatch]:
        """All batches of a topic, partition by partition."""
        for partition in self.partitions(topic):
            yield from self.batches(TopicPartition(topic, partition))

    def transactions(self) -> dict[str, TransactionMetadata]:
        """The state in __transaction_state, by transactional id."""
        reading = TransactionReading()
        for batch in self.of_topic(TRANSACTIONS_TOPIC):
            reading.feed(batch)
        return reading.by_id


def batches_of(path: Path) -> Iterator[RecordBatch]:
    """The batches of a segment."""
    return (batch for _, batch in stored_batches(path))


class LogWalk(NamedTuple):
    """The results of one pass over a log."""

    end: int
    open: dict[int, PendingTransaction]
    markers: dict[int, Marker]
    """By producer id: the first one after the given offset."""


def record_facts(
    files: LogFiles,
    topic: str,
    partition: int,
    offset: int,
    now_ms: int,
    key: bytes | None = None,
) -> RecordFacts:
    """The facts about an offset in the files. Errors: OSError."""
    here = files.partitions(topic)
    if not here:
        return RecordFacts(topic, partition, offset, now_ms, problem="NO_TOPIC")
    tp = TopicPartition(topic, partition)
    if tp not in files.logs:
        return RecordFacts(
            topic, partition, offset, now_ms, problem="NO_PARTITION", partitions=here[-1] + 1
        )
    first = files.first_offset(tp)
    try:
        walk = walked(files.batches(tp), offset, first)
    except CorruptRecord as error:
        return RecordFacts(
            topic, partition, offset, now_ms, problem="CORRUPT", problem_text=str(error)
        )
    # After a crash, checkpoints may be older or newer than the log, or damaged; values outside of the log are ignored.
    start = min(max(files.starts.get(tp, first), first), walk.end)
    high = min(files.high_watermarks.get(tp, walk.end), walk.end)
    high = max(high, start)
    stored_ids = files.transactions() if walk.open else {}
    opened = tuple(completed(each, stored_ids) for each in walk.open.values())
    stable = min([high, *(each.first_offset for each in opened)])
    facts = RecordFacts(
        topic,
        partition,
        offset,
        now_ms,
        log_start=start,
        high_watermark=high,
        last_stable=stable,
        log_end=walk.end,
        start_inside=True if start > first else None,
        open_transactions=opened,
    )
    if not start <= offset < high:
        return facts
    search = OffsetSearch(offset, start)
    try:
        any(search.feed(batch) for batch in files.batches(tp))
    except RecordError as error:
        return replace(facts, problem="CORRUPT", problem_text=str(error))
    stored = search.stored
    if stored is None:
        wanted = key if key is not None else key_in_old_segments(files, tp, offset)
        later = None
        if wanted is not None:
            keys = KeySearch(wanted, offset)
            any(keys.feed(batch) for batch in files.batches(tp))
            later = keys.later
        return replace(facts, gap=search.gap(high), later=later)
    if stored.transactional and stored.control is None:
        stored = replace(stored, marker=walk.markers.get(stored.producer_id))
    return replace(facts, stored=stored)


def walked(batches: Iterator[RecordBatch], offset: int, first: int) -> LogWalk:
    """Read a log once, by its headers. Errors: CorruptRecord."""
    opened: dict[int, PendingTransaction] = {}
    markers: dict[int, Marker] = {}
    end = first
    for batch in batches:
        header = batch.header
        end = header.next_offset
        if header.is_control:
            kind = control_of(batch).name
            if kind in ("COMMIT", "ABORT"):
                opened.pop(header.producer_id, None)
                if header.base_offset > offset and header.producer_id not in markers:
                    markers[header.producer_id] = Marker(
                        header.base_offset, kind, header.max_timestamp
                    )
        elif header.is_transactional:
            begun = opened.get(header.producer_id)
            opened[header.producer_id] = PendingTransaction(
                header.producer_id,
                header.producer_epoch,
                header.base_offset if begun is None else begun.first_offset,
                header.max_timestamp,
            )
    return LogWalk(end, opened, markers)


def completed(
    transaction: PendingTransaction, stored: dict[str, TransactionMetadata]
) -> PendingTransaction:
    """A transaction of a partition, with the state in the coordinator's log."""
    for transactional_id, value in stored.items():
        if value.producer_id == transaction.producer_id:
            is_open = value.state.title in OPEN_STATES
            return replace(
                transaction,
                transactional_id=transactional_id,
                state=value.state.title,
                start_ms=value.start_ms if is_open and value.start_ms >= 0 else None,
                timeout_ms=value.timeout_ms if is_open else None,
                hanging=not is_open,
            )
    return transaction


def key_in_old_segments(files: LogFiles, tp: TopicPartition, offset: int) -> bytes | None:
    """The key of a record in a segment that compaction has replaced, as long as the file is there."""
    for path in segment_files(files.logs[tp], DELETED):
        search = OffsetSearch(offset, offset)
        try:
            if any(search.feed(batch) for batch in batches_of(path)) and search.stored is not None:
                return search.key
        except (OSError, RecordError):
            continue
    return None


def group_facts(files: LogFiles, group: str, now_ms: int) -> GroupFacts:
    """The facts about a group in the files, as of its last commit: its newest generation and offsets.

    Errors: OSError, RecordError.
    """
    reading = GroupReading(group)
    for batch in files.of_topic(OFFSETS_TOPIC):
        reading.feed(batch)
    if not reading.committed and reading.generation is None:
        return GroupFacts(group, now_ms, "NO_GROUP")
    members = [
        reading.completed(
            GroupMember(
                each.member_id,
                each.client_id,
                each.client_host,
                each.group_instance_id,
                assigned_partitions(each.assignment),
            )
        )
        for each in reading.members.values()
    ]
    assigned = {tp for each in members for tp in each.partitions}
    rows = [
        stored_partition(files, TopicPartition(*tp), reading, now_ms)
        for tp in sorted(assigned | set(reading.committed))
    ]
    return GroupFacts(
        group,
        max(reading.committed_ms.values(), default=now_ms),
        state="Stable" if members else "Empty",
        generation=reading.generation,
        leader=reading.leader,
        assignor=reading.assignor,
        members=tuple(members),
        partitions=tuple(rows),
    )


def stored_partition(
    files: LogFiles, tp: TopicPartition, reading: GroupReading, now_ms: int
) -> GroupPartition:
    """A group's state in a partition; a partition that is missing here is on another broker."""
    committed = reading.committed.get(tp, -1)
    if tp not in files.logs:
        return GroupPartition(tp.topic, tp.partition, committed, reading.committed_ms.get(tp))
    facts = record_facts(files, tp.topic, tp.partition, max(committed, 0), now_ms)
    if facts.problem is not None:
        return GroupPartition(
            tp.topic, tp.partition, committed, reading.committed_ms.get(tp), leader=False
        )
    return GroupPartition(
        tp.topic,
        tp.partition,
        committed,
        reading.committed_ms.get(tp),
        log_start=facts.log_start,
        end=facts.high_watermark,
        last_stable=facts.last_stable,
        open_transactions=facts.open_transactions,
    )


def transaction_facts(files: LogFiles, transactional_id: str, now_ms: int) -> TransactionFacts:
    """The facts about a transactional id in the files. Errors: OSError, RecordError."""
    stored = files.transactions().get(transactional_id)
    if stored is None:
        return TransactionFacts(transactional_id, now_ms, "NO_TRANSACTIONAL_ID")
    held = []
    for tp in sorted(stored.partitions):
        if tp in files.logs:
            walk = walked(files.batches(tp), -1, files.first_offset(tp))
            mine = walk.open.get(stored.producer_id)
            if mine is not None:
                high = files.high_watermarks.get(tp, walk.end)
                held.append((*tp, mine.first_offset, max(0, high - mine.first_offset)))
    return TransactionFacts(
        transactional_id,
        now_ms,
        state=stored.state.title,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        start_ms=stored.start_ms if stored.start_ms >= 0 else None,
        timeout_ms=stored.timeout_ms,
        last_update_ms=stored.last_update_ms,
        partitions=tuple(sorted(stored.partitions)),
        holds_back=tuple(held),
    )
