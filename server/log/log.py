"""The log of one partition: append, read, roll, truncate, delete.

A directory `<topic>-<partition>` of segments (segment.py), `leader-epoch-checkpoint`,
`partition.metadata` and producer snapshots. Offsets below `log_start_offset` have been deleted; those from
`high_watermark` on may still be truncated. Appends go to the page cache: a killed process loses nothing, and a
power cut loses what lies above `recovery_point`.

The parts of a log have modules of their own: `log_segments.py` the segments, `reader.py` reading them,
`producer_state.py` and `producer_snapshots.py` the producers, `leader_epoch_cache.py` the epochs, `flush_state.py`
what is on the device. The checks before a write are in `append.py`, `validator.py` and `producer_checks.py`.
Source: UnifiedLog, LocalLog.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING
from zlib import crc32 as crc32_of_name

from kwire.errors import CorruptRecord, ErrorCode
from kwire.records.batch import MAX_DECOMPRESSED_BYTES, read_header
from kwire.records.compression import Codec
from kwire.records.crc import crc32c
from kwire.records.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    INT32,
    INT64,
    LEADER_EPOCH_AT,
    NO_TIMESTAMP,
)

from .. import native
from . import retention, truncation
from .append import Written, check_as_follower, check_as_leader, stamp
from .file_layer import OUT_OF_DESCRIPTORS, FileLayer, OpenFile
from .flush_state import FlushState, FlushTask
from .log_config import LogConfig
from .log_segments import LogSegments
from .meta_properties import write_topic_id
from .producer_checks import check_all, check_next
from .producer_snapshots import ProducerSnapshots
from .producer_state import ProducerStateEntry
from .producer_updates import note_batch
from .reader import LogReader, LogSlice
from .segment import INT32_MAX, NEVER, UNKNOWN, LogSegment
from .time_search import Effort, Found, TimeSearch
from .validator import (
    INLINE_REWRITE_BYTES,
    TOO_MUCH_HERE,
    UNUSUAL_ATTRIBUTES,
    AppendError,
    AppendInfo,
    AppendOrigin,
    append_info,
    bytes_in_python,
    check_header,
    needs_rewrite,
    prepare,
    reads_as_stated,
    target_codec,
)

if TYPE_CHECKING:
    from ..metadata.topic_partition import TopicPartition
    from .delayed_delete import DelayedDeletes
    from .leader_epoch_cache import LeaderEpochCache
    from .loaded_log import LoadedLog
    from .producer_state import ProducerStateManager

__all__ = ["AppendError", "AppendInfo", "AppendOrigin", "Log", "LogSlice"]

_PACK_OFFSET = INT64.pack_into
_PACK_EPOCH = INT32.pack_into
_CLIENT = AppendOrigin.CLIENT
_COORDINATOR = AppendOrigin.COORDINATOR

# For each codec that a topic may demand: whether a batch with codec 0 to 7 is stored as it is.
_CODEC_OK: dict[Codec | None, tuple[bool, ...]] = {
    wanted: tuple(n <= Codec.ZSTD and wanted in (None, n) for n in range(8))
    for wanted in (None, *Codec)
}

logger = logging.getLogger(__name__)


class Log:
    """One partition's log on this broker. All calls are synchronous and may block on the disk."""

    __slots__ = (
        "_io_error",
        "_segments",
        "active_segment",
        "codec_ok",
        "committed",
        "config",
        "deletes",
        "dir",
        "flush_state",
        "layer",
        "leader_epoch_cache",
        "log_end_offset",
        "log_start_offset",
        "max_batch_bytes",
        "may_rewrite",
        "needs_keys",
        "offline",
        "on_truncation",
        "producers",
        "reader",
        "reads_natively",
        "segment_bytes",
        "segments",
        "snapshots",
        "timestamp_after",
        "timestamp_before",
        "topic_id",
        "tp",
        "unusual",
    )

    def __init__(
        self,
        tp: TopicPartition,
        directory: str,
        config: LogConfig,
        layer: FileLayer,
        loaded: LoadedLog,
        deletes: DelayedDeletes,
        *,
        now_ms: int,
        topic_id: bytes | None = None,
        io_error: Callable[[OSError], None] | None = None,
    ) -> None:
        """Begin with the loader's results; `io_error` is called when the disk fails."""
        self.tp = tp
        self.dir = directory
        self.layer = layer
        self.topic_id = topic_id
        self.deletes = deletes
        self._segments = LogSegments(layer, directory, loaded.segments, deletes)
        self.segments: list[LogSegment] = self._segments.in_order
        self.active_segment = loaded.segments[-1]
        self.log_start_offset: int = loaded.log_start_offset
        self.log_end_offset: int = loaded.log_end_offset
        self.leader_epoch_cache: LeaderEpochCache = loaded.leader_epoch_cache
        self.producers: ProducerStateManager = loaded.producers
        self.snapshots = ProducerSnapshots(layer, directory, loaded.snapshots)
        self.reader: LogReader = self._segments.reader
        #: The high watermark, for frequent readers; set through `high_watermark`.
        self.committed = self.log_start_offset
        self._io_error = io_error
        self.offline = False
        self.flush_state = FlushState(
            loaded.recovery_point, self.undecided_offset, now_ms, doubtful=loaded.doubtful
        )
        # The data that recovery found may be in memory only, and is not compacted until it is flushed.
        self.flush_state.wanted = loaded.doubtful and config.is_compacted
        self.on_truncation: Callable[..., None] | None = None
        """Told the offset before anything at or above it goes, and whether recovery point or log start
        offset were lowered: writes down the checkpoints that are higher."""
        self.config = config
        self.update_config(config)

    def __repr__(self) -> str:
        return f"Log({self.tp}, [{self.log_start_offset}, {self.log_end_offset}))"

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings; existing files do not change until the next roll."""
        self.config = config
        self.max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self.needs_keys = config.is_compacted
        self.segment_bytes = config.segment_bytes
        self.timestamp_before = config.message_timestamp_before_max_ms
        self.timestamp_after = config.message_timestamp_after_max_ms
        codec = target_codec(config)
        self.codec_ok = _CODEC_OK[codec]
        reads = config.is_compacted or config.validation == "deep"
        #: Whether the native module reads the records of each batch; batches that it cannot handle are prepared.
        self.reads_natively = reads and native.form() == "native"
        reads_here = reads and not self.reads_natively
        self.may_rewrite = codec is not None or reads_here
        self.unusual = reads_here or config.log_append_time
        self.producers.expiration_ms = config.producer_id_expiration_ms
        for segment in self.segments[-1:]:
            segment.index_room = 0
            if segment.roll_timestamp != NEVER:
                segment.roll_timestamp = UNKNOWN
            segment.jitter_ms = self._jitter(segment.base_offset)

    def _jitter(self, base_offset: int) -> int:
        if self.config.segment_jitter_ms <= 0:
            return 0
        name = f"{self.tp}/{base_offset}".encode()
        return crc32_of_name(name) % min(self.config.segment_jitter_ms, self.config.segment_ms)

    def move_to(self, directory: str) -> None:
        """Rename the log's directory; readers and open descriptors continue. Errors: OSError."""
        self.layer.rename(self.dir, directory)
        self.dir = directory
        self._segments.move_to(directory)
        self.snapshots.move_to(directory)
        self.leader_epoch_cache.move_to(directory)
        self.flush_state.name_synced = False

    def adopt(self, other: Log) -> None:
        """Adopt the state of another copy of the same log, which this copy replaces."""
        self.update_config(other.config)
        self.increment_log_start_offset(other.log_start_offset)
        self.leader_epoch_cache.adopt(other.leader_epoch_cache)
        snapshot_offset = self.producers.last_snapshot_offset
        # The other copy knows producers whose records were deleted, too.
        self.producers = other.producers
        self.producers.last_snapshot_offset = snapshot_offset
        self.high_watermark = min(other.high_watermark, self.log_end_offset)

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Store the topic id of a log that had none. Errors: OSError."""
        write_topic_id(self.layer, self.dir, topic_id)
        self.topic_id = topic_id

    # -- offsets -----------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Offsets below it are committed (exclusive end for consumers)."""
        return self.committed

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self.committed = offset
        if self.producers.unreplicated:
            self.producers.on_high_watermark_updated(offset)

    @property
    def last_stable_offset(self) -> int:
        """Offsets below it are decided: the exclusive end for read_committed."""
        producers = self.producers
        if not producers.ongoing and not producers.unreplicated:
            return self.committed
        first = producers.first_unstable_offset()
        assert first is not None
        return min(self.committed, max(first, self.log_start_offset))

    @property
    def recovery_point(self) -> int:
        """Offsets below it are on the device."""
        return self.flush_state.recovery_point

    @property
    def undecided_offset(self) -> int:
        """The offset below which all transactions are decided, even if not every replica has their markers."""
        first = self.producers.first_unstable_offset()
        return self.log_end_offset if first is None else first

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' batches."""
        return sum(segment.size for segment in self.segments)

    # -- appending ---------------------------------------------------------------------------------

    def needs_rewrite(self, records: memoryview) -> bool:
        """Whether `prepare` must run before the append: CPU work that should leave the loop."""
        return needs_rewrite(records, self.config)

    def prepare(self, records: memoryview, now_ms: int) -> memoryview | bytes | AppendError:
        """Read, check and perhaps rewrite records; append the result with prepared=True."""
        return prepare(records, self.config, str(self.tp), now_ms)

    def append_as_leader(  # noqa: C901 - on the path of each batch, which a further call would make longer
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = _CLIENT,
        prepared: bool = False,
        max_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> AppendInfo | AppendError:
        """Give a producer's batches the next offsets and write them to the page cache, all or none.

        Shape: offset and epoch are written into `records` in place if it is writable. The view
        is not kept. Where records must be read that were not `prepared`, no more than max_bytes are
        decompressed, and fewer where Python has to read them (`bytes_in_python`); with 0, large batches are not read either. Errors: as value; TOO_MUCH_HERE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP,
        MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, the producer
        errors, KAFKA_STORAGE_ERROR. Source: UnifiedLog.appendAsLeader.
        """
        size = len(records)
        must_read = self.reads_natively and not prepared
        is_unusual = self.unusual
        if origin is not _CLIENT:
            # A coordinator's own records need not be read.
            is_unusual = origin is not _COORDINATOR or self.config.log_append_time
            must_read = False
        if is_unusual or self.offline:
            return self._append_carefully(
                records, leader_epoch, now_ms, origin, prepared, max_bytes
            )
        if must_read and not max_bytes and size > INLINE_REWRITE_BYTES:
            return TOO_MUCH_HERE
        header = (native.check_batch or check_header)(
            records,
            now_ms,
            self.timestamp_before,
            self.timestamp_after,
            self.max_batch_bytes,
            must_read,
            self.needs_keys,
        )
        if header is None or not self.codec_ok[header[1] & CODEC_MASK]:
            return self._append_carefully(
                records, leader_epoch, now_ms, origin, prepared, max_bytes
            )
        (
            crc,
            attributes,
            delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            sequence,
            was_read,
        ) = header
        if was_read:
            must_read = False
        if must_read and attributes & CODEC_MASK and not max_bytes:
            return TOO_MUCH_HERE
        if crc32c(records[ATTRIBUTES_AT:]) != crc or (
            must_read
            and not reads_as_stated(
                records,
                attributes,
                delta + 1,
                base_timestamp,
                max_timestamp,
                self.config,
                now_ms,
                max_bytes,
            )
        ):
            return self._append_carefully(
                records, leader_epoch, now_ms, origin, prepared, max_bytes
            )
        if producer_id >= 0:
            if origin is not _CLIENT:
                return self._append_carefully(
                    records, leader_epoch, now_ms, origin, prepared, max_bytes
                )
            entry = self.producers.producers.get(producer_id)
            if (
                sequence < 0
                or entry is None
                or entry.producer_epoch != producer_epoch
                or entry.last_sequence + 1 != sequence
                or (entry.current_txn_first_offset >= 0 and not attributes & 0x10)
                or self.producers.verifying
            ):
                answer = check_next(
                    self.producers,
                    entry,
                    producer_epoch,
                    sequence,
                    delta,
                    attributes,
                    producer_id,
                    self.tp,
                    self.log_start_offset,
                )
                if answer is not None:
                    return answer
        if records.readonly:
            records = memoryview(bytearray(records))
        offset = self.log_end_offset
        last_offset = offset + delta
        _PACK_OFFSET(records, 0, offset)
        _PACK_EPOCH(records, LEADER_EPOCH_AT, leader_epoch)
        segment = self.active_segment
        try:
            if (
                segment.size + size > self.segment_bytes
                or max_timestamp > segment.roll_timestamp
                or segment.index_room <= 0
                or last_offset - segment.base_offset > INT32_MAX
            ):
                self.make_room(size, max_timestamp, last_offset, now_ms)
            if leader_epoch != self.leader_epoch_cache.latest and leader_epoch >= 0:
                self.leader_epoch_cache.assign(leader_epoch, offset)
            self.write(records, offset, last_offset, max_timestamp)
        except OSError as e:
            return self.on_io_error(e)
        if producer_id >= 0:
            self.producers.append_data(
                producer_id,
                producer_epoch,
                sequence,
                delta,
                offset,
                max_timestamp,
                attributes & 0x10 != 0,
            )
        return append_info(
            (offset, last_offset, -1, self.log_start_offset, max_timestamp, size, False)
        )

    def _append_carefully(
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
        prepared: bool,
        max_bytes: int,
    ) -> AppendInfo | AppendError:
        # `append_as_leader` without any assumption about the records.
        if self.offline:
            return AppendError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is offline")
        if not records:  # an old client's message set may be empty
            return AppendInfo(-1, -1, NO_TIMESTAMP, self.log_start_offset, NO_TIMESTAMP, 0)
        if not prepared and origin is _CLIENT and self.reads_natively:
            prepared = self._reads_as_stated(records, now_ms, max_bytes)
        max_bytes = bytes_in_python(records, max_bytes)
        checked = check_as_leader(
            records, self.config, self.tp, now_ms, origin, prepared, max_bytes
        )
        if isinstance(checked, AppendError):
            return checked
        records, batches = checked
        first_offset = self.log_end_offset
        try:
            answer = check_all(
                self.producers,
                records,
                batches,
                origin,
                self.tp,
                self.log_start_offset,
                first_offset,
            )
        except CorruptRecord as e:
            return AppendError(ErrorCode.INVALID_RECORD, str(e))
        if answer is not None:
            return answer
        log_append_time = self.config.log_append_time
        stamped = stamp(records, batches, first_offset, leader_epoch, log_append_time, now_ms)
        try:
            self.make_room(len(stamped.records), stamped.max_timestamp, stamped.last_offset, now_ms)
            if leader_epoch != self.leader_epoch_cache.latest and leader_epoch >= 0:
                self.leader_epoch_cache.assign(leader_epoch, first_offset)
            self._write_checked(stamped, first_offset)
        except OSError as e:
            return self.on_io_error(e)
        return AppendInfo(
            first_offset,
            stamped.last_offset,
            now_ms if log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            stamped.max_timestamp,
            len(stamped.records),
        )

    def _reads_as_stated(self, records: memoryview, now_ms: int, max_bytes: int) -> bool:
        # For batches that are stamped LogAppendTime; other batches in `_append_carefully` were read, or are unusual.
        if not self.config.log_append_time:
            return False
        try:
            header = read_header(records)
        except CorruptRecord:
            return False
        return (
            header.size == len(records)
            and header.magic == 2
            and not header.attributes & UNUSUAL_ATTRIBUTES
            and self.codec_ok[header.codec]
            and reads_as_stated(
                records,
                header.attributes,
                header.records_count,
                header.base_timestamp,
                header.max_timestamp,
                self.config,
                now_ms,
                max_bytes,
            )
        )

    def _write_checked(self, checked: Written, first_offset: int) -> None:
        records = checked.records
        self.write(records, first_offset, checked.last_offset, checked.max_timestamp)
        for position, header in checked.batches:
            if header.producer_id >= 0:
                view = records[position : position + header.size]
                aborted = note_batch(self.producers, header, view, header.base_offset)
                if aborted is not None:
                    self.active_segment.transaction_index.append(aborted)

    def append_as_follower(self, records: memoryview, now_ms: int) -> AppendInfo | AppendError:
        """Write batches that carry their offsets and epochs, as fetched from the leader.

        Shape: a cut last batch is left out. Errors: CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE for a
        batch below the log end; KAFKA_STORAGE_ERROR. Source: UnifiedLog.appendAsFollower.
        """
        if self.offline:
            return AppendError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is offline")
        checked = check_as_follower(records, self.log_end_offset, self.tp)
        if isinstance(checked, AppendError):
            return checked
        if not checked.batches:
            end_offset = self.log_end_offset
            return AppendInfo(
                end_offset, end_offset - 1, NO_TIMESTAMP, self.log_start_offset, NO_TIMESTAMP, 0
            )
        first_offset = checked.batches[0][1].base_offset
        try:
            self.make_room(
                len(checked.records),
                checked.max_timestamp,
                checked.last_offset,
                now_ms,
                first_offset,
            )
            epochs = self.leader_epoch_cache
            for _, header in checked.batches:
                epoch = header.partition_leader_epoch
                if epoch >= 0 and epoch != epochs.latest:
                    epochs.assign(epoch, header.base_offset)
            self._write_checked(checked, first_offset)
        except OSError as e:
            return self.on_io_error(e)
        return AppendInfo(
            first_offset,
            checked.last_offset,
            NO_TIMESTAMP,
            self.log_start_offset,
            checked.max_timestamp,
            len(checked.records),
        )

    def write(
        self, records: memoryview, first_offset: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Put checked batches at the end of the active segment. Errors: OSError."""
        segment = self.active_segment
        position = segment.size
        segment.append(records, last_offset, max_timestamp, self.config.index_interval_bytes)
        if position == 0:
            segment.roll_timestamp = (
                UNKNOWN
                if max_timestamp < 0
                else max_timestamp + self.config.max_segment_ms - segment.jitter_ms
            )
        self.reader.remember(first_offset, segment, position)
        self.log_end_offset = end_offset = last_offset + 1
        self.producers.last_map_offset = end_offset
        flush_state = self.flush_state
        if end_offset - flush_state.recovery_point >= self.config.flush_messages:
            flush_state.wanted = flush_state.awaited = True

    def make_room(
        self,
        size: int,
        max_timestamp: int,
        last_offset: int,
        now_ms: int,
        first_offset: int | None = None,
    ) -> None:
        """Roll to a new segment if the next append demands it. Source: LogSegment.shouldRoll."""
        segment = self.active_segment
        config = self.config
        if last_offset - segment.base_offset <= INT32_MAX:
            if segment.index_room <= 0:
                segment.update_index_room(config.segment_index_bytes)
            if segment.size == 0:
                segment.created_ms = now_ms
                return
            if (
                segment.size + size <= config.segment_bytes
                and segment.index_room > 0
                and not self._is_old(segment, max_timestamp, now_ms)
            ):
                return
        self.roll(now_ms, first_offset)

    def _is_old(self, segment: LogSegment, max_timestamp: int, now_ms: int) -> bool:
        age_limit = self.config.max_segment_ms - segment.jitter_ms
        if segment.roll_timestamp == UNKNOWN:
            first = segment.first_timestamp()
            if first < 0:
                return now_ms - segment.created_ms > age_limit
            segment.roll_timestamp = first + age_limit
        return max_timestamp > segment.roll_timestamp

    def roll(self, now_ms: int, expected_offset: int | None = None) -> None:
        """Seal the active segment and begin a new one at the log end. Errors: OSError."""
        base_offset = max(expected_offset or 0, self.log_end_offset)
        old = self.active_segment
        if old.base_offset >= base_offset:
            return
        old.become_inactive()
        self.producers.last_map_offset = base_offset
        self.snapshots.take(self.producers)
        segment = self._segments.begin(base_offset, now_ms)
        segment.jitter_ms = self._jitter(base_offset)
        segment.update_index_room(self.config.segment_index_bytes)
        self.active_segment = segment
        self.flush_state.wanted = True

    def on_io_error(self, error: OSError) -> AppendError:
        """Take the log offline, tell the log directory, and return the answer for the client.

        Shape: a lack of descriptors is not a disk failure: only this request fails. Nor is it one if
        work that was in progress when the log was deleted does not find its files.
        """
        if error.errno in OUT_OF_DESCRIPTORS:
            return AppendError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.tp}: {error}")
        if not self.offline:
            self.offline = True
            if self._io_error is not None:
                self._io_error(error)
        return AppendError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory failed: {error}")

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self, start_offset: int, max_bytes: int, end_offset: int, min_one_batch: bool = True
    ) -> LogSlice | ErrorCode:
        """Return whole stored batches beginning with the one that contains start_offset.

        Shape: contiguous stored batches that end at or below end_offset (exclusive: high_watermark,
        last_stable_offset for read_committed, log_end_offset for followers). Unit: bytes; with
        min_one_batch the first batch comes even if larger than max_bytes (KIP-74). Errors:
        OFFSET_OUT_OF_RANGE outside [log_start_offset, log_end_offset]; KAFKA_STORAGE_ERROR.
        Source: UnifiedLog.read, LocalLog.read.
        """
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= start_offset <= log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if (
            start_offset >= end_offset
            or start_offset == log_end_offset
            or (max_bytes <= 0 and not min_one_batch)
        ):
            return LogSlice(start_offset, b"", start_offset, 0)
        try:
            return self.reader.read(
                start_offset, max_bytes, end_offset, log_end_offset, min_one_batch=min_one_batch
            )
        except OSError as e:
            return self.on_io_error(e).error

    def forget_positions(self) -> None:
        """Drop the positions that reads remember, since segments were truncated or removed."""
        self.reader.forget()

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer_id, first_offset) of aborted transactions with data in [start, end).

        Errors: OSError, CorruptIndex.
        """
        return self._segments.aborted_transactions(start_offset, end_offset)

    def offset_for_timestamp(
        self, timestamp: int, effort: Effort | None = None
    ) -> Found | TimeSearch | None:
        """First record with at least this timestamp: (offset, timestamp, leader_epoch), or None.

        Shape: the rest of the search, if it takes more than the effort.
        """
        return self.reader.offset_for_timestamp(timestamp, self.log_start_offset, effort)

    def max_timestamp_offset(self, effort: Effort | None = None) -> Found | TimeSearch | None:
        """First record with the largest timestamp: (offset, timestamp, leader_epoch), or None.

        As above. As in Apache Kafka it may be a deleted one, below the log start offset.
        """
        return self.reader.max_timestamp_offset(effort)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end_offset) of the largest epoch not above the given one; (-1, -1) if unknown."""
        return self.leader_epoch_cache.end_offset_for(epoch, self.log_end_offset)

    def active_producers(self) -> list[ProducerStateEntry]:
        """The state of each producer, for DescribeProducers."""
        return list(self.producers.producers.values())

    # -- truncation: see truncation.py -------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove all batches at and after offset. Errors: as `truncation.truncate_to`."""
        truncation.truncate_to(self, self._segments, offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Remove everything and continue at offset. Errors: OSError."""
        truncation.start_at(self, self._segments, offset, now_ms)

    def close_gap(self, now_ms: int) -> None:
        """Truncate an unflushed log, opened after a crash, at the first gap in its offsets. Errors: OSError."""
        truncation.close_gap(self, self._segments, now_ms)

    # -- deletion ----------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> ErrorCode:
        """Raise the log start offset; segments are removed in the next retention round.

        Errors: OFFSET_OUT_OF_RANGE beyond the high watermark. Source: KIP-107.
        """
        if offset > self.committed or offset < 0:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self.increment_log_start_offset(offset)
        return ErrorCode.NONE

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Continue at a later offset, as a compacted log does whose last records were removed. Errors: OSError."""
        if offset > self.log_end_offset:
            self.roll(now_ms, offset)
            self.log_end_offset = offset

    def increment_log_start_offset(self, offset: int) -> None:
        """Raise the log start offset (never lower it), as a leader's reply tells a follower."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epoch_cache.truncate_from_start(offset)
            self.producers.on_log_start_offset_incremented(offset)

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention; return how many segments were removed. Errors: OSError.

        Source: UnifiedLog.deleteOldSegments.
        """
        config, end_offset = self.config, self.log_end_offset
        infos = self._segments.infos(end_offset, times=False)
        count = retention.start_offset_breached(infos, self.high_watermark, self.log_start_offset)
        self._delete_first(count, now_ms)
        if config.is_deleting:
            sizes = list(self._segments.infos(end_offset, times=False))
            number = retention.size_breached(sizes, self.high_watermark, config)
            self._delete_first(number, now_ms)
            count += number
            infos = self._segments.infos(end_offset, times=True)
            number = retention.time_breached(infos, self.high_watermark, config, now_ms)
            self._delete_first(number, now_ms)
            count += number
        return count

    def _delete_first(self, count: int, now_ms: int) -> None:
        if count == 0:
            return
        if count == len(self.segments):
            self.roll(now_ms)  # there is always one segment
        due_ms = now_ms + self.config.file_delete_delay_ms
        deleted = self._segments.take_first(count, due_ms)
        self.increment_log_start_offset(self.segments[0].base_offset)
        self.snapshots.retire([segment.base_offset for segment in deleted], self.deletes, due_ms)

    # -- flushing and closing ----------------------------------------------------------------------

    def prepare_flush(self) -> FlushTask:
        """Return the files to flush to the device; run the task off the loop, then call `complete_flush`.

        Shape: everything above the recovery point: segments, their indexes, epochs, snapshots.
        """
        state = self.flush_state
        state.wanted = False
        files: list[OpenFile] = []
        paths: list[str] = []
        if state.has_unflushed(self.log_end_offset):
            was_cut = state.synced_cuts != state.cuts
            files, paths = self._segments.unflushed(state.recovery_point, was_cut=was_cut)
            paths += self.snapshots.paths_above(state.recovery_point)
        epochs = self.leader_epoch_cache.unsynced_path()
        if epochs is not None:
            paths.append(epochs)
        directories = [self.dir]
        if not state.name_synced:  # nor is the directory's own name on the device
            directories.append(os.path.dirname(self.dir))
        return FlushTask(
            self.layer,
            directories,
            files,
            paths,
            self.log_end_offset,
            self.undecided_offset,
            state.cuts,
        )

    def complete_flush(self, task: FlushTask, now_ms: int) -> None:
        """Move the recovery point after a flush task ran without an error."""
        self.flush_state.complete(task, self.log_end_offset, self.config.flush_messages, now_ms)

    def flush(self, now_ms: int) -> None:
        """Force everything to the device, in this call. Errors: OSError."""
        task = self.prepare_flush()
        task.run()
        self.complete_flush(task, now_ms)

    def write_down(self, now_ms: int) -> None:
        """Write all in-memory data, as `close` does, and keep the log open.

        Errors: OSError.
        """
        self.snapshots.take(self.producers)
        self.active_segment.index_largest_timestamp()
        self.active_segment.save_indexes()
        self.leader_epoch_cache.save()
        self.flush(now_ms)

    def prepare_close(self) -> FlushTask:
        """Write snapshot and index files and close descriptors; return the task that flushes files to the device.

        Errors: OSError. When the task has run, call `complete_close`.
        """
        self.snapshots.take(self.producers)
        task = self.prepare_flush()
        written = self._segments.close()
        if written or task.has_work:
            # Of the active segment `close` does not write the last one.
            task.add_paths([*written, *self.active_segment.index_paths()[-1:]])
        return task

    def complete_close(self) -> None:
        """Complete a close after the task of `prepare_close` has run without an error: the whole log is on the
        device."""
        self.flush_state.complete_close(self.log_end_offset)

    def close(self, *, flush: bool = True) -> None:
        """Write snapshot and indexes, flush to the device if requested, and close.

        Errors: OSError.
        """
        task = self.prepare_close()
        if flush:
            task.run()
            self.complete_close()
