"""ShareFetch and ShareAcknowledge: sessions, waiting, stored states, and refusals.

Tests name the scenarios of Apache Kafka 4.3.0's ShareFetchAcknowledgeRequestTest, SharePartitionManagerTest and
DelayedShareFetchTest that they follow.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kwire.codec import encode_parts
from kwire.errors import ErrorCode
from kwire.records.batch import iter_batches
from server.handlers.context import ConnectionInfo
from server.handlers.share_fetch import share_fetch
from server.log.file_layer import FileSlice
from server.replication.partition import Partition
from server.share import manager
from server.share.acknowledgement import ACCEPT, REJECT, RELEASE, RENEW, Acknowledged
from server.share.manager import LED_BYTES, SharePartitionManager
from server.share.partition import BATCH_BYTES
from server.turns import exhaust
from tests.support.replicas import Replicas, finish, topic_id, turns, values
from tests.support.transactions import abort, commit, transactional

from .shares import GROUP, Shares, acquired, errors, on_loop, records, waits


@pytest.fixture
def shares(room: Replicas) -> Shares:
    return Shares(room)


def produce(shares: Shares, name: str, count: int, size: int = 1) -> None:
    """Append batches of one record each."""
    for _ in range(count):
        shares.room.produce(name, b"v" * size)


def state(shares: Shares, name: str = "a", group: str = GROUP) -> dict[int, tuple[int, int]]:
    return shares.persister.stored[group, topic_id(name), 0].states


# Deliveries


@on_loop
async def test_records_are_delivered_to_one_member_at_a_time(shares: Shares) -> None:
    """testShareFetchRequestSuccess, testShareFetchRequestSuccessfulSharingBetweenMultipleConsumers."""
    shares.consumed("a")
    shares.room.produce("a", b"1", b"2")
    one, two = shares.member("one"), shares.member("two")
    answer = await one.loaded("a")
    encode_parts(answer, 2)
    assert acquired(answer) == {"a": [(0, 1, 1)]}
    assert values(records(answer)) == [b"1", b"2"]
    assert answer.acquisition_lock_timeout_ms == 30_000
    shares.room.produce("a", b"3")
    assert acquired(await two.fetch("a")) == {"a": [(2, 2, 1)]}
    assert acquired(await one.fetch()) == {}


@on_loop
async def test_groups_get_the_same_records(shares: Shares) -> None:
    """testShareFetchRequestNoSharingBetweenMultipleConsumersFromDifferentGroups."""
    shares.consumed("a")
    shares.consumed("a", group="other")
    produce(shares, "a", 2)
    assert acquired(await shares.member().loaded("a")) == {"a": [(0, 1, 1)]}
    assert acquired(await shares.member(group="other").loaded("a")) == {"a": [(0, 1, 1)]}


@on_loop
async def test_records_are_sent_from_the_first_to_the_last_acquired_batch(shares: Shares) -> None:
    """testMaybeSliceFetchRecordsMultipleBatches, testShareFetchRequestMultipleBatchesWithMaxRecordsAndBatchSize."""
    shares.consumed("a")
    produce(shares, "a", 10, size=4000)
    answer = await shares.member().loaded("a", max_records=3)
    assert acquired(answer) == {"a": [(0, 2, 1)]}
    data = answer.responses[0].partitions[0].records
    assert isinstance(data, bytes | FileSlice)
    assert len(values(data)) == 3


@on_loop
async def test_records_of_large_reads_are_slices_of_the_file(shares: Shares) -> None:
    shares.consumed("a")
    produce(shares, "a", 10, size=10_000)
    answer = await shares.member().loaded("a", max_records=4)
    data = answer.responses[0].partitions[0].records
    assert isinstance(data, FileSlice)
    assert [each.header.base_offset for each in iter_batches(data.read())] == [0, 1, 2, 3]


@on_loop
async def test_exact_limit_is_kept(shares: Shares) -> None:
    shares.consumed("a")
    shares.room.produce("a", b"1", b"2", b"3")
    member = shares.member()
    assert acquired(await member.loaded("a", max_records=2, share_acquire_mode=1)) == {
        "a": [(0, 1, 1)]
    }
    assert acquired(await member.fetch(version=1)) == {"a": [(2, 2, 1)]}


@on_loop
async def test_limit_of_records_is_for_all_partitions(shares: Shares) -> None:
    """testProcessFetchResponseWithMaxFetchRecords, testFetchMessagesRotatePartitions."""
    shares.consumed("a", "b")
    produce(shares, "a", 5)
    produce(shares, "b", 5)
    member = shares.member()
    assert acquired(await member.loaded("a", "b", max_records=3)) == {"b": [(0, 2, 1)]}
    assert acquired(await member.fetch(max_records=4)) == {"a": [(0, 3, 1)]}


@on_loop
async def test_group_begins_where_its_config_says(shares: Shares) -> None:
    """testMaybeInitializeDefaultStartEpochGroupConfigReturnsEarliest, ...ReturnsLatest."""
    shares.consumed("a", "b")
    produce(shares, "a", 2)
    produce(shares, "b", 2)
    shares.settings = shares.settings._replace(offset_reset="latest")
    assert acquired(await shares.member().loaded("a")) == {}
    produce(shares, "a", 1)
    assert acquired(await shares.member("two").fetch("a")) == {"a": [(2, 2, 1)]}
    shares.settings = shares.settings._replace(offset_reset=1000)
    assert acquired(await shares.member("three").loaded("b")) == {"b": [(0, 1, 1)]}


@on_loop
async def test_committed_reader_gets_no_aborted_and_no_open_transactions(shares: Shares) -> None:
    """testAcquireWithReadCommittedIsolationLevel, testFetchAbortedTransactionRecordBatchesForAbortedAndCommittedTransactions."""
    shares.settings = shares.settings._replace(read_committed=True)
    shares.consumed("a")
    room = shares.room
    room.append("a", transactional(7, 0, b"1", b"2"))
    room.produce("a", b"3")
    abort(room, "a", 7)
    room.append("a", transactional(8, 0, b"4"))
    commit(room, "a", 8)
    room.append("a", transactional(9, 0, b"5"))
    member = shares.member()
    assert acquired(await member.loaded("a")) == {"a": [(2, 5, 1)]}
    await member.acknowledge({"a": [(2, 5, [ACCEPT, 0, ACCEPT, 0])]})
    (led,) = shares.manager.led.values()
    assert led.machine is not None and led.machine.start_offset == 6
    commit(room, "a", 9)
    assert acquired(await member.fetch()) == {"a": [(6, 7, 1)]}


@on_loop
async def test_only_aborted_records_do_not_fill_the_window(shares: Shares) -> None:
    shares.settings = shares.settings._replace(read_committed=True, max_record_locks=100)
    shares.consumed("a")
    for number in range(3):
        shares.room.append("a", transactional(7, number * 50, *[b"v"] * 50))
    abort(shares.room, "a", 7)
    shares.room.produce("a", b"last")
    member = shares.member()
    await member.loaded("a")
    for _ in range(3):
        rows = acquired(await member.fetch())
        if rows:
            break
    assert rows["a"][-1][1] == 151


# Acknowledgements


@pytest.mark.parametrize(
    ("kind", "stored"), [(ACCEPT, (2, 1)), (REJECT, (4, 1)), (RELEASE, (0, 1))]
)
@pytest.mark.parametrize("piggybacked", [False, True])
@on_loop
async def test_acknowledged_states_are_stored_before_they_are_answered(
    shares: Shares, kind: int, stored: tuple[int, int], piggybacked: bool
) -> None:
    """testShareAcknowledgeRequestSuccessAccept, ...Release, ...Reject, testShareFetchRequestPiggybacked..."""
    shares.consumed("a")
    produce(shares, "a", 2)
    member = shares.member()
    await member.loaded("a")
    answer: Any
    if piggybacked:
        answer = await member.fetch(acks={"a": [(0, 1, kind)]})
        assert errors(answer, "acknowledge_error_code") == {"a": 0}
        redelivered = [(0, 1, 2)] if kind == RELEASE else []
        rows = acquired(answer)["a"] or acquired(await member.fetch()).get("a", [])
        assert rows == redelivered
    else:
        answer = await member.acknowledge({"a": [(0, 1, kind)]})
        assert errors(answer) == {"a": 0}
    assert state(shares) == {0: stored, 1: stored}


@on_loop
async def test_answer_waits_until_the_state_is_stored(shares: Shares) -> None:
    """testAcquireWithWriteShareGroupStateDelay."""
    shares.consumed("a")
    produce(shares, "a", 2)
    member = shares.member()
    await member.loaded("a")
    shares.persister.hold = True
    task = asyncio.ensure_future(member.acknowledge({"a": [(0, 1, ACCEPT)]}))
    await turns()
    assert not task.done() and state(shares) == {}
    shares.persister.release()
    assert errors(await task) == {"a": 0}
    (write,) = shares.persister.calls[-1][2]
    assert (write.leader_epoch, write.start_offset, write.delivery_complete_count) == (0, 0, 2)


@pytest.mark.parametrize(
    ("stored", "told", "fences"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
@on_loop
async def test_state_that_is_not_stored_is_an_error_and_may_fence(
    shares: Shares, stored: ErrorCode, told: ErrorCode, fences: bool
) -> None:
    """testWriteShareGroupStateFailure, testSharePartitionInitializationExceptions."""
    shares.consumed("a")
    produce(shares, "a", 2)
    member = shares.member()
    await member.loaded("a")
    shares.persister.errors[GROUP, topic_id("a"), 0] = stored
    answer = await member.acknowledge({"a": [(0, 1, ACCEPT)]})
    assert errors(answer) == {"a": told}
    assert bool(shares.manager.led) is not fences
    shares.persister.errors.clear()
    produce(shares, "a", 1)
    rows = acquired(await member.loaded("a"))
    assert rows == ({"a": [(0, 2, 1)]} if fences else {"a": [(2, 2, 1)]} if rows else {})


@pytest.mark.parametrize(
    "batches",
    [
        [(1, 0, ACCEPT)],
        [(1, 1, ACCEPT), (0, 0, ACCEPT)],
        [(0, 1, [])],
        [(0, 1, [ACCEPT, ACCEPT, ACCEPT])],
        [(0, 1, 5)],
        [(0, 1, -1)],
        [(0, 1, RENEW)],
    ],
)
@on_loop
async def test_acknowledgement_that_makes_no_sense_is_refused(
    shares: Shares, batches: list[Any]
) -> None:
    """KafkaApis.validateAcknowledgementBatches."""
    shares.consumed("a")
    produce(shares, "a", 2)
    member = shares.member()
    await member.loaded("a")
    assert errors(await member.acknowledge({"a": batches})) == {"a": ErrorCode.INVALID_REQUEST}
    assert errors(await member.acknowledge({"a": [(0, 1, ACCEPT)]})) == {"a": 0}


@on_loop
async def test_acknowledgement_of_another_members_records_is_refused(shares: Shares) -> None:
    shares.consumed("a")
    produce(shares, "a", 2)
    one, two = shares.member("one"), shares.member("two")
    await one.loaded("a")
    await two.fetch("a")
    answer = await two.acknowledge({"a": [(0, 1, ACCEPT)]})
    assert errors(answer) == {"a": ErrorCode.INVALID_RECORD_STATE}
    assert errors(answer, "error_message") == {"a": "Member is not the owner of batch record"}
    assert errors(await one.acknowledge({"b": [(0, 1, ACCEPT)]})) == {
        "b": ErrorCode.UNKNOWN_TOPIC_ID
    }


@on_loop
async def test_renewed_locks_last_longer(shares: Shares) -> None:
    shares.consumed("a")
    produce(shares, "a", 2)
    member = shares.member()
    await member.loaded("a")
    renewal = {"acks": {"a": [(0, 1, RENEW)]}, "is_renew_ack": True}
    assert (
        await member.fetch(epoch=member.epoch, **renewal)
    ).error_code == ErrorCode.INVALID_REQUEST
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    shares.room.clock.advance(20_000)
    answer = await member.fetch(**renewal, **nothing)
    assert errors(answer, "acknowledge_error_code") == {"a": 0}
    (led,) = shares.manager.led.values()
    assert led.machine is not None and led.machine.lock_end_ms is not None
    assert [run.lock_end_ms - 50_000 for b in led.machine.batches for run in b.runs] == [
        shares.room.clock.monotonic_ms() - 20_000
    ]


# Waiting


@on_loop
async def test_fetch_waits_for_records(shares: Shares) -> None:
    """testReplicaManagerFetchShouldNotProceed, testTryCompleteWhenMinBytesNotSatisfiedOnFirstFetch."""
    shares.consumed("a")
    one, two = shares.member("one"), shares.member("two")
    await one.loaded("a")
    first = waits(one.begin(max_wait_ms=60_000))
    second = waits(two.begin("a", max_wait_ms=60_000))
    await turns()
    produce(shares, "a", 1)
    assert acquired(await finish(first)) == {"a": [(0, 0, 1)]}
    await turns()
    waits(second)
    produce(shares, "a", 2)
    assert acquired(await finish(second)) == {"a": [(1, 2, 1)]}


@on_loop
async def test_fetch_waits_for_enough_bytes(shares: Shares) -> None:
    """testTryCompleteWhenMinBytesNotSatisfiedOnSubsequentFetch."""
    shares.consumed("a")
    member = shares.member()
    await member.loaded("a")
    answer = waits(member.begin(max_wait_ms=60_000, min_bytes=300))
    for _ in range(3):
        produce(shares, "a", 1, size=50)
        await turns()
    assert acquired(await finish(answer)) == {"a": [(0, 2, 1)]}


@on_loop
async def test_fetch_ends_when_its_time_is_over(shares: Shares) -> None:
    """testOnCompleteExecutionOnTimeout."""
    shares.consumed("a")
    member = shares.member()
    await member.loaded("a")
    answer = waits(member.begin(max_wait_ms=20, min_bytes=10_000))
    produce(shares, "a", 1)
    assert acquired(await finish(answer)) == {"a": [(0, 0, 1)]}


def fail(*args: Any, **options: Any) -> Any:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize(
    ("of", "name"),
    [(Partition, "read"), (manager, "acquire"), (SharePartitionManager, "_try")],
)
@on_loop
async def test_fetch_that_waits_is_answered_whatever_fails(
    shares: Shares,
    of: type,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shares.consumed("a")
    member = shares.member()
    await member.loaded("a")
    answer = waits(member.begin(max_wait_ms=60_000))
    await turns()
    with monkeypatch.context() as patch:
        patch.setattr(of, name, fail)
        produce(shares, "a", 1)
        await turns(20)
        assert answer.awaitable.done()  # type: ignore[attr-defined]
    assert errors(await finish(answer)) == {"a": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert sum("a bug" in each.getMessage() for each in caplog.records) == 1
    assert acquired(await member.fetch()) == {"a": [(0, 0, 1)]}


@on_loop
async def test_partition_that_fails_does_not_cost_the_records_of_others(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares.consumed("a", "b")
    member = shares.member()
    await member.loaded("a", "b")
    for name in "ab":
        produce(shares, name, 1)
    broken, read = shares.room.partition("a"), Partition.read
    monkeypatch.setattr(
        Partition, "read", lambda self, *a, **b: (fail if self is broken else read)(self, *a, **b)
    )
    answer = await member.fetch()
    assert errors(answer) == {"a": ErrorCode.UNKNOWN_SERVER_ERROR, "b": 0}
    assert acquired(answer) == {"a": [], "b": [(0, 0, 1)]}


@on_loop
async def test_acknowledgement_whose_state_cannot_be_applied_is_answered(
    shares: Shares, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition's states are loaded again."""
    shares.consumed("a")
    produce(shares, "a", 2)
    member = shares.member()
    await member.loaded("a")
    with monkeypatch.context() as patch:
        patch.setattr(manager, "complete_write", fail)
        task = asyncio.ensure_future(member.acknowledge({"a": [(0, 1, ACCEPT)]}))
        await turns(20)
        assert task.done()
    assert errors(await task) == {"a": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert sum("a bug" in each.getMessage() for each in caplog.records) == 1
    produce(shares, "a", 1)
    assert acquired(await member.loaded()) == {"a": [(2, 2, 1)]}


@on_loop
async def test_fetch_waits_until_the_partition_is_loaded(shares: Shares) -> None:
    """testPendingInitializationShouldCompleteFetchRequest, testDelayedInitializationShouldCompleteFetchRequest."""
    shares.consumed("a")
    produce(shares, "a", 1)
    shares.persister.hold = True
    answer = waits(shares.member().begin("a", max_wait_ms=60_000))
    await turns()
    waits(answer)
    shares.persister.release()
    assert acquired(await finish(answer)) == {"a": [(0, 0, 1)]}


@on_loop
async def test_partition_that_cannot_be_loaded_is_tried_again_by_the_next_fetch(
    shares: Shares,
) -> None:
    """testSharePartitionInitializationFailure, testSharePartitionPartialInitializationFailure."""
    shares.consumed("a")
    produce(shares, "a", 1)
    shares.persister.errors[GROUP, topic_id("a"), 0] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    member = shares.member()
    answer = await finish(member.begin("a", max_wait_ms=60_000))
    assert errors(answer) == {"a": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    shares.persister.errors.clear()
    assert acquired(await finish(member.begin(max_wait_ms=60_000))) == {"a": [(0, 0, 1)]}


@pytest.mark.parametrize("released", ["acknowledged", "closed", "disconnected", "lock ended"])
@on_loop
async def test_waiting_fetch_gets_what_another_member_gives_back(
    shares: Shares, released: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """testAcknowledgeCompletesDelayedShareFetchRequest, testReleaseSessionCompletesDelayedShareFetchRequest, testShareSessionEvictedOnConnectionDrop."""
    shares.consumed("a")
    produce(shares, "a", 2)
    one, two = shares.member("one"), shares.member("two")
    await one.loaded("a")
    answer = waits(two.begin("a", max_wait_ms=60_000))
    if released == "acknowledged":
        await one.acknowledge({"a": [(0, 1, RELEASE)]})
    elif released == "closed":
        await one.acknowledge({}, epoch=-1)
    elif released == "disconnected":
        one.disconnect()
    else:
        shares.room.clock.advance(30_000)
        (led,) = shares.manager.led.values()
        assert led.timer is not None
        led.timer._run()  # type: ignore[attr-defined]
    assert acquired(await finish(answer)) == {"a": [(0, 1, 2)]}


@on_loop
async def test_fetch_that_nobody_wants_acquires_nothing(shares: Shares) -> None:
    shares.consumed("a")
    one, two = shares.member("one"), shares.member("two")
    await one.loaded("a")
    answer = waits(one.begin(max_wait_ms=60_000))
    assert answer.on_disconnect is not None
    answer.on_disconnect()
    produce(shares, "a", 1)
    await turns()
    assert acquired(await two.fetch("a")) == {"a": [(0, 0, 1)]}


@on_loop
async def test_full_window_makes_fetches_wait(shares: Shares) -> None:
    """testDelayedShareFetchTryCompleteReturnsFalseDueToNonAcquirablePartitions."""
    shares.settings = shares.settings._replace(max_record_locks=100)
    shares.consumed("a")
    produce(shares, "a", 150)
    member = shares.member()
    assert acquired(await member.loaded("a")) == {"a": [(0, 99, 1)]}
    answer = waits(member.begin(max_wait_ms=60_000))
    produce(shares, "a", 1)
    await turns()
    waits(answer)
    two = shares.member("two")
    await two.fetch("a")
    member.epoch -= 1  # the waiting request is still under way
    key = topic_id("a"), 0
    stored = exhaust(shares.manager.acknowledge(GROUP, "one", key, [Acknowledged(0, 49, [ACCEPT])]))
    assert isinstance(stored, asyncio.Future)
    assert acquired(await finish(answer)) == {"a": [(100, 149, 1)]}


# Partitions that cannot be fetched


@on_loop
async def test_partitions_that_are_not_here_say_why(shares: Shares) -> None:
    """testShareFetchRequestToNonLeaderReplica, testReplicaManagerFetchException."""
    room = shares.room
    room.create("a", leader=1, replicas=(0, 1))
    member = shares.member()
    answer = await member.fetch("a", "nope", max_wait_ms=60_000)
    assert errors(answer) == {
        "a": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "nope": ErrorCode.UNKNOWN_TOPIC_ID,
    }
    leaders = {topic.topic_id: topic.partitions[0].current_leader for topic in answer.responses}
    assert (leaders[topic_id("a")].leader_id, leaders[topic_id("nope")].leader_id) == (1, 0)
    # Errors are repeated in each answer.
    assert len(errors(await member.fetch())) == 2


@on_loop
async def test_change_of_the_leader_ends_what_is_held(shares: Shares) -> None:
    """testSharePartitionListenerOnBecomingFollower, testSharePartitionListenerOnDeleted."""
    shares.consumed("a")
    member = shares.member()
    await member.loaded("a")
    answer = waits(member.begin(max_wait_ms=60_000))
    shares.room.create("a", leader=1, epoch=1, replicas=(0, 1))
    assert acquired(await finish(answer)) == {}
    assert shares.manager.led == {}
    assert errors(await member.fetch()) == {"a": ErrorCode.NOT_LEADER_OR_FOLLOWER}
    member = shares.member("two")
    shares.room.delete("a")
    assert errors(await member.fetch("a")) == {"a": ErrorCode.UNKNOWN_TOPIC_ID}


@on_loop
async def test_log_that_begins_later_is_read_from_there(shares: Shares) -> None:
    """testProcessFetchResponseWithLsoMovementForTopicPartition."""
    shares.consumed("a", start=0)
    produce(shares, "a", 5)
    shares.room.partition("a").delete_records_before(3)
    member = shares.member()
    assert acquired(await member.loaded("a")) == {}
    assert acquired(await member.fetch()) == {"a": [(3, 4, 1)]}


@on_loop
async def test_new_leader_reads_gaps_again(shares: Shares) -> None:
    """testMaybeInitializeStateBatchesWithGapAtBeginning, with records."""
    shares.consumed("a")
    produce(shares, "a", 6)
    member = shares.member()
    await member.loaded("a")
    await member.acknowledge({"a": [(2, 3, ACCEPT)]})
    shares.room.create("a", leader=1, epoch=1, replicas=(0, 1))
    shares.room.create("a", leader=0, epoch=2, replicas=(0, 1), isr=(0,))
    again = shares.member("two")
    rows = acquired(await again.loaded("a"))["a"]
    assert rows == [(0, 1, 1), (4, 5, 1)]


# Sessions


@on_loop
async def test_sessions_begin_go_on_and_end(shares: Shares) -> None:
    """testShareSessionCloseWithShareFetch, testNewContext, testShareFetchRequestForgetTopicPartitions."""
    shares.consumed("a", "b")
    produce(shares, "a", 1)
    produce(shares, "b", 1)
    member = shares.member()
    answer = await member.fetch("a")
    assert acquired(answer) == {}
    answer = await member.fetch("b", forget=["a"])
    await turns()
    assert acquired(await member.fetch()) == {"b": [(0, 0, 1)]}
    answer = await member.fetch(epoch=-1, acks={"b": [(0, 0, ACCEPT)]})
    assert errors(answer, "acknowledge_error_code") == {"b": 0}
    assert state(shares, "b") == {0: (2, 1)}
    for epoch in (-1, 5):
        assert (await member.fetch(epoch=epoch)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize(
    ("group", "member", "error"),
    [
        (None, "one", ErrorCode.INVALID_REQUEST),
        ("group", None, ErrorCode.INVALID_REQUEST),
        ("group", "", ErrorCode.INVALID_REQUEST),
        ("group", "m" * 37, ErrorCode.INVALID_REQUEST),
    ],
)
@on_loop
async def test_request_without_a_member_is_refused(
    shares: Shares, group: Any, member: Any, error: ErrorCode
) -> None:
    asking = shares.member(member, group)
    assert (await asking.fetch("a")).error_code == error
    assert (await asking.acknowledge({})).error_code == error


@on_loop
async def test_wrong_epochs_are_refused(shares: Shares) -> None:
    """testShareFetchRequestInvalidShareSessionEpoch, testShareAcknowledgeInitialRequestError, testShareFetchInitialEpochWithAcknowledgements."""
    shares.consumed("a")
    member = shares.member()
    wrong = ErrorCode.INVALID_SHARE_SESSION_EPOCH
    missing = ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await member.acknowledge({}, epoch=0)).error_code == wrong
    assert (await member.acknowledge({}, epoch=1)).error_code == missing
    initial = await member.fetch("a", epoch=0, acks={"a": [(0, 0, ACCEPT)]})
    assert initial.error_code == ErrorCode.INVALID_REQUEST
    await member.fetch("a")
    assert (await member.fetch(epoch=2)).error_code == wrong
    assert (await member.acknowledge({}, epoch=2)).error_code == wrong
    assert (await member.acknowledge({}, epoch=1)).error_code == 0
    assert (await member.fetch(epoch=1)).error_code == wrong


@on_loop
async def test_sessions_are_limited(room: Replicas) -> None:
    """testNewContextThrowsErrorWhenShareSessionCacheIsFullOnInitialEpoch, testCreateIdleShareFetchTask."""
    shares = Shares(room, sessions=1)
    shares.consumed("a")
    one, two = shares.member("one"), shares.member("two")
    await one.fetch("a")
    waiting = two.begin("a", max_wait_ms=20, epoch=0)
    assert (await finish(waiting)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert (await one.fetch("a", epoch=0)).error_code == 0
    one.disconnect()
    assert (await two.fetch("a")).error_code == 0


@on_loop
async def test_who_has_most_sessions_makes_room_for_others(room: Replicas) -> None:
    shares = Shares(room, sessions=3)
    shares.consumed("a")
    produce(shares, "a", 1)
    greedy = [
        shares.member(name, connection=ConnectionInfo(name, client_host="10.0.0.1"))
        for name in ("one", "two", "three", "four")
    ]
    await greedy[0].loaded("a")
    for each in greedy[1:3]:
        await each.fetch("a")
    other = shares.member("other", connection=ConnectionInfo("other", client_host="10.0.0.2"))
    answer = await finish(other.begin("a", max_wait_ms=1000))
    assert state(shares) == {0: (0, 1)}  # the records of the first member are released
    assert acquired(answer) == {"a": [(0, 0, 2)]}
    limit = ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert (await greedy[0].fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await greedy[3].fetch("a", epoch=0)).error_code == limit
    # No member with the same number is sent away: two of each, as soon as there is room for four.
    shares.manager.sessions.max_sessions = 4
    again = shares.member("again", connection=ConnectionInfo("again", client_host="10.0.0.2"))
    assert (await again.fetch("a")).error_code == 0
    third = shares.member("third", connection=ConnectionInfo("third", client_host="10.0.0.2"))
    assert (await third.fetch("a", epoch=0)).error_code == limit
    for each in greedy[1:3]:
        assert (await each.fetch()).error_code == 0


@on_loop
async def test_who_has_most_partitions_makes_room_for_others(shares: Shares) -> None:
    shares.consumed("a", "b", "c")
    shares.manager.sessions.max_partitions = 3
    greedy = shares.member("one", connection=ConnectionInfo("one", client_host="10.0.0.1"))
    await greedy.fetch("a", "b", "c")
    other = shares.member("other", connection=ConnectionInfo("other", client_host="10.0.0.2"))
    assert (await other.fetch("a", "b")).error_code == 0
    assert shares.manager.sessions.partitions == 2


@on_loop
async def test_share_partitions_that_cannot_be_loaded_do_not_fill_the_log(
    shares: Shares, caplog: pytest.LogCaptureFixture
) -> None:
    shares.consumed("a")
    group = "g" * 30_000
    shares.persister.errors[group, topic_id("a"), 0] = ErrorCode.INVALID_REQUEST
    member = shares.member("one", group)
    for number in range(30):
        names = ["a"] if number == 0 else []
        answer = await finish(member.begin(*names, max_wait_ms=60_000))
        assert errors(answer) == {"a": ErrorCode.UNKNOWN_SERVER_ERROR}
    lines = [each.getMessage() for each in caplog.records if "cannot be read" in each.getMessage()]
    assert 0 < len(lines) <= 10
    assert max(map(len, lines)) < 500


@on_loop
async def test_partitions_of_sessions_are_limited(shares: Shares) -> None:
    shares.consumed("a", "b")
    shares.manager.sessions.max_partitions = 1
    member = shares.member()
    limit = ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert (await member.fetch("a", "b", epoch=0)).error_code == limit
    assert shares.manager.sessions.partitions == 0
    assert (await member.fetch("a")).error_code == 0
    assert shares.manager.sessions.partitions == 1


@on_loop
async def test_group_whose_members_are_gone_is_forgotten(shares: Shares) -> None:
    """testShareGroupListener."""
    shares.consumed("a")
    produce(shares, "a", 1)
    one, two = shares.member("one"), shares.member("two")
    await one.loaded("a")
    await two.fetch("a")
    one.disconnect()
    assert len(shares.manager.led) == 1
    await two.fetch(epoch=-1)
    assert len(shares.manager.led) == 1
    two.disconnect()
    assert shares.manager.led == {}
    assert state(shares) == {0: (0, 1)}


@on_loop
async def test_connection_with_many_groups_remembers_few(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.share.sessions.MAX_GROUPS_OF_CONNECTION", 3)
    connection = ConnectionInfo("one for all")
    for number in range(6):
        group = f"group {number}"
        shares.consumed("a", group=group)
        member = shares.member("one", group, connection)
        await member.fetch("a")
        await member.fetch(epoch=-1)
    assert len(shares.manager.led) <= 4


@on_loop
async def test_no_share_groups_without_the_feature(shares: Shares) -> None:
    """testShareFetchRequestIsInAccessibleWhenConfigsDisabled."""
    shares.room.services.features.finalized.pop("share.version")
    member = shares.member()
    assert (await member.fetch("a")).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await member.acknowledge({})).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_both_versions_are_served() -> None:
    handler: Any = share_fetch
    assert (handler.min_version, handler.max_version) == (1, 2)


@on_loop
async def test_share_partitions_are_loaded_some_at_a_time(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.share.loading.MAX_LOADING", 1)
    shares.consumed("a", "b", "c")
    for name in "abc":
        produce(shares, name, 1)
    shares.persister.hold = True
    member = shares.member()
    answer = waits(member.begin("a", "b", "c", max_wait_ms=60_000, min_bytes=3 * 60))
    for _ in range(3):
        await turns()
        assert len(shares.persister.held) == 1
        shares.persister.release()
    assert acquired(await finish(answer)) == {name: [(0, 0, 1)] for name in "abc"}


@on_loop
async def test_share_partitions_are_limited(shares: Shares) -> None:
    shares.manager.max_bytes = 2 * LED_BYTES
    shares.consumed("a", "b")
    produce(shares, "a", 1)
    answer = await shares.member().fetch("a", "b")
    assert errors(answer) == {"b": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert len(shares.manager.led) == 1


def logged_in(name: str) -> ConnectionInfo:
    return ConnectionInfo(f"connection of {name}", principal=f"User:{name}")


async def fill(shares: Shares, groups: int) -> int:
    """Let mallory acquire as many single records as she can; the number."""
    shares.manager.sessions.max_sessions = 100
    shares.consumed("a")
    produce(shares, "a", 100)
    count = 0
    for number in range(groups):
        shares.consumed("a", group=f"m{number}")
        member = shares.member(group=f"m{number}", connection=logged_in("mallory"))
        for _ in range(2):
            answer = await member.fetch("a", batch_size=1)
            await turns()
            assert not any(errors(answer).values())
            count += sum(len(each) for each in acquired(answer).values())
    return count


@on_loop
async def test_records_in_flight_of_one_client_leave_room_for_others(shares: Shares) -> None:
    shares.manager.max_bytes = 400_000
    count = await fill(shares, 20)
    assert 700 < count < 1_100  # of 2,000
    memory = shares.manager.memory
    assert memory.used == sum(each.held_bytes for each in shares.manager.led.values()) <= 350_000
    honest = shares.member(connection=logged_in("alice"))
    assert len(acquired(await honest.loaded("a", batch_size=1))["a"]) == 100
    # What is acknowledged makes room, and what is held can be acknowledged.
    used = memory.used
    await honest.fetch(acks={"a": [(0, 99, ACCEPT)]})
    assert memory.used <= used - 100 * BATCH_BYTES


@on_loop
async def test_batches_are_not_divided_without_memory_for_their_parts(shares: Shares) -> None:
    shares.consumed("a")
    shares.room.produce("a", *[b"v"] * 10)
    member = shares.member(connection=logged_in("mallory"))
    assert acquired(await member.loaded("a")) == {"a": [(0, 9, 1)]}
    shares.manager.max_bytes = shares.manager.memory.used
    parts = await member.acknowledge({"a": [(0, 9, [ACCEPT, RELEASE] * 5)]})
    assert errors(parts) == {"a": ErrorCode.INVALID_RECORD_STATE}
    whole = await member.acknowledge({"a": [(0, 9, ACCEPT)]})
    assert errors(whole) == {"a": 0}
    assert shares.manager.memory.used == LED_BYTES


@on_loop
async def test_memory_is_released_with_the_share_partitions(shares: Shares) -> None:
    await fill(shares, 3)
    for led in list(shares.manager.led.values()):
        shares.manager._drop(led)
    assert shares.manager.memory.used == 0
