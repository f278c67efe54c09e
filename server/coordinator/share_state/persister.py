"""The durable state of share partitions, as used by partition leaders and the group coordinator.

Source: org.apache.kafka.server.share.persister.Persister, PersisterStateManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kwire.errors import ErrorCode

from ...metadata.image import MetadataImage
from ...metadata.internal_topics import SHARE_GROUP_STATE_TOPIC
from ...steps import exhaust
from ..common.inter_broker_sender import InterBrokerSender, Send
from .coordinator import ShareCoordinator, coordinator_key
from .operations import OutcomeT, RowT, StateOperation
from .rows import StateOutcome, StatePartition

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

    def ask(
        self, operation: StateOperation[RowT, OutcomeT], group_id: str, rows: Sequence[RowT]
    ) -> asyncio.Future[list[OutcomeT]]:
        """Run an operation on share partitions of a group."""
        ...


Operation = StateOperation[Any, StateOutcome]
ShareKey = tuple[str, bytes, int]


class AskedRow(NamedTuple):
    """A row that waits for the answer of another broker."""

    operation: Operation
    group_id: str
    row: StatePartition
    answer: asyncio.Future[StateOutcome]


class QueuedOperation(NamedTuple):
    """An operation on a row, which runs when the earlier ones on the same share partition are done."""

    operation: Operation
    group_id: str
    row: StatePartition
    answered: Callable[[StateOutcome], None]


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
        self._sender: InterBrokerSender[AskedRow] = InterBrokerSender(self._send, _not_reached)
        #: The operations that wait for the one in progress; no entry without one in progress.
        self._queues: dict[ShareKey, deque[QueuedOperation]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating: asyncio.Task[None] | None = None

    def ask(
        self, operation: StateOperation[RowT, OutcomeT], group_id: str, rows: Sequence[RowT]
    ) -> asyncio.Future[list[OutcomeT]]:
        """See SharePersister; the future is done immediately if nothing has to wait."""
        future: asyncio.Future[list[OutcomeT]] = asyncio.get_running_loop().create_future()
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

    def _in_order(
        self,
        operation: StateOperation[Any, Any],
        group_id: str,
        row: StatePartition,
        answered: Callable[[StateOutcome], None],
    ) -> None:
        key = group_id, row.topic_id, row.partition
        asked = QueuedOperation(operation, group_id, row, answered)
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
        self, asked: QueuedOperation, answer: StateOutcome | Awaitable[StateOutcome], key: ShareKey
    ) -> None:
        operation, group_id, row, answered = asked
        backoff_s = FIRST_BACKOFF_S
        for left in reversed(range(TRIES)):
            try:
                outcome = answer if isinstance(answer, StateOutcome) else await answer
            except Exception:  # waiting callers need an answer
                logger.exception("the state of a share group cannot be reached")
                outcome = operation.refused(row, ErrorCode.UNKNOWN_SERVER_ERROR)
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
            return operation.refused(row, ErrorCode.UNKNOWN_SERVER_ERROR)

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
            return operation.refused(row, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if found.leader == self._broker_id or self._send_to is None:
            return self._coordinator.ask(operation, group_id, row)
        future: asyncio.Future[StateOutcome] = asyncio.get_running_loop().create_future()
        self._sender.add(found.leader, AskedRow(operation, group_id, row, future))
        return future

    async def _create_topic(self, operation: Operation, row: StatePartition) -> StateOutcome:
        if self._creating is None or self._creating.done():
            self._creating = asyncio.get_running_loop().create_task(self._create())
            self._tasks.add(self._creating)
            self._creating.add_done_callback(self._tasks.discard)
        await asyncio.wait((self._creating,))  # one request for all waiting callers
        return operation.refused(row, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _create(self) -> None:
        try:
            await self._ensure_topic()
        except Exception:  # the waiting callers retry
            logger.exception("%s cannot be created", SHARE_GROUP_STATE_TOPIC)

    async def _send(self, broker_id: int, asked: list[AskedRow]) -> None:
        """Send the waiting rows for a broker, as one request per operation and group.

        Errors: OSError.
        """
        requests: dict[tuple[Operation, str], list[AskedRow]] = {}
        for each in asked:
            requests.setdefault((each.operation, each.group_id), []).append(each)
        assert self._send_to is not None
        for (operation, group_id), rows in requests.items():
            request = exhaust(operation.request(group_id, [each.row for each in rows]))
            response = await self._send_to(broker_id, request, operation.newest)
            outcomes = exhaust(operation.outcomes(response))
            found = {(row.topic_id, row.partition): row for row in outcomes}
            for each in rows:
                answer = found.get((each.row.topic_id, each.row.partition))
                if not each.answer.done():
                    each.answer.set_result(
                        answer or operation.refused(each.row, ErrorCode.UNKNOWN_SERVER_ERROR)
                    )


def _not_reached(asked: list[AskedRow]) -> None:
    for each in asked:
        if not each.answer.done():
            each.answer.set_result(
                each.operation.refused(each.row, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            )
