"""Idempotent producers: duplicates, gaps, epochs, snapshots. Cases follow ProducerStateManagerTest."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from server.log.log import Log
from server.log.producer_state import (
    EXPIRED_IN_STEP,
    CorruptSnapshot,
    ProducerStateManager,
    Verification,
    parse_snapshot,
)

from .logs import NOW, append, batch, config, end_transaction, open_log, refusal, values

DAY_MS = 24 * 3600 * 1000


def send(log: Log, sequence: int, *data: bytes, pid: int = 7, epoch: int = 0) -> int:
    """Append as a producer; return the first offset, or -1 minus that offset for a duplicate."""
    info = append(log, batch(*(data or (b"v",)), pid=pid, epoch=epoch, sequence=sequence))
    return -info.first_offset - 1 if info.duplicate else info.first_offset


def error(log: Log, sequence: int, *data: bytes, pid: int = 7, epoch: int = 0) -> ErrorCode:
    """The error with which a producer is refused."""
    return refusal(log, batch(*(data or (b"v",)), pid=pid, epoch=epoch, sequence=sequence)).error


def test_sequences_in_order_are_appended(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert [send(log, 0, b"a", b"b"), send(log, 2), send(log, 3)] == [0, 2, 3]


def test_last_five_batches_are_answered_as_duplicates(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(6):
        send(log, n)
    before = log.size_bytes
    for n in range(1, 6):
        assert send(log, n) == -n - 1
    assert log.size_bytes == before
    assert error(log, 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_duplicate_answers_the_original_offsets_and_timestamp(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"other"))
    send(log, 0, b"a", b"b", b"c")
    info = append(log, batch(b"a", b"b", b"c", pid=7, sequence=0))
    assert info.duplicate
    assert (info.first_offset, info.last_offset) == (1, 3)
    assert info.log_append_time_ms == NOW + 2


def test_same_first_sequence_with_another_length_is_no_duplicate(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, b"a", b"b")
    assert error(log, 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gap_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    assert error(log, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1) == 1


def test_unknown_producer_may_begin_anywhere(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert send(log, 41) == 0
    assert send(log, 42) == 1


def test_batch_that_overtook_the_first_of_its_transaction_is_refused(tmp_path: Path) -> None:
    """Also a batch that is not transactional, because Apache Kafka 3.9.2 counts its sequence."""
    log = open_log(tmp_path)
    log.producers.begin_verification(7, 0, 2, NOW, is_added=False)
    assert error(log, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 2) == 0
    log.producers.begin_verification(8, 0, 5, NOW, is_added=True)
    assert error(log, 5, pid=8) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # A later attempt, of an older client, does not change the state of the first one.
    log.producers.begin_verification(9, -1, 0, NOW, is_added=True)
    log.producers.begin_verification(9, 0, 5, NOW, is_added=False)
    assert error(log, 5, pid=9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_new_epoch_begins_at_sequence_zero_and_fences_the_old(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, epoch=3)
    assert error(log, 5, epoch=4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=4) == 1
    assert error(log, 1, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert error(log, 0, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequence_wraps_around(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    top = (1 << 31) - 1
    send(log, top - 1)
    assert send(log, top) == 1
    assert send(log, 0) == 2
    assert send(log, 1) == 3
    log2 = open_log((tmp_path / "b").mkdir() or tmp_path / "b")
    send(log2, top - 1, b"1", b"2", b"3", b"4")  # ends at sequence 1
    assert send(log2, 2) == 4
    assert send(log2, top - 1, b"1", b"2", b"3", b"4") == -1


def test_state_survives_a_clean_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(3):
        send(log, n)
    log.close()
    log = open_log(tmp_path, clean=True)
    assert send(log, 2) == -3  # only the last batch is in the snapshot
    assert error(log, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 3) == 3


def test_state_survives_a_crash_through_rolled_segments(tmp_path: Path) -> None:
    settings = config(segment_bytes=200)
    log = open_log(tmp_path, settings)
    for n in range(10):
        send(log, n)
        send(log, n, pid=8)
    assert len(log.segments) > 3
    log = open_log(tmp_path, settings)  # not closed: as after kill -9
    assert [send(log, n) for n in range(5, 10)] == [-2 * n - 1 for n in range(5, 10)]
    assert send(log, 10, pid=8) == 20


def test_unreadable_snapshot_is_replaced_by_the_log(tmp_path: Path) -> None:
    settings = config(segment_bytes=200)
    log = open_log(tmp_path, settings)
    for n in range(10):
        send(log, n)
    log.close()
    for path in (tmp_path / "topic-0").glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1])
    log = open_log(tmp_path, settings, clean=True)
    assert send(log, 9) == -10
    assert send(log, 10) == 10


def test_idle_producers_are_forgotten_after_the_expiration_time(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    list(log.producers.remove_expired(NOW + DAY_MS - 1))
    assert error(log, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    list(log.producers.remove_expired(NOW + DAY_MS))
    assert send(log, 5) == 1


def test_producers_whose_transaction_was_never_verified_are_forgotten_in_steps() -> None:
    producers = ProducerStateManager(DAY_MS)
    for number in range(2 * EXPIRED_IN_STEP + 1):
        producers.verifying[number] = Verification(0, 0, NOW, object(), False)
    producers.verifying[0] = Verification(0, 0, NOW + 1, object(), False)
    steps = producers.remove_expired(NOW + DAY_MS)
    next(steps)
    assert len(producers.verifying) == EXPIRED_IN_STEP + 2
    producers.clear(0)  # in the meantime
    producers.verifying[EXPIRED_IN_STEP] = Verification(0, 0, NOW, object(), False)
    producers.verifying[0] = Verification(0, 0, NOW + 1, object(), False)
    list(steps)
    assert list(producers.verifying) == [0]


def test_expired_producers_are_not_loaded_but_open_transactions_are(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    append(log, batch(pid=9, transactional=True))
    log.close()
    log = open_log(tmp_path, clean=True, now_ms=NOW + 2 * DAY_MS)
    assert [entry.producer_id for entry in log.active_producers()] == [9]
    assert log.last_stable_offset == 1


def test_state_goes_back_with_truncation(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=200))
    for n in range(10):
        send(log, n)
    log.truncate_to(4, NOW)
    assert log.log_end_offset == 4
    assert send(log, 4) == 4
    assert values(log) == [b"v"] * 5


def test_snapshot_is_kafkas_format() -> None:
    producers = ProducerStateManager(DAY_MS)
    producers.append_data(5, 2, 10, 4, 100, NOW, True)
    producers.append_data(6, 0, -1, 0, 105, NOW, False)
    producers.last_map_offset = 106
    data = producers.snapshot()
    assert len(data) == 10 + 2 * 46
    assert data[:2] == b"\0\x01"
    assert data[6:10] == b"\0\0\0\x02"
    assert (
        data[10:56].hex()
        == (
            "0000000000000005"  # producer id
            "0002"  # epoch
            "0000000e"  # last sequence
            "0000000000000068"  # last offset
            "00000004"  # offset delta
            + NOW.to_bytes(8, "big").hex()
            + "ffffffff"  # coordinator epoch
            "0000000000000064"  # first offset of the open transaction
        )
    )
    again = ProducerStateManager(DAY_MS)
    again.load_snapshot(data, 106, NOW)
    assert again.snapshot() == data
    assert again.first_unstable_offset() == 100


@pytest.mark.parametrize("cut", [0, 5, 9, 40, 101])
def test_cut_snapshot_is_corrupt(cut: int) -> None:
    producers = ProducerStateManager(DAY_MS)
    producers.append_data(5, 2, 10, 4, 100, NOW, True)
    producers.append_data(6, 0, 0, 0, 105, NOW, False)
    with pytest.raises(CorruptSnapshot):
        parse_snapshot(producers.snapshot()[:cut])


def test_plain_data_inside_a_transaction_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(pid=7, transactional=True))
    assert error(log, 1) == ErrorCode.INVALID_TXN_STATE
    end_transaction(log, 7, commit=True)
    assert send(log, 1) == 2


def crowd(*sizes: int) -> ProducerStateManager:
    """Producers, numbered from 0, each with the given number of batches."""
    made = ProducerStateManager(1000)
    for number, batches in enumerate(sizes):
        for sequence in range(batches):
            made.append_data(number, 0, sequence, 0, 10 * number + sequence, NOW, False)
    return made


def test_producers_that_sent_least_and_came_first_are_forgotten_first() -> None:
    made = crowd(3, 1, 1, 2, 1, 5)
    assert made.forget(2) == 2
    assert list(made.producers) == [0, 3, 4, 5]
    assert made.forget(2) == 2
    assert list(made.producers) == [3, 5]


def test_producer_with_an_open_transaction_is_not_forgotten() -> None:
    made = crowd(1, 1)
    made.append_data(9, 0, 0, 0, 100, NOW, True)
    made.begin_verification(7, 0, 0, NOW, is_added=False)
    assert made.known == 4
    assert made.forget(10) == 3
    assert list(made.producers) == [9] and not made.verifying
