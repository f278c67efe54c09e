"""A new leader of a share partition knows only the stored state, and reads the gaps in it again.

Each case is a scenario of Apache Kafka 4.3.0's SharePartitionTest, with its name.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from server.share.acknowledgement import ACCEPT

from .windows import Window

Row = tuple[int, int, int]


class Case(NamedTuple):
    """The stored state (from `start` on) and read batches, the acquired records, and the resulting offsets.

    Shape: `stored` are (first, last, state, delivery count); `offsets` are the start, the end and the next to fetch.
    """

    start: int
    stored: list[tuple[int, int, int, int]]
    read: list[tuple[int, int]]
    acquired: list[Row]
    offsets: tuple[int, int, int]
    done: int | None = None
    most: int = 500


CASES = {
    "testMaybeInitializeAndAcquireWithMultipleBatchesAndLastOffsetWithinCachedBatch": Case(
        5,
        [(15, 18, 0, 2), (20, 22, 4, 2), (26, 30, 0, 1)],
        [(7, 8), (10, 11), (13, 18), (20, 27)],
        [(7, 14, 1), (15, 18, 3), (19, 19, 1), (23, 25, 1), (26, 27, 2)],
        (7, 30, 28),
        3,
    ),
    "testAcquireGapAtBeginningAndFetchedRecordsOverlapInFlightBatches": Case(
        11, [(21, 30, 2, 2), (31, 40, 4, 1)], [(11, 25)], [(11, 20, 1)], (11, 40, 41), 20
    ),
    "testAcquireGapAtBeginningAndFetchedRecordsOverlapInFlightAvailableBatches": Case(
        11,
        [(21, 30, 0, 2), (31, 40, 4, 1)],
        [(11, 25)],
        [(11, 20, 1), (21, 25, 3)],
        (11, 40, 26),
        10,
    ),
    "testAcquireGapAtBeginningAndFetchedRecordsIncludeGapOffsetsAtEnd": Case(
        11,
        [(21, 30, 2, 2), (41, 50, 0, 1), (61, 70, 4, 1), (81, 90, 0, 1)],
        [(11, 75)],
        [(11, 20, 1), (31, 40, 1), (41, 50, 2), (51, 60, 1), (71, 75, 1)],
        (11, 90, 76),
        20,
    ),
    "testAcquireWhenRecordsFetchedFromGapAndMaxFetchRecordsIsExceeded": Case(
        11,
        [(11, 20, 2, 2), (31, 40, 4, 1)],
        [(21, 23), (24, 26), (27, 28)],
        [(21, 26, 1)],
        (21, 40, 27),
        10,
        most=6,
    ),
    "testAcquireWhenRecordsFetchedFromGapAndPartitionContainsNaturalGaps": Case(
        10,
        [(15, 20, 2, 2), (30, 40, 4, 1)],
        [(10, 20), (30, 50)],
        [(10, 14, 1), (21, 29, 1), (41, 50, 1)],
        (10, 50, 51),
        17,
    ),
    "testAcquireCachedStateInitialGapOverlapsWithActualPartitionGap": Case(
        11,
        [(21, 30, 2, 2), (41, 50, 4, 1)],
        [(16, 35), (36, 60)],
        [(16, 20, 1), (31, 40, 1), (51, 60, 1)],
        (16, 60, 61),
    ),
    "testAcquireCachedStateGapInBetweenOverlapsWithActualPartitionGap": Case(
        11,
        [(21, 30, 2, 2), (41, 50, 4, 1)],
        [(11, 20), (21, 35), (41, 60)],
        [(11, 20, 1), (31, 40, 1), (51, 60, 1)],
        (11, 60, 61),
    ),
    "testAcquireWhenRecordsFetchedAfterGapsAreFetched": Case(
        11, [(11, 20, 2, 2), (31, 40, 4, 1)], [(21, 35)], [(21, 30, 1)], (21, 40, 41)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gaps_are_read_again(name: str) -> None:
    case = CASES[name]
    window = Window(case.start, *case.stored)
    at = window.machine.next_fetch_offset()
    assert window.acquire(*case.read, at=at, most=case.most) == case.acquired
    assert window.offsets == case.offsets
    window.check()
    if case.done is not None:
        assert window.machine.delivery_complete_count == case.done


def test_after_the_gaps_new_records_are_read() -> None:
    """testAcquireWhenRecordsFetchedAfterGapsAreFetched."""
    window = Window(11, (11, 20, 2, 2), (31, 40, 4, 1))
    window.acquire((21, 35))
    assert window.acquire((41, 55)) == [(41, 55, 1)]
    assert window.offsets == (21, 55, 56)


def test_start_offset_does_not_pass_a_gap() -> None:
    """testMaybeUpdateCachedStateGapAfterLastOffsetAcknowledged."""
    window = Window(11, (11, 20, 0, 1), (31, 40, 4, 1))
    window.acquire((11, 20))
    window.acknowledge((11, 20, ACCEPT))
    assert window.offsets == (21, 40, 21)
    assert window.machine.delivery_complete_count == 10
