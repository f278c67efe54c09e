"""Asks partition leaders to write the markers that end transactions.

Markers for partitions led here are written immediately. Markers for other leaders are sent with WriteTxnMarkers, which
combines the markers of many transactions in one request. Failures are reported to the shard that sent the markers; it
tries again a moment later, when another broker may lead.
Source: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ..metadata.image import MetadataImage
from ..metadata.topic_partition import TopicPartition
from .inter_broker_sender import InterBrokerSender, Send
from .transaction.markers import Markers, MarkerSender, Outcomes
from .transaction.records import by_topic

logger = logging.getLogger(__name__)

WRITE_TXN_MARKERS_VERSION = 1

#: The end of one transaction in one partition.
Key = tuple[int, int, int, bool, TopicPartition]
Written = Callable[[Outcomes], None]


class Entry(NamedTuple):
    """The markers of one transaction for the partitions that one broker leads."""

    markers: Markers
    written: Written


class MarkerChannels:
    """The MarkerSender of a broker in a cluster.

    Shape: a marker in flight is not sent again, even if it is requested again.
    """

    def __init__(
        self,
        broker_id: int,
        local: MarkerSender,
        metadata: Callable[[], MetadataImage],
        send: Send,
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._metadata = metadata
        self._send_to = send
        self._under_way: set[Key] = set()
        self._sender: InterBrokerSender[Entry] = InterBrokerSender(self._send, self._failed)

    def send(self, markers: Markers, written: Written) -> None:
        """Write markers; see MarkerSender.send."""
        image = self._metadata()
        by_leader: dict[int, list[TopicPartition]] = {}
        known: list[tuple[TopicPartition, ErrorCode]] = []
        for tp in markers.partitions:
            key = key_of(markers, tp)
            if key in self._under_way:
                continue
            row = image.partition(tp.topic, tp.partition)
            if row is None:
                known.append((tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif row.leader == self._broker_id or row.leader in image.brokers:
                by_leader.setdefault(row.leader, []).append(tp)
                self._under_way.add(key)
            else:
                known.append((tp, ErrorCode.LEADER_NOT_AVAILABLE))

        def told(outcomes: Outcomes) -> None:
            outcomes = list(outcomes)
            self._under_way.difference_update(key_of(markers, tp) for tp, _ in outcomes)
            try:
                written(outcomes)
            except Exception:  # the outcomes of other transactions must still be reported
                logger.exception("the markers of %r are not processed", markers.transactional_id)

        for leader, tps in by_leader.items():
            part = markers._replace(partitions=tuple(tps))
            if leader == self._broker_id:
                try:
                    self._local.send(part, told)
                except Exception:  # a bug of ours must not keep the transaction open
                    logger.exception("markers of %r are not written", markers.transactional_id)
                    left = [tp for tp in tps if key_of(markers, tp) in self._under_way]
                    if left:
                        told([(tp, ErrorCode.UNKNOWN_SERVER_ERROR) for tp in left])
            else:
                self._sender.add(leader, Entry(part, told))
        if known:
            written(known)

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Stop waiting for brokers that are gone."""
        if after.brokers is not before.brokers:
            self._sender.keep(after.brokers)

    def close(self) -> None:
        """Send nothing more."""
        self._sender.close()

    async def _send(self, broker_id: int, batch: list[Entry]) -> None:
        request = request_for([entry.markers for entry in batch])
        response = await self._send_to(broker_id, request, WRITE_TXN_MARKERS_VERSION)
        assert isinstance(response, WriteTxnMarkersResponse)
        found = outcomes_of(response)
        for markers, told in batch:
            told(
                [
                    (tp, found.get((markers.producer_id, tp), ErrorCode.UNKNOWN_SERVER_ERROR))
                    for tp in markers.partitions
                ]
            )

    def _failed(self, batch: list[Entry]) -> None:
        for markers, told in batch:
            told([(tp, ErrorCode.NETWORK_EXCEPTION) for tp in markers.partitions])


def key_of(markers: Markers, tp: TopicPartition) -> Key:
    """The key that identifies a marker."""
    return (
        markers.producer_id,
        markers.producer_epoch,
        markers.coordinator_epoch,
        markers.committed,
        tp,
    )


def request_for(batch: list[Markers]) -> WriteTxnMarkersRequest:
    """One request for the markers of several transactions."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                transaction_result=markers.committed,
                coordinator_epoch=markers.coordinator_epoch,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
                    for topic, numbers in by_topic(markers.partitions).items()
                ],
            )
            for markers in batch
        ]
    )


def outcomes_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    """The outcome for each partition, by producer id, with the errors of MarkerSender.send.

    Shape: a broker that does not know a partition answers only that it is not the leader; the image says which
    partitions exist. A partition in a format without transactions needs no marker.
    """
    found = {}
    for row in response.markers:
        for topic in row.topics:
            for partition in topic.partitions:
                error = ErrorCode(partition.error_code)
                if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif error is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found[row.producer_id, TopicPartition(topic.name, partition.partition_index)] = (
                    error
                )
    return found
