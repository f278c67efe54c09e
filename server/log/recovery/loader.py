"""Opens a partition directory, and repairs it after a crash.

After a clean stop the files are trusted: their sizes, the tail of the last segment and the newest
producer snapshot. Otherwise everything from the recovery point on is read batch by batch, and CRCs,
lengths and offsets are checked. The log is cut before the first invalid batch and later segments
are removed; indexes, leader epochs and producer state are rebuilt from what was read. The cost of a
start therefore depends on how much was not flushed, not on how much is stored: Apache Kafka reads
all of the segment that holds the recovery point, whereas we begin at the index entry before it
(recovery_start.py). Source: LogLoader, LogSegment.recover.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from kwire.errors import CorruptRecord

from ..checkpoint import CorruptCheckpoint
from ..file_layer import FileLayer
from ..index.transaction_index import CorruptIndex
from ..leader_epoch_cache import LeaderEpochCache
from ..loaded_log import LoadedLog
from ..log_config import LogConfig
from ..producer_state import SNAPSHOT_SUFFIX, ProducerStateManager
from ..producer_updates import load_producers
from ..segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    LogSegment,
    offset_of,
    stem_of,
)
from .recovery_start import RecoveryStart, recovery_start
from .segment_recovery import recover_segment

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

logger = logging.getLogger(__name__)


def load_log(
    layer: FileLayer,
    directory: str,
    config: LogConfig,
    *,
    clean: bool,
    log_start_offset: int,
    recovery_point: int,
    now_ms: int,
) -> LoadedLog:
    """Open a partition directory; log_start_offset and recovery_point come from the checkpoints.

    Errors: OSError. Damage is repaired and logged, never raised.
    """
    files = layer.list_directory(directory)
    files = finish_file_operations(layer, directory, files)
    segments = _open_segments(layer, directory, files, now_ms)
    for name in files:
        stem, _, suffix = name.partition(".")
        if (
            f".{suffix}" in INDEX_SUFFIXES
            and f"{stem}{LOG_SUFFIX}" not in files
            and offset_of(name) is not None
        ):
            layer.unlink(f"{directory}/{name}")  # an index whose segment is gone
    epochs = LeaderEpochCache(layer, directory)
    epochs_known = True
    try:
        epochs.load()
    except CorruptCheckpoint as e:
        logger.warning("%s; it is rebuilt from the segments", e)
        epochs_known = False
    if not clean and segments:
        # A power cut can leave an empty file, or bring back a log start offset below the first
        # entry that the file was truncated to.
        epochs.doubt()
        entries = epochs.entries()
        if not entries or entries[0][1] > max(log_start_offset, segments[0].base_offset):
            epochs.read_anew(0)
            epochs_known = False
    producers = ProducerStateManager(config.producer_id_expiration_ms)
    snapshots = sorted(_offsets(files, SNAPSHOT_SUFFIX))
    loaded = LoadedLog(segments, log_start_offset, 0, recovery_point, epochs, producers, snapshots)
    loaded.doubtful = not clean
    first_unsure = len(segments)
    unflushed = 0
    if not epochs_known:
        first_unsure = 0
    elif not clean:
        for number, segment in enumerate(segments):
            # Also a segment that ends at the recovery point: it may have been sealed, and its last
            # index entries written, after the flush.
            if segment.base_offset < recovery_point:
                unflushed = number
        first_unsure = unflushed
    damaged = _first_without_index(segments, files)
    first_unsure = min(first_unsure, damaged)
    if not segments:
        segment = LogSegment(layer, directory, log_start_offset, 0, created_ms=now_ms, new=True)
        segment.create_files()
        segments.append(segment)
        loaded.log_end_offset = log_start_offset
    elif first_unsure < len(segments):
        start = None
        if not clean and epochs_known and unflushed < damaged:
            start = recovery_start(segments[unflushed], recovery_point)
        _recover(layer, directory, loaded, first_unsure, config, now_ms, start)
    else:
        try:
            loaded.log_end_offset = _closed_end(segments[-1], recovery_point)
        except CorruptRecord as e:
            # The index points into the middle of a batch, or the tail is not a batch.
            logger.warning("%s: %s; the last segment is read again", directory, e)
            _recover(layer, directory, loaded, len(segments) - 1, config, now_ms)
    return _settle(layer, directory, loaded, clean=clean, now_ms=now_ms)


def _closed_end(segment: LogSegment, recovery_point: int) -> int:
    """The end offset of a log that was closed, by its last segment. Errors: CorruptRecord if its file has lost its end.

    What is written next must follow a whole batch, and the indexes must end before it: otherwise, nobody would find it.
    """
    offset, end = segment.scanned_end()
    if end != segment.size:
        raise CorruptRecord(f"at byte {end}: a batch is cut short")
    if offset < recovery_point:
        raise CorruptRecord(f"at byte {end}: records up to {recovery_point} are missing")
    return offset


def _settle(
    layer: FileLayer, directory: str, loaded: LoadedLog, *, clean: bool, now_ms: int
) -> LoadedLog:
    segments = loaded.segments
    end_offset = loaded.log_end_offset
    if loaded.log_start_offset > end_offset:
        # The log lost its end, or the checkpoint belongs to another log: nothing here may be read.
        logger.error(
            "%s: log start offset %d is beyond the end %d; all segments are removed",
            directory,
            loaded.log_start_offset,
            end_offset,
        )
        _delete_segments(layer, segments)
        base = loaded.log_start_offset
        segment = LogSegment(layer, directory, base, 0, created_ms=now_ms, new=True)
        segment.create_files()
        layer.sync_directory(directory)
        segments[:] = [segment]
        end_offset = base
    loaded.log_end_offset = end_offset
    loaded.log_start_offset = max(loaded.log_start_offset, segments[0].base_offset)
    loaded.leader_epoch_cache.truncate_from_end(end_offset, write=False)
    loaded.leader_epoch_cache.truncate_from_start(loaded.log_start_offset)
    loaded.recovery_point = end_offset if clean else min(loaded.recovery_point, end_offset)
    _remove_stray_snapshots(layer, directory, loaded)
    producers = loaded.producers
    if producers.last_map_offset != end_offset or not loaded.recovered_segments:
        load_producers(
            layer,
            directory,
            segments,
            loaded.snapshots,
            producers,
            loaded.log_start_offset,
            end_offset,
            now_ms,
        )
    for segment in segments:
        segment.release()  # an unused partition costs no descriptor
    return loaded


# -- files -----------------------------------------------------------------------------------------


def finish_file_operations(
    layer: FileLayer, directory: str, files: dict[str, int]
) -> dict[str, int]:
    """Complete or undo what a crash interrupted; return the remaining files.

    Shape: `.deleted` and `.cleaned` files are removed. A `.swap` file is a finished replacement of
    the files in its offset range and takes their place, unless a `.cleaned` file at or below it
    shows that the replacement was incomplete.
    Source: LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load.
    """
    left = dict(files)
    smallest_cleaned: int | None = None
    for name in files:
        if name.endswith(CLEANED_SUFFIX):
            offset = offset_of(name)
            if offset is not None and (smallest_cleaned is None or offset < smallest_cleaned):
                smallest_cleaned = offset
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
            layer.unlink(f"{directory}/{name}")
            del left[name]
    swaps = [name for name in left if name.endswith(SWAP_SUFFIX)]
    for name in list(swaps):
        offset = offset_of(name)
        unfinished = smallest_cleaned is not None and (offset or 0) >= smallest_cleaned
        if offset is None or unfinished:
            layer.unlink(f"{directory}/{name}")
            del left[name]
            swaps.remove(name)
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            _remove_replaced(layer, directory, name, left)
    for name in swaps:
        final = name.removesuffix(SWAP_SUFFIX)
        layer.rename(f"{directory}/{name}", f"{directory}/{final}")
        left[final] = left.pop(name)
    return left


def _remove_replaced(layer: FileLayer, directory: str, swap: str, files: dict[str, int]) -> None:
    # The replacement covers [its base offset, its next offset); the segments in it are its sources.
    base = offset_of(swap)
    assert base is not None
    segment = LogSegment(layer, directory, base, files[swap], created_ms=0)
    segment.log.path = f"{directory}/{swap}"
    end = base
    for _, header in segment.headers(0):
        end = header.next_offset
    segment.log.close()
    for name in list(files):
        offset = offset_of(name)
        if (
            offset is not None
            and name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES))
            and (base <= offset < end or offset == base)
        ):
            layer.unlink(f"{directory}/{name}")
            del files[name]


def _open_segments(
    layer: FileLayer, directory: str, files: dict[str, int], now_ms: int
) -> list[LogSegment]:
    bases = sorted(_offsets(files, LOG_SUFFIX))
    foreign = [n for n in files if n.endswith(LOG_SUFFIX) and offset_of(n) is None]
    if foreign:
        logger.warning("%s: %s is not a segment and is ignored", directory, ", ".join(foreign[:5]))
    return [
        LogSegment(layer, directory, base, files[f"{base:020d}{LOG_SUFFIX}"], created_ms=now_ms)
        for base in bases
    ]


def _offsets(files: Iterable[str], suffix: str) -> Iterator[int]:
    # The offsets in the names of one kind of file; other names with that suffix are not Kafka's.
    for name in files:
        offset = offset_of(name)
        if offset is not None and name == f"{offset:020d}{suffix}":
            yield offset


def _first_without_index(segments: list[LogSegment], files: dict[str, int]) -> int:
    # A segment with a missing or unreadable index is read again, and so are all segments after it,
    # because producer state is built in order.
    for number, segment in enumerate(segments):
        stem = f"{segment.base_offset:020d}"
        index = files.get(f"{stem}.index")
        if segment.size and (index is None or index % 8 or files.get(f"{stem}.timeindex", 1) % 12):
            return number
        size = files.get(f"{stem}.txnindex", 0)
        try:
            if size:
                segment.transaction_index.entries()
        except CorruptIndex as e:
            logger.warning("%s; it is rebuilt", e)
            return number
    return len(segments)


def _delete_segments(layer: FileLayer, segments: list[LogSegment]) -> None:
    for segment in reversed(segments):  # a power cut in between must not leave a gap
        for path in segment.mark_deleted():
            layer.unlink(path)


def _remove_stray_snapshots(layer: FileLayer, directory: str, loaded: LoadedLog) -> None:
    # One snapshot per segment is kept, and the newest above all of them.
    # Source: removeStraySnapshots.
    bases = {segment.base_offset for segment in loaded.segments}
    last_base = loaded.segments[-1].base_offset
    above = [o for o in loaded.snapshots if last_base < o <= loaded.log_end_offset]
    keep = bases | ({max(above)} if above else set())
    for offset in loaded.snapshots:
        if offset not in keep:
            layer.unlink(stem_of(directory, offset) + SNAPSHOT_SUFFIX)
    loaded.snapshots[:] = [offset for offset in loaded.snapshots if offset in keep]


# -- recovery --------------------------------------------------------------------------------------


def _recover(
    layer: FileLayer,
    directory: str,
    loaded: LoadedLog,
    first: int,
    config: LogConfig,
    now_ms: int,
    start: RecoveryStart | None = None,
) -> None:
    # Read segments[first:] again, the first of them from `start` on if that is given; set
    # log_end_offset and bring producer state to it.
    segments = loaded.segments
    start_offset = segments[first].base_offset if start is None else start.base_offset
    known_offset = start_offset
    if start is not None:
        # Snapshots below the recovery point were flushed together with the batches they describe.
        usable = [o for o in loaded.snapshots if start_offset < o <= loaded.recovery_point]
        known_offset = max(usable, default=start_offset)
    loaded.leader_epoch_cache.read_anew(start_offset)
    loaded.doubtful = True
    producers = loaded.producers
    for offset in [o for o in loaded.snapshots if o > known_offset]:
        layer.unlink(stem_of(directory, offset) + SNAPSHOT_SUFFIX)
    loaded.snapshots[:] = [offset for offset in loaded.snapshots if offset <= known_offset]
    load_producers(
        layer,
        directory,
        segments[: first if start is None else first + 1],
        loaded.snapshots,
        producers,
        min(max(loaded.log_start_offset, segments[0].base_offset), start_offset),
        known_offset,
        now_ms,
    )
    for number in range(first, len(segments)):
        segment = segments[number]
        if number > first or start is None:
            producers.last_map_offset = max(producers.last_map_offset, segment.base_offset)
            if (
                number
                and producers.needs_snapshot()
                and segment.base_offset not in loaded.snapshots
            ):
                path = stem_of(directory, segment.base_offset) + SNAPSHOT_SUFFIX
                layer.write_file(path, producers.snapshot())
                producers.last_snapshot_offset = segment.base_offset
                loaded.snapshots.append(segment.base_offset)
        loaded.recovered_bytes += segment.size - (start.position if start is not None else 0)
        removed = recover_segment(
            segment, producers, loaded.leader_epoch_cache, config.index_interval_bytes, start
        )
        loaded.recovered_segments += 1
        loaded.log_end_offset = max(producers.last_map_offset, segment.base_offset)
        if start is not None and loaded.log_end_offset < known_offset:
            # Some batches that the snapshot describes are missing, regardless of the recovery point.
            load_producers(
                layer,
                directory,
                segments[: number + 1],
                loaded.snapshots,
                producers,
                loaded.log_start_offset,
                loaded.log_end_offset,
                now_ms,
            )
        start = None
        if removed:
            loaded.truncated_bytes += removed
            logger.warning(
                "%s: %d bytes after offset %d are not valid batches and were truncated",
                directory,
                removed,
                loaded.log_end_offset,
            )
            for later in segments[number + 1 :]:
                logger.warning("%s: segment %d is removed", directory, later.base_offset)
                loaded.truncated_bytes += later.size
            _delete_segments(layer, segments[number + 1 :])
            del segments[number + 1 :]
            # Sync before anything is appended, so that a power cut cannot bring back what was cut.
            segment.log.sync()
            layer.sync_directory(directory)
            break
    loaded.leader_epoch_cache.save()
    for segment in segments[first:-1]:
        segment.become_inactive()
        segment.log.close()
        if segment.base_offset < loaded.recovery_point:
            for path in segment.index_paths():
                layer.sync_path(path)  # no later flush includes these files
