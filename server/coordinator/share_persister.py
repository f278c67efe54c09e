"""The durable state of share partitions, as used by partition leaders and the group coordinator.

Source: org.apache.kafka.server.share.persister.Persister, PersisterStateManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from kwire.errors import ErrorCode
from kwire.messages import delete_share_group_state as deleting
from kwire.messages import initialize_share_group_state as initializing
from kwire.messages import read_share_group_state as reading
from kwire.messages import read_share_group_state_summary as summing
from kwire.messages import write_share_group_state as writing

from ..metadata.image import MetadataImage
from ..metadata.internal_topics import SHARE_GROUP_STATE_TOPIC
from .inter_broker_sender import InterBrokerSender, Send
from .share.rows import (
    InitializeState,
    ReadState,
    StateBatch,
    StateOutcome,
    StatePartition,
    StateRead,
    StateSummary,
    WriteState,
)
from .share_coordinator import ShareCoordinator, coordinator_key

logger = logging.getLogger(__name__)

#: The delay before the first retry; it doubles with each further retry.
FIRST_BACKOFF_S = 0.05
MAX_BACKOFF_S = 2.0
#: The maximum number of attempts; with these delays they take about twelve seconds.
TRIES = 12

#: Retriable errors. Source: PersisterStateManager's handlers.
TRY_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class SharePersister(Protocol):
    """Reads and writes the state of a group's share partitions at their share coordinators.

    Shape: each operation returns a future of one row per requested row, in the same order. A failure is an error in its
    row, never an exception: retriable errors have been retried, and NONE means that the change is committed. Operations
    on the same share partition run in the order of the calls.
    Errors in rows: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (a read of or a
    write to a state that was not initialized), and those of `TRY_AGAIN` when the retries are exhausted.
    """

    def initialize_state(
        self, group_id: str, partitions: Sequence[InitializeState]
    ) -> asyncio.Future[list[StateOutcome]]:
        """Create the state of share partitions, or reset it in a later state epoch."""
        ...

    def read_state(
        self, group_id: str, partitions: Sequence[ReadState]
    ) -> asyncio.Future[list[StateRead]]:
        """Read states, and fence all earlier leaders of the partitions."""
        ...

    def write_state(
        self, group_id: str, partitions: Sequence[WriteState]
    ) -> asyncio.Future[list[StateOutcome]]:
        """Change states."""
        ...

    def delete_state(
        self, group_id: str, partitions: Sequence[StatePartition]
    ) -> asyncio.Future[list[StateOutcome]]:
        """Delete states; succeeds for share partitions without a state."""
        ...

    def read_summary(
        self, group_id: str, partitions: Sequence[ReadState]
    ) -> asyncio.Future[list[StateSummary]]:
        """Read states without their batches; this fences no leader."""
        ...


class Operation(NamedTuple):
    """One of the five operations: how it runs locally, and the request for another broker.

    Shape: `local(group id, row)` returns an answer or an awaitable of it; `request(group id, rows)` makes a message,
    and `answers(response)` reads (topic id, partition, answer) from the response.
    """

    name: str
    kind: type[StateOutcome]
    local: Callable[[str, Any], Any]
    request: Callable[[str, Sequence[Any]], object]
    version: int
    answers: Callable[[Any], Iterable[StateOutcome]]


class Asked(NamedTuple):
    """A row that waits for the answer of another broker."""

    operation: Operation
    group_id: str
    row: StatePartition
    answer: asyncio.Future[StateOutcome]


class Queued(NamedTuple):
    """An operation on a row, which runs when the earlier ones on the same share partition are done."""

    operation: Operation
    group_id: str
    row: StatePartition
    answered: Callable[[StateOutcome], None]


ShareKey = tuple[str, bytes, int]


class StatePersister:
    """The SharePersister of a broker: asks its own coordinator directly, and those of other brokers with requests.

    Shape: `send` is None on a broker that never has others; `ensure_topic` creates __share_group_state unless it
    exists. At most one operation per share partition is in progress; later ones wait for it.
    """

    def __init__(
        self,
        broker_id: int,
        coordinator: ShareCoordinator,
        metadata: Callable[[], MetadataImage],
        ensure_topic: Callable[[], Awaitable[object]],
        send: Send | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._coordinator = coordinator
        self._metadata = metadata
        self._ensure_topic = ensure_topic
        self._send_to = send
        self._sender: InterBrokerSender[Asked] = InterBrokerSender(self._send, _not_reached)
        #: The operations that wait for the one in progress; no entry without one in progress.
        self._queues: dict[ShareKey, deque[Queued]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating: asyncio.Task[None] | None = None
        self._operations = operations(coordinator)

    # The five operations

    def initialize_state(
        self, group_id: str, partitions: Sequence[InitializeState]
    ) -> asyncio.Future[list[StateOutcome]]:
        """See SharePersister."""
        return self._all("initialize_state", group_id, partitions)

    def read_state(
        self, group_id: str, partitions: Sequence[ReadState]
    ) -> asyncio.Future[list[StateRead]]:
        """See SharePersister."""
        return self._all("read_state", group_id, partitions)

    def write_state(
        self, group_id: str, partitions: Sequence[WriteState]
    ) -> asyncio.Future[list[StateOutcome]]:
        """See SharePersister."""
        return self._all("write_state", group_id, partitions)

    def delete_state(
        self, group_id: str, partitions: Sequence[StatePartition]
    ) -> asyncio.Future[list[StateOutcome]]:
        """See SharePersister."""
        return self._all("delete_state", group_id, partitions)

    def read_summary(
        self, group_id: str, partitions: Sequence[ReadState]
    ) -> asyncio.Future[list[StateSummary]]:
        """See SharePersister."""
        return self._all("read_summary", group_id, partitions)

    # Called by the broker

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Stop waiting for brokers that are gone."""
        if after.brokers is not before.brokers:
            self._sender.keep(after.brokers)

    def close(self) -> None:
        """Stop sending requests."""
        self._sender.close()
        for task in self._tasks:
            task.cancel()

    # Internals

    def _all(
        self, name: str, group_id: str, rows: Sequence[StatePartition]
    ) -> asyncio.Future[list[Any]]:
        """Start an operation on each row; the future is done immediately if nothing has to wait."""
        operation = self._operations[name]
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        answers: list[Any] = [None] * len(rows)
        missing = len(rows)

        def answered(number: int, answer: StateOutcome) -> None:
            nonlocal missing
            answers[number] = answer
            missing -= 1
            if not missing and not future.done():
                future.set_result(answers)

        for number, row in enumerate(rows):
            self._in_order(
                operation,
                group_id,
                row,
                lambda answer, number=number: answered(number, answer),  # type: ignore[misc]
            )
        if not rows:
            future.set_result([])
        return future

    def _in_order(
        self,
        operation: Operation,
        group_id: str,
        row: StatePartition,
        answered: Callable[[StateOutcome], None],
    ) -> None:
        key = group_id, row.topic_id, row.partition
        asked = Queued(operation, group_id, row, answered)
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(asked)
            return
        self._queues[key] = deque((asked,))
        self._work_off(key)

    def _work_off(self, key: ShareKey) -> None:
        """Perform the operations on a share partition in order, up to one that has to wait or be retried, as a task.

        A loop, because hundreds may be answered at once: they would be too many for calls within calls.
        """
        queue = self._queues[key]
        while queue:
            asked = queue.popleft()
            answer = self._try(asked.operation, asked.group_id, asked.row)
            if not isinstance(answer, StateOutcome) or answer.error_code in TRY_AGAIN:
                work = self._until_done(asked, answer, key)
                task = asyncio.get_running_loop().create_task(work, name=asked.operation.name)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return
            asked.answered(answer)
        del self._queues[key]

    async def _until_done(
        self, asked: Queued, answer: StateOutcome | Awaitable[StateOutcome], key: ShareKey
    ) -> None:
        operation, group_id, row, answered = asked
        backoff_s = FIRST_BACKOFF_S
        for left in reversed(range(TRIES)):
            try:
                outcome = answer if isinstance(answer, StateOutcome) else await answer
            except Exception:  # waiting callers need an answer
                logger.exception("the state of a share group cannot be reached")
                outcome = _refused(operation, row, ErrorCode.UNKNOWN_SERVER_ERROR)
            if not left or outcome.error_code not in TRY_AGAIN:
                break
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
            answer = self._try(operation, group_id, row)
        answered(outcome)
        self._work_off(key)

    def _try(
        self, operation: Operation, group_id: str, row: StatePartition
    ) -> StateOutcome | Awaitable[StateOutcome]:
        """Ask the coordinator; the next operation on a share partition waits for the answer, so there always is one."""
        try:
            return self._ask(operation, group_id, row)
        except Exception:
            logger.exception("the state of a share group cannot be reached")
            return _refused(operation, row, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _ask(
        self, operation: Operation, group_id: str, row: StatePartition
    ) -> StateOutcome | Awaitable[StateOutcome]:
        """Ask the coordinator, local or remote."""
        image = self._metadata()
        if SHARE_GROUP_STATE_TOPIC not in image.topics:
            return self._create_topic(operation, row)
        partition = self._coordinator.partition_for(coordinator_key(group_id, row))
        found = image.partition(SHARE_GROUP_STATE_TOPIC, partition)
        if found is None or found.leader not in image.brokers:
            return _refused(operation, row, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if found.leader == self._broker_id or self._send_to is None:
            answer: StateOutcome | Awaitable[StateOutcome] = operation.local(group_id, row)
            return answer
        future: asyncio.Future[StateOutcome] = asyncio.get_running_loop().create_future()
        self._sender.add(found.leader, Asked(operation, group_id, row, future))
        return future

    async def _create_topic(self, operation: Operation, row: StatePartition) -> StateOutcome:
        if self._creating is None or self._creating.done():
            self._creating = asyncio.get_running_loop().create_task(self._create())
            self._tasks.add(self._creating)
            self._creating.add_done_callback(self._tasks.discard)
        await asyncio.wait((self._creating,))  # one request for all waiting callers
        return _refused(operation, row, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _create(self) -> None:
        try:
            await self._ensure_topic()
        except Exception:  # the waiting callers retry
            logger.exception("%s cannot be created", SHARE_GROUP_STATE_TOPIC)

    async def _send(self, broker_id: int, asked: list[Asked]) -> None:
        """Send the waiting rows for a broker, as one request per operation and group.

        Errors: OSError.
        """
        requests: dict[tuple[str, str], list[Asked]] = {}
        for each in asked:
            requests.setdefault((each.operation.name, each.group_id), []).append(each)
        assert self._send_to is not None
        for (name, group_id), rows in requests.items():
            operation = self._operations[name]
            request = operation.request(group_id, [each.row for each in rows])
            response = await self._send_to(broker_id, request, operation.version)
            found = {(row.topic_id, row.partition): row for row in operation.answers(response)}
            for each in rows:
                answer = found.get((each.row.topic_id, each.row.partition))
                if not each.answer.done():
                    each.answer.set_result(
                        answer or _refused(operation, each.row, ErrorCode.UNKNOWN_SERVER_ERROR)
                    )


def _not_reached(asked: list[Asked]) -> None:
    for each in asked:
        if not each.answer.done():
            each.answer.set_result(
                _refused(each.operation, each.row, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            )


def _refused(operation: Operation, row: StatePartition, error: ErrorCode) -> StateOutcome:
    return operation.kind(row.topic_id, row.partition, error, error.name)


# The messages of the five operations


def by_topic(rows: Sequence[StatePartition]) -> dict[bytes, list[Any]]:
    """Group rows by topic, as messages do."""
    topics: dict[bytes, list[Any]] = {}
    for row in rows:
        topics.setdefault(row.topic_id, []).append(row)
    return topics


def operations(coordinator: ShareCoordinator) -> dict[str, Operation]:
    """The five operations by name."""
    return {
        each.name: each
        for each in (
            Operation(
                "initialize_state",
                StateOutcome,
                coordinator.initialize_state,
                _initialize_request,
                0,
                _outcomes,
            ),
            Operation("read_state", StateRead, coordinator.read_state, _read_request, 0, _states),
            Operation(
                "write_state", StateOutcome, coordinator.write_state, _write_request, 1, _outcomes
            ),
            Operation(
                "delete_state",
                StateOutcome,
                coordinator.delete_state,
                _delete_request,
                0,
                _outcomes,
            ),
            Operation(
                "read_summary",
                StateSummary,
                coordinator.read_summary,
                _summary_request,
                1,
                _summaries,
            ),
        )
    }


def _initialize_request(group_id: str, rows: Sequence[InitializeState]) -> object:
    return initializing.InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=[
            initializing.InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    initializing.PartitionData(
                        partition=row.partition,
                        state_epoch=row.state_epoch,
                        start_offset=row.start_offset,
                    )
                    for row in of_topic
                ],
            )
            for topic_id, of_topic in by_topic(rows).items()
        ],
    )


def _read_request(group_id: str, rows: Sequence[ReadState]) -> object:
    return reading.ReadShareGroupStateRequest(
        group_id=group_id,
        topics=[
            reading.ReadStateData(
                topic_id=topic_id,
                partitions=[
                    reading.PartitionData(partition=row.partition, leader_epoch=row.leader_epoch)
                    for row in of_topic
                ],
            )
            for topic_id, of_topic in by_topic(rows).items()
        ],
    )


def _write_request(group_id: str, rows: Sequence[WriteState]) -> object:
    return writing.WriteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            writing.WriteStateData(
                topic_id=topic_id,
                partitions=[
                    writing.PartitionData(
                        partition=row.partition,
                        state_epoch=row.state_epoch,
                        leader_epoch=row.leader_epoch,
                        start_offset=row.start_offset,
                        delivery_complete_count=row.delivery_complete_count,
                        state_batches=[
                            writing.StateBatch(**batch._asdict()) for batch in row.state_batches
                        ],
                    )
                    for row in of_topic
                ],
            )
            for topic_id, of_topic in by_topic(rows).items()
        ],
    )


def _delete_request(group_id: str, rows: Sequence[StatePartition]) -> object:
    return deleting.DeleteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            deleting.DeleteStateData(
                topic_id=topic_id,
                partitions=[deleting.PartitionData(partition=row.partition) for row in of_topic],
            )
            for topic_id, of_topic in by_topic(rows).items()
        ],
    )


def _summary_request(group_id: str, rows: Sequence[ReadState]) -> object:
    return summing.ReadShareGroupStateSummaryRequest(
        group_id=group_id,
        topics=[
            summing.ReadStateSummaryData(
                topic_id=topic_id,
                partitions=[
                    summing.PartitionData(partition=row.partition, leader_epoch=row.leader_epoch)
                    for row in of_topic
                ],
            )
            for topic_id, of_topic in by_topic(rows).items()
        ],
    )


def _outcomes(response: Any) -> Iterable[StateOutcome]:
    for topic in response.results:
        for row in topic.partitions:
            yield StateOutcome(
                topic.topic_id, row.partition, ErrorCode(row.error_code), row.error_message
            )


def _states(response: Any) -> Iterable[StateOutcome]:
    for topic in response.results:
        for row in topic.partitions:
            yield StateRead(
                topic.topic_id,
                row.partition,
                ErrorCode(row.error_code),
                row.error_message,
                row.state_epoch,
                row.start_offset,
                tuple(
                    StateBatch(
                        batch.first_offset,
                        batch.last_offset,
                        batch.delivery_state,
                        batch.delivery_count,
                    )
                    for batch in row.state_batches
                ),
            )


def _summaries(response: Any) -> Iterable[StateOutcome]:
    for topic in response.results:
        for row in topic.partitions:
            yield StateSummary(
                topic.topic_id,
                row.partition,
                ErrorCode(row.error_code),
                row.error_message,
                row.state_epoch,
                row.leader_epoch,
                row.start_offset,
                row.delivery_complete_count,
            )
