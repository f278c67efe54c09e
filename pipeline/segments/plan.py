"""Plans the reads of a query: from options to offsets, and from offsets to slices."""

from __future__ import annotations

from .errors import SegmentError
from .logs import PartitionLog, find_logs
from .options import EARLIEST, LATEST, Bound, Options
from .pushdown import Pushed
from .slices import OffsetSlice

Place = tuple[str, int]
Logs = dict[Place, PartitionLog]
Offsets = dict[Place, int]


def find(options: Options) -> Logs:
    """The selected partitions. Errors: SegmentError for a topic that does not exist."""
    logs = find_logs(options.paths, options.wants())
    if options.partitions is not None:
        missing = [place for place in options.partitions if place not in logs]
        if missing:
            names = ", ".join(f"{topic}-{number}" for topic, number in missing)
            raise SegmentError(f"there is no partition {names} in {', '.join(options.paths)}")
        logs = {place: logs[place] for place in sorted(options.partitions)}
    if options.topics is not None:
        there = {topic for topic, _ in logs}
        missing_topics = [topic for topic in options.topics if topic not in there]
        if missing_topics:
            raise SegmentError(
                f"there is no topic {', '.join(missing_topics)} in {', '.join(options.paths)}"
            )
    return logs


def latest(log: PartitionLog, options: Options) -> int:
    """The offset after the last record visible at the isolation level."""
    return log.last_stable_offset if options.read_committed else log.high_watermark


def starts(logs: Logs, options: Options) -> Offsets:
    """The first offset of each partition. Errors: SegmentError."""
    found: Offsets = {}
    _known(options.start, logs, "startingOffsets")
    named = dict(options.start.named)
    for place, log in logs.items():
        timestamp = _timestamp(options.start, named, place)
        if timestamp is not None:
            offset = log.offset_at(timestamp)
            if offset is None:
                if not options.no_match_is_latest:
                    raise SegmentError(
                        f"{log} has no record from timestamp {timestamp} on "
                        "(startingOffsetsByTimestampStrategy=latest begins at its end)"
                    )
                offset = latest(log, options)
            found[place] = offset
            continue
        offset = (
            options.start.offset
            if options.start.by_time
            else named.get(place, options.start.offset)
        )
        found[place] = _real(log, offset, options)
    return found


def ends(logs: Logs, options: Options) -> Offsets:
    """The offset after the last one to read, for each partition. Errors: SegmentError."""
    found: Offsets = {}
    _known(options.end, logs, "endingOffsets")
    named = dict(options.end.named)
    for place, log in logs.items():
        last = latest(log, options)
        timestamp = _timestamp(options.end, named, place)
        if timestamp is not None:
            offset = log.offset_at(timestamp)
            found[place] = last if offset is None else min(offset, last)
            continue
        offset = options.end.offset if options.end.by_time else named.get(place, options.end.offset)
        if offset > last:
            if options.fail_on_data_loss:
                raise SegmentError(
                    f"{log} ends at offset {last}, before endingOffsets {offset} "
                    "(failOnDataLoss=false reads what is there)"
                )
            offset = last
        found[place] = _real(log, offset, options)
    return found


def _timestamp(bound: Bound, named: dict[Place, int], place: Place) -> int | None:
    if bound.timestamp_ms is not None:
        return bound.timestamp_ms
    return named.get(place) if bound.by_time else None


def _known(bound: Bound, logs: Logs, option: str) -> None:
    for (topic, partition), _ in bound.named:
        if (topic, partition) not in logs:
            raise SegmentError(f"{option} names {topic}-{partition}, which is not read")


def _real(log: PartitionLog, offset: int, options: Options) -> int:
    if offset == EARLIEST:
        return log.log_start_offset
    return latest(log, options) if offset == LATEST else offset


def _check_begin(logs: Logs, until: Offsets, options: Options) -> None:
    """Raises SegmentError for an offset to begin at that is behind the end: reading nothing would hide the mistake."""
    if options.start.by_time or not options.fail_on_data_loss:
        return
    ends_named = {place for place, _ in options.end.named}
    for place, offset in options.start.named:
        end = until[place] if place in ends_named else logs[place].high_watermark
        if offset > end:
            raise SegmentError(
                f"{logs[place]}: starting offset {offset} is after ending offset {end} "
                "(failOnDataLoss=false reads what is there)"
            )


def slices(options: Options, pushed: Pushed) -> list[OffsetSlice]:
    """The slices of a batch query. Errors: SegmentError."""
    logs = find(options)
    begins, until = starts(logs, options), ends(logs, options)
    _check_begin(logs, until, options)
    for place, log in logs.items():
        topic, partition = place
        is_asked = (pushed.topics is None or topic in pushed.topics) and (
            pushed.partitions is None or partition in pushed.partitions
        )
        first = begins[place]
        if is_asked and pushed.since_ms is not None:
            oldest = log.offset_at(pushed.since_ms)
            is_asked = oldest is not None
            first = max(first, oldest or 0)
        if pushed.start is not None:
            first = max(first, pushed.start)
        last = until[place] if pushed.end is None else min(until[place], pushed.end)
        if not is_asked or first >= last:
            del begins[place], until[place]
        else:
            begins[place], until[place] = first, last
    return between(logs, begins, until, options)


def between(logs: Logs, start: Offsets, end: Offsets, options: Options) -> list[OffsetSlice]:
    """The slices from start to end; partitions that are not in start begin with their logs.

    Errors: SegmentError if records no longer exist, unless failOnDataLoss is false.
    """
    slices: list[OffsetSlice] = []
    for place, until in end.items():
        log = logs.get(place)
        first = start.get(place)
        if log is None:
            # Even if nothing was planned, there may have been unread records; it is impossible to tell now.
            if options.fail_on_data_loss:
                upto = "on" if first == until else f"to {until}"
                raise SegmentError(
                    f"topic {place[0]} partition {place[1]} is gone; its records from offset {first or 0} {upto} were not read"
                    " (failOnDataLoss=false continues without it)"
                )
            continue
        if first is None:
            first = log.log_start_offset
        if first > until:
            raise SegmentError(f"{log}: starting offset {first} is after ending offset {until}")
        if first < log.log_start_offset and first < until:
            if options.fail_on_data_loss:
                raise SegmentError(
                    f"{log} begins at offset {log.log_start_offset}: offset {first} was deleted "
                    "(failOnDataLoss=false begins there)"
                )
            first = min(log.log_start_offset, until)
        slices += log.slices(
            first, until, options.bytes_per_partition, committed=options.read_committed
        )
    return slices
