"""Asks partition leaders for the end offset that consumers see. Source: NetworkPartitionMetadataClient."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

from ...metadata.image import MetadataImage
from ...metadata.topic_partition import TopicPartition
from ...replication.offsets import CONSUMER, LATEST, FoundOffset, OffsetQuery, fetch_offset

if TYPE_CHECKING:
    from ...replication.replica_manager import ReplicaManager

#: The version of ListOffsets that is sent to other brokers.
VERSION = 7

LATEST_FOR_CONSUMERS = OffsetQuery(LATEST, -1, CONSUMER, read_committed=False)

Send = Callable[[int, object, int], Awaitable[object]]
"""Sends a request in the given version to a broker. Errors: OSError."""


class LatestOffsets:
    """Reads the offsets of this broker's partitions, and asks other brokers for theirs.

    Shape: `send` is None if there are never other brokers.
    """

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        metadata: Callable[[], MetadataImage],
        send: Send | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._send = send

    async def __call__(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | ErrorCode]:
        """Return the offset after the last record that consumers see, or an error if it is not known.

        Errors: those of fetch_offset; LEADER_NOT_AVAILABLE.
        """
        image = self._metadata()
        found: dict[TopicPartition, int | ErrorCode] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for tp in tps:
            partition = image.partition(tp.topic, tp.partition)
            if partition is None:
                found[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition.leader == self._broker_id:
                found[tp] = self._here(tp)
            elif partition.leader in image.brokers and self._send is not None:
                elsewhere.setdefault(partition.leader, []).append(tp)
            else:
                found[tp] = ErrorCode.LEADER_NOT_AVAILABLE
        answers = await asyncio.gather(
            *(self._there(broker_id, some) for broker_id, some in elsewhere.items())
        )
        for answer in answers:
            found.update(answer)
        return found

    def _here(self, tp: TopicPartition) -> int | ErrorCode:
        partition = self._replicas.get(tp.topic, tp.partition)
        if partition is None:
            return self._replicas.why_missing(self._metadata(), tp.topic, tp.partition)
        answer = fetch_offset(partition, LATEST_FOR_CONSUMERS)
        if isinstance(answer, ErrorCode):
            return answer
        assert isinstance(answer, FoundOffset)
        return answer.offset

    async def _there(
        self, broker_id: int, tps: list[TopicPartition]
    ) -> dict[TopicPartition, int | ErrorCode]:
        request = ListOffsetsRequest(replica_id=CONSUMER)
        by_topic: dict[str, ListOffsetsTopic] = {}
        for tp in tps:
            topic = by_topic.get(tp.topic)
            if topic is None:
                topic = by_topic[tp.topic] = ListOffsetsTopic(name=tp.topic)
                request.topics.append(topic)
            topic.partitions.append(
                ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST)
            )
        assert self._send is not None
        try:
            response = await self._send(broker_id, request, VERSION)
        except OSError:
            return dict.fromkeys(tps, ErrorCode.LEADER_NOT_AVAILABLE)
        assert isinstance(response, ListOffsetsResponse)
        found: dict[TopicPartition, int | ErrorCode] = dict.fromkeys(
            tps, ErrorCode.LEADER_NOT_AVAILABLE
        )
        for answered in response.topics:
            for row in answered.partitions:
                tp = TopicPartition(answered.name, row.partition_index)
                found[tp] = ErrorCode(row.error_code) if row.error_code else row.offset
        return found
