"""The machine of a share partition, in the scenarios of Apache Kafka 4.3.0's SharePartitionTest, which each test names."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from kwire.messages.share_fetch import AcquiredRecords
from server.coordinator.common.transition import IllegalTransition
from server.share import acknowledgement, acquisition
from server.share.acknowledgement import (
    ACCEPT,
    GAP,
    NO_RENEWAL,
    NOT_ACQUIRED,
    NOT_FOUND,
    NOT_OWNER,
    NOT_OWNER_OF_OFFSET,
    OFFSET_NOT_ACQUIRED,
    REJECT,
    RELEASE,
    RENEW,
    ShareRefusal,
    acknowledge,
)
from server.share.acquisition import _without, acquire
from server.share.in_flight import StateRun, StateWrite
from server.share.locks import MAX_DELIVERIES
from server.share.partition import SharePartition
from server.share.states import RecordState
from server.turns import exhaust
from tests.support.cpu_time import cpu_time

from .windows import LOCK_MS, Window, stored

# Stored state


def test_stored_state_is_in_flight_again() -> None:
    """testMaybeInitialize, testMaybeInitializeStateBatchesWithoutGaps."""
    window = Window(5, (5, 10, 0, 2), (11, 15, 4, 3))
    assert window.states == ["5-10 available 2", "11-15 archived 3"]
    assert window.offsets == (5, 15, 5)
    assert window.machine.delivery_complete_count == 5


def test_nothing_stored_begins_at_the_start_offset() -> None:
    """testMaybeInitializeWithEmptyStateBatches."""
    assert Window(10).offsets == (10, 10, 10)


@pytest.mark.parametrize("batch", [(3, 7, 0, 1), (20, 15, 0, 1)])
def test_stored_state_that_cannot_be_is_refused(batch: tuple[int, int, int, int]) -> None:
    """testMaybeInitializeWithInvalidStartOffsetStateBatches, testMaybeInitializeWithInvalidOffsetInBatch."""
    with pytest.raises(ValueError, match="offsets"):
        Window(5, batch)


def test_stored_state_without_anything_left_is_forgotten() -> None:
    """testMaybeInitializeWhenReadStateRpcReturnsZeroAvailableRecords."""
    window = Window(0, (0, 9, 2, 1), (10, 19, 4, 1))
    assert (window.states, window.offsets) == ([], (20, 20, 20))
    assert window.machine.delivery_complete_count == 0


def test_gaps_of_what_was_stored_are_read_first() -> None:
    """testMaybeInitializeStateBatchesWithGapAtBeginning, ...WithMultipleGaps, testNextFetchOffset..."""
    window = Window(10, (15, 20, 2, 1), (26, 30, 4, 3))
    assert window.offsets == (10, 30, 10)
    assert window.acquire((10, 14)) == [(10, 14, 1)]
    assert window.offsets == (10, 30, 21)
    assert window.acquire((21, 25)) == [(21, 25, 1)]
    assert window.offsets == (10, 30, 31)


def test_read_over_gaps_acquires_only_gaps() -> None:
    """testAcquireGapAtBeginningAndFetchedRecordsOverlapMultipleInFlightBatches."""
    window = Window(10, (21, 30, 2, 2), (41, 50, 4, 1), (61, 70, 2, 1), (81, 90, 4, 1))
    assert window.acquire((10, 75), at=10) == [(10, 20, 1), (31, 40, 1), (51, 60, 1), (71, 75, 1)]
    assert window.machine.next_fetch_offset() == 76
    assert window.machine.start_offset == 10


def test_gap_that_the_log_has_too_is_skipped() -> None:
    """testAcquireCachedStateInitialGapMatchesWithActualPartitionGap."""
    window = Window(10, (21, 30, 2, 2), (31, 40, 4, 1))
    assert window.acquire((21, 30), (31, 40), (41, 50), at=10) == [(41, 50, 1)]
    assert window.offsets[2] == 51


def test_limit_within_gaps_ends_where_what_is_known_begins() -> None:
    """testAcquireMaxFetchRecordsExceededBeforeAcquiringGaps, ...AfterAcquiringGaps."""
    window = Window(10, (21, 30, 0, 2), (31, 40, 4, 1))
    assert window.acquire((10, 40), at=10, most=8) == [(10, 20, 1)]
    assert window.machine.next_fetch_offset() == 21
    assert window.acquire((10, 40), at=21, most=8) == [(21, 30, 3)]


def test_first_batch_that_begins_before_the_start_offset_is_acquired_from_there() -> None:
    """testMaybeInitializeAndAcquireWithFetchBatchPriorStartOffset."""
    window = Window(10, (15, 20, 2, 1))
    assert window.acquire((8, 14), at=10) == [(10, 14, 1)]
    assert window.states == ["10-14 acquired 1 one", "15-20 acknowledged 1"]


# Acquiring


def test_new_records_are_acquired() -> None:
    """testAcquireSingleRecord, testAcquireMultipleRecords, testNextFetchOffsetWithCachedStateAcquired."""
    window = Window()
    assert window.offsets == (0, 0, 0)
    assert window.acquire((0, 0)) == [(0, 0, 1)]
    assert window.acquire((1, 14)) == [(1, 14, 1)]
    assert window.offsets == (0, 14, 15)
    assert window.machine.lock_end_ms == LOCK_MS


def test_first_records_may_be_later_than_the_start_offset() -> None:
    window = Window(3)
    assert window.acquire((5, 9)) == [(5, 9, 1)]
    assert window.offsets == (5, 9, 10)


def test_limit_of_records_is_soft() -> None:
    """testAcquireWithMaxFetchRecords, testAcquireWithMultipleBatchesAndMaxFetchRecords."""
    window = Window()
    assert window.acquire((0, 9), (10, 19), (20, 29), most=12) == [(0, 19, 1)]
    assert window.offsets == (0, 19, 20)


def test_records_are_reported_in_parts_of_the_batch_size() -> None:
    """testAcquireWithBatchSizeAndMultipleBatches, testAcquireWithBatchSizeAndSingleBatch."""
    window = Window()
    rows = window.acquire((2, 6), (7, 7), (8, 12), (13, 22), (23, 25), (26, 30), batch_size=5)
    assert rows == [(2, 6, 1), (7, 12, 1), (13, 22, 1), (23, 30, 1)]
    assert [(each.first, each.last) for each in window.machine.batches] == [
        (first, last) for first, last, _ in rows
    ]
    assert Window().acquire((0, 99), batch_size=5) == [(0, 99, 1)]


def test_records_in_flight_are_not_acquired_again() -> None:
    """testAcquireSameBatchAgain, testAcquireMultipleRecordsWithOverlapAndNewBatch."""
    window = Window()
    window.acquire((0, 9))
    assert window.acquire((0, 9)) == []
    assert window.acquire((0, 9), (10, 14)) == [(10, 14, 1)]


def test_batches_before_the_start_offset_are_not_acquired() -> None:
    """testAcquireBatchPriorToStartOffset."""
    assert Window(10).acquire((0, 9), at=0) == []


def test_locked_records_are_limited() -> None:
    """testAcquireWithMaxInFlightRecordsAndTryAcquireNewBatch, testCanAcquireRecordsWithCachedDataAndLimitReached."""
    window = Window(max_record_locks=20)
    assert window.acquire((0, 9), (10, 19), (20, 29)) == [(0, 19, 1)]
    assert not window.machine.can_acquire(window.settings)
    assert window.acquire((20, 29)) == []


def test_released_records_are_acquired_although_the_limit_is_reached() -> None:
    """testAcquireWithMaxInFlightRecordsReleaseBatchAndAcquireSubsetRecords, ...AndReleaseLastOffset."""
    window = Window(max_record_locks=20)
    window.acquire((0, 9), (10, 24))
    window.acknowledge((15, 17, RELEASE))
    assert window.machine.can_acquire(window.settings)
    assert window.offsets == (0, 24, 15)
    assert window.acquire((10, 24), (25, 40), at=15) == [(15, 17, 2)]
    window.acknowledge((24, 24, RELEASE))
    assert window.acquire((10, 24), (25, 40), at=24) == [(24, 24, 2)]
    assert window.offsets == (0, 24, 25)


def test_released_records_are_acquired_before_new_ones() -> None:
    """testAcquireReleasedRecord, testAcquireReleasedRecordMultipleBatches."""
    window = Window()
    window.acquire((0, 4))
    window.acquire((5, 9))
    window.acquire((10, 14))
    window.acknowledge((5, 9, RELEASE), (11, 12, RELEASE))
    assert window.offsets == (0, 14, 5)
    rows = window.acquire((5, 9), (10, 14), (15, 19), member="two")
    assert rows == [(5, 9, 2), (11, 12, 2), (15, 19, 1)]
    assert window.states == [
        "0-4 acquired 1 one",
        "5-9 acquired 2 two",
        "10-10 acquired 1 one",
        "11-12 acquired 2 two",
        "13-14 acquired 1 one",
        "15-19 acquired 1 two",
    ]


def test_what_compaction_has_removed_is_archived() -> None:
    """testAcquireWhenBatchesRemovedForFetchOffset, ...WithinBatch, testDeliveryCompleteCountWhenStaleBatchesAreArchived."""
    window = Window()
    for batch in ((0, 4), (5, 9), (10, 14), (15, 19)):
        window.acquire(batch)
    window.acknowledge((5, 9, RELEASE), (12, 14, RELEASE), (15, 19, RELEASE))
    assert window.acquire((15, 19), at=5) == [(15, 19, 2)]
    assert window.states == [
        "0-4 acquired 1 one",
        "5-9 archived 1",
        "10-11 acquired 1 one",
        "12-14 archived 1",
        "15-19 acquired 2 one",
    ]
    assert window.machine.delivery_complete_count == 8
    assert window.offsets == (0, 19, 20)


# Acquiring no more than requested


def test_exact_limit_leaves_the_rest_of_a_batch_available() -> None:
    """testAcquireSingleBatchInRecordLimitMode, testAcquireMultipleBatchesInRecordLimitMode."""
    window = Window()
    assert window.acquire((0, 9), most=4, exact=True) == [(0, 3, 1)]
    assert window.states == ["0-3 acquired 1 one", "4-9 available 0"]
    assert window.offsets == (0, 9, 4)
    assert window.acquire((0, 9), at=4, most=4, exact=True, member="two") == [(4, 7, 1)]
    assert window.acquire((0, 9), (10, 19), at=8, most=4, exact=True) == [(8, 9, 1), (10, 11, 1)]
    assert window.offsets == (0, 19, 12)


def test_exact_limit_that_is_not_reached_changes_nothing() -> None:
    """testAcquireWhenInsufficientRecordsInRecordLimitMode."""
    window = Window()
    assert window.acquire((0, 9), (10, 14), most=50, exact=True) == [(0, 14, 1)]
    assert len(window.machine.batches) == 1


def test_exact_limit_divides_what_was_released() -> None:
    """testAcquireMultipleRecordsWithOverlapAndNewBatchInRecordLimitMode, testMultipleMemberAcquireInDifferentAcquireModes."""
    window = Window()
    window.acquire((0, 9))
    window.acknowledge((0, 9, RELEASE))
    assert window.acquire((0, 9), most=3, exact=True) == [(0, 2, 2)]
    assert window.acquire((0, 9), (10, 19), at=3, member="two") == [(3, 9, 2), (10, 19, 1)]


# Acknowledging


def test_accepted_records_are_done() -> None:
    """testAcknowledgeSingleRecordBatch, testAcknowledgeMultipleRecordBatch, testMaybeUpdateCachedStateWhenAcknowledgeTypeAccept."""
    window = Window()
    window.acquire((0, 9))
    assert window.acknowledge((0, 9, ACCEPT)) == [(0, 9, 2, 1)]
    assert (window.states, window.offsets) == ([], (10, 10, 10))


def test_rejected_records_are_done() -> None:
    """testMaybeUpdateCachedStateWhenAcknowledgeTypeReject."""
    window = Window()
    window.acquire((0, 9))
    assert window.acknowledge((0, 9, REJECT)) == [(0, 9, 4, 1)]
    assert window.offsets == (10, 10, 10)


def test_released_records_are_available() -> None:
    """testMaybeUpdateCachedStateWhenAcknowledgeTypeRelease."""
    window = Window()
    window.acquire((0, 9))
    assert window.acknowledge((0, 9, RELEASE)) == [(0, 9, 0, 1)]
    assert window.states == ["0-9 available 1"]
    assert window.offsets == (0, 9, 0)


def test_each_offset_may_have_a_type_of_its_own() -> None:
    """testAcknowledgeMultipleRecordBatchWithGapOffsets, testAcknowledgeMultipleSubsetRecordBatchWithGapOffsets."""
    window = Window()
    window.acquire((5, 9), (10, 18))
    types = [RELEASE, RELEASE, GAP, GAP, ACCEPT, REJECT]
    assert window.acknowledge((5, 10, types)) == [
        (5, 6, 0, 1),
        (7, 8, 4, 1),
        (9, 9, 2, 1),
        (10, 10, 4, 1),
    ]
    assert window.states == [
        "5-6 available 1",
        "7-8 archived 1",
        "9-9 acknowledged 1",
        "10-10 archived 1",
        "11-18 acquired 1 one",
    ]
    assert window.machine.delivery_complete_count == 4


def test_only_what_is_done_from_the_beginning_is_forgotten() -> None:
    """testMaybeUpdateCachedStateWhenAcknowledgementsInBetween, ...FromBeginningForBatchSubset, ...ForEntireBatch."""
    window = Window()
    window.acquire((0, 9))
    window.acquire((10, 19))
    window.acknowledge((12, 15, ACCEPT))
    assert window.offsets == (0, 19, 20)
    window.acknowledge((0, 4, ACCEPT))
    assert window.offsets == (5, 19, 20)
    assert window.states[0] == "0-4 acknowledged 1"
    window.acknowledge((5, 9, ACCEPT))
    assert window.offsets == (10, 19, 20)
    assert window.states[0] == "10-11 acquired 1 one"
    window.acknowledge((10, 11, ACCEPT))
    assert window.offsets == (16, 19, 20)
    assert window.machine.delivery_complete_count == 0


def test_whole_batches_are_never_divided() -> None:
    """Acquiring and acknowledging ten batches of 100,000 records takes a few steps."""
    window = Window(max_record_locks=10_000_000)
    ranges = [(100_000 * n, 100_000 * n + 99_999) for n in range(10)]
    window.acquire(*ranges, most=1_000_000, batch_size=100_000)
    write = exhaust(
        acknowledge(
            window.machine,
            "one",
            [acknowledgement.Acknowledged(0, 999_999, [ACCEPT])],
            window.settings,
            0,
        )
    )
    assert isinstance(write, StateWrite) and len(write.batches) == 10
    assert [len(each.runs) for each in window.machine.batches] == [1] * 10


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ((20, 25, ACCEPT), ErrorCode.INVALID_REQUEST, acknowledgement.FIRST_TOO_HIGH),
        ((5, 11, ACCEPT), ErrorCode.INVALID_REQUEST, acknowledgement.LAST_TOO_HIGH),
        ((0, 4, ACCEPT), ErrorCode.INVALID_RECORD_STATE, NOT_FOUND),
    ],
)
def test_offsets_that_were_not_acquired_are_refused(
    asked: tuple[int, int, int], error: ErrorCode, message: str
) -> None:
    """testAcknowledgeOutOfRangeCachedData, testAcknowledgeOutOfRangeCachedDataFirstBatch."""
    window = Window(0)
    window.acquire((5, 10))
    if asked[0] == 0:
        window.machine.start_offset = 0  # the window begins with a gap
    assert window.acknowledge(asked) == ShareRefusal(error, message)
    assert window.states == ["5-10 acquired 1 one"]


def test_records_of_another_member_are_refused() -> None:
    """testAcknowledgeWithAnotherMember, testAcknowledgeSubsetWithAnotherMember."""
    window = Window()
    window.acquire((0, 9))
    refused = window.acknowledge((0, 9, ACCEPT), member="two")
    assert refused == ShareRefusal(ErrorCode.INVALID_RECORD_STATE, NOT_OWNER)
    window.acknowledge((0, 4, RELEASE))
    window.acquire((0, 9), at=0, member="two")
    assert window.acknowledge((3, 6, ACCEPT), member="two") == ShareRefusal(
        ErrorCode.INVALID_RECORD_STATE, NOT_OWNER_OF_OFFSET
    )
    assert window.states == ["0-4 acquired 2 two", "5-9 acquired 1 one"]


def test_records_that_nobody_has_are_refused() -> None:
    """testAcknowledgeWhenOffsetNotAcquired, testAcknowledgeAfterAcquisitionLockTimeout."""
    window = Window()
    window.acquire((0, 9))
    window.acknowledge((0, 9, RELEASE))
    assert window.acknowledge((0, 9, ACCEPT)) == ShareRefusal(
        ErrorCode.INVALID_RECORD_STATE, NOT_ACQUIRED
    )
    window.acquire((0, 9))
    window.acknowledge((2, 3, RELEASE))
    assert window.acknowledge((1, 2, ACCEPT)) == ShareRefusal(
        ErrorCode.INVALID_RECORD_STATE, OFFSET_NOT_ACQUIRED
    )


def test_refusal_takes_back_the_rest_of_the_request() -> None:
    """testAcknowledgeRollbackWithFullBatchError, ...WithSubsetError, testAcknowledgeWithAnotherMemberRollbackBatchError."""
    window = Window()
    window.acquire((0, 4))
    window.acquire((5, 9))
    window.acquire((10, 14), member="two")
    refused = window.acknowledge((0, 4, ACCEPT), (6, 7, REJECT), (10, 14, ACCEPT))
    assert refused == ShareRefusal(ErrorCode.INVALID_RECORD_STATE, NOT_OWNER)
    assert window.states == ["0-4 acquired 1 one", "5-9 acquired 1 one", "10-14 acquired 1 two"]
    assert window.machine.delivery_complete_count == 0


def test_acknowledgement_of_what_is_before_the_start_offset_changes_nothing() -> None:
    """testAcknowledgeBatchPostLsoMovement, testAcknowledgeBatchAndOffsetPostLsoMovement."""
    window = Window()
    window.acquire((2, 6))
    window.acquire((7, 11))
    window.machine.move_start(9)
    assert window.acknowledge((2, 6, ACCEPT)) == []
    assert window.acknowledge((7, 11, ACCEPT)) == [(9, 11, 2, 1)]
    window.check()


# Writes


def test_records_belong_to_nobody_until_their_state_is_stored() -> None:
    """testAcquireWhenBatchHasOngoingTransition, testNextFetchOffsetWhenBatchHasOngoingTransition, testAcquireWithWriteShareGroupStateDelay."""
    window = Window()
    window.acquire((0, 9))
    write = window.begin((0, 9, RELEASE))
    assert window.states == ["0-9 available... 1"]
    assert window.offsets == (0, 9, 10)
    assert window.acquire((0, 9), member="two") == []
    assert window.acknowledge((0, 9, ACCEPT)) == ShareRefusal(
        ErrorCode.INVALID_RECORD_STATE, NOT_ACQUIRED
    )
    assert window.complete(write)
    assert window.offsets == (0, 9, 0)


def test_state_that_cannot_be_stored_is_taken_back() -> None:
    """testAcknowledgeBatchWithWriteShareGroupStateFailure, testAcknowledgeOffsetWithWriteShareGroupStateFailure."""
    window = Window()
    window.acquire((0, 9))
    write = window.begin((0, 9, ACCEPT))
    assert window.machine.delivery_complete_count == 10
    window.complete(write, stored=False)
    assert window.states == ["0-9 acquired 1 one"]
    write = window.begin((3, 5, [ACCEPT, REJECT, RELEASE]))
    window.complete(write, stored=False)
    assert window.states == ["0-9 acquired 1 one"]


def test_lock_that_ends_while_a_write_fails_makes_records_available() -> None:
    """testAcquisitionLockTimeoutWithWriteStateRPCFailure, testAcquisitionLockTimeoutWithConcurrentAcknowledgement."""
    window = Window()
    window.acquire((0, 9))
    write = window.begin((0, 9, ACCEPT))
    assert window.expire() == []
    window.complete(write, stored=False)
    assert window.states == ["0-9 available 1"]


def test_lock_that_ends_while_a_write_fails_archives_at_the_last_delivery() -> None:
    """testRecordArchivedWithWriteStateRPCFailure, testDeliveryCompleteCountOnLockExpiryAndWriteFailureOnBatchLastDelivery."""
    window = Window(0, (0, 9, 0, 1), delivery_count_limit=2)
    window.acquire((0, 9))
    write = window.begin((0, 9, ACCEPT))
    window.expire()
    window.complete(write, stored=False)
    assert window.states == ["0-9 archived 2"]


def test_writes_may_end_in_another_order() -> None:
    window = Window()
    window.acquire((0, 9))
    first, second = window.begin((0, 4, ACCEPT)), window.begin((5, 9, RELEASE))
    window.complete(second)
    assert window.offsets == (0, 9, 5)
    window.complete(first)
    assert window.offsets == (5, 9, 5)


def test_start_offset_waits_for_writes_before_it() -> None:
    """testCacheUpdateWhenBatchHasOngoingTransition, testCacheUpdateWhenOffsetStateHasOngoingTransition."""
    window = Window()
    window.acquire((0, 9))
    window.acquire((10, 19))
    first = window.begin((0, 9, ACCEPT))
    window.complete(window.begin((10, 19, ACCEPT)))
    assert window.offsets == (0, 19, 20)
    window.complete(first)
    assert window.offsets == (20, 20, 20)


def test_request_that_is_given_up_halfway_changes_nothing() -> None:
    window = Window()
    window.acquire((0, 4))
    window.acquire((5, 9))
    steps = acknowledge(
        window.machine, "one", [acknowledgement.Acknowledged(0, 9, [ACCEPT])], window.settings, 0
    )
    while not window.machine.delivery_complete_count:
        next(steps)
    steps.close()
    assert window.states == ["0-4 acquired 1 one", "5-9 acquired 1 one"]
    window.check()


# Locks


def test_lock_that_ends_makes_records_available() -> None:
    """testAcquisitionLockForAcquiringSingleRecord, ...MultipleRecords, testReacquireSubsetWithAnotherMember."""
    window = Window()
    window.acquire((0, 9))
    assert window.expire(LOCK_MS - 1) == []
    assert window.expire(1) == [(0, 9, 0, 1)]
    assert window.states == ["0-9 available 1"]
    assert window.acquire((0, 9), member="two") == [(0, 9, 2)]


def test_locks_end_each_at_its_time() -> None:
    """testAcquisitionLockForAcquiringMultipleRecordsWithOverlapAndNewBatch, testAcquisitionLockAfterDifferentAcknowledges."""
    window = Window()
    window.acquire((0, 4))
    window.now_ms = 1000
    window.acquire((5, 9))
    window.acknowledge((1, 1, ACCEPT), (6, 7, ACCEPT))
    assert window.expire(LOCK_MS - 1000) == [(0, 0, 0, 1), (2, 4, 0, 1)]
    assert window.expire(1000) == [(5, 5, 0, 1), (8, 9, 0, 1)]
    assert window.machine.lock_end_ms is None


def test_record_that_was_delivered_too_often_is_archived() -> None:
    """testAcquisitionLockTimeoutCauseMaxDeliveryCountExceed, testMaxDeliveryCountLimitExceededForRecordBatch."""
    window = Window(0, (0, 9, 0, 1), delivery_count_limit=2)
    assert window.acquire((0, 9)) == [(0, 9, 2)]
    assert window.expire() == [(0, 9, 4, 2)]
    assert (window.states, window.offsets) == ([], (10, 10, 10))
    window.acquire((10, 10))
    window.acknowledge((10, 10, RELEASE))
    window.acquire((10, 10))
    assert window.acknowledge((10, 10, RELEASE)) == [(10, 10, 4, 2)]


def test_lower_delivery_count_limit_applies_at_once() -> None:
    """testDynamicDeliveryCountDecreaseCausesArchival."""
    window = Window(0, (0, 9, 0, 2), delivery_count_limit=8)
    window.acquire((0, 9))
    window.settings = window.settings._replace(delivery_count_limit=3)
    assert window.expire() == [(0, 9, 4, 3)]


def test_renewed_lock_ends_later() -> None:
    """testRenewAcknowledgeWithCompleteBatchAck, testRenewAcknowledgeWithPerOffsetAck, ...PerOffsetAndBatchMix."""
    window = Window()
    window.acquire((0, 4))
    window.acquire((5, 9))
    window.now_ms = 20_000
    assert window.acknowledge((0, 4, RENEW), (5, 7, [RENEW, ACCEPT, RENEW])) == [(6, 6, 2, 1)]
    assert window.expire(10_000) == [(8, 9, 0, 1)]
    assert window.expire(20_000) == [(0, 4, 0, 1), (5, 5, 0, 1), (7, 7, 0, 1)]


def test_lock_that_has_ended_cannot_be_renewed() -> None:
    """testRenewAcknowledgeOnExpiredBatch."""
    window = Window()
    window.acquire((0, 9))
    window.expire()
    assert window.acknowledge((0, 9, RENEW)) == ShareRefusal(
        ErrorCode.INVALID_RECORD_STATE, NOT_ACQUIRED
    )


@pytest.mark.parametrize("asked", [(0, 9, RENEW), (0, 1, [ACCEPT, RENEW])])
def test_group_may_forbid_renewing(asked: tuple[int, int, int]) -> None:
    """testRenewAcknowledgeDisabledWithCompleteBatchAck, ...WithPerOffsetAck."""
    window = Window(renews=False)
    window.acquire((0, 9))
    assert window.acknowledge(asked) == ShareRefusal(ErrorCode.INVALID_RECORD_STATE, NO_RENEWAL)
    assert window.states == ["0-9 acquired 1 one"]


# Members that leave


def test_records_of_a_member_that_leaves_are_available() -> None:
    """testReleaseMultipleRecordBatch, testReleaseAcquiredRecordsWithAnotherMember, testReleaseAcquiredRecordsDoNotDecreaseDeliveryCount."""
    window = Window()
    window.acquire((0, 4))
    window.acquire((5, 9), member="two")
    window.acknowledge((1, 2, ACCEPT))
    write = window.release()
    assert [tuple(each) for each in write.batches] == [(0, 0, 0, 1), (3, 4, 0, 1)]
    window.complete(write)
    assert window.states == [
        "0-0 available 1",
        "1-2 acknowledged 1",
        "3-4 available 1",
        "5-9 acquired 1 two",
    ]


def test_release_that_cannot_be_stored_is_taken_back() -> None:
    """testReleaseBatchWithWriteShareGroupStateFailure, testReleaseOffsetWithWriteShareGroupStateFailure."""
    window = Window()
    window.acquire((0, 9))
    window.complete(window.release(), stored=False)
    assert window.states == ["0-9 acquired 1 one"]


def test_member_that_leaves_after_the_last_delivery_has_its_records_archived() -> None:
    """testMaxDeliveryCountLimitExceededForRecordsSubsetCacheCleared."""
    window = Window(0, (0, 9, 0, 1), delivery_count_limit=2)
    window.acquire((0, 9))
    window.complete(window.release())
    assert (window.states, window.offsets) == ([], (10, 10, 10))


# The log begins later


def test_log_that_begins_later_ends_what_is_available() -> None:
    """testLsoMovementForArchivingBatches, testLsoMovementForArchivingOffsets."""
    window = Window()
    window.acquire((0, 4))
    window.acquire((5, 9))
    window.acquire((10, 14))
    window.acknowledge((0, 4, RELEASE), (10, 14, RELEASE))
    window.machine.move_start(12)
    assert window.states == [
        "0-4 archived 1",
        "5-9 acquired 1 one",
        "10-11 archived 1",
        "12-14 available 1",
    ]
    assert window.offsets == (12, 14, 12)
    window.check()


def test_log_that_begins_behind_everything_leaves_nothing_to_do() -> None:
    """testLsoMovementAheadOfEndOffset, testLsoMovementToEndOffset."""
    window = Window()
    window.acquire((0, 9))
    window.acknowledge((0, 9, RELEASE))
    window.machine.move_start(20)
    assert window.offsets == (20, 20, 20)
    assert window.acquire((20, 24)) == [(20, 24, 1)]
    window.acknowledge((20, 24, ACCEPT))
    assert window.offsets == (25, 25, 25)


def test_log_of_an_empty_window_begins_later() -> None:
    """testLsoMovementOnInitializationSharePartition."""
    window = Window(5)
    window.machine.move_start(8)
    assert window.offsets == (8, 8, 8)
    window.machine.move_start(3)
    assert window.offsets == (8, 8, 8)


def test_locks_before_the_start_offset_end_in_archived_records() -> None:
    """testAcquisitionLockTimeoutForBatchesPostStartOffsetMovement, ...ToMiddleOfBatch, testReleaseAcquiredRecordsBatchesPostStartOffsetMovement."""
    window = Window()
    window.acquire((0, 4))
    window.acquire((5, 9))
    window.machine.move_start(7)
    assert window.expire() == [(0, 4, 4, 1), (5, 6, 4, 1), (7, 9, 0, 1)]
    assert window.offsets == (7, 9, 7)
    assert window.machine.delivery_complete_count == 0


def test_member_that_leaves_after_the_log_began_later_archives_what_is_gone() -> None:
    """testReleaseAcquiredRecordsBatchesPostStartOffsetMovementToMiddleOfBatch."""
    window = Window()
    window.acquire((0, 9))
    window.machine.move_start(4)
    write = window.release()
    assert [tuple(each) for each in write.batches] == [(0, 3, 4, 1), (4, 9, 0, 1)]
    window.complete(write)
    assert window.offsets == (4, 9, 4)


def test_release_in_progress_stays_archived_if_it_fails() -> None:
    """testLsoMovementWithWriteStateRPCFailuresInAcknowledgement, testLsoMovementWithPendingAcknowledgements."""
    window = Window()
    window.acquire((0, 9))
    write = window.begin((0, 9, RELEASE))
    window.machine.move_start(5)
    window.complete(write, stored=False)
    assert window.states == ["0-4 archived 1", "5-9 acquired 1 one"]


def test_lock_of_records_that_are_gone_can_be_renewed() -> None:
    """testLsoMovementWithBatchRenewal, testLsoMovementWithPerOffsetRenewal."""
    window = Window()
    window.acquire((0, 9))
    window.machine.move_start(5)
    window.now_ms = 10_000
    assert window.acknowledge((0, 9, RENEW)) == []
    assert window.expire(20_000) == [(0, 4, 4, 1)]
    assert window.expire(10_000) == [(5, 9, 0, 1)]


# Records that no consumer can process


def test_batch_that_fails_often_comes_in_halves_and_at_last_alone() -> None:
    """testAcquireRecordsHalvesBatchSizeOnEachFailureUntilSingleRecordOnLastAttempt."""
    window = Window(0, (0, 15, 0, 3), delivery_count_limit=6)
    assert window.acquire((0, 15)) == [(0, 7, 4)]
    assert window.acquire((0, 15), at=8) == [(8, 15, 4)]
    window.expire()
    assert window.acquire((0, 15)) == [(0, 3, 5)]
    window.acknowledge((0, 3, RELEASE))
    assert [window.acquire((0, 15), at=n) for n in range(2)] == [[(0, 0, 6)], [(1, 1, 6)]]


def test_throttled_batch_comes_without_others() -> None:
    """testThrottleRecordsWhenPendingDeliveriesExist, testLastAttemptRecordIsolationWithMixedDeliveryCount."""
    window = Window(0, (0, 4, 0, 1), (5, 14, 0, 3), (15, 19, 0, 1))
    assert window.acquire((0, 4), (5, 14), (15, 19), (20, 29)) == [(0, 4, 2)]
    assert window.acquire((5, 14), (15, 19), (20, 29)) == [(5, 9, 4)]


def test_often_delivered_records_that_others_have_throttle_nobody() -> None:
    """testAcquisitionNotThrottledIfHighDeliveryCountRecordNotAcquired, testAcquisitionThrottlingWithOngoingStateTransition."""
    window = Window(0, (0, 9, 0, 1))
    window.acquire((0, 9))
    for _ in range(2):
        window.acknowledge((0, 1, RELEASE))
        window.acquire((0, 9), member="one")
    window.acknowledge((5, 9, RELEASE))
    assert window.acquire((0, 9), at=5) == [(5, 9, 3)]


# Bounds


def test_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgement, "MAX_RUNS", 5)
    window = Window()
    window.acquire((0, 99))
    refused = window.acknowledge((0, 9, [RELEASE, ACCEPT] * 5))
    assert refused == ShareRefusal(ErrorCode.INVALID_RECORD_STATE, acknowledgement.TOO_MANY_PARTS)
    assert window.states == ["0-99 acquired 1 one"]
    assert window.acknowledge((0, 99, ACCEPT)) == [(0, 99, 2, 1)]


def test_neighbours_in_the_same_state_are_one_run() -> None:
    window = Window()
    window.acquire((0, 999))
    for offset in range(500):
        window.acknowledge((offset, offset, RELEASE))
    assert len(window.states) == 2


def test_empty_partition_acquires_nothing() -> None:
    """testAcquireWithEmptyFetchRecords, testCanAcquireRecordsWithEmptyCache."""
    window = Window()
    assert window.machine.can_acquire(window.settings)
    rows, count = acquire(
        window.machine,
        "one",
        stored((0, 9)),
        0,
        acquisition.AcquireLimits(0, 500),
        window.settings,
        0,
    )
    assert (rows, count) == ([], 0)
    assert SharePartition(0, 0).in_flight == 0


# States that only an attacker stores, and logs with very many batches


def test_stored_state_of_another_number_is_refused() -> None:
    with pytest.raises(ValueError, match="77 is not a valid RecordState"):
        Window(5, (5, 10, 77, 1))


def test_records_that_were_stored_as_acquired_are_available() -> None:
    window = Window(5, (5, 10, 1, 1))
    assert window.states == ["5-10 available 1"]


def test_most_deliveries_are_not_exceeded() -> None:
    window = Window(5, (5, 5, 0, MAX_DELIVERIES))
    assert [each[2] for each in window.acquire((5, 5))] == [MAX_DELIVERIES]


def test_aborted_batches_are_left_out_in_time_that_grows_with_their_number() -> None:
    count = 10_000
    rows = [
        AcquiredRecords(first_offset=number, last_offset=number, delivery_count=1)
        for number in range(2 * count)
    ]
    aborted = [(2 * number, 2 * number) for number in range(count)]
    with cpu_time() as taken:
        left = list(_without(rows, aborted))
    assert [each.first_offset for each in left] == list(range(1, 2 * count, 2))
    assert taken.seconds < 0.5  # with each row compared with each batch, minutes
    (row,) = _without(
        [AcquiredRecords(first_offset=0, last_offset=9, delivery_count=1)], [(10, 19)]
    )
    assert (row.first_offset, row.last_offset) == (0, 9)


@pytest.mark.parametrize("state", RecordState)
@pytest.mark.parametrize("target", RecordState)
def test_run_goes_only_where_the_table_allows(state: RecordState, target: RecordState) -> None:
    """RecordStateTest."""
    allowed = {
        (RecordState.AVAILABLE, RecordState.ACQUIRED),
        (RecordState.AVAILABLE, RecordState.ARCHIVED),
        (RecordState.ACQUIRED, RecordState.AVAILABLE),
        (RecordState.ACQUIRED, RecordState.ACKNOWLEDGED),
        (RecordState.ACQUIRED, RecordState.ARCHIVED),
    }
    partition, run = SharePartition(0, 5), StateRun(3, 9, state, 1)
    if (state, target) in allowed:
        partition.set_state(run, target)
        assert run.state is target
        assert partition.delivery_complete_count == (5 if target in (2, 4) else 0)
    else:
        with pytest.raises(IllegalTransition):
            partition.set_state(run, target)
        assert run.state is state
