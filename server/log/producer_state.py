"""What a partition remembers of its producers: epochs, sequences, open transactions.

Snapshot file (`<20 digits>.snapshot`, named by the NEXT offset, which it does not cover):

    off size field
      0    2 version                 1
      2    4 crc                     CRC-32C of everything from offset 6
      6    4 count
     10   46 each entry:
          8 producer_id       2 producer_epoch     4 last_sequence     8 last_offset
          4 offset_delta      8 last_timestamp     4 coordinator_epoch 8 current_txn_first_offset

last_offset -1: no batch is remembered; current_txn_first_offset -1: no open transaction. Only the
last batch is kept in the file, five in memory. Written at roll and at close. Recovery rule: the
newest readable snapshot at or below the log end, then the batch headers after it.
Source: ProducerStateManager, ProducerAppendInfo, ProducerStateEntry.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.records.crc import crc32c

from .index.transaction_index import AbortedTransaction

SNAPSHOT_SUFFIX = ".snapshot"
SNAPSHOT_VERSION = 1
BATCHES_REMEMBERED = 5
SEQUENCE_MASK = 0x7FFFFFFF
MAX_EPOCH = 0x7FFF
EXPIRED_IN_STEP = 1000
NONE = -1

_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """A producer snapshot cannot be read."""


class BatchMetadata(NamedTuple):
    """A batch that a producer appended; first and last sequence inclusive."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class Verification(NamedTuple):
    """A producer whose transaction is not known here yet, and the lowest sequence that it has sent.

    Shape: `guard` changes with each marker, so that an answer that was requested before a marker is known to be
    outdated. `is_added` says that the batch itself added the partition.
    """

    epoch: int
    lowest_sequence: int
    timestamp: int
    guard: object
    is_added: bool


class ProducerRefusal(NamedTuple):
    """Why a producer's batch is not appended."""

    error: ErrorCode
    message: str


class ProducerStateEntry:
    """One producer, as this partition last saw it."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int, producer_epoch: int = NONE) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = NONE
        self.last_timestamp = NONE
        self.current_txn_first_offset = NONE
        self.batches: list[BatchMetadata] = []

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 if no batch is remembered."""
        return self.batches[-1].last_sequence if self.batches else NONE

    @property
    def last_data_offset(self) -> int:
        """Offset of the last record, -1 if no batch is remembered."""
        return self.batches[-1].last_offset if self.batches else NONE

    def copy(self) -> ProducerStateEntry:
        """An entry that can change without this one changing."""
        twin = ProducerStateEntry(self.producer_id, self.producer_epoch)
        twin.coordinator_epoch = self.coordinator_epoch
        twin.last_timestamp = self.last_timestamp
        twin.current_txn_first_offset = self.current_txn_first_offset
        twin.batches = list(self.batches)
        return twin

    def find_duplicate(self, epoch: int, first_sequence: int, last: int) -> BatchMetadata | None:
        """The remembered batch with these sequences, if this producer epoch sent one."""
        if epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last:
                    return batch
        return None


class ProducerStateManager:
    """All producers of one partition and its open transactions; works on bytes, not on files."""

    __slots__ = (
        "expiration_ms",
        "last_map_offset",
        "last_snapshot_offset",
        "ongoing",
        "producers",
        "unreplicated",
        "verifying",
    )

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        self.ongoing: dict[int, int] = {}
        """Open transactions: first offset to producer id, in order of first offset."""
        self.unreplicated: list[tuple[int, int]] = []
        """(first offset, marker offset) of transactions whose marker may lie above the high
        watermark; a list since they are few."""
        self.verifying: dict[int, Verification] = {}
        self.last_map_offset = 0
        self.last_snapshot_offset = 0

    # -- transactions ------------------------------------------------------------------------------

    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction that is open, or ended above the high watermark."""
        first = next(iter(self.ongoing)) if self.ongoing else None
        if self.unreplicated:
            ended = min(start for start, _ in self.unreplicated)
            return ended if first is None or ended < first else first
        return first

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forget ended transactions whose marker is committed."""
        if self.unreplicated:
            self.unreplicated = [txn for txn in self.unreplicated if txn[1] >= high_watermark]

    # -- checking a leader's append ----------------------------------------------------------------

    def check(
        self,
        entry: ProducerStateEntry,
        epoch: int,
        first_sequence: int,
        *,
        from_client: bool,
        transactional: bool,
    ) -> ProducerRefusal | None:
        """Whether a data batch may follow the known state of its producer.

        Errors: INVALID_PRODUCER_EPOCH for an older epoch; OUT_OF_ORDER_SEQUENCE_NUMBER, for clients only, for a gap;
        INVALID_TXN_STATE for plain data inside a transaction. A producer without state may begin with any sequence: its
        records may have been deleted.
        Source: ProducerAppendInfo.
        """
        current = entry.producer_epoch
        if epoch < current:
            return ProducerRefusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {entry.producer_id} is {epoch}, which is smaller than the "
                f"last seen epoch {current}",
            )
        overtaking = self._overtakes(entry, first_sequence) if from_client else None
        if overtaking is not None:
            return overtaking
        if from_client and current != NONE:
            last = entry.last_sequence
            if epoch != current:
                if first_sequence != 0:
                    return ProducerRefusal(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"Invalid sequence number for new epoch of producer {entry.producer_id}: "
                        f"{epoch} (request epoch), {first_sequence} (seq. number), "
                        f"{current} (current producer epoch)",
                    )
            elif first_sequence != last + 1 and (first_sequence or last != SEQUENCE_MASK):
                return ProducerRefusal(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {entry.producer_id}: "
                    f"{first_sequence} (incoming seq. number), {last} (current end sequence "
                    "number)",
                )
        if entry.current_txn_first_offset >= 0 and not transactional:
            return ProducerRefusal(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {entry.producer_id}",
            )
        return None

    def check_marker(
        self, entry: ProducerStateEntry, epoch: int, coordinator_epoch: int
    ) -> ProducerRefusal | None:
        """Whether a coordinator's end marker may be appended.

        Errors: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED for an older epoch.
        """
        if epoch < entry.producer_epoch:
            return ProducerRefusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {entry.producer_id} is {epoch}, which is smaller than the "
                f"last seen epoch {entry.producer_epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            return ProducerRefusal(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {entry.producer_id}: {coordinator_epoch} "
                f"(zombie), {entry.coordinator_epoch} (current)",
            )
        return None

    def is_stale_marker(self, producer_id: int, epoch: int) -> bool:
        """Whether a marker of transaction version 2 is late, because its transaction has ended.

        Shape: such a marker has an epoch that no earlier batch had. A marker with the epoch of the last marker is that
        marker again, which may be written twice. Source: ProducerAppendInfo (KIP-1228).
        """
        entry = self.producers.get(producer_id)
        if entry is None or epoch > entry.producer_epoch:
            return False
        is_again = entry.current_txn_first_offset < 0 or epoch == MAX_EPOCH
        return epoch < entry.producer_epoch or not is_again

    def begin_verification(
        self, producer_id: int, epoch: int, first_sequence: int, now_ms: int, *, is_added: bool
    ) -> None:
        """Note that a batch which opens a transaction here is being verified.

        Shape: to be called for each attempt, even after a failed verification, because the first batch may fail and the
        second may not; `check` refuses batches that have overtaken the lowest sequence. `is_added` says that the batch
        itself added the partition (transaction version 2); the first attempt decides.
        Source: VerificationStateEntry.
        """
        tried = self.verifying.get(producer_id)
        if tried is None or tried.epoch < epoch:
            lowest, guard = first_sequence, object()
        elif tried.epoch == epoch:
            lowest, guard = min(tried.lowest_sequence, first_sequence), tried.guard
        else:
            return  # an old epoch, which the log refuses
        is_added = is_added if tried is None else tried.is_added  # as the first try said
        self.verifying[producer_id] = Verification(epoch, lowest, now_ms, guard, is_added)

    def _overtakes(self, entry: ProducerStateEntry, first_sequence: int) -> ProducerRefusal | None:
        """Refuse a batch that overtook the first one of a transaction that is being verified."""
        tried = self.verifying.get(entry.producer_id)
        if tried is None:
            return None
        if tried.is_added and first_sequence and not entry.batches:
            return ProducerRefusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for producer {entry.producer_id}: {first_sequence} "
                "(incoming seq. number). Expected sequence 0 for transactions v2 idempotent producer "
                "with no existing state",
            )
        if first_sequence > tried.lowest_sequence:
            return ProducerRefusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {entry.producer_id}: {first_sequence} "
                f"(incoming seq. number), {tried.lowest_sequence} (earliest seen sequence)",
            )
        return None

    # -- recording appended batches ----------------------------------------------------------------

    def entry_for(self, producer_id: int) -> ProducerStateEntry:
        """The entry of a producer, made if it is new."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id)
        return entry

    def append_data(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        offset_delta: int,
        first_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """Take note of an appended data batch."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id)
        batches = entry.batches
        if entry.producer_epoch != epoch:
            batches.clear()
            entry.producer_epoch = epoch
        if len(batches) >= BATCHES_REMEMBERED:
            del batches[0]
        batches.append(
            BatchMetadata(
                first_sequence,
                NONE if first_sequence < 0 else (first_sequence + offset_delta) & SEQUENCE_MASK,
                first_offset + offset_delta,
                offset_delta,
                timestamp,
            )
        )
        entry.last_timestamp = timestamp
        if transactional and entry.current_txn_first_offset < 0:
            entry.current_txn_first_offset = first_offset
            self.ongoing[first_offset] = producer_id
            self.verifying.pop(producer_id, None)

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp: int,
        *,
        committed: bool,
    ) -> AbortedTransaction | None:
        """Take note of an end marker; return the index entry if it aborted something."""
        entry = self.entry_for(producer_id)
        self.verifying.pop(producer_id, None)
        first_offset = entry.current_txn_first_offset
        if entry.producer_epoch != epoch:
            entry.batches.clear()
            entry.producer_epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_txn_first_offset = NONE
        if first_offset < 0:
            return None
        others = (start for start, pid in self.ongoing.items() if pid != producer_id)
        last_stable_offset = next(others, offset + 1)
        self.ongoing.pop(first_offset, None)
        self.unreplicated.append((first_offset, offset))
        if committed:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    # -- the map as a whole ------------------------------------------------------------------------

    def remove_expired(self, now_ms: int) -> Iterator[None]:
        """Forget producers without an open transaction that were idle for the expiration time, in steps."""
        limit = now_ms - self.expiration_ms
        ids = iter([*self.producers])
        while some := [*islice(ids, EXPIRED_IN_STEP)]:
            for producer_id in some:
                entry = self.producers.get(producer_id)
                if entry is None or entry.last_timestamp > limit:
                    continue
                if entry.current_txn_first_offset < 0:
                    del self.producers[producer_id]
            yield
        ids = iter([*self.verifying])
        while some := [*islice(ids, EXPIRED_IN_STEP)]:
            for producer_id in some:
                tried = self.verifying.get(producer_id)
                if tried is not None and tried.timestamp <= limit:
                    del self.verifying[producer_id]
            yield

    @property
    def known(self) -> int:
        """How many producers are remembered, and how many verified for the first time."""
        return len(self.producers) + len(self.verifying)

    def forget(self, count: int) -> int:
        """Forget the given number of producers without an open transaction; return how many could be forgotten.

        Shape: first those whose transaction was never verified, then those that have sent a single batch, then the
        others; the oldest first. A repeated batch of a forgotten producer is not recognized any more.
        """
        gone = list(islice(self.verifying, count))
        for producer_id in gone:
            del self.verifying[producer_id]
        left = count - len(gone)
        idle = (each for each in self.producers.values() if each.current_txn_first_offset < 0)
        brief = list(islice((each for each in idle if len(each.batches) < 2), left))
        for each in brief:
            del self.producers[each.producer_id]
        left -= len(brief)
        if left:
            idle = (each for each in self.producers.values() if each.current_txn_first_offset < 0)
            others = list(islice(idle, left))
            for each in others:
                del self.producers[each.producer_id]
            left -= len(others)
        return count - left

    def clear(self, offset: int) -> None:
        """Forget everything; the map stands at offset."""
        self.producers.clear()
        self.ongoing.clear()
        self.unreplicated.clear()
        self.verifying.clear()
        self.last_map_offset = offset
        self.last_snapshot_offset = offset

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Forget ended transactions below the new start."""
        self.on_high_watermark_updated(log_start_offset)
        self.last_map_offset = max(self.last_map_offset, log_start_offset)

    def needs_snapshot(self) -> bool:
        """True if a snapshot now would cover more than the last one."""
        return self.last_map_offset > self.last_snapshot_offset

    def snapshot(self) -> bytes:
        """The content of a snapshot file at `last_map_offset`."""
        body = bytearray(len(self.producers).to_bytes(4, "big"))
        for entry in self.producers.values():
            batch = entry.batches[-1] if entry.batches else None
            body += _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                batch.last_sequence if batch else NONE,
                batch.last_offset if batch else NONE,
                batch.offset_delta if batch else 0,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        return SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body

    def load_snapshot(self, data: bytes, offset: int, now_ms: int) -> None:
        """Begin with a snapshot taken at offset, without what expired since.

        Errors: CorruptSnapshot; the map is then unchanged.
        """
        entries = parse_snapshot(data)
        self.clear(offset)
        for entry in entries:
            open_txn = entry.current_txn_first_offset >= 0
            if not open_txn and now_ms - entry.last_timestamp >= self.expiration_ms:
                continue
            self.producers[entry.producer_id] = entry
        for entry in sorted(entries, key=lambda e: e.current_txn_first_offset):
            if entry.current_txn_first_offset >= 0:
                self.ongoing[entry.current_txn_first_offset] = entry.producer_id


def parse_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """The entries of a snapshot file. Errors: CorruptSnapshot."""
    try:
        version, crc, count = _HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION:
            raise CorruptSnapshot(f"unknown snapshot version {version}")
        if crc32c(data[6:]) != crc:
            raise CorruptSnapshot("the snapshot's CRC is wrong")
        rows = [_ENTRY.unpack_from(data, _HEAD.size + _ENTRY.size * n) for n in range(count)]
    except StructError as e:
        raise CorruptSnapshot(f"a snapshot of {len(data)} bytes is cut short") from e
    entries = []
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn in rows:
        entry = ProducerStateEntry(producer_id, epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_txn_first_offset = txn
        if offset >= 0:
            first = NONE if sequence < 0 else (sequence - delta) & SEQUENCE_MASK
            entry.batches.append(BatchMetadata(first, sequence, offset, delta, timestamp))
        entries.append(entry)
    return entries
