"""The checks of a log that was opened again."""

from __future__ import annotations

import errno
from itertools import islice, pairwise
from random import Random
from typing import NamedTuple

from kwire.records.batch import RecordBatch, iter_batches
from server.log.file_layer import FileSlice
from server.log.log import Log, LogSlice
from server.log.segment import LogSegment

from .disk import DiskFiles
from .expected import Batch, Expected, Reference, Violation

Record = tuple[bytes | None, bytes | None]


class Found(NamedTuple):
    """A batch as a reader finds it."""

    base: int
    last: int
    data: bytes
    batch: RecordBatch


def require(condition: object, *what: object) -> None:
    """Raise Violation unless the condition holds."""
    if not condition:
        raise Violation(" ".join(map(str, what)))


def read_all(log: Log, start: int, end: int, max_bytes: int = 1 << 20) -> list[Found]:
    """All batches from start to end, fetch by fetch."""
    found: list[Found] = []
    offset = start
    while offset < end:
        answer = log.read(offset, max_bytes, end)
        if not isinstance(answer, LogSlice):
            if log.offline:
                raise OSError(errno.EIO, "the disk failed under the check")
            raise Violation(f"{log}: read at {offset} gives {answer!r}")
        data = answer.data.read() if isinstance(answer.data, FileSlice) else answer.data
        if not data:
            break
        for each in iter_batches(data):
            header = each.header
            require(header.last_offset >= offset, f"{log}: a read at {offset} gives {header}")
            found.append(Found(header.base_offset, header.last_offset, bytes(each.view), each))
        offset = found[-1].last + 1
    return found


def check_reopened(log: Log, expected: Expected, required: int, rng: Random) -> None:
    """Check a log opened after a stop in which everything from `required` on may have been lost.

    Shape: afterwards, `expected` is the content that was found.
    """
    start, end = log.log_start_offset, log.log_end_offset
    require(end >= required, f"{log}: records up to {required} were there")
    require(
        expected.safe_start <= start,
        f"{log}: the log begins at {start}, but it was told to begin at {expected.safe_start}",
    )
    require(
        start <= max(expected.told_start, expected.origin),
        f"{log}: the log begins at {start}; nothing above {expected.told_start} was deleted",
    )
    found = read_all(log, start, end)
    if log.config.is_compacted:
        kept = _match_compacted(log, expected, found, required)
    else:
        kept = _match(log, expected, found)
    require(
        not kept or kept[-1].last + 1 == end or log.config.is_compacted,
        f"{log}: records end at {kept[-1].last + 1 if kept else None}",
    )
    expected.become(kept)
    if log.config.is_compacted:
        there = {each.base for each in found}
        for producer in expected.reference.producers.values():
            last = producer.batches[-1] if producer.batches else None
            producer.faded = last is not None and last.base not in there
    if not kept:
        expected.origin = end
    if log.config.is_compacted:
        expected.lost_until = end
    require(expected.end == end, f"{log}: known up to {expected.end}")
    expected.told_start = start
    expected.safe_start = min(expected.safe_start, start)
    expected.synced = min(expected.synced, end)
    require(
        min(expected.watermark, end) <= log.high_watermark <= end or start >= expected.watermark,
        f"{log}: high watermark {log.high_watermark} was {expected.watermark}",
    )
    require(log.high_watermark >= start, f"{log}: high watermark {log.high_watermark}")
    log.high_watermark = end
    check_open(log, expected, rng)
    expected.synced = max(expected.synced, log.recovery_point)  # as `_check_device` has seen


def _match(log: Log, expected: Expected, found: list[Found]) -> list[Batch]:
    # Identify the batches; those below the start are kept for the producers' state.
    known = {batch.base: batch for batch in expected.batches}
    kept: list[Batch] = []
    if found:
        kept = [batch for batch in expected.batches if batch.last < found[0].base]
    elif any(batch.last + 1 == log.log_end_offset for batch in expected.batches):
        kept = [batch for batch in expected.batches if batch.last < log.log_end_offset]
    previous = log.log_start_offset - 1
    ghostly = False
    for each in found:
        require(
            each.base == previous + 1 or (each is found[0] and each.base <= previous + 1),
            f"{log}: offset {each.base} follows {previous}",
        )
        previous = each.last
        batch = known.get(each.base)
        if batch is None or batch.data != each.data:
            ghosts = expected.ghosts.get(each.base, ())
            batch = next((ghost for ghost in ghosts if ghost.data == each.data), None)
            ghostly = True
        require(batch is not None, f"{log}: the batch at {each.base} was never appended so")
        assert batch is not None
        require(
            not ghostly or each.base >= expected.synced,
            f"{log}: another batch stands at {each.base}, below {expected.synced}",
        )
        kept.append(batch)
    return kept


def _match_compacted(
    log: Log, expected: Expected, found: list[Found], required: int
) -> list[Batch]:
    end = log.log_end_offset
    there = {each.base: each.data for each in found}
    # Unflushed data is not compacted: it is unchanged, or lost, even with later data still there, since gaps can be
    # detected only in logs that are not compacted.
    kept = [
        batch
        for batch in expected.batches
        if batch.last < end
        and (
            batch.base < required
            or batch.last < log.log_start_offset
            or there.get(batch.base) == batch.data
        )
    ]
    while (kept[-1].last + 1 if kept else expected.origin) < end:
        at = kept[-1].last + 1 if kept else expected.origin
        ghosts = expected.ghosts.get(at, ())
        ghost = next((ghost for ghost in ghosts if ghost.data == there.get(at)), None)
        if ghost is None:
            break
        kept.append(ghost)
    records: dict[int, Record] = {}
    for batch in kept:
        if batch.control is None:
            records.update(
                (batch.base + number, record) for number, record in enumerate(batch.records)
            )
    previous = -1
    newest: dict[bytes | None, int] = {}
    for each in found:
        require(each.base > previous, f"{log}: offset {each.base} follows {previous}")
        previous = each.last
        if each.batch.is_control:
            continue
        for record in each.batch.records():
            require(
                records.get(record.offset) == (record.key, record.value),
                f"{log}: offset {record.offset} has {record}, not {records.get(record.offset)}",
            )
            newest[record.key] = record.offset
    reference = Reference(kept)
    open_ = reference.first_open()
    wanted: dict[bytes | None, tuple[int, bytes | None]] = {}
    for batch in kept:
        if batch.control is not None or batch.base >= required or reference.is_aborted(batch):
            continue
        if open_ is not None and batch.base >= open_:
            continue
        for number, (key, value) in enumerate(batch.records):
            wanted[key] = batch.base + number, value
    for key, (offset, value) in wanted.items():
        require(
            value is None or offset < log.log_start_offset or newest.get(key, -1) >= offset,
            f"{log}: key {key!r} of offset {offset} is lost",
        )
    return kept


# -- a log that is open ----------------------------------------------------------------------------


def check_open(log: Log, expected: Expected, rng: Random) -> None:
    """Check everything that must hold whenever no operation is in progress."""
    require(log.log_end_offset == expected.end, f"{log}: the log must end at {expected.end}")
    require(
        log.segments[0].base_offset <= log.log_start_offset <= log.high_watermark
        and log.high_watermark <= log.log_end_offset,
        f"{log}: segments from {log.segments[0].base_offset}, high watermark {log.high_watermark}",
    )
    require(log.recovery_point <= log.log_end_offset, f"{log}: {log.recovery_point} is recovered")
    bases = [segment.base_offset for segment in log.segments]
    require(bases == sorted(set(bases)), f"{log}: segments {bases}")
    _check_device(log)
    _check_producers(log, expected)
    _check_transactions(log, expected, rng)
    _check_epochs(log, expected)
    for number, segment in enumerate(log.segments):
        last = number + 1 == len(log.segments)
        _check_segment(log, segment, log.log_end_offset if last else bases[number + 1])
    _check_reads(log, rng)


def _check_device(log: Log) -> None:
    # Everything below the recovery point would survive a power cut now; in compacted logs perhaps under the names of
    # the sources.
    layer = log.layer
    assert isinstance(layer, DiskFiles)
    for segment in log.segments:
        if segment.base_offset < log.recovery_point:
            names, inode = layer.device_content(segment.log.path)
            size = 0
            for position, header in segment.headers(0):
                if header.last_offset < log.recovery_point:
                    size = position + header.size
            require(
                (names or log.config.is_compacted) and inode.durable[:size] == inode.data[:size],
                f"{segment}: recovery point {log.recovery_point}, but it is not on the device",
            )


def _check_producers(log: Log, expected: Expected) -> None:
    start = log.log_start_offset
    states = log.producers.producers
    wanted = expected.reference.producers
    for pid, entry in states.items():
        producer = wanted.get(pid)
        if producer is None:
            # Perhaps before the log was emptied, when the power brought that back.
            require(
                entry.last_data_offset < log.log_start_offset, f"{log}: producer {pid} never wrote"
            )
            continue
        last = producer.batches[-1] if producer.batches else None
        below = entry.last_data_offset < log.log_start_offset
        if producer.faded or (below and (last is None or last.last < start)):
            continue  # it is unknown which batches below the start came back after the power cut
        if entry.batches:
            require(
                last is not None and entry.last_data_offset == last.last,
                f"{log}: producer {pid} ends at {entry.last_data_offset}, not {last}",
            )
        else:
            require(
                last is None or last.base < log.log_start_offset,
                f"{log}: nothing is known of producer {pid}, who wrote {last}",
            )
        require(
            entry.producer_epoch == producer.epoch,
            f"{log}: producer {pid} has epoch {entry.producer_epoch}, not {producer.epoch}",
        )
        pairs = zip(reversed(entry.batches), reversed(producer.batches), strict=False)
        for known, batch in islice(pairs, 1) if log.config.is_compacted else pairs:
            require(
                (known.first_sequence, known.last_offset, known.offset_delta)
                == (batch.sequence, batch.last, batch.last - batch.base),
                f"{log}: producer {pid}: {known} is not {batch}",
            )
        firsts = producer.first_open, entry.current_txn_first_offset
        if -1 < min(firsts) < log.log_start_offset:
            continue  # a rebuild knows only the rest
        require(
            entry.current_txn_first_offset == producer.first_open,
            f"{log}: producer {pid}: transaction from {entry.current_txn_first_offset}, "
            f"not {producer.first_open}",
        )
    for pid, producer in wanted.items():
        require(
            pid in states or producer.last_at < log.log_start_offset or producer.faded,
            f"{log}: producer {pid} is forgotten, who wrote at {producer.last_at}",
        )


def _check_transactions(log: Log, expected: Expected, rng: Random) -> None:
    reference = expected.reference
    start, end = log.log_start_offset, log.log_end_offset
    stable = log.last_stable_offset
    # Where a transaction began below the log's start, a rebuild may know of the rest only.
    firsts = {reference.first_open()}
    firsts.add(Reference(b for b in expected.batches if b.last >= start).first_open())
    told = {min(log.high_watermark, end if f is None else max(f, start)) for f in firsts}
    known = log.producers.first_unstable_offset()
    if known is not None and known < start:
        told.add(min(log.high_watermark, start))  # there are records that can no longer be read
    require(stable in told, f"{log}: last stable offset {stable}, not {told}")
    if not log.config.is_compacted:
        for _ in range(3):
            low = rng.randint(start, end)
            high = rng.randint(low, end)
            got = set(log.aborted_transactions(low, high)) if low < high else set()
            wanted = {
                (pid, begin)
                for pid, begin, last in reference.aborted
                if last >= low and begin < high and low < high
            }
            # Where one began below the log's start, one side may know of the rest only.
            clipped = {pid for pid, begin in got | wanted if begin < start}
            clipped |= {pid for pid, begin, last in reference.aborted if begin < start <= last}
            require(
                all(pid in clipped for pid, _ in got ^ wanted),
                f"{log}: aborted in [{low}, {high}): {got}, not {wanted}",
            )
    # and the records of a read_committed consumer
    aborted = log.aborted_transactions(start, stable)
    for batch in expected.batches:
        if batch.transactional and batch.control is None and start <= batch.base < stable:
            if log.config.is_compacted:
                continue
            seen = any(pid == batch.pid and begin <= batch.base for pid, begin in aborted)
            require(
                seen or not reference.is_aborted(batch),
                f"{log}: the aborted batch at {batch.base} is shown",
            )


def _check_epochs(log: Log, expected: Expected) -> None:
    entries = log.leader_epoch_cache.entries()
    require(
        all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries)),
        f"{log}: leader epochs {entries}",
    )
    for batch in expected.batches if not log.config.is_compacted else expected.batches[-1:]:
        if batch.base >= log.log_start_offset:
            require(
                log.leader_epoch_cache.epoch_for_offset(batch.base) == batch.leader_epoch,
                f"{log}: leader epoch of {batch.base} is {batch.leader_epoch}: {entries}",
            )


def _check_segment(log: Log, segment: LogSegment, end: int) -> None:
    positions: dict[int, int] = {}
    newest: dict[int, int] = {}
    at = 0
    largest = -1
    last = segment.base_offset - 1
    for position, header in segment.headers(0):
        require(
            position == at and header.base_offset > last and header.last_offset < end,
            f"{segment}: {header} at {position} in [{segment.base_offset}, {end})",
        )
        at = position + header.size
        last = header.last_offset
        if header.records_count:
            largest = max(largest, header.max_timestamp)
        positions[position] = header.base_offset
        newest[last] = largest
    require(at == segment.size, f"{segment}: {segment.size - at} bytes are no batch")
    size = segment._layer.file_size(segment.log.path)
    require(size == segment.size, f"{segment}: the file has {size} bytes")
    index = segment.offset_index
    before = (segment.base_offset - 1, 0)
    for number in range(len(index)):
        entry = index.entry(number)
        require(
            entry > before and entry[1] > before[1] and entry[1] in positions,
            f"{segment}: index entry {entry} after {before}",
        )
        require(
            positions[entry[1]] <= entry[0] <= last,
            f"{segment}: index entry {entry}, the batch there begins at {positions[entry[1]]}",
        )
        before = entry
    times = segment.time_index
    previous = (-1, segment.base_offset - 1)
    for number in range(len(times)):
        timestamp, offset = times.entry(number)
        require(
            timestamp > previous[0] and offset > previous[1] and offset in newest,
            f"{segment}: time index entry {(timestamp, offset)} after {previous}",
        )
        require(
            newest[offset] == timestamp,
            f"{segment}: {timestamp} is not the largest timestamp up to {offset}",
        )
        previous = (timestamp, offset)
    require(
        segment.max_timestamp == largest,
        f"{segment}: largest timestamp {segment.max_timestamp}, not {largest}",
    )


def _check_reads(log: Log, rng: Random) -> None:
    # A fetch from any offset, of any size, begins with the batch that contains the offset.
    start, end = log.log_start_offset, log.log_end_offset
    if start == end:
        return
    everything = read_all(log, start, end)
    by_time = None
    for _ in range(4):
        offset = rng.randrange(start, end)
        first = next((each for each in everything if each.last >= offset), None)
        got = read_all(log, offset, end, rng.choice((1, 200, 1 << 20)))
        require(
            (got[0] if got else None) == first if first is None else got[0].data == first.data,
            f"{log}: a fetch at {offset} begins elsewhere",
        )
        require(
            first is None
            or [e.base for e in got] == [e.base for e in everything if e.last >= offset],
            f"{log}: a fetch at {offset} leaves something out",
        )
    data = [
        record for each in everything for record in each.batch.records() if record.offset >= start
    ]
    if data:
        wanted = rng.choice(data).timestamp + rng.choice((0, 1))
        by_time = next((r.offset for r in data if r.timestamp >= wanted), None)
        answer = log.offset_for_timestamp(wanted)
        require(
            (answer[0] if answer else None) == by_time,
            f"{log}: offset for {wanted} is {answer}, not {by_time}",
        )
