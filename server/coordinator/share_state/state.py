"""The state of one share partition, and the effect of a record on it.

Source: ShareGroupOffset, ShareCoordinatorShard (handleShareSnapshot, handleShareUpdate, merge).
"""

from __future__ import annotations

from typing import NamedTuple

from .batches import combined
from .records import ShareSnapshot, Update
from .rows import StateSummary, WriteState

#: The memory of a state with its place in the shard, without its batches and the name of its group; and of one batch.
STATE_BYTES, BATCH_BYTES = 600, 130


class ShareState(NamedTuple):
    """The stored state of a share partition, and what is derived from its records.

    Shape: `leader_fence` and `state_fence` are the highest epochs seen; requests with lower ones are refused. An
    initialization resets the stored leader epoch, but not the fence. `updates` counts the updates since the last
    snapshot that was written because of their number.
    """

    snapshot: ShareSnapshot
    leader_fence: int
    state_fence: int
    updates: int

    def summary(self, topic_id: bytes, partition: int) -> StateSummary:
        """The row that describes this state without its batches."""
        now = self.snapshot
        return StateSummary(
            topic_id,
            partition,
            state_epoch=now.state_epoch,
            leader_epoch=now.leader_epoch,
            start_offset=now.start_offset,
            delivery_complete_count=now.delivery_complete_count,
        )


def bytes_of(group_id: str, state: ShareState | None) -> int:
    """The estimated memory of a state."""
    if state is None:
        return 0
    return STATE_BYTES + len(group_id) + BATCH_BYTES * len(state.snapshot.state_batches)


def following(epoch: int) -> int:
    """The snapshot epoch after the given one."""
    return 0 if epoch == 0x7FFFFFFF else epoch + 1


def after(
    state: ShareState | None, value: ShareSnapshot | Update | None, updates_per_snapshot: int
) -> ShareState | None:
    """Return the state after a record."""
    if value is None:
        return None
    if isinstance(value, ShareSnapshot):
        if state is None:
            return ShareState(value, value.leader_epoch, value.state_epoch, 0)
        return ShareState(
            value,
            max(state.leader_fence, value.leader_epoch),
            max(state.state_fence, value.state_epoch),
            0 if state.updates >= updates_per_snapshot else state.updates,
        )
    if state is None:  # its snapshot was lost
        found = ShareSnapshot(
            value.snapshot_epoch,
            0,
            value.leader_epoch,
            value.start_offset,
            value.delivery_complete_count,
            0,
            0,
            value.state_batches,
        )
        return ShareState(found, value.leader_epoch, 0, 1)
    before = state.snapshot
    start = before.start_offset if value.start_offset == -1 else value.start_offset
    return ShareState(
        before._replace(
            start_offset=start,
            delivery_complete_count=value.delivery_complete_count,
            leader_epoch=before.leader_epoch if value.leader_epoch == -1 else value.leader_epoch,
            state_batches=combined(before.state_batches + value.state_batches, start),
        ),
        max(state.leader_fence, value.leader_epoch),
        state.state_fence,
        state.updates + 1,
    )


def change(
    state: ShareState, asked: WriteState, leader_epoch: int, updates_per_snapshot: int, now_ms: int
) -> ShareSnapshot | Update:
    """Return the record of a write: an update, or a snapshot after a number of updates."""
    before = state.snapshot
    if state.updates < updates_per_snapshot:
        return Update(
            before.snapshot_epoch,
            leader_epoch,
            asked.start_offset,
            asked.delivery_complete_count,
            combined(asked.state_batches, asked.start_offset),
        )
    start = before.start_offset if asked.start_offset == -1 else asked.start_offset
    return ShareSnapshot(
        following(before.snapshot_epoch),
        before.state_epoch,
        leader_epoch,
        start,
        asked.delivery_complete_count,
        now_ms,
        now_ms,
        combined(before.state_batches + asked.state_batches, start),
    )
