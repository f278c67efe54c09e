"""The parts of a log after its directory has been read."""

from __future__ import annotations

from dataclasses import dataclass

from .leader_epoch_cache import LeaderEpochCache
from .producer_state import ProducerStateManager
from .segment import LogSegment


@dataclass(slots=True)
class LoadedLog:
    """The content of a partition directory."""

    segments: list[LogSegment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    leader_epoch_cache: LeaderEpochCache
    producers: ProducerStateManager
    snapshots: list[int]
    truncated_bytes: int = 0
    """Bytes that recovery cut off the log."""
    recovered_segments: int = 0
    recovered_bytes: int = 0
    doubtful: bool = False
    """Opened after a crash: what was read may be in the system's cache only."""
