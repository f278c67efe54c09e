"""A log that begins after records that a share group has in flight, in the scenarios of SharePartitionTest that each
test names.
"""

from __future__ import annotations

from kwire.errors import ErrorCode
from server.share.acknowledgement import ACCEPT, OFFSET_NOT_ACQUIRED, REJECT, RELEASE, ShareRefusal

from .windows import Window


def window_of(*ranges: tuple[int, int]) -> Window:
    """One member has each of these ranges, as separate batches."""
    window = Window(ranges[0][0])
    for each in ranges:
        window.acquire(each)
    return window


def test_available_batches_before_the_start_are_archived() -> None:
    """testLsoMovementForArchivingAllAvailableBatches, testLsoMovementPostArchivedBatches."""
    window = window_of((2, 6), (7, 11), (12, 16), (17, 21))
    window.acknowledge((2, 6, RELEASE), (12, 16, RELEASE))
    window.machine.move_start(17)
    assert window.states == [
        "2-6 archived 1",
        "7-11 acquired 1 one",
        "12-16 archived 1",
        "17-21 acquired 1 one",
    ]
    assert window.offsets == (17, 21, 22)
    window.acknowledge((17, 21, RELEASE))
    window.machine.move_start(22)
    assert window.offsets == (22, 22, 22)
    window.check()


def test_available_offsets_before_the_start_are_archived() -> None:
    """testLsoMovementForArchivingAllAvailableOffsets, testLsoMovementPostArchivedRecords."""
    window = window_of((2, 6), (7, 11))
    window.acknowledge((4, 5, RELEASE), (8, 9, RELEASE))
    window.machine.move_start(10)
    assert window.states == [
        "2-3 acquired 1 one",
        "4-5 archived 1",
        "6-6 acquired 1 one",
        "7-7 acquired 1 one",
        "8-9 archived 1",
        "10-11 acquired 1 one",
    ]
    window.machine.move_start(11)
    assert window.offsets == (11, 11, 12)
    window.check()


def test_start_in_the_middle_of_a_batch_divides_it() -> None:
    """testLsoMovementForArchivingOffsetsWithStartOffsetNotFullMatches, ...PostReleaseAcknowledgement, ...PostAcceptAcknowledgement."""
    window = window_of((2, 6), (7, 11))
    window.machine.move_start(4)
    assert window.offsets == (4, 11, 12)
    assert window.acknowledge((2, 6, RELEASE)) == [(4, 6, 0, 1)]
    assert window.offsets == (4, 11, 4)
    assert window.acquire((2, 6), at=4) == [(4, 6, 2)]
    assert window.acknowledge((4, 6, ACCEPT)) == [(4, 6, 2, 2)]
    assert window.offsets == (4, 11, 12)
    assert window.expire() == [(2, 3, 4, 1), (7, 11, 0, 1)]
    assert window.offsets == (7, 11, 7)


def test_start_in_the_middle_of_batches_at_both_ends() -> None:
    """testLsoMovementForArchivingOffsetsWithStartAndEndBatchesNotFullMatches."""
    window = window_of((2, 6), (7, 11))
    window.machine.move_start(4)
    window.acknowledge((4, 6, RELEASE))
    window.machine.move_start(8)
    assert window.states == ["2-3 acquired 1 one", "4-6 archived 1", "7-11 acquired 1 one"]
    assert window.offsets == (8, 11, 12)
    window.check()


def test_start_at_the_last_available_offset_leaves_that_one() -> None:
    """testLsoMovementToEndOffsetWhereEndOffsetIsAvailable."""
    window = window_of((2, 6), (7, 11))
    window.acknowledge((7, 11, RELEASE))
    window.machine.move_start(11)
    assert window.offsets == (11, 11, 11)
    assert window.acquire((7, 11), at=11) == [(11, 11, 2)]


def test_start_behind_everything_that_was_acknowledged() -> None:
    """testLsoMovementAheadOfEndOffsetPostAcknowledgement."""
    window = window_of((2, 6), (7, 11))
    window.acknowledge((4, 5, ACCEPT), (7, 11, ACCEPT))
    window.machine.move_start(20)
    assert window.offsets == (20, 20, 20)
    assert window.machine.delivery_complete_count == 0


def test_gaps_between_batches_may_be_before_the_start() -> None:
    """testLsoMovementWithGapsInCachedStateMap."""
    window = window_of((2, 6), (10, 14), (20, 24))
    window.machine.move_start(18)
    assert window.offsets == (18, 24, 25)
    assert window.acknowledge((20, 24, RELEASE)) == [(20, 24, 0, 1)]
    assert window.offsets == (18, 24, 20)


def test_acknowledged_batch_moves_the_start_when_nobody_has_what_is_before() -> None:
    """testLsoMovementWithGapsInCachedStateMapAndAcknowledgedBatch."""
    window = window_of((2, 6), (10, 14))
    window.acknowledge((10, 14, ACCEPT))
    window.machine.move_start(10)
    assert window.offsets == (10, 14, 15)
    assert window.expire() == [(2, 6, 4, 1)]
    assert window.offsets == (15, 15, 15)
    assert window.machine.delivery_complete_count == 0


def test_refused_records_before_and_behind_the_start() -> None:
    """testTerminalRecordsNotUpdatedWhenOffsetsBeforeStartOffsetAreExpiredAfterAcknowledgements."""
    window = window_of((0, 9), (10, 19))
    window.acknowledge((2, 3, REJECT), (12, 13, ACCEPT))
    assert window.machine.delivery_complete_count == 4
    window.machine.move_start(5)
    assert window.machine.delivery_complete_count == 2
    assert window.expire() == [
        (0, 1, 4, 1),
        (4, 4, 4, 1),
        (5, 9, 0, 1),
        (10, 11, 0, 1),
        (14, 19, 0, 1),
    ]
    assert window.machine.delivery_complete_count == 2


def test_member_leaves_after_the_log_began_at_a_batch() -> None:
    """testReleaseAcquiredRecordsBatchesPostStartOffsetMovementToStartOfBatch."""
    window = window_of((0, 4), (5, 9))
    window.machine.move_start(5)
    write = window.release()
    assert [tuple(each) for each in write.batches] == [(0, 4, 4, 1), (5, 9, 0, 1)]
    window.complete(write)
    assert window.offsets == (5, 9, 5)


def test_locks_end_after_the_log_began_at_a_batch() -> None:
    """testAcquisitionLockTimeoutForBatchesPostStartOffsetMovementToStartOfBatch."""
    window = window_of((0, 4), (5, 9))
    window.machine.move_start(5)
    assert window.expire() == [(0, 4, 4, 1), (5, 9, 0, 1)]
    assert window.offsets == (5, 9, 5)


def test_who_acknowledges_after_the_start_moved_and_the_lock_ended_is_refused() -> None:
    """testLsoMovementThenAcquisitionLockTimeoutThenAcknowledge, ...BatchLastOffsetAheadOfStartOffsetBatch."""
    window = window_of((2, 6), (7, 11))
    window.machine.move_start(9)
    window.expire()
    assert window.states == ["2-6 archived 1", "7-8 archived 1", "9-11 available 1"]
    assert window.acknowledge((7, 11, ACCEPT)) == ShareRefusal(
        ErrorCode.INVALID_RECORD_STATE, OFFSET_NOT_ACQUIRED
    )
    assert window.acquire((7, 11), at=9) == [(9, 11, 2)]


def test_write_in_progress_survives_the_start() -> None:
    """testLsoMovementWithPendingAcknowledgementsForBatches."""
    window = window_of((0, 4), (5, 9))
    write = window.begin((0, 4, ACCEPT), (5, 9, ACCEPT))
    window.machine.move_start(5)
    window.complete(write)
    assert window.offsets == (10, 10, 10)
