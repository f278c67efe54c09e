"""One replica: its role, accepted batches, and the records that a fetch reads from it."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.log.log import AppendError
from server.log.validator import AppendInfo
from server.metadata.image import NO_EPOCH
from server.replication.membership import PartitionState
from server.replication.partition import Partition
from tests.support.replicas import NOW, Replicas, batch, values
from tests.support.transactions import abort, commit, transactional


def state(
    leader: int, epoch: int, isr: tuple[int, ...] = (0,), replicas: tuple[int, ...] = (0, 1)
) -> PartitionState:
    return PartitionState(leader, epoch, isr, replicas, epoch)


def append(partition: Partition, acks: int = 1) -> AppendInfo | AppendError:
    return partition.append_as_leader(memoryview(bytearray(batch())), acks=acks, now_ms=0)


# Roles


def test_leader_alone_in_sync_commits_what_it_appends(room: Replicas) -> None:
    partition = room.create("a")
    room.produce("a", b"1", b"2")
    assert partition.log.high_watermark == partition.log.log_end_offset == 2
    assert partition.is_committed(2) and not partition.is_committed(3)


def test_follower_refuses_to_append_and_read(room: Replicas) -> None:
    partition = room.create("a", leader=1, replicas=(0, 1), isr=(1,))
    assert append(partition) == AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert partition.read(0, 100).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_older_leader_epoch_is_ignored(room: Replicas) -> None:
    partition = room.create("a", epoch=5)
    partition.apply(state(1, 4), NOW)
    assert partition.is_leader and partition.state.leader_epoch == 5


def test_each_new_leader_epoch_begins_at_the_log_end(room: Replicas) -> None:
    partition = room.create("a", epoch=3)
    room.produce("a", b"1", b"2")
    partition.apply(state(0, 7), NOW)
    room.produce("a", b"3")
    partition.apply(state(0, 7), NOW)
    assert [partition.log.end_offset_for_epoch(epoch) for epoch in (2, 3, 5, 7)] == [
        (2, 0),
        (3, 2),
        (3, 2),
        (7, 3),
    ]


def test_replica_that_may_not_be_alone_commits_nothing(room: Replicas) -> None:
    partition = room.create("a", replicas=(0, 1), isr=(0, 1))
    assert room.produce("a") == 0
    assert partition.log.high_watermark == 0
    partition.on_isr_confirmed((0,), 1, NOW)
    assert partition.log.high_watermark == 1


@pytest.mark.parametrize(
    ("isr", "replicas", "minimum", "accepted"),
    [
        ((0,), (0,), 1, True),
        ((0,), (0,), 2, True),  # the number of replicas: Partition.effectiveMinIsr
        ((0,), (0, 1), 2, False),
        ((0,), (0, 1, 2), 2, False),
        ((0, 1), (0, 1, 2), 2, True),
        ((0, 1), (0, 1), 3, True),
    ],
)
def test_acks_all_wants_min_insync_replicas_or_all_there_are(
    room: Replicas,
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    minimum: int,
    accepted: bool,
) -> None:
    partition = room.create("a", replicas=replicas, isr=isr)
    partition.min_insync_replicas = minimum
    answer = append(partition, acks=-1)
    assert isinstance(answer, AppendInfo) == accepted
    if isinstance(answer, AppendError):
        assert answer.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert isinstance(append(partition, acks=1), AppendInfo)


def test_offline_log_is_a_storage_error(room: Replicas) -> None:
    partition = room.create("a")
    room.produce("a")
    partition.log.offline = True
    answer = append(partition)
    assert isinstance(answer, AppendError) and answer.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.read(0, 100).error is ErrorCode.KAFKA_STORAGE_ERROR


# Reading


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (NO_EPOCH, ErrorCode.NONE),
        (4, ErrorCode.NONE),
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epoch_of_the_client_is_compared(
    room: Replicas, asked: int, error: ErrorCode
) -> None:
    partition = room.create("a", epoch=4)
    assert partition.check_epoch(asked) is error
    assert partition.read(0, 100, current_leader_epoch=asked).error is error


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, ErrorCode.NONE),
        (2, ErrorCode.NONE),
        (3, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_offsets_are_readable_up_to_the_end(room: Replicas, offset: int, error: ErrorCode) -> None:
    partition = room.create("a")
    room.produce("a", b"1", b"2")
    found = partition.read(offset, 1000)
    assert found.error is error
    if error:
        assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (
            -1,
            -1,
            -1,
        )
    else:
        assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (2, 2, 0)
        assert values(found.data) == ([b"1", b"2"] if offset < 2 else [])
        assert found.next_offset == 2


def test_client_with_another_history_is_told_where_it_diverged(room: Replicas) -> None:
    """Source: KIP-595; Partition.fetchRecords, divergingEpoch."""
    partition = room.create("a", epoch=1)
    room.produce("a", b"1", b"2")
    partition.apply(state(0, 4), NOW)
    room.produce("a", b"3")
    assert partition.read(2, 1000, last_fetched_epoch=3).diverging == (1, 2)
    assert partition.read(3, 1000, last_fetched_epoch=1).diverging == (1, 2)
    assert partition.read(2, 1000, last_fetched_epoch=1).diverging is None
    assert partition.read(3, 1000, last_fetched_epoch=4).diverging is None
    assert partition.read(0, 1000, last_fetched_epoch=9).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_committed_reader_stops_before_the_open_transaction(room: Replicas) -> None:
    partition = room.create("a")
    room.produce("a", b"1")
    room.append("a", transactional(7, 0, b"2"))
    room.produce("a", b"3")
    plain = partition.read(0, 1 << 20)
    assert values(plain.data) == [b"1", b"2", b"3"]
    assert plain.aborted is None
    committed = partition.read(0, 1 << 20, read_committed=True)
    assert values(committed.data) == [b"1"]
    assert (committed.high_watermark, committed.last_stable_offset) == (3, 1)
    assert committed.aborted == []


def test_committed_reader_hears_of_aborted_transactions_in_what_it_reads(room: Replicas) -> None:
    partition = room.create("a")
    room.append("a", transactional(7, 0, b"1"))
    abort(room, "a", 7)
    room.append("a", transactional(8, 0, b"2"))
    commit(room, "a", 8)
    found = partition.read(0, 1 << 20, read_committed=True)
    assert found.aborted == [(7, 0)]
    assert found.last_stable_offset == 4
    assert partition.read(2, 1 << 20, read_committed=True).aborted == []
    assert partition.read(4, 1 << 20, read_committed=True).aborted == []
