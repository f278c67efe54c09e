"""Runs a replay task: writes the records of one source partition in transactions, each with its position.

A transaction holds records and the position after them, so both are committed or neither is. A task that begins a
partition (in a new run, as a retry or as a second attempt) first takes over the transactional id. This aborts the
predecessor's transaction and fences the predecessor. Only then does it read the position.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise, repeat
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ..cluster import reason, silent
from ..problems import Problem
from .plan import Done, Job, RecordRange, ReplayPosition, Task

Result = TypeVar("Result")

#: Seconds that one call to the cluster may take before the producer is abandoned and a new one created.
CALL_S = 30.0
#: Seconds to send a position. If the coordinator dies, librdkafka may never return from that call, whatever timeout it is
#: given (its issue 5456), so this is how long a broker's restart delays a task.
OFFSETS_S = 8.0
#: Seconds after which a transaction is committed, however few records it has.
COMMIT_S = 2.0
#: Milliseconds after which the cluster ends the transaction of a run that has died.
TRANSACTION_TIMEOUT_MS = 60_000
#: Seconds to watch whether another run that took over our transactional id makes progress.
RIVAL_S = 3 * COMMIT_S
#: Seconds between two attempts.
PAUSE_S = 0.5
#: Records passed to the client at once; commits and the rate are checked between two such groups.
LOT = 5_000

#: Another run took over our transactional id, or the cluster ended a transaction that took too long.
FENCED = {
    KafkaError._FENCED,
    KafkaError._FATAL,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
#: Errors that another attempt would meet again.
LASTING = {
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.OFFSET_METADATA_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNKNOWN_PARTITION,
}

#: Producers in a call that does not return: destroying one would wait for the call too.
_stuck: list[Producer] = []


class Pace:
    """Limits the pace to `rate` records per second; None means no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._since = time.monotonic()
        self._passed = 0
        #: Records to pass on at once: few at a low rate, so that they are spread evenly.
        self.lot = LOT if rate is None else max(1, min(LOT, int(rate / 10)))

    def wait(self, count: int, poll: Callable[[float], object]) -> None:
        """Count the records sent, and poll until the next may be sent."""
        if self._rate is None:
            poll(0)
            return
        self._passed += count
        while (left := self._since + self._passed / self._rate - time.monotonic()) > 0:
            poll(min(left, 0.5))
        if left < -1.0:  # time lost while the cluster was away is not made up for in a burst
            self._since -= left
        poll(0)


class Transactions:
    """One producer under the transactional id of a source partition, and the position it commits."""

    def __init__(self, job: Job, task: Task) -> None:
        self._job = job
        self._task = task
        self.id = job.group(task.source.topic, task.source.partition)
        self._call_s = min(CALL_S, job.patience_s)
        self._refused: list[tuple[KafkaError, int]] = []
        # A record larger than a batch is sent alone; the topic decides whether it is too large.
        settings: dict[str, Any] = {
            "linger.ms": 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",  # as Java's clients choose a partition for a key
            "batch.size": min(1_000_000, task.target.batch_bytes),
            "message.max.bytes": 1_000_000_000,
            "queue.buffering.max.kbytes": 65_536,
            "log_level": 0,
            **job.settings,
            "transactional.id": self.id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "delivery.report.only.error": True,
            "on_delivery": self._on_error,
        }
        self._producer = Producer(settings, logger=silent())
        self._consumer = Consumer(
            {
                **job.settings,
                "group.id": self.id,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",  # waits for commits in progress
                "log_level": 0,
            },
            logger=silent(),
        )
        self._began: float | None = None
        self._records = 0
        self._place = TopicPartition(task.target.topic, 0)

    def __enter__(self) -> Transactions:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()
        if error is not None and self._producer not in _stuck:
            with suppress(KafkaException):
                self._producer.purge()
                if self._began is not None:
                    self._producer.abort_transaction(5.0)

    def take_over(self) -> ReplayPosition | None:
        """Abort what another producer with this id has begun; return the last committed position."""
        self._producer.init_transactions(self._call_s)
        return self.position()

    def position(self) -> ReplayPosition | None:
        """The position committed now; raises Problem for a position of another replay with this name."""
        (found,) = self._consumer.committed([self._place], self._call_s)
        if found.error is not None:
            raise KafkaException(found.error)
        if found.offset < 0:
            return None
        try:
            position = ReplayPosition.of(found.offset, found.metadata)
        except ValueError as error:
            raise Problem(f"group {self.id} is in use: {error}") from error
        if position.digest != self._job.digest:
            raise Problem(other_replay(self._job.name))
        return position

    def send(self, batch: pa.RecordBatch) -> None:
        """Send records in the open transaction, or in a new one."""
        self._begin()
        produce, topic = self._producer.produce, self._task.target.topic
        # -1 leaves it to the partitioner
        partition = self._task.source.partition if self._task.keep_partition else -1
        for value, key, timestamp, headers in zip(
            batch.column("value").to_pylist(),
            batch.column("key").to_pylist(),
            batch.column("timestamp").to_pylist(),
            headers_of(batch.column("headers")),
            strict=True,
        ):
            while True:
                try:
                    produce(topic, value, key, partition, None, None, timestamp, headers)
                    break
                except BufferError:
                    self.poll(0.1)
        self._records += batch.num_rows

    def poll(self, seconds: float) -> None:
        """Serve the client; raises KafkaException if the cluster has refused a record."""
        self._producer.poll(seconds)
        if self._refused:
            raise KafkaException(self._refused[0][0])

    @property
    def due(self) -> bool:
        """Whether it is time to commit."""
        if self._began is None:
            return False
        late = time.monotonic() - self._began >= COMMIT_S
        return late or self._records >= self._job.transaction_records

    def commit(self, position: ReplayPosition) -> None:
        """Commit the records sent since the last commit, together with the position after them."""
        self._begin()
        place = TopicPartition(
            self._place.topic, self._place.partition, position.offset, position.metadata()
        )
        group = self._consumer.consumer_group_metadata()
        if not within(
            OFFSETS_S + 1.0,
            self._producer.send_offsets_to_transaction,
            [place],
            group,
            OFFSETS_S,
        ):
            _stuck.append(self._producer)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group's coordinator"))
        self._producer.commit_transaction(self._call_s)
        self._began = None

    def _begin(self) -> None:
        if self._began is None:
            self._producer.begin_transaction()
            self._began = time.monotonic()
            self._records = 0

    def refusal(self, error: KafkaException) -> KafkaError:
        """The first error of a record, which says more than the error of the transaction that it aborted."""
        with suppress(KafkaException):  # raised again if the client cannot continue
            self._producer.poll(0)
        found: KafkaError = self._refused[0][0] if self._refused else error.args[0]
        return found

    def _on_error(self, error: KafkaError, message: Message) -> None:
        own = error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
        if own and not self._refused:
            self._refused.append((error, len(message.value() or b"")))


def other_replay(name: str) -> str:
    """The message for a name that another replay uses."""
    return (
        f"a replay with the name {name!r} was begun with other records, or to another topic;"
        " finish it with the options it had, or choose another --name"
    )


def within(seconds: float, call: Callable[..., object], *arguments: object) -> bool:
    """Call a function; False if it has not returned in time (it keeps running in its thread). Raises what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    return not thread.is_alive()


def headers_of(column: pa.ListArray) -> Iterable[list[tuple[str, str | bytes | None]] | None]:
    """The headers of each record as confluent-kafka accepts them; None if there are none."""
    if len(column) == column.null_count:
        return repeat(None, len(column))
    ends = column.offsets.to_pylist()
    if ends[0] == ends[-1]:
        return repeat(None, len(column))
    structs = column.values.slice(ends[0], ends[-1] - ends[0])
    keys, values = (child.to_pylist() for child in structs.flatten())
    pairs = list(zip(keys, values, strict=True))
    first = ends[0]
    return [pairs[start - first : end - first] or None for start, end in pairwise(ends)]


def replay(job: Job, tasks: Iterable[Task], rate: float | None) -> Iterator[Done]:
    """Replay source partitions one after the other, together at no more than `rate` records a second."""
    pace = Pace(rate)
    for task in tasks:
        try:
            yield replay_partition(job, task, pace)
        except Problem as problem:
            # The driver recognizes it by this name, regardless of the kind of Problem.
            raise Problem(str(problem)) from problem


def replay_partition(job: Job, task: Task, pace: Pace) -> Done:
    """Replay one source partition, with a new producer after each transient error.

    Raises Problem for permanent errors, after `job.patience_s` without progress, and if another run of the same replay has
    taken over.
    """
    run = _Run(job, task, pace)
    while True:
        try:
            transactions = Transactions(job, task)
        except KafkaException as error:
            # No broker has been asked yet: the clients do not accept their settings, or the system has no threads left.
            raise Problem(f"no client for {task.place} can be made: {reason(error)}") from error
        try:
            with transactions:
                run.copy(transactions)
            return Done(task.source.topic, task.source.partition, run.records, run.total, run.zeros)
        except KafkaException as error:
            run.judge(transactions.refusal(error), error)
        time.sleep(PAUSE_S)


class _Run:
    """The attempts to replay one source partition."""

    def __init__(self, job: Job, task: Task, pace: Pace) -> None:
        self._job = job
        self._task = task
        self._pace = pace
        self._moved = time.monotonic()
        self._fenced = False
        self._name = os.urandom(4).hex()
        self._position: ReplayPosition | None = None
        self.records = 0
        self.total = 0
        self.zeros = 0

    def copy(self, transactions: Transactions) -> None:
        """Take over, and copy from the committed position to the end."""
        if self._fenced:
            self._yield_to_rival(transactions)
        task = self._task
        found = transactions.take_over()
        self._settle(found or self._at(task.start, 0))
        done = start = max(task.start, 0 if found is None else found.offset)
        total, zeros = self.total, 0
        for batch in task.source.read(start, task.end):
            for at in range(0, batch.num_rows, self._pace.lot):
                lot = batch.slice(at, self._pace.lot)
                after = lot.column("offset")[-1].as_py() + 1
                lot = task.within.of_time(lot)
                if not lot.num_rows:
                    continue
                self._check_times(lot)
                transactions.send(lot)
                total += lot.num_rows
                zeros += pc.sum(pc.equal(lot.column("timestamp"), 0)).as_py()
                self._pace.wait(lot.num_rows, transactions.poll)
                if transactions.due:
                    self._commit(transactions, self._at(after, total), zeros)
                    done, zeros = after, 0
        # Offsets that hold no record, or that were left out, are done too.
        if done < task.end:
            self._commit(transactions, self._at(task.end, total), zeros)

    def _at(self, offset: int, total: int) -> ReplayPosition:
        return ReplayPosition(offset, total, self._job.digest, self._name)

    def _commit(self, transactions: Transactions, position: ReplayPosition, zeros: int) -> None:
        transactions.commit(position)
        self._fenced = False
        self._settle(position)
        self.zeros += zeros

    def _settle(self, position: ReplayPosition) -> None:
        """Count what is known to be committed, either just now or by an earlier call of ours that was never answered."""
        if self._position is not None and position.offset > self._position.offset:
            self.records += position.records - self.total
            self._moved = time.monotonic()
        self._position = position
        self.total = position.records

    def _check_times(self, lot: pa.RecordBatch) -> None:
        """Raise a Problem that names the first record whose timestamp the topic does not accept."""
        target = self._task.target
        if target.earliest_ms is None and target.latest_ms is None:
            return
        late = None if target.latest_ms is None else target.latest_ms + 1
        if RecordRange(None, None, target.earliest_ms, late).of_time(lot).num_rows == lot.num_rows:
            return
        for offset, timestamp in zip(
            lot.column("offset").to_pylist(), lot.column("timestamp").to_pylist(), strict=True
        ):
            early = target.earliest_ms is not None and timestamp < target.earliest_ms
            if timestamp != -1 and (early or (late is not None and timestamp >= late)):
                side = "before" if early else "after"
                raise Problem(
                    f"topic {target.topic} refuses the timestamp {timestamp} of offset {offset} of {self._task.place}:"
                    f" raise its message.timestamp.{side}.max.ms, and run the same command again"
                )

    def _yield_to_rival(self, transactions: Transactions) -> None:
        """We were fenced: give up if another run makes progress, else continue (our transaction may just have timed out)."""
        end = time.monotonic() + RIVAL_S
        while time.monotonic() < end:
            position = transactions.position()
            if position not in (None, self._position) and position.run != self._name:
                raise Problem(
                    f"another run of the replay {self._job.name!r} has taken over {self._task.place}"
                )
            time.sleep(PAUSE_S)

    def judge(self, refusal: KafkaError, error: KafkaException) -> None:
        """Return if another attempt may help; raises Problem if not, or after too many attempts."""
        said = reason(KafkaException(refusal))
        task = self._task
        if refusal.code() in FENCED:
            self._fenced = True
        elif refusal.code() in LASTING:
            after = self._position.offset if self._position else task.start
            raise Problem(
                f"topic {task.target.topic} refuses a record of {task.place} at or after offset {after}: {said}"
            ) from error
        if time.monotonic() - self._moved > self._job.patience_s:
            raise Problem(
                f"replay of {task.place} to {task.target.topic} has made no progress for {self._job.patience_s:.0f} s: {said};"
                " run the same command again; it continues where it stopped"
            ) from error
