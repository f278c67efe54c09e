"""Asks the controller to change in-sync replicas: in batches, one request at a time.

Source: kafka.server.AlterPartitionManager (KIP-497).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

from .partition import Partition

if TYPE_CHECKING:
    from ..clock import Clock
    from ..metadata.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

ALTER_PARTITION_VERSION = 3
RETRY_BACKOFF_MS = 50
RECOVERED = 0
#: If one answer has more changes than this, the rest share one log line.
MAX_LINES = 3

#: The proposal was refused; the previous set stays in force, and another may be proposed.
REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})

#: The controller has newer state than this leader and is about to send it: wait for that.
OVERTAKEN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)

Send = Callable[[AlterPartitionRequest, int], Awaitable[AlterPartitionResponse]]


class AlterPartitions:
    """Collects the proposals of partitions; `send` reaches the current controller.

    Errors: whatever `send` raises, the proposals are sent again.
    """

    def __init__(
        self, broker_id: int, broker_epoch: Callable[[], int], send: Send, clock: Clock
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._clock = clock
        self._wanted: dict[TopicPartition, Partition] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        #: Whether the current failure has been logged.
        self._failing = False

    def propose(self, partition: Partition) -> None:
        """Propose the partition's `isr.proposed`, and tell the partition the outcome."""
        if self._closed:
            return
        self._wanted[partition.tp] = partition
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop sending proposals."""
        self._closed = True
        self._wanted.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._wanted:
            batch = [
                each for each in self._wanted.values() if each.is_leader and each.isr.in_flight
            ]
            self._wanted.clear()
            if not batch:
                return
            again = batch
            try:
                request = alter_request(batch, self._broker_id, self._broker_epoch())
                response = await self._send(request, ALTER_PARTITION_VERSION)
                if not response.error_code:
                    again = take_answers(batch, request, response, self._clock.now_ms())
            except OSError as error:
                logger.debug("in-sync replicas cannot be changed now: %s", error)
            except Exception as error:
                # This includes errors of a controller in this process: if the task ended here, no more proposals would
                # be sent, and the partitions would keep their in-sync replicas forever.
                if not self._failing:
                    logger.warning("asking for other in-sync replicas failed", exc_info=error)
                self._failing = True
            else:
                self._failing = False
            for partition in again:
                self._wanted.setdefault(partition.tp, partition)
            if again:
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)


def alter_request(
    batch: list[Partition], broker_id: int, broker_epoch: int
) -> AlterPartitionRequest:
    """The request for the partitions' proposals; pure."""
    topics: dict[bytes, AlterPartitionRequestTopicData] = {}
    for partition in batch:
        topic_id = partition.log.topic_id or bytes(16)
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = AlterPartitionRequestTopicData(
                topic_name=partition.tp.topic, topic_id=topic_id, partitions=[]
            )
        epochs = {each.broker_id: each.broker_epoch for each in partition.followers.values()}
        epochs[broker_id] = broker_epoch
        topic.partitions.append(
            AlterPartitionRequestPartitionData(
                partition_index=partition.tp.partition,
                leader_epoch=partition.state.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1))
                    for each in partition.isr.proposed
                ],
                # A leader of Apache Kafka that was elected uncleanly also calls itself recovered:
                # with anything else the controller accepts no further replica.
                leader_recovery_state=RECOVERED,
                partition_epoch=partition.state.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
    )


def take_answers(
    batch: list[Partition],
    request: AlterPartitionRequest,
    response: AlterPartitionResponse,
    now_ms: int,
) -> list[Partition]:
    """Tell each partition what the controller decided; returns those that must ask again."""
    asked = {
        (topic.topic_id, row.partition_index): row
        for topic in request.topics
        for row in topic.partitions
    }
    answers = {
        (topic.topic_id, row.partition_index): row
        for topic in response.topics
        for row in topic.partitions
    }
    again = []
    changed: list[Partition] = []
    for partition in batch:
        key = (partition.log.topic_id or bytes(16), partition.tp.partition)
        row = answers.get(key)
        if (
            not partition.is_leader
            or partition.state.leader_epoch != asked[key].leader_epoch
            or not partition.isr.in_flight
        ):
            continue  # the controller has since given it another role
        if row is None or _is_to_be_repeated(partition, row, now_ms):
            again.append(partition)
        elif not row.error_code:
            changed.append(partition)
    _report(changed)
    return again


def _report(changed: list[Partition]) -> None:
    for partition in changed[:MAX_LINES]:
        logger.info(
            "%s: in-sync replicas are %s (partition epoch %d)",
            partition.tp,
            ",".join(map(str, partition.isr.isr)),
            partition.state.partition_epoch,
        )
    if len(changed) > MAX_LINES:
        logger.info("in-sync replicas of %d more partitions changed", len(changed) - MAX_LINES)


def _is_to_be_repeated(
    partition: Partition, row: AlterPartitionResponsePartitionData, now_ms: int
) -> bool:
    error = ErrorCode(row.error_code)
    if error == ErrorCode.NONE:
        partition.on_isr_confirmed(
            tuple(row.isr),
            row.partition_epoch,
            now_ms,
            recovering=row.leader_recovery_state != 0,
        )
        return False
    if error in REFUSED:
        logger.info("%s: in-sync replicas are unchanged: %s", partition.tp, error.name)
        partition.on_isr_refused(now_ms)
        return False
    if error in OVERTAKEN:
        logger.info("%s: waiting for news from the controller: %s", partition.tp, error.name)
        return False
    return True
