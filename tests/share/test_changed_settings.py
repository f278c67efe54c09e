"""Configs of a share group that change while records are in flight, in the scenarios of SharePartitionTest that each test names."""

from __future__ import annotations

from server.share.acknowledgement import ACCEPT, RELEASE

from .windows import LOCK_MS, Window


def change(window: Window, **settings: int) -> None:
    window.settings = window.settings._replace(**settings)


def test_longer_locks_count_from_the_next_acquisition() -> None:
    """testScheduleAcquisitionLockTimeoutValueUpdatesSuccessfully, testScheduleAcquisitionLockTimeoutValueFromGroupConfig."""
    window = Window(lock_duration_ms=10_000)
    window.acquire((0, 4))
    change(window, lock_duration_ms=LOCK_MS)
    window.acquire((5, 9))
    assert window.expire(10_000) == [(0, 4, 0, 1)]
    assert window.expire(LOCK_MS - 10_001) == []
    assert window.expire(1) == [(5, 9, 0, 1)]


def test_higher_delivery_count_limit_applies_at_once() -> None:
    """testDynamicDeliveryCountIncreaseAllowsMoreDeliveries."""
    window = Window(0, (0, 0, 0, 1), delivery_count_limit=2)
    window.acquire((0, 0))
    change(window, delivery_count_limit=3)
    assert window.acknowledge((0, 0, RELEASE)) == [(0, 0, 0, 2)]
    window.acquire((0, 0))
    assert window.acknowledge((0, 0, RELEASE)) == [(0, 0, 4, 3)]


def test_more_locks_let_more_be_acquired() -> None:
    """testDynamicPartitionMaxRecordLocksIncrease, testDynamicPartitionMaxRecordLocksExactBoundary."""
    window = Window(max_record_locks=20)
    window.acquire((0, 9), (10, 19))
    assert not window.machine.can_acquire(window.settings)
    change(window, max_record_locks=21)
    assert window.machine.can_acquire(window.settings)
    assert window.acquire((20, 20), (21, 29)) == [(20, 20, 1)]
    assert not window.machine.can_acquire(window.settings)


def test_fewer_locks_stop_acquisitions_until_records_are_done() -> None:
    """testDynamicPartitionMaxRecordLocksDecrease, ...DecreaseBelowInFlightAffectsMaxRecordsToAcquire."""
    window = Window(max_record_locks=40)
    window.acquire((0, 9), (10, 19))
    change(window, max_record_locks=15)
    assert not window.machine.can_acquire(window.settings)
    assert window.acquire((20, 29)) == []
    window.acknowledge((0, 9, ACCEPT))
    assert window.machine.can_acquire(window.settings)
    assert window.acquire((20, 24), (25, 29)) == [(20, 24, 1)]
    assert not window.machine.can_acquire(window.settings)


def test_limit_of_before_counts_again_when_a_config_is_removed() -> None:
    """testDynamicPartitionMaxRecordLocksRemoveGroupConfig."""
    window = Window()
    default = window.settings
    change(window, max_record_locks=10)
    window.acquire((0, 9))
    assert window.acquire((10, 19)) == []
    window.settings = default
    assert window.acquire((10, 19)) == [(10, 19, 1)]
