"""Verifies a partition with the coordinator of the transactional id, on any broker (KIP-890).

A request can contain each transactional id only once, so Apache Kafka answers one of two concurrent questions of a
producer with NETWORK_EXCEPTION; kwire sends both in one request.
Source: AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

from ...metadata.image import MetadataImage
from ...metadata.internal_topics import TRANSACTION_STATE_TOPIC
from ...metadata.topic_partition import TopicPartition
from ..common.inter_broker_sender import InterBrokerSender, Send
from .coordinator import TransactionCoordinator
from .records import by_topic

#: The first version that distinguishes a partition that was not added (TRANSACTION_ABORTABLE) from a wrong state.
ADD_PARTITIONS_VERSION = 5

#: Transactional id, producer id and epoch.
Producer = tuple[str, int, int]


class Question(NamedTuple):
    """The question whether a partition is part of a producer's open transaction."""

    producer: Producer
    tp: TopicPartition
    answer: asyncio.Future[ErrorCode]


class PartitionVerifier:
    """Verifies partitions for a broker in a cluster; calls a local coordinator directly."""

    def __init__(
        self,
        broker_id: int,
        coordinator: TransactionCoordinator,
        metadata: Callable[[], MetadataImage],
        send: Send,
    ) -> None:
        self._broker_id = broker_id
        self._coordinator = coordinator
        self._metadata = metadata
        self._send_to = send
        self._sender: InterBrokerSender[Question] = InterBrokerSender(self._send, self._failed)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, tp: TopicPartition
    ) -> ErrorCode | Awaitable[ErrorCode]:
        """Check whether a partition is part of an open transaction.

        Errors: those of TransactionShard.verify and of the search for its coordinator; COORDINATOR_NOT_AVAILABLE;
        NETWORK_EXCEPTION; UNKNOWN_TOPIC_OR_PARTITION if the coordinator does not know the partition yet.
        """
        image = self._metadata()
        row = image.partition(
            TRANSACTION_STATE_TOPIC, self._coordinator.partition_for(transactional_id)
        )
        if row is None or row.leader not in image.brokers:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if row.leader == self._broker_id:
            return self._coordinator.verify(transactional_id, producer_id, producer_epoch, tp)
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        producer = transactional_id, producer_id, producer_epoch
        self._sender.add(row.leader, Question(producer, tp, answer))
        return answer

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Stop waiting for brokers that are gone."""
        if after.brokers is not before.brokers:
            self._sender.keep(after.brokers)

    def close(self) -> None:
        """Ask nothing more."""
        self._sender.close()

    async def _send(self, broker_id: int, questions: list[Question]) -> None:
        for asked in rounds(questions):
            response = await self._send_to(broker_id, request_for(asked), ADD_PARTITIONS_VERSION)
            assert isinstance(response, AddPartitionsToTxnResponse)
            found = answers_of(response)
            otherwise = ErrorCode(response.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
            if otherwise is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                otherwise = ErrorCode.INVALID_TXN_STATE  # not the client's fault
            for question in asked:
                answer(question, found.get((question.producer[0], question.tp), otherwise))

    def _failed(self, questions: list[Question]) -> None:
        for question in questions:
            answer(question, ErrorCode.NETWORK_EXCEPTION)


def answer(question: Question, error: ErrorCode) -> None:
    """Answer a question, unless it was already answered or the caller stopped waiting."""
    if not question.answer.done():
        question.answer.set_result(error)


def rounds(questions: list[Question]) -> Iterator[list[Question]]:
    """Split questions, in order, into rounds with one producer per transactional id."""
    while questions:
        producers: dict[str, Producer] = {}
        now: list[Question] = []
        later: list[Question] = []
        for question in questions:
            producer = question.producer
            fits = producers.setdefault(producer[0], producer) == producer
            (now if fits else later).append(question)
        yield now
        questions = later


def request_for(questions: list[Question]) -> AddPartitionsToTxnRequest:
    """One request for all questions of a round."""
    asked: dict[Producer, dict[TopicPartition, None]] = {}
    for question in questions:
        asked.setdefault(question.producer, {})[question.tp] = None
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=True,
                topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                    for topic, numbers in by_topic(tps).items()
                ],
            )
            for (transactional_id, producer_id, producer_epoch), tps in asked.items()
        ]
    )


def answers_of(
    response: AddPartitionsToTxnResponse,
) -> dict[tuple[str, TopicPartition], ErrorCode]:
    """The coordinator's answer for each partition, by transactional id."""
    return {
        (row.transactional_id, TopicPartition(topic.name, partition.partition_index)): ErrorCode(
            partition.partition_error_code
        )
        for row in response.results_by_transaction
        for topic in row.topic_results
        for partition in topic.results_by_partition
    }
