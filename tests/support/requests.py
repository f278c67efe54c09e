"""Requests of Produce and of offset commits from rows of (topic, partition, ...). Shape: neighbours of one topic share its entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from kwire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

Row = tuple[str, int, Any]
Batch = bytes | bytearray | memoryview | None


def produce_request(*rows: tuple[str, int, Batch], **request: Any) -> ProduceRequest:
    """Shape: the rows' values are batches, of which copies are sent."""

    def data(index: int, records: Batch) -> PartitionProduceData:
        sent = None if records is None else memoryview(bytearray(records))
        return PartitionProduceData(index=index, records=sent)

    return ProduceRequest(
        topic_data=[
            TopicProduceData(name=topic, partition_data=parts)
            for topic, parts in by_topic(rows, data)
        ],
        **{"acks": -1, "timeout_ms": 1000, **request},
    )


def commit_request(
    *rows: Row, row: dict[str, Any] | None = None, **request: Any
) -> OffsetCommitRequest:
    """Shape: the rows' values are offsets; `row` has more fields for each."""
    more = {"committed_metadata": "", **(row or {})}

    def committed(index: int, offset: int) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, **more)

    topics = [OffsetCommitRequestTopic(name=t, partitions=p) for t, p in by_topic(rows, committed)]
    return OffsetCommitRequest(**{"group_id": "group", "topics": topics, **request})


def txn_commit_request(
    *rows: Row, metadata: str | None = None, **request: Any
) -> TxnOffsetCommitRequest:
    """Shape: as for `commit_request`; the fields of the transaction are those of the request."""

    def committed(index: int, offset: int) -> TxnOffsetCommitRequestPartition:
        return TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )

    topics = [
        TxnOffsetCommitRequestTopic(name=t, partitions=p) for t, p in by_topic(rows, committed)
    ]
    return TxnOffsetCommitRequest(**{"group_id": "group", "topics": topics, **request})


def by_topic(rows: Iterable[Row], part: Callable[[int, Any], Any]) -> list[tuple[str, list[Any]]]:
    """The parts made of each run of rows with the same topic."""
    return [
        (topic, [part(index, value) for _, index, value in some])
        for topic, some in groupby(rows, key=lambda row: row[0])
    ]
