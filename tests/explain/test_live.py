"""The requests to brokers, on a fictitious cluster: cases that a single broker cannot show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
)
from kwire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from kwire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from kwire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kwire.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
)
from kwire.messages.describe_transactions import TransactionState as Described
from kwire.messages.fetch import AbortedTransaction as Aborted
from kwire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire.messages.find_coordinator import FindCoordinatorResponse
from kwire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kwire.messages.list_transactions import ListTransactionsResponse, TransactionState
from kwire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kwire.messages.share_group_describe import DescribedGroup as ShareGroup
from kwire.messages.share_group_describe import ShareGroupDescribeResponse
from kwire.records.batch import BatchBuilder, read_header
from kwire.records.control import ControlType
from server.client.asking import Asking
from server.client.errors import Unavailable
from server.client.requests import EARLIEST, READ_COMMITTED
from server.explain.answers import Answer
from server.explain.group_rules import explain_group
from server.explain.live_groups import group_facts, only_markers
from server.explain.live_records import record_facts
from server.explain.record_rules import explain_record
from tests.support.batches import marker

NOW = 1_795_420_000_000


def batch(offset: int, *keys: bytes | None, producer_id: int = -1) -> bytes:
    """A batch of records, transactional if it has a producer id."""
    builder = BatchBuilder(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    for key in keys:
        builder.append(NOW, key, b"value")
    return builder.build()


@dataclass
class Cluster:
    """Brokers 1 (the leader), 2 and 3, with a copy of t-0 each.

    Shape: `logs` are batches by broker; `ends` of logs by broker, without those that do not answer.
    """

    logs: dict[int, list[bytes]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=lambda: {1: 10, 2: 10, 3: 10})
    high_watermark: int = 10
    last_stable: int = 10
    producers: list[list[ProducerState]] = field(default_factory=lambda: [[]])
    """The answers of DescribeProducers; the last one is repeated."""
    transactions: dict[int, Described] = field(default_factory=dict)
    aborted: list[Aborted] = field(default_factory=list)

    def run(self, asking: Asking[Any]) -> Any:
        try:
            ask = next(asking)
            while True:
                try:
                    response = getattr(self, type(ask.request).__name__)(ask.request, ask.to)
                except (AttributeError, KeyError):
                    ask = asking.throw(Unavailable("no answer"))
                else:
                    ask = asking.send(response)
        except StopIteration as end:
            return end.value

    def MetadataRequest(self, request: Any, to: int | None) -> MetadataResponse:
        row = MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=1,
            replica_nodes=[1, 2, 3],
            isr_nodes=[1, 2],
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host="h", port=1) for n in (1, 2, 3)],
            topics=[
                MetadataResponseTopic(error_code=0, name=each.name, partitions=[row])
                for each in request.topics
            ],
        )

    def ListOffsetsRequest(self, request: Any, to: int) -> ListOffsetsResponse:
        if request.replica_id == -2:
            offset = self.ends[to]
        elif request.topics[0].partitions[0].timestamp == EARLIEST:
            offset = 0
        else:
            committed = request.isolation_level == READ_COMMITTED
            offset = self.last_stable if committed else self.high_watermark
        row = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])

    def FetchRequest(self, request: Any, to: int) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        log = self.logs[to]
        later = [each for each in log if last_offset(each) >= offset]
        row = PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=self.high_watermark,
            aborted_transactions=self.aborted,
            records=memoryview(b"".join(later)),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])

    def DescribeProducersRequest(self, request: Any, to: int) -> DescribeProducersResponse:
        states = self.producers.pop(0) if len(self.producers) > 1 else self.producers[0]
        row = PartitionResponse(partition_index=0, error_code=0, active_producers=states)
        return DescribeProducersResponse(topics=[TopicResponse(name="t", partitions=[row])])

    def ListTransactionsRequest(self, request: Any, to: int) -> ListTransactionsResponse:
        found = self.transactions.get(to)
        rows = (
            []
            if found is None
            else [
                TransactionState(
                    transactional_id=found.transactional_id,
                    producer_id=found.producer_id,
                    transaction_state=found.transaction_state,
                )
            ]
        )
        return ListTransactionsResponse(error_code=0, transaction_states=rows)

    def DescribeTransactionsRequest(self, request: Any, to: int) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(transaction_states=[self.transactions[to]])


def last_offset(data: bytes) -> int:
    return read_header(data).last_offset


def explain(cluster: Cluster, offset: int, key: bytes | None = None) -> Answer:
    return explain_record(cluster.run(record_facts("t", 0, offset, NOW, key)))


def test_replica_that_holds_a_record_back_is_named() -> None:
    cluster = Cluster(ends={1: 10, 2: 7, 3: 5}, high_watermark=7)
    answer = explain(cluster, 8)
    assert (answer.cause, answer.details["held_back_by"]) == ("above_high_watermark", [2])


def test_replica_that_does_not_answer_is_the_one_that_is_waited_for() -> None:
    answer = explain(Cluster(ends={1: 10, 3: 10}, high_watermark=7), 8)
    assert (answer.cause, answer.details["held_back_by"]) == ("above_high_watermark", [2])


def open_at(offset: int, producer_id: int = 7) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        last_timestamp=NOW,
        current_txn_start_offset=offset,
    )


def described(state: str = "Ongoing", topic: str = "t") -> Described:
    return Described(
        error_code=0,
        transactional_id="id",
        transaction_state=state,
        transaction_timeout_ms=1000,
        transaction_start_time_ms=NOW,
        producer_id=7,
        producer_epoch=0,
        topics=[TopicData(topic=topic, partitions=[0])],
    )


OPEN_LOG = {1: [batch(0, b"a", producer_id=7), batch(1, b"b")]}


def test_coordinator_is_looked_for_on_every_broker() -> None:
    cluster = Cluster(
        OPEN_LOG, last_stable=0, producers=[[open_at(0)]], transactions={3: described()}
    )
    answer = explain(cluster, 1)
    assert answer.cause == "above_last_stable_offset"
    assert answer.details["transaction"]["transactional_id"] == "id"


@pytest.mark.parametrize(
    "transactions",
    [{}, {2: described("CompleteCommit")}, {2: described("Empty")}, {2: described(topic="other")}],
)
def test_transaction_that_no_coordinator_knows_hangs(transactions: dict[int, Described]) -> None:
    cluster = Cluster(OPEN_LOG, last_stable=0, producers=[[open_at(0)]], transactions=transactions)
    assert explain(cluster, 1).cause == "hanging_transaction"


def test_transaction_that_ends_meanwhile_does_not_hang() -> None:
    cluster = Cluster(OPEN_LOG, last_stable=0, producers=[[open_at(0)], []])
    assert explain(cluster, 1).cause == "above_last_stable_offset"


def test_key_of_a_compacted_record_comes_from_a_follower() -> None:
    whole = [batch(0, b"a"), batch(1, b"b"), batch(2, b"a")]
    cluster = Cluster({1: whole[1:], 2: whole})
    answer = explain(cluster, 0)
    assert (answer.cause, answer.details["later_offset"]) == ("compacted_away", 2)
    assert explain(Cluster({1: whole[1:]}), 0).cause == "compacted_or_expired"
    assert explain(Cluster({1: whole[1:]}), 0, b"a").cause == "compacted_away"
    assert explain(Cluster({1: whole[1:]}), 0, b"z").cause == "compacted_or_expired"


def test_offset_between_batches_is_a_gap() -> None:
    cluster = Cluster({1: [batch(0, b"a"), batch(5, b"b")]})
    answer = explain(cluster, 3)
    assert answer.details["gap"] == [3, 4]


@pytest.mark.parametrize(
    ("kind", "cause"), [(ControlType.ABORT, "aborted"), (ControlType.COMMIT, "visible")]
)
def test_marker_of_another_producer_ends_nothing(kind: ControlType, cause: str) -> None:
    other = ControlType.COMMIT if kind is ControlType.ABORT else ControlType.ABORT
    log = [batch(0, b"a", producer_id=7), marker(1, 8, other), marker(2, 7, kind)]
    answer = explain(Cluster({1: log}), 0)
    assert (answer.cause, answer.details["marker"]["offset"]) == (cause, 2)


@pytest.mark.parametrize(
    ("aborted", "cause"),
    [([Aborted(producer_id=7, first_offset=0)], "aborted"), ([], "visible")],
)
def test_marker_that_is_too_far_away_is_taken_from_the_list_of_aborted_transactions(
    monkeypatch: pytest.MonkeyPatch, aborted: list[Aborted], cause: str
) -> None:
    monkeypatch.setattr("server.explain.searches.SCAN_BYTES", -1)
    log = [batch(0, b"a", producer_id=7), batch(1, b"b"), marker(2, 7, ControlType.ABORT)]
    assert explain(Cluster({1: log}, aborted=aborted), 0).cause == cause


def test_damaged_batch_is_told() -> None:
    damaged = bytearray(batch(0, b"a"))
    damaged[-1] ^= 1
    assert explain(Cluster({1: [bytes(damaged)]}), 0).cause == "corrupt"


def test_log_that_begins_inside_a_batch_was_cut_by_delete_records() -> None:
    cluster = Cluster({1: [batch(0, b"a", b"b", b"c")]})
    cluster.ListOffsetsRequest = begins_at(cluster, 2)  # type: ignore[method-assign]
    assert explain(cluster, 1).cause == "deleted_by_delete_records"


def begins_at(cluster: Cluster, start: int) -> Callable[[Any, int], ListOffsetsResponse]:
    before = cluster.ListOffsetsRequest

    def answer(request: Any, to: int) -> ListOffsetsResponse:
        response = before(request, to)
        if request.topics[0].partitions[0].timestamp == EARLIEST:
            response.topics[0].partitions[0].offset = start
        return response

    return answer


def test_leader_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(Unavailable):
        explain(Cluster(ends={}), 0)


def test_topic_without_permission_is_told() -> None:
    cluster = Cluster()

    def refuse(request: Any, to: int | None) -> MetadataResponse:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponse(topics=[MetadataResponseTopic(error_code=error, name="t")])

    cluster.MetadataRequest = refuse  # type: ignore[method-assign]
    assert explain(cluster, 0).cause == "not_authorized"


@dataclass
class Coordinator(Cluster):
    """A coordinator that serves no groups of the newer types at the moment, and the offsets that it keeps."""

    committed: int | None = None
    fetch_error: int = 0
    reason: str | None = "because of broker 7."

    def FindCoordinatorRequest(self, request: Any, to: int | None) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(error_code=0, node_id=1)

    def DescribeGroupsRequest(self, request: Any, to: int) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Dead")])

    def ConsumerGroupDescribeRequest(self, request: Any, to: int) -> ConsumerGroupDescribeResponse:
        row = ConsumerGroup(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=self.reason, group_id="g"
        )
        return ConsumerGroupDescribeResponse(groups=[row])

    def ShareGroupDescribeRequest(self, request: Any, to: int) -> ShareGroupDescribeResponse:
        return ShareGroupDescribeResponse(
            groups=[ShareGroup(error_code=ErrorCode.UNSUPPORTED_VERSION, group_id="g")]
        )

    def OffsetFetchRequest(self, request: Any, to: int) -> OffsetFetchResponse:
        rows = []
        if self.committed is not None:
            part = OffsetFetchResponsePartition(partition_index=0, committed_offset=self.committed)
            rows.append(OffsetFetchResponseTopic(name="t", partitions=[part]))
        return OffsetFetchResponse(topics=rows, error_code=self.fetch_error)


@pytest.mark.parametrize(
    ("coordinator", "cause"),
    [
        (Coordinator(committed=3), "group_not_served"),
        (Coordinator(fetch_error=ErrorCode.GROUP_ID_NOT_FOUND), "group_not_served"),
        (Coordinator(), "no_group"),
        (Coordinator(fetch_error=ErrorCode.NOT_COORDINATOR), "coordinator_unavailable"),
    ],
)
def test_group_that_is_kept_but_not_served_is_told(coordinator: Coordinator, cause: str) -> None:
    (answer,) = explain_group(coordinator.run(group_facts("g", NOW, stored=False)))
    assert answer.cause == cause
    if cause == "group_not_served":
        assert answer.sentence.endswith("are not served now: because of broker 7.")


@pytest.mark.parametrize("reason", [None, "The version of API is not supported."])
def test_group_that_is_not_served_without_a_reason_has_its_feature_off(reason: str | None) -> None:
    (answer,) = explain_group(Coordinator(committed=3, reason=reason).run(group_facts("g", NOW)))
    assert "not served now: their feature is switched off (group.version" in answer.sentence


COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


@pytest.mark.parametrize(
    ("log", "begin", "found"),
    [
        ([batch(7, b"a", b"b", producer_id=1), marker(9, 1, COMMIT)], 9, True),
        ([marker(8, 2, ABORT), marker(9, 1, COMMIT)], 8, True),
        ([batch(8, b"a", producer_id=1), marker(9, 1, COMMIT)], 8, False),
        ([marker(8, 1, COMMIT), batch(9, b"a")], 8, False),
        ([marker(9, 1, COMMIT)], 8, False),  # a record at 8 was compacted
        ([], 9, False),
    ],
)
def test_lag_of_markers_alone_is_recognized(log: list[bytes], begin: int, found: bool) -> None:
    cluster = Cluster(logs={1: log})
    assert cluster.run(only_markers(1, "t", 0, begin, 10)) is found


class GroupOnCluster(Coordinator):
    """The coordinator of a group without members."""

    def DescribeGroupsRequest(self, request: Any, to: int) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Empty")])


@pytest.mark.parametrize("stored", [False, True])
def test_group_behind_by_a_marker_is_told_so(stored: bool) -> None:
    cluster = GroupOnCluster(
        logs={1: [batch(7, b"a", b"b", producer_id=1), marker(9, 1, COMMIT)]}, committed=9
    )
    facts = cluster.run(group_facts("g", NOW, stored=stored))
    (row,) = facts.partitions
    assert (row.lag, row.note) == (1, "only a transaction marker")
    answer = explain_group(facts)[-1]
    assert answer.cause == "lag_markers"
    assert "only a transaction marker" in answer.sentence
    assert answer.details["lag"] == 1


def test_group_beyond_the_end_has_a_negative_lag() -> None:
    cluster = GroupOnCluster(committed=509)
    (row,) = cluster.run(group_facts("g", NOW, stored=False)).partitions
    assert (row.lag, row.note) == (-499, "beyond the end of the log")
