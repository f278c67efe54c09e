"""Asks partition leaders to write the markers that end transactions.

Markers for partitions led here are written by this broker. Markers for other leaders are sent with WriteTxnMarkers, which
combines the markers of several transactions in one request. Failures are reported to the shard that sent the markers; it
tries again a moment later, when another broker may lead.
Source: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ...cause import Own
from ...metadata.image import MetadataImage
from ...metadata.topic_partition import TopicPartition
from ...turns import Steps, Turns
from ..common.inter_broker_sender import InterBrokerSender, Send
from .markers import Markers, MarkerSender, Outcomes
from .records import by_topic

WRITE_TXN_MARKERS_VERSION = 1

#: The number of partitions in one part of a transaction's markers, and of parts in one request.
ENTRY_PARTITIONS = 64
MAX_ENTRIES = 16

FAILURES = Own("markers that other brokers have not written")

Written = Callable[[Outcomes], None]


class MarkerEntry(NamedTuple):
    """The markers of one transaction for the partitions that one broker leads."""

    markers: Markers
    written: Written


class MarkerChannels:
    """The MarkerSender of a broker in a cluster."""

    def __init__(
        self,
        broker_id: int,
        local: MarkerSender,
        metadata: Callable[[], MetadataImage],
        send: Send,
        turns: Turns,
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._metadata = metadata
        self._send_to = send
        self._turns = turns
        self._sender: InterBrokerSender[MarkerEntry] = InterBrokerSender(
            self._send, self._failed, most_items=MAX_ENTRIES
        )

    def send(self, markers: Markers, written: Written) -> Steps[None]:
        """Write markers; see MarkerSender.send."""
        here: list[TopicPartition] = []
        partitions = markers.partitions
        for begin in range(0, len(partitions), ENTRY_PARTITIONS):
            if begin:
                yield
            here += self._send_away(markers, partitions[begin : begin + ENTRY_PARTITIONS], written)
        if here:
            yield from self._local.send(markers._replace(partitions=tuple(here)), written)

    def _send_away(
        self, markers: Markers, partitions: Sequence[TopicPartition], written: Written
    ) -> list[TopicPartition]:
        """Send the markers of other leaders; returns the partitions that this broker leads."""
        image = self._metadata()
        by_leader: dict[int, list[TopicPartition]] = {}
        known: list[tuple[TopicPartition, ErrorCode]] = []
        for tp in partitions:
            row = image.partition(tp.topic, tp.partition)
            if row is None:
                known.append((tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif row.leader == self._broker_id or row.leader in image.brokers:
                by_leader.setdefault(row.leader, []).append(tp)
            else:
                known.append((tp, ErrorCode.LEADER_NOT_AVAILABLE))
        here = by_leader.pop(self._broker_id, [])
        for leader, tps in by_leader.items():
            part = markers._replace(partitions=tuple(tps))
            self._sender.add(leader, MarkerEntry(part, written), markers.client)
        if known:
            written(known)
        return here

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Stop waiting for brokers that are gone."""
        if after.brokers is not before.brokers:
            self._sender.keep(after.brokers)

    def close(self) -> None:
        """Send nothing more."""
        self._sender.close()

    async def _send(self, broker_id: int, batch: list[MarkerEntry]) -> None:
        request = request_for([entry.markers for entry in batch])
        response = await self._send_to(broker_id, request, WRITE_TXN_MARKERS_VERSION)
        assert isinstance(response, WriteTxnMarkersResponse)
        found = outcomes_of(response)
        for markers, written in batch:
            written(
                [
                    (tp, found.get((markers.producer_id, tp), ErrorCode.UNKNOWN_SERVER_ERROR))
                    for tp in markers.partitions
                ]
            )

    def _failed(self, batch: list[MarkerEntry]) -> None:
        self._turns.start(report_failure(batch), FAILURES)


def report_failure(batch: list[MarkerEntry]) -> Steps[None]:
    """Report markers that a broker has not answered; when a broker is gone, these may be many."""
    for markers, written in batch:
        written([(tp, ErrorCode.NETWORK_EXCEPTION) for tp in markers.partitions])
        yield


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
