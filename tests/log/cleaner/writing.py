"""Random batches for logs that are compacted."""

from __future__ import annotations

import random

from kwire.records.batch import BatchBuilder
from server.log.log import Log

from ..logs import append, end_transaction


class Writer:
    """Appends batches of all kinds, determined by a seed."""

    def __init__(self, log: Log, seed: int, now_ms: int) -> None:
        self.log = log
        self.chooser = random.Random(seed)
        self.now_ms = now_ms
        self.epoch = max(log.leader_epoch_cache.latest, 0)
        self.sequences = {
            entry.producer_id: entry.last_sequence + 1 for entry in log.active_producers()
        }

    def add_records(self, builder: BatchBuilder, *, transactional: bool) -> int:
        """Add some records with few keys; return how many."""
        raise NotImplementedError

    def lead(self, pid: int = -1, *, transactional: bool = False) -> None:
        """Append a batch as a leader."""
        sequence = self.sequences.get(pid, 0) if pid >= 0 else -1
        builder = BatchBuilder(
            2,
            self.chooser.choice((0, 0, 0, 1, 2, 3, 4)),
            producer_id=pid,
            producer_epoch=0 if pid >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        count = self.add_records(builder, transactional=transactional)
        if pid >= 0:
            self.sequences[pid] = sequence + count
        records = memoryview(bytearray(builder.build()))
        append(self.log, records, epoch=self.epoch, now_ms=self.now_ms)

    def append_other(self) -> None:
        """Append a batch of another kind, if a subclass has one."""
        self.lead()

    def run(self, count: int) -> None:
        """Append plain, other, idempotent and transactional batches, and seal the segment."""
        chooser = self.chooser
        for number in range(count):
            kind = chooser.random()
            if kind < 0.5:
                self.lead()
            elif kind < 0.7:
                self.append_other()
            elif kind < 0.85:
                self.lead(chooser.choice((101, 102, 103)))
            else:
                pid = 200 + number % 4
                for _ in range(chooser.randrange(1, 4)):
                    self.lead(pid, transactional=True)
                    self.lead()
                end_transaction(self.log, pid, commit=chooser.random() < 0.5, epoch=self.epoch)
        self.log.roll(self.now_ms)
        self.log.flush(self.now_ms)
        self.lead()
