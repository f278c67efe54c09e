"""The states of records in flight.

    AVAILABLE ──▶ ACQUIRED ──▶ ACKNOWLEDGED
      │  ▲ release │   │ reject, gap, last delivery
      │  └─────────┘   └─────▶ ARCHIVED
      └─ compaction, log start ──▲

Final states are never left. A change whose write fails is undone, which is not a transition: the run is ACQUIRED again
(`SharePartition.undo`).
Source: RecordState.validateTransition; for available records that are archived, SharePartition.archiveRecords.
"""

from __future__ import annotations

from enum import IntEnum


class RecordState(IntEnum):
    """The states by their stored form; ACQUIRED is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


AVAILABLE = RecordState.AVAILABLE
ACQUIRED = RecordState.ACQUIRED
ACKNOWLEDGED = RecordState.ACKNOWLEDGED
ARCHIVED = RecordState.ARCHIVED

FINAL = frozenset({ACKNOWLEDGED, ARCHIVED})

#: The states from which each state may be reached.
VALID_PREVIOUS: dict[RecordState, frozenset[RecordState]] = {
    AVAILABLE: frozenset({ACQUIRED}),
    ACQUIRED: frozenset({AVAILABLE}),
    ACKNOWLEDGED: frozenset({ACQUIRED}),
    ARCHIVED: frozenset({AVAILABLE, ACQUIRED}),
}
