"""The durable state of share partitions, as the leaders of partitions and the group coordinator use it.

Source: org.apache.kafka.server.share.persister.Persister.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from .share.rows import (
    InitializeState,
    ReadState,
    StateOutcome,
    StatePartition,
    StateRead,
    StateSummary,
    WriteState,
)


class SharePersister(Protocol):
    """Reads and writes the state of a group's share partitions at their share coordinators.

    Shape: each operation returns a future of one row for each that was asked, in the same order. A failure is an
    error in its row, never an exception: what can be retried has been, and NONE means that the change is
    committed. Writes of the same share partition are applied in the order in which they were asked.
    Errors in rows: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (a write to
    what was not initialized), COORDINATOR_NOT_AVAILABLE when the retries are used up, GROUP_ID_NOT_FOUND.
    """

    def initialize_state(
        self, group_id: str, partitions: Sequence[InitializeState]
    ) -> asyncio.Future[list[StateOutcome]]:
        """Create the state of share partitions, or begin anew in a later state epoch."""
        ...

    def read_state(
        self, group_id: str, partitions: Sequence[ReadState]
    ) -> asyncio.Future[list[StateRead]]:
        """Read states, and fence all earlier leaders of the partitions."""
        ...

    def write_state(
        self, group_id: str, partitions: Sequence[WriteState]
    ) -> asyncio.Future[list[StateOutcome]]:
        """Change states."""
        ...

    def delete_state(
        self, group_id: str, partitions: Sequence[StatePartition]
    ) -> asyncio.Future[list[StateOutcome]]:
        """Remove states; what has none is done already."""
        ...

    def read_summary(
        self, group_id: str, partitions: Sequence[ReadState]
    ) -> asyncio.Future[list[StateSummary]]:
        """Read states without their batches; nobody is fenced."""
        ...
