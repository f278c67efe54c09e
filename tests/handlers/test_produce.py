"""Produce: form, order, waiting and answers, compared with answers of Apache Kafka 3.9.2."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.produce import PartitionProduceData, ProduceRequest
from kwire.records.batch import rewrite_crc
from server.handlers.context import NO_REPLY, Later, NoReply
from server.handlers.produce import produce
from server.log.validator import INLINE_REWRITE_BYTES, INLINE_REWRITE_RECORDS
from tests.support.replicas import NOW, Replicas, batch, finish, topic_image, turns, values
from tests.support.requests import produce_request
from tests.support.steps import finished
from tests.support.transactions import transactional
from tests.support.waiting import HeldExecutor

LATEST = 11


@pytest.fixture(params=["plain", "other"], autouse=True)
def form(request: pytest.FixtureRequest, both_forms: None, room: Replicas) -> None:
    """Let each test send its requests to the plain form first, and then only to the other."""
    room.plain = request.param == "plain"


def request(
    records: bytes | None,
    topic: str = "a",
    number: int = 0,
    acks: int = 1,
    timeout_ms: int = 60_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    return produce_request(
        (topic, number, records),
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
    )


def only(response: Any) -> Any:
    """The one row of an answer."""
    ((row,),) = [topic.partition_responses for topic in response.responses]
    return row


def refused(room: Replicas, records: bytes | None, version: int = LATEST, **options: Any) -> Any:
    """Produce; must be refused without appending anything. Returns the row."""
    row = only(room.call(produce, request(records, **options), version))
    assert row.error_code != 0
    assert row.base_offset == row.log_append_time_ms == -1
    if (found := room.replicas.get("a", 0)) is not None:
        assert found.log.log_end_offset == 0
    return row


def patched(records: bytes, position: int, form: str, *fields: int) -> bytes:
    """The batch with some bytes of its header changed, and a matching CRC."""
    changed = bytearray(records)
    struct.pack_into(form, changed, position, *fields)
    rewrite_crc(changed, 0)
    return bytes(changed)


# Accepted batches


@pytest.mark.parametrize(
    ("version", "magic"),
    [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2)] + [(version, 2) for version in range(3, LATEST + 1)],
)
def test_every_version_appends(room: Replicas, version: int, magic: int) -> None:
    room.create("a")
    row = only(room.call(produce, request(batch(b"1", b"2", magic=magic)), version))
    assert (row.error_code, row.base_offset, row.log_start_offset) == (0, 0, 0)
    row = only(room.call(produce, request(batch(b"3", magic=magic)), version))
    assert (row.error_code, row.base_offset, row.log_append_time_ms) == (0, 2, -1)
    assert values(room.partition("a").read(0, 10_000).data) == [b"1", b"2", b"3"]


def test_log_append_time_is_told(room: Replicas) -> None:
    room.create("a", configs={"message.timestamp.type": "LogAppendTime"})
    row = only(room.call(produce, request(batch(timestamp=5)), LATEST))
    assert row.log_append_time_ms == NOW


def test_partitions_answer_in_order_and_do_not_mind_each_other(room: Replicas) -> None:
    room.create("a", 2)
    room.create("b")
    several = produce_request(
        ("a", 1, batch()),
        ("a", 0, batch()[:-1]),
        ("a", 9, batch()),
        ("nope", 0, batch()),
        ("b", 0, batch(b"1", b"2")),
    )
    answer = room.call(produce, several, LATEST)
    assert [
        (topic.name, row.index, row.error_code, row.base_offset)
        for topic in answer.responses
        for row in topic.partition_responses
    ] == [
        ("a", 1, 0, 0),
        ("a", 0, ErrorCode.INVALID_RECORD, -1),
        ("a", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("nope", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("b", 0, 0, 0),
    ]


def test_request_without_topics_is_answered(room: Replicas) -> None:
    assert room.call(produce, ProduceRequest(acks=-1, timeout_ms=1), LATEST).responses == []


def test_duplicate_is_answered_with_the_first_offset(room: Replicas) -> None:
    room.create("a")
    records = batch(b"1", b"2", producer_id=5, producer_epoch=0, base_sequence=0)
    room.produce("a", b"0")
    for _ in range(2):
        row = only(room.call(produce, request(records), LATEST))
        assert (row.error_code, row.base_offset) == (0, 1)
    assert room.partition("a").log.log_end_offset == 3


def test_frame_may_be_used_again_after_the_answer(room: Replicas) -> None:
    room.create("a")
    asked = request(batch(b"mine"))
    view = asked.topic_data[0].partition_data[0].records
    room.call(produce, asked, LATEST)
    assert isinstance(view, memoryview)
    view[:] = bytes(len(view))
    assert values(room.partition("a").read(0, 1000).data) == [b"mine"]


# Refused batches


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic": "nope"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"number": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"number": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"acks": -2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"topic": "nope", "acks": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "__consumer_offsets"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"topic": "__transaction_state"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_request_that_may_not_append_is_refused(
    room: Replicas, options: dict[str, Any], error: ErrorCode
) -> None:
    room.create("a")
    room.create("__consumer_offsets")
    row = refused(room, batch(), **options)
    assert row.error_code == error
    assert row.log_start_offset == -1


def test_admin_client_may_write_to_internal_topics(room: Replicas) -> None:
    room.create("__consumer_offsets")
    asked = request(batch(), topic="__consumer_offsets")
    assert only(room.call(produce, asked, LATEST, "__admin_client")).error_code == 0


MISSHAPEN = {
    "null": (9, None, ErrorCode.INVALID_RECORD),  # Apache Kafka 3.9.2 never answers
    "null in 2": (2, None, ErrorCode.INVALID_RECORD),
    "empty": (9, b"", ErrorCode.INVALID_RECORD),
    "three bytes": (9, b"abc", ErrorCode.INVALID_RECORD),
    "half a header": (9, batch()[:30], ErrorCode.INVALID_RECORD),
    "cut": (9, batch()[:-5], ErrorCode.INVALID_RECORD),
    "two batches": (9, batch() + batch(), ErrorCode.INVALID_RECORD),
    "something behind": (9, batch() + b"abc", ErrorCode.INVALID_RECORD),  # there it is truncated
    "magic 0": (9, batch(magic=0), ErrorCode.INVALID_RECORD),
    "magic 1": (9, batch(magic=1), ErrorCode.INVALID_RECORD),
    "magic 1 in 3": (3, batch(magic=1), ErrorCode.INVALID_RECORD),
    "magic 5": (9, batch()[:16] + b"\5" + batch()[17:], ErrorCode.CORRUPT_MESSAGE),
    "length 0": (9, batch()[:8] + bytes(4) + batch()[12:], ErrorCode.CORRUPT_MESSAGE),
    "length -1": (9, batch()[:8] + b"\xff" * 4 + batch()[12:], ErrorCode.CORRUPT_MESSAGE),
    "wrong CRC": (9, batch()[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
    "zstd in 6": (6, batch(codec=4), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 5": (9, patched(batch(), 21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "control batch": (9, patched(batch(), 21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "base offset 5": (9, patched(batch(), 0, ">q", 5), ErrorCode.INVALID_RECORD),
    "two records of one": (9, patched(batch(), 57, ">i", 2), ErrorCode.INVALID_RECORD),
    "no records of one": (9, patched(batch(), 57, ">i", 0), ErrorCode.INVALID_RECORD),
    "last offset -1": (9, patched(batch(), 23, ">i", -1), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize(("version", "records", "error"), MISSHAPEN.values(), ids=MISSHAPEN)
def test_records_that_are_not_one_good_batch_are_refused(
    room: Replicas, version: int, records: bytes | None, error: ErrorCode
) -> None:
    room.create("a")
    assert refused(room, records, version).error_code == error


def test_zstd_is_known_from_version_7_on(room: Replicas) -> None:
    room.create("a")
    assert only(room.call(produce, request(batch(codec=4)), 7)).error_code == 0


@pytest.mark.parametrize(
    ("configs", "options", "error", "start"),
    [
        ({"max.message.bytes": "50"}, {}, ErrorCode.MESSAGE_TOO_LARGE, -1),
        (
            {"message.timestamp.before.max.ms": "1000"},
            {"timestamp": NOW - 5000},
            ErrorCode.INVALID_TIMESTAMP,
            0,
        ),
        ({"cleanup.policy": "compact"}, {"key": None}, ErrorCode.INVALID_RECORD, 0),
        (
            {},
            {"producer_id": 5, "producer_epoch": 0, "base_sequence": 3},
            None,
            0,
        ),
    ],
)
def test_answer_says_where_the_log_begins_unless_size_or_bytes_are_wrong(
    room: Replicas,
    configs: dict[str, str],
    options: dict[str, Any],
    error: ErrorCode | None,
    start: int,
) -> None:
    room.create("a", configs=configs)
    row = only(room.call(produce, request(batch(**options)), LATEST))
    assert row.error_code == (error or 0)
    assert row.log_start_offset == start
    if error in (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD):
        assert [each.batch_index for each in row.record_errors] == [0]
        assert row.error_message


def test_sequence_that_is_out_of_order_is_refused(room: Replicas) -> None:
    room.create("a")
    first, gap = (
        batch(producer_id=5, producer_epoch=0, base_sequence=sequence) for sequence in (0, 2)
    )
    assert only(room.call(produce, request(first), LATEST)).error_code == 0
    row = only(room.call(produce, request(gap), LATEST))
    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert row.log_start_offset == 0


def test_transactional_batch_without_a_transactional_id_spoils_the_whole_request(
    room: Replicas,
) -> None:
    room.create("a", 2)
    asked = request(transactional(7, 0))
    asked.topic_data[0].partition_data.append(
        PartitionProduceData(index=1, records=memoryview(bytearray(batch())))
    )
    answer = room.call(produce, asked, LATEST)
    assert {row.error_code for row in answer.responses[0].partition_responses} == {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    }
    assert room.partition("a", 1).log.log_end_offset == 0


def produced(room: Replicas, *parts: tuple[str, int, bytes], version: int, **options: Any) -> Any:
    """The error codes of a request's rows, in order."""
    asked = produce_request(*parts, **{"acks": 1, **options})
    answer = room.call(produce, asked, version)
    return [row.error_code for topic in answer.responses for row in topic.partition_responses]


def test_what_refuses_the_whole_request_is_told_before_anything_else(room: Replicas) -> None:
    """In the order of Apache Kafka 3.9.2, which first checks the first batch of each partition."""
    room.create("a")
    no_id, corrupt = (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CORRUPT_MESSAGE,
    )
    bad_magic = bytearray(batch())
    bad_magic[16] = 3
    txn, zstd = ("nope", 0, transactional(7, 0)), ("a", 0, transactional(7, 0, codec=4))
    bad, good = ("nope", 0, bytes(bad_magic)), ("a", 0, batch())
    assert produced(room, txn, good, version=LATEST) == [no_id] * 2
    assert produced(room, zstd, version=4) == [no_id]
    assert produced(room, good, bad, txn, version=LATEST) == [corrupt] * 3
    assert produced(room, txn, bad, version=LATEST) == [no_id] * 2
    assert room.partition("a").log.log_end_offset == 0


def test_cut_batch_before_another_one_is_corrupt(room: Replicas) -> None:
    """Its length extends into the next one, so that no valid batch follows."""
    room.create("a")
    row = refused(room, batch()[:-3] + batch())
    assert (row.error_code, row.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def test_wrong_acks_are_told_after_the_form_and_before_the_leader(room: Replicas) -> None:
    room.create("a")
    room.publisher.publish(
        room.publisher.image.with_topics([topic_image("far", leader=1, replicas=(1,))])
    )
    parts = ("nope", 0, batch()), ("a", 0, batch(codec=4)), ("a", 0, batch()), ("far", 0, batch())
    assert produced(room, *parts, version=4, acks=2) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_REQUIRED_ACKS,
    ]
    row = only(room.call(produce, request(batch(), acks=-2), LATEST))
    assert (row.log_start_offset, row.error_message) == (-1, None)


def test_only_single_records_and_verification_have_messages(room: Replicas) -> None:
    room.create("a", configs={"max.message.bytes": "80"})
    room.create("c", configs={"message.timestamp.before.max.ms": "1000"})
    for records in (batch(b"v" * 100), patched(batch(), 57, ">i", 9), batch()[:-1]):
        row = only(room.call(produce, request(records), LATEST))
        assert row.error_code and row.error_message is None
    row = only(room.call(produce, request(batch(timestamp=5), "c"), LATEST))
    assert row.error_message and row.record_errors


@pytest.mark.parametrize("version", [0, 2])
def test_old_request_without_any_message_is_fine(room: Replicas, version: int) -> None:
    room.create("a")
    row = only(room.call(produce, request(b""), version))
    assert (row.error_code, row.base_offset) == (0, -1)
    assert room.partition("a").log.log_end_offset == 0


def test_transactional_batch_without_a_producer_belongs_to_no_transaction(room: Replicas) -> None:
    room.create("a")
    records = patched(transactional(7, 0), 43, ">qhi", -1, -1, -1)
    row = only(room.call(produce, request(records, transactional_id="x"), LATEST))
    assert (row.error_code, row.base_offset) == (0, 0)
    log = room.partition("a").log
    assert log.last_stable_offset == log.log_end_offset == 1


@pytest.mark.parametrize(
    ("records", "fields"),
    [
        (transactional(7, 0), (-1, -1, -1)),
        (batch(producer_id=7, producer_epoch=0, base_sequence=0), (7, -1, 0)),
    ],
)
def test_batch_that_no_producer_writes_is_not_written_anew(
    room: Replicas, records: bytes, fields: tuple[int, int, int]
) -> None:
    """If its codec has to change; Apache Kafka 3.9.2 fails on it."""
    room.create("a", configs={"compression.type": "gzip"})
    row = refused(room, patched(records, 43, ">qhi", *fields), transactional_id="x")
    assert row.error_code == ErrorCode.INVALID_RECORD


def test_wrong_broker_names_the_right_one_from_version_10_on(room: Replicas) -> None:
    from tests.support.replicas import registration

    image = room.publisher.image
    image = image.with_brokers({0: registration(0), 1: registration(1, "rack")})
    image = image.with_topics([topic_image("a", leader=1, epoch=4, replicas=(0, 1), isr=(1,))])
    room.publisher.publish(image)
    for version in (9, 10):
        answer = room.call(produce, request(batch()), version)
        row = only(answer)
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version == 9:
            assert row.current_leader is None and answer.node_endpoints == []
        else:
            leader = row.current_leader
            assert (leader.leader_id, leader.leader_epoch) == (1, 4)
            (node,) = answer.node_endpoints
            assert (node.node_id, node.host, node.port, node.rack) == (1, "broker1", 9093, "rack")


# acks


def test_acks_0_is_not_answered(room: Replicas) -> None:
    room.create("a")
    assert room.call(produce, request(batch(), acks=0), LATEST) is NO_REPLY
    assert room.partition("a").log.log_end_offset == 1


def test_acks_0_that_fails_closes_the_connection(room: Replicas) -> None:
    answer = room.call(produce, request(batch(), topic="nope", acks=0), LATEST)
    assert isinstance(answer, NoReply)
    assert answer.close_reason is not None
    assert "nope-0" in answer.close_reason
    assert "UNKNOWN_TOPIC_OR_PARTITION" in answer.close_reason


def replicated(room: Replicas) -> None:
    """A topic with another in-sync replica, which has not fetched anything."""
    room.create("a", replicas=(0, 1), isr=(0, 1))


def test_acks_1_does_not_wait_for_the_others(room: Replicas) -> None:
    replicated(room)
    assert only(room.call(produce, request(batch(), acks=1), LATEST)).error_code == 0


def test_acks_all_waits_until_it_is_committed(room: Replicas) -> None:
    async def run() -> None:
        replicated(room)
        answer = produce(room.context(LATEST), request(batch(), acks=-1))
        assert isinstance(answer, Later) and not answer.awaitable.done()
        room.partition("a").on_isr_confirmed((0,), 1, NOW)
        row = only(await finish(answer))
        assert (row.error_code, row.base_offset) == (0, 0)

    asyncio.run(run())


def test_acks_all_gives_up_when_its_time_is_over(room: Replicas) -> None:
    async def run() -> None:
        replicated(room)
        row = only(await room.ask(produce, request(batch(), acks=-1, timeout_ms=1), LATEST))
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert room.partition("a").log.log_end_offset == 1  # it may still be committed

    asyncio.run(run())


def test_acks_all_hears_that_the_leader_moved(room: Replicas) -> None:
    async def run() -> None:
        replicated(room)
        answer = produce(room.context(LATEST), request(batch(), acks=-1))
        room.create("a", leader=1, epoch=1, replicas=(0, 1), isr=(1,))
        assert only(await finish(answer)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(run())


def test_acks_all_with_too_few_in_sync_is_refused(room: Replicas) -> None:
    room.create("a", replicas=(0, 1), isr=(0,), configs={"min.insync.replicas": "2"})
    assert refused(room, batch(), acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


# Rewriting


def big(value: bytes = b"v", **options: Any) -> bytes:
    """A batch large enough for the worker process."""
    return batch(value * (INLINE_REWRITE_BYTES + 1), **options)


def test_large_batch_is_recompressed_by_the_worker_and_nothing_overtakes_it(
    room: Replicas,
) -> None:
    async def run() -> None:
        partition = room.create("a", configs={"compression.type": "gzip"})
        room.create("b", configs={"compression.type": "gzip"})
        pending = [
            produce(room.context(LATEST), request(records))
            for records in (big(b"1"), batch(b"2"), big(b"3"), batch(b"4", codec=1))
        ]
        assert all(isinstance(answer, Later) for answer in pending)
        elsewhere = only(room.call(produce, request(batch(b"0"), topic="b"), LATEST))
        assert elsewhere.error_code == 0
        rows = [only(await finish(answer)) for answer in pending]
        assert [(row.error_code, row.base_offset) for row in rows] == [(0, n) for n in range(4)]
        stored = values(partition.read(0, 1 << 20).data)
        assert [value[:1] for value in stored if value] == [b"1", b"2", b"3", b"4"]
        assert partition.append_queues is None
        assert isinstance(room.call(produce, request(batch(b"5")), LATEST).responses, list)

    asyncio.run(run())


def test_many_small_records_leave_the_loop_too(room: Replicas) -> None:
    async def run() -> None:
        room.create("a", configs={"compression.type": "snappy"})
        records = batch(*[b""] * (INLINE_REWRITE_RECORDS + 1), codec=1)
        assert len(records) < INLINE_REWRITE_BYTES
        answer = produce(room.context(LATEST), request(records))
        assert isinstance(answer, Later)
        assert only(await finish(answer)).error_code == 0

    asyncio.run(run())


def test_idempotent_batches_keep_their_order_through_the_worker(room: Replicas) -> None:
    async def run() -> None:
        room.create("a", configs={"compression.type": "lz4"})
        pending = [
            produce(
                room.context(LATEST),
                request(big(producer_id=9, producer_epoch=0, base_sequence=sequence), acks=-1),
            )
            for sequence in (0, 1, 2, 2)
        ]
        rows = [only(await finish(answer)) for answer in pending]
        assert [(row.error_code, row.base_offset) for row in rows] == [
            (0, 0),
            (0, 1),
            (0, 2),
            (0, 2),
        ]

    asyncio.run(run())


def test_large_batch_that_is_refused_lets_the_next_one_through(room: Replicas) -> None:
    async def run() -> None:
        room.create("a", configs={"cleanup.policy": "compact"})
        pending = [
            produce(room.context(LATEST), request(records))
            for records in (big(key=None), batch(b"2"))
        ]
        rows = [only(await finish(answer)) for answer in pending]
        assert [row.error_code for row in rows] == [ErrorCode.INVALID_RECORD, 0]

    asyncio.run(run())


def test_topic_deleted_while_its_records_are_rewritten_is_no_leader_any_more(
    room: Replicas,
) -> None:
    async def run() -> None:
        room.create("a", configs={"compression.type": "gzip"})
        answer = produce(room.context(LATEST), request(big()))
        room.delete("a")
        assert only(await finish(answer)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(run())


def test_later_batches_wait_for_all_before_them_even_if_one_of_them_fails(
    room: Replicas,
) -> None:
    async def run() -> None:
        partition = room.create("a", configs={"compression.type": "gzip"})
        gate = room.replicas.appends.executor = HeldExecutor()  # type: ignore[assignment]
        first, second = (produce(room.context(LATEST), request(big(v))) for v in (b"1", b"2"))
        await turns()
        gate.waiting[1].set_exception(ZeroDivisionError())
        await turns()
        third = produce(room.context(LATEST), request(batch(b"3")))
        await turns()
        assert partition.log.log_end_offset == 0
        gate.waiting[0].set_result(None)
        assert only(await finish(first)).base_offset == 0
        assert only(await finish(second)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert only(await finish(third)).base_offset == 1
        assert partition.append_queues is None

    asyncio.run(run())


def test_worker_that_dies_of_the_records_is_an_error_of_theirs(
    room: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    from concurrent.futures import BrokenExecutor

    async def run() -> None:
        room.create("a", configs={"compression.type": "gzip"})
        gate = room.replicas.appends.executor = HeldExecutor()  # type: ignore[assignment]
        answer = produce(room.context(LATEST), request(big()))
        await turns()
        gate.waiting[0].set_exception(BrokenExecutor())
        assert only(await finish(answer)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    asyncio.run(run())
    assert "the worker process ended while it rewrote records for a-0" in caplog.text


# Many rows


def many_rows(acks: int = -1) -> ProduceRequest:
    """Rows for the 100 partitions of "a" twice, with a partition and a topic that do not exist."""
    topics = [("a", range(101)), ("nope", range(70)), ("b", range(1)), ("a", range(100))]
    rows = [(name, number, batch()) for name, numbers in topics for number in numbers]
    return produce_request(*rows, acks=acks)


def test_many_rows_are_answered_as_few_are(room: Replicas) -> None:
    room.create("a", 100)
    room.create("b")
    steps = produce.in_steps(room.context(LATEST), many_rows())
    next(steps)
    assert room.partition("a").log.log_end_offset == 0  # not all in one step
    answer = finished(steps)
    assert [topic.name for topic in answer.responses] == ["a", "nope", "b", "a"]
    rows = [row for topic in answer.responses for row in topic.partition_responses]
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert [(row.error_code, row.base_offset) for row in rows] == (
        [(0, 0)] * 100 + [unknown] * 71 + [(0, 0)] + [(0, 1)] * 100
    )
    assert finished(produce.in_steps(room.context(LATEST), many_rows(acks=5))).responses
    assert room.partition("a", 5).log.log_end_offset == 2


def test_many_rows_of_which_one_is_refused_with_acks_0_close_the_connection(room: Replicas) -> None:
    room.create("a", 100)
    answer = finished(produce.in_steps(room.context(LATEST), many_rows(acks=0)))
    assert isinstance(answer, NoReply) and "a-100 failed" in str(answer.close_reason)


def test_many_rows_wait_for_all_of_them(room: Replicas) -> None:
    async def run() -> None:
        replicated(room)
        room.create("b", 100)
        asked = produce_request(*(("b", n, batch()) for n in range(100)), ("a", 0, batch()))
        answer = finished(produce.in_steps(room.context(LATEST), asked))
        assert isinstance(answer, Later)
        room.partition("a").on_isr_confirmed((0,), 1, NOW)
        found = await finish(answer)
        assert [len(topic.partition_responses) for topic in found.responses] == [100, 1]
        assert {
            row.error_code for topic in found.responses for row in topic.partition_responses
        } == {0}

    asyncio.run(run())
