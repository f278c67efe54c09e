"""The operations on the logs of a schedule, and their effect on the expected content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from server.log.cleaner.log_cleaner import LogCleaner
from server.log.flush_state import FlushTask
from server.log.log import AppendError, AppendInfo, AppendOrigin, Log
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition

from ..cleaner.cleaning import run_round
from ..logs import marker
from .disk import DiskFiles, Stopped
from .expected import ABORT, COMMIT, Batch, Expected, Violation
from .invariants import check_open, require
from .topics import HOUR_MS, KEYS, NAMES, START_MS, TOPICS, batch_of


@dataclass
class Flush:
    """A flush in progress: prepared on the loop, run in a thread, then completed."""

    log: Log
    expected: Expected
    task: FlushTask
    end: int
    ran: bool = False


class Operations:
    """The operations of one life, which `workload.Schedule` begins and ends."""

    rng: Random
    manager: LogManager
    cleaner: LogCleaner
    files: DiskFiles
    mounts: list[str]
    now_ms: int
    partitions: dict[TopicPartition, Expected]
    flushes: list[Flush]
    failed: set[str]
    """Directories whose disk has failed in this life."""
    gone: set[TopicPartition]
    """Deleted partitions, which a power cut may bring back."""
    codecs: tuple[int, ...] = (0, 0, 0, 1)
    operations = 0
    values = 0

    def _check(self, log: Log, check: Callable[[], None]) -> bool:
        # The check reads, and the disk may fail during that.
        try:
            check()
        except OSError as e:
            log.on_io_error(e)
            return False
        return True

    # -- work --------------------------------------------------------------------------------------

    def _work(self, count: int) -> None:
        rng = self.rng
        works: tuple[tuple[Callable[[], None], int], ...] = (
            (self._append, 40),
            (self._end_transaction, 8),
            (self._send_again, 5),
            (self._append_as_follower, 5),
            (self._begin_flush, 5),
            (self._run_flush, 5),
            (self._complete_flush, 5),
            (self._flush_due, 6),
            (self._checkpoint, 4),
            (self._delete_records, 3),
            (self._retention, 4),
            (self._run_deletes, 3),
            (self._truncate, 3),
            (self._compact, 4),
            (self._create, 4),
            (self._delete_one, 1),
        )
        for work in rng.choices([w for w, _ in works], [n for _, n in works], k=count):
            if len(self.failed) == len(self.mounts):
                return
            self.operations += 1
            self.now_ms += rng.choice((1, 50, 1000, 10_000))
            if rng.random() < 0.01:
                self.now_ms += HOUR_MS
            self.files.now_ms = self.now_ms
            work()

    def _pick(self, *topics: str) -> tuple[Log, Expected] | None:
        choices = [
            tp for tp in self.partitions if self.manager.get(tp) and (not topics or tp[0] in topics)
        ]
        if not choices:
            if not topics:
                self._create()
            return None
        tp = self.rng.choice(choices)
        log = self.manager.get(tp)
        assert log is not None
        return log, self.partitions[tp]

    def _attempt(self, expected: Expected, work: Callable[[], object]) -> bool:
        # Any operation other than an append takes the log offline if it fails.
        log = None
        try:
            work()
        except OSError as e:
            for each in self.manager.logs():
                if self.partitions.get(each.tp) is expected:
                    log = each
            if log is not None:
                log.on_io_error(e)
            require(self._is_offline(expected), f"{expected.directory} is not offline after {e}")
            return False
        return True

    def _is_offline(self, expected: Expected) -> bool:
        return expected.directory in self.failed

    # -- appending ---------------------------------------------------------------------------------

    def _append(self) -> None:
        picked = self._pick()
        if picked is None:
            return
        log, expected = picked
        rng = self.rng
        pid = rng.choice((-1, 1, 2, 11, 12))
        producer = expected.reference.producers.get(pid)
        epoch, sequence = _sequence_of(producer)
        entry = log.producers.producers.get(pid)
        below = entry is not None and entry.last_data_offset < log.log_start_offset
        if producer is not None and (producer.faded or (below and producer.batches)):
            known = entry.producer_epoch if entry is not None else 0
            epoch, sequence = max(producer.epoch, known) + 1, 0
        elif entry is not None and (not entry.batches or producer is None):
            # Its records are gone and only a marker is left: refused, as in Apache Kafka; then the producer continues
            # with another epoch.
            epoch, sequence = entry.producer_epoch + 1, 0
        self._send(log, expected, pid, epoch, sequence)

    def _send(self, log: Log, expected: Expected, pid: int, epoch: int, sequence: int) -> None:
        rng = self.rng
        if rng.random() < 0.03:
            expected.leader_epoch += 1
        if pid > 0 and rng.random() < 0.05 and not self._has_open(expected, pid):
            epoch, sequence = epoch + 1, 0
        records = self._records(log)
        data = batch_of(
            records,
            self.now_ms,
            pid=pid,
            epoch=epoch,
            sequence=sequence,
            transactional=pid > 10,
            codec=rng.choice(self.codecs),
        )
        offset = log.log_end_offset
        sent = Batch(
            offset,
            offset + len(records) - 1,
            b"",
            self.now_ms,
            expected.leader_epoch,
            pid,
            epoch if pid > 0 else -1,
            sequence if pid > 0 else -1,
            pid > 10,
            None,
            records,
        )
        self._append_records(log, expected, data, sent)

    def _has_open(self, expected: Expected, pid: int) -> bool:
        producer = expected.reference.producers.get(pid)
        return producer is not None and producer.first_open >= 0

    def _records(self, log: Log) -> tuple[tuple[bytes | None, bytes | None], ...]:
        rng = self.rng
        found = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            self.values += 1
            value: bytes | None = b"value %d" % self.values + b"." * rng.choice((0, 0, 20, 60))
            if log.config.is_compacted and rng.random() < 0.1:
                value = None
            found.append((rng.choice(KEYS), value))
        return tuple(found)

    def _append_records(
        self,
        log: Log,
        expected: Expected,
        data: memoryview,
        sent: Batch,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        was_offline = self._is_offline(expected)
        try:
            answer = log.append_as_leader(data, sent.leader_epoch, self.now_ms, origin=origin)
        except Stopped:
            expected.maybe(sent._replace(data=bytes(data)))
            raise
        self._note(log, expected, sent._replace(data=bytes(data)), answer, was_offline)

    def _note(
        self,
        log: Log,
        expected: Expected,
        sent: Batch,
        answer: AppendInfo | AppendError,
        was_offline: bool,
    ) -> None:
        if isinstance(answer, AppendError):
            require(self._is_offline(expected), f"{log}: {answer} to {sent}")
            if not was_offline:
                expected.maybe(sent)
            return
        require(not was_offline, f"{log} takes records after its disk has failed")
        require(
            (answer.first_offset, answer.last_offset) == (sent.base, sent.last)
            and not answer.duplicate,
            f"{log}: {answer} to {sent}",
        )
        expected.append(sent)
        log.high_watermark = log.log_end_offset
        if log.config.flush_messages == 1:
            # This makes the produce request wait until the record is on the device.
            require(log.flush_state.wanted, f"{log}: no flush is due after an append")
            self._flush(log, expected)

    def _end_transaction(self) -> None:
        picked = self._pick()
        if picked is None:
            return
        log, expected = picked
        open_ = [pid for pid in (11, 12) if self._has_open(expected, pid)]
        if not open_:
            return
        pid = self.rng.choice(open_)
        outcome = self.rng.choice((COMMIT, ABORT))
        epoch = expected.reference.producers[pid].epoch
        offset = log.log_end_offset
        sent = Batch(
            offset, offset, b"", START_MS, expected.leader_epoch, pid, epoch, -1, True, outcome
        )
        data = marker(pid, epoch, commit=outcome == COMMIT)
        self._append_records(log, expected, data, sent, AppendOrigin.COORDINATOR)

    def _send_again(self) -> None:
        # A producer that got no answer.
        picked = self._pick()
        if picked is None:
            return
        log, expected = picked
        if self._is_offline(expected):
            return
        for pid, producer in expected.reference.producers.items():
            if not producer.batches or producer.faded or pid not in log.producers.producers:
                continue
            last = producer.batches[-1]
            if last.base < log.log_start_offset:
                continue
            if last.transactional and producer.first_open < 0:
                continue  # its transaction has ended, so the producer does not resend it
            data = memoryview(bytearray(last.data))
            data[0:8] = bytes(8)
            answer = log.append_as_leader(data, expected.leader_epoch, self.now_ms)
            require(
                isinstance(answer, AppendInfo)
                and answer.duplicate
                and (answer.first_offset, answer.last_offset) == (last.base, last.last),
                f"{log}: {answer} to what is there already: {last}",
            )
            return

    def _append_as_follower(self) -> None:
        picked = self._pick()
        if picked is None:
            return
        log, expected = picked
        rng = self.rng
        sent: list[Batch] = []
        offset = log.log_end_offset
        joined = b""
        for _ in range(rng.choice((1, 2, 3))):
            records = self._records(log)
            data = batch_of(
                records, self.now_ms, base_offset=offset, leader_epoch=expected.leader_epoch
            )
            last = offset + len(records) - 1
            sent.append(
                Batch(
                    offset,
                    last,
                    bytes(data),
                    self.now_ms,
                    expected.leader_epoch,
                    records=records,
                )
            )
            joined += data
            offset = last + 1
        was_offline = self._is_offline(expected)
        try:
            answer = log.append_as_follower(memoryview(bytearray(joined)), self.now_ms)
        except Stopped:
            for each in sent:
                expected.maybe(each)
            raise
        if isinstance(answer, AppendError):
            require(self._is_offline(expected), f"{log}: {answer}")
            for each in sent if not was_offline else ():
                expected.maybe(each)
            return
        for each in sent:
            expected.append(each)
        log.high_watermark = log.log_end_offset
        if log.config.flush_messages == 1:
            self._flush(log, expected)

    # -- flushing ----------------------------------------------------------------------------------

    def _flush(self, log: Log, expected: Expected) -> None:
        flush = self._prepare(log, expected)
        if flush is not None and self._run(flush):
            self._complete(flush)

    def _prepare(self, log: Log, expected: Expected) -> Flush | None:
        if log.offline:
            return None
        made: list[FlushTask] = []
        if not self._attempt(expected, lambda: made.append(log.prepare_flush())):
            return None
        return Flush(log, expected, made[0], log.log_end_offset)

    def _run(self, flush: Flush) -> bool:
        try:
            flush.task.run()
        except OSError as e:
            if not flush.expected.deleted:
                flush.log.on_io_error(e)
                require(self._is_offline(flush.expected), f"{flush.log} goes on after {e}")
            return False
        flush.ran = True
        return True

    def _complete(self, flush: Flush) -> None:
        log, expected = flush.log, flush.expected
        if log.offline:
            return
        log.complete_flush(flush.task, self.now_ms)
        expected.confirm(min(flush.end, expected.end))
        require(
            log.recovery_point <= max(expected.synced, expected.origin),
            f"{log}: recovery point {log.recovery_point}, but {expected.synced} is synced",
        )

    def _begin_flush(self) -> None:
        picked = self._pick()
        if picked is not None:
            log, expected = picked
            if any(flush.log is log for flush in self.flushes):
                return  # one at a time, as the broker does
            flush = self._prepare(log, expected)
            if flush is not None:
                self.flushes.append(flush)

    def _run_flush(self) -> None:
        waiting = [flush for flush in self.flushes if not flush.ran]
        if waiting:
            flush = self.rng.choice(waiting)
            if not self._run(flush):
                self.flushes.remove(flush)

    def _complete_flush(self) -> None:
        waiting = [flush for flush in self.flushes if flush.ran]
        if waiting:
            flush = self.rng.choice(waiting)
            self.flushes.remove(flush)
            self._complete(flush)

    def _run_flushes(self) -> None:
        for flush in self.flushes:
            if flush.ran or (not flush.log.offline and self._run(flush)):
                self._complete(flush)
        self.flushes.clear()

    def _flush_due(self) -> None:
        self._run_flushes()
        for log in self.manager.flush_due(self.now_ms):
            expected = self.partitions.get(log.tp)
            if expected is not None:
                self._flush(log, expected)

    # -- the rest ----------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        which = self.rng.randrange(3)
        if which == 0:
            self.manager.checkpoint(self.now_ms)
        elif which == 1:
            self.manager.checkpoint_high_watermarks()
        else:
            self.manager.checkpoint_log_start_offsets()
        for tp, expected in self.partitions.items():
            log = self.manager.get(tp)
            if log is None or self._is_offline(expected):
                continue
            if which != 2:
                expected.watermark = log.high_watermark
            if which != 1:
                expected.safe_start = max(expected.safe_start, log.log_start_offset)

    def _delete_records(self) -> None:
        picked = self._pick()
        if picked is None or picked[0].offline:
            return
        log, expected = picked
        offset = self.rng.randint(log.log_start_offset, log.high_watermark)
        expected.told_start = max(expected.told_start, offset)
        done: list[int] = []
        if not self._attempt(expected, lambda: done.append(log.delete_records_before(offset))):
            return
        require(done == [0], f"{log}: {done} to deleting records before {offset}")
        self.manager.checkpoint_log_start_offsets()
        if not self._is_offline(expected):
            expected.safe_start = max(expected.safe_start, offset)

    def _retention(self) -> None:
        for tp, expected in self.partitions.items():
            log = self.manager.get(tp)
            if log is not None and not log.offline and log.config.is_deleting:
                expected.told_start = max(expected.told_start, log.high_watermark)
        self.manager.retention(self.now_ms)
        for tp, expected in self.partitions.items():
            log = self.manager.get(tp)
            if log is not None and not log.offline:
                expected.told_start = log.log_start_offset

    def _run_deletes(self) -> None:
        self.manager.run_deletes(self.now_ms)

    def _truncate(self) -> None:
        picked = self._pick("plain", "flushed", "tenth", "bounded")
        if picked is None or picked[0].offline:
            return
        log, expected = picked
        rng = self.rng
        if rng.random() < 0.15:
            offset = log.log_end_offset + rng.choice((0, 0, 5))
            self._cap_flushes(log, 0)
            expected.restart_at(offset)
            before, expected.unsure = expected.unsure, True
            restart = partial(log.truncate_fully_and_start_at, offset, self.now_ms)
            if self._attempt(expected, restart):
                expected.unsure = before
            return
        begin = log.segments[0].base_offset if rng.random() < 0.2 else log.log_start_offset
        bases = [each.base for each in expected.batches if each.base >= begin]
        if not bases:
            return
        offset = rng.choice(bases)
        self._cap_flushes(log, offset)
        expected.cut(offset)
        self._attempt(expected, lambda: log.truncate_to(offset, self.now_ms))

    def _cap_flushes(self, log: Log, offset: int) -> None:
        for flush in self.flushes:
            if flush.log is log:
                flush.end = min(flush.end, offset)

    def _compact(self) -> None:
        cleaner = self.cleaner
        round_ = cleaner.next_round(self.now_ms)
        if round_ is None:
            return
        log = round_.log
        expected = self.partitions[log.tp]
        try:
            run_round(cleaner, round_, now_ms=self.now_ms, layer=self.files)
            self.files.sync_directory(log.dir)
        except (OSError, AssertionError) as e:
            if isinstance(e, Violation) or not (self.failed or isinstance(e, OSError)):
                raise
            if isinstance(e, OSError):
                cleaner.fail(round_, e, self.now_ms)
        else:
            self._check(log, lambda: check_open(log, expected, self.rng))

    def _create(self) -> None:
        tp = TopicPartition(self.rng.choice(NAMES), self.rng.randrange(3))
        if tp in self.partitions or tp in self.gone or len(self.partitions) >= 6:
            return
        try:
            log = self.manager.create(tp, bytes(range(16)), TOPICS[tp.topic], self.now_ms)
        except OSError:
            require(self.failed, f"no log for {tp}, and no disk has failed")
            return
        self.partitions[tp] = Expected(log.dir.rpartition("/")[0], tp.topic)

    def _delete_one(self) -> None:
        picked = self._pick()
        if picked is not None and not picked[0].offline:
            log, expected = picked
            expected.deleted = True
            self._attempt(expected, lambda: self._delete(log.tp))

    def _delete(self, tp: TopicPartition) -> None:
        self.flushes = [flush for flush in self.flushes if flush.log.tp != tp]
        self.gone.add(tp)
        self.manager.delete(tp, self.now_ms)


def _sequence_of(producer: object) -> tuple[int, int]:
    from .expected import Producer

    if not isinstance(producer, Producer):
        return 0, 0
    return producer.epoch, producer.next_sequence
