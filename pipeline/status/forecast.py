"""Estimates when retention deletes what a job has not read yet, from configs, sizes and timestamps. Pure.

Brokers delete whole segments, oldest first: by time when the newest record of a segment is older than `retention.ms`, by
size as long as what is left is not below `retention.bytes`. No request says where segments begin. So the time given is the
earliest at which the next record needed can be deleted, as if it were the last in its segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ..durations import shown


class Fate(Enum):
    """What will happen to the records that a job still needs."""

    CAUGHT_UP = "nothing left to read"
    SAFE = "kept"
    EXPIRING = "will be deleted"
    DUE = "can be deleted any time"
    UNKNOWN = "unknown"
    LOST = "deleted"
    BEYOND = "beyond the end of the log"
    GONE = "no such partition"

    @property
    def is_lost(self) -> bool:
        """Whether the job cannot continue without losing records."""
        return self in (Fate.LOST, Fate.BEYOND, Fate.GONE)


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """What is known about a partition; timestamps in ms since 1970, None where unknown.

    Shape: needed_ms is the timestamp of the next record needed, newest_ms the largest of the log.
    """

    start: int
    end: int
    needed_ms: int | None = None
    newest_ms: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimate. Shape: left_ms is the least time left, None without a limit; latest_ms is the time after which the
    record is certainly deleted, as far as that can be known."""

    fate: Fate
    text: str
    left_ms: int | None = None
    latest_ms: int | None = None
    lost: int = 0


#: Brokers check every log.retention.check.interval.ms; this is its default.
CHECK_INTERVAL_MS = 5 * 60_000


def forecast(
    needed: int, log: PartitionBounds | None, configs: Mapping[str, str], now_ms: int
) -> Forecast:
    """What will happen to the records from offset `needed` on."""
    if log is None:
        return Forecast(Fate.GONE, "there is no such partition any more")
    if needed < log.start:
        lost = log.start - needed
        return Forecast(
            Fate.LOST, f"offsets {needed} to {log.start - 1} are deleted already", lost=lost
        )
    if needed > log.end:
        return Forecast(
            Fate.BEYOND,
            f"the log ends at {log.end}, before what was processed: deleted and created again, or cut",
        )
    if needed == log.end:
        return Forecast(Fate.CAUGHT_UP, "nothing left to read")
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return Forecast(Fate.SAFE, "kept: the topic is compacted only")
    limits = [
        limit
        for limit in (_by_time(log, configs, now_ms), _by_size(needed, log, configs))
        if limit is not None
    ]
    if not limits:
        return Forecast(Fate.SAFE, "kept: no limit by time or size")
    known = [limit for limit in limits if limit.left_ms is not None]
    if not known:
        return limits[0]
    return min(known, key=lambda limit: limit.left_ms or 0)


def _by_time(log: PartitionBounds, configs: Mapping[str, str], now_ms: int) -> Forecast | None:
    retention = int(configs.get("retention.ms", "-1"))
    if retention < 0:
        return None
    if log.needed_ms is None:
        return Forecast(Fate.UNKNOWN, "no record arrived to give its timestamp")
    left = log.needed_ms + retention - now_ms
    # The segment's newest record decides: at most the log's newest, or one segment.ms later.
    newest = log.needed_ms + int(configs.get("segment.ms", "0"))
    if log.newest_ms is not None:
        newest = min(newest, max(log.newest_ms, log.needed_ms))
    latest = max(newest + retention + CHECK_INTERVAL_MS - now_ms, 0)
    if left <= 0:
        text = f"retention.ms is over: can be deleted any time, in {shown(latest)} at the latest"
        return Forecast(Fate.DUE, text, 0, latest)
    return Forecast(Fate.EXPIRING, f"kept for {shown(left)} by retention.ms", left, latest)


def _by_size(needed: int, log: PartitionBounds, configs: Mapping[str, str]) -> Forecast | None:
    retention = int(configs.get("retention.bytes", "-1"))
    if retention < 0 or log.size is None:
        return None
    # Records are assumed to be equally large, and to arrive as fast as those after the needed one did.
    behind = log.size * (log.end - needed) // max(log.end - log.start, 1)
    if behind >= retention:
        return Forecast(
            Fate.DUE, "retention.bytes is reached: can be deleted any time", 0, CHECK_INTERVAL_MS
        )
    if log.needed_ms is None or log.newest_ms is None or log.newest_ms <= log.needed_ms:
        return None
    left = (retention - behind) * (log.newest_ms - log.needed_ms) // max(behind, 1)
    return Forecast(
        Fate.EXPIRING, f"kept for about {shown(left)} by retention.bytes, at this rate", left
    )
