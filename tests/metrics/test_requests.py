"""Counting and timing of requests, as the dispatcher reports them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kwire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from kwire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from server.handlers.context import NO_REPLY
from server.handlers.gate import Durations
from server.metrics import requests
from server.metrics.errors import count_errors
from server.metrics.requests import RequestMetrics

PRODUCE, FETCH, METADATA = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.METADATA)


def context(api_key: int, message: Any = None, version: int = 12) -> Any:
    return SimpleNamespace(
        handler=SimpleNamespace(api_key=api_key),
        message=message,
        version=version,
        began_us=1,
        connection=object(),
    )


def begin(metrics: RequestMetrics, api_key: int, version: int) -> bool:
    """Count a request as the dispatcher does; whether it is timed."""
    counter = metrics.apis[api_key]
    timed = not counter.versions[version] & counter.mask
    counter.versions[version] += 1
    return timed


def produced(*codes: int) -> ProduceResponse:
    rows = [PartitionProduceResponse(index=i, error_code=code) for i, code in enumerate(codes)]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])


def test_every_request_is_counted_by_version() -> None:
    metrics = RequestMetrics(lambda: 1)
    for version in (3, 9, 9):
        begin(metrics, PRODUCE, version)
    begin(metrics, METADATA, 1)
    assert metrics.apis[PRODUCE].requests == 3
    assert metrics.apis[PRODUCE].versions[9] == 2
    assert metrics.apis[METADATA].requests == 1


@pytest.mark.parametrize(
    ("per_second", "expected"),
    [(0, 64), (19, 64), (20, 8), (199, 8), (200, 2), (999, 2), (1000, 1)],
)
def test_the_more_requests_the_fewer_are_timed(per_second: float, expected: int) -> None:
    metrics = RequestMetrics(lambda: 5)
    metrics.adapt(FETCH, per_second)
    assert [begin(metrics, FETCH, 12) for _ in range(64)].count(True) == expected


def test_before_the_rate_is_known_no_request_stands_for_most_of_those_seen() -> None:
    metrics = RequestMetrics(lambda: 5)
    for seen in range(20_000):
        if begin(metrics, PRODUCE, 9):
            weight = metrics.apis[PRODUCE].mask + 1
            assert weight == 1 or weight * 8 <= seen
            metrics.observe(context(PRODUCE), produced(0), ErrorCode.NONE, Durations(9, 0, 0))
    assert weight == 128


def test_requests_of_other_apis_are_all_timed() -> None:
    metrics = RequestMetrics(lambda: 5)
    assert [begin(metrics, METADATA, 1) for _ in range(3)] == [True] * 3


def test_timed_request_stands_for_those_that_are_not() -> None:
    metrics = RequestMetrics(lambda: 5)
    metrics.adapt(PRODUCE, 500)
    for number in range(64):
        began = begin(metrics, PRODUCE, 9)
        durations = Durations(1000, 0, 10) if began else None
        metrics.observe(context(PRODUCE), produced(0), ErrorCode.NONE, durations)
        assert began == (number % 32 == 0)
    assert sum(metrics.apis[PRODUCE].total.window()) == 64


def test_errors_of_rows_are_counted_and_failures_by_topic() -> None:
    metrics = RequestMetrics(lambda: 5)
    begin(metrics, PRODUCE, 9)
    response = produced(0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
    metrics.observe(context(PRODUCE), response, ErrorCode.NONE, None)
    assert metrics.apis[PRODUCE].errors == {0: 2, 6: 1, 19: 1}
    assert metrics.topics["t"].refused_produce == 2
    assert metrics.topics["t"].failed_produce == 1


def test_request_without_a_reply_counts_as_one_without_error() -> None:
    metrics = RequestMetrics(lambda: 5)
    begin(metrics, PRODUCE, 9)
    metrics.observe(context(PRODUCE), NO_REPLY, ErrorCode.NONE, None)
    assert metrics.apis[PRODUCE].errors == {0: 1}


def test_request_that_was_closed_has_the_error_of_the_gate() -> None:
    metrics = RequestMetrics(lambda: 5)
    for api_key in (PRODUCE, FETCH, METADATA):
        begin(metrics, api_key, 9)
        metrics.observe(context(api_key), None, ErrorCode.UNKNOWN_SERVER_ERROR, None)
    assert metrics.apis[PRODUCE].errors[-1] == 1
    assert metrics.fetch_consumer.errors == {0: 0, -1: 1}
    assert metrics.apis[METADATA].errors == {0: 0, -1: 1}


@pytest.mark.parametrize(
    ("request_", "of_replica"),
    [
        (FetchRequest(), False),
        (FetchRequest(replica_id=3), True),
        (FetchRequest(replica_state=ReplicaState(replica_id=3)), True),
    ],
)
def test_bytes_to_consumers_and_to_followers_are_counted_apart(
    request_: FetchRequest, of_replica: bool
) -> None:
    metrics = RequestMetrics(lambda: 5)
    begin(metrics, FETCH, 12)
    rows = [
        PartitionData(partition_index=0, records=b"x" * 70),
        PartitionData(partition_index=1, records=None),
        PartitionData(partition_index=2, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=rows)])
    metrics.observe(context(FETCH, request_), response, ErrorCode.NONE, Durations(1, 2, 3))
    api = metrics.fetch_follower if of_replica else metrics.fetch_consumer
    assert api.requests == of_replica
    assert api.errors == {0: 3, 1: 1}  # including the response's own
    assert sum(api.total.window()) == 1
    assert metrics.replication_bytes_out == (70 if of_replica else 0)
    assert metrics.topics["t"].bytes_out == (0 if of_replica else 70)
    assert metrics.topics["t"].fetch == 3
    assert metrics.topics["t"].failed_fetch == 0


def test_errors_are_found_in_rows_of_rows() -> None:
    rows = [MetadataResponsePartition(error_code=5), MetadataResponsePartition()]
    topics = [MetadataResponseTopic(partitions=rows), MetadataResponseTopic(error_code=3)]
    for version, good in ((9, 2), (13, 3)):  # since 13, the response has its own error code
        counts: dict[int, int] = {}
        count_errors(MetadataResponse(topics=topics), counts, version)
        assert counts == {0: good, 5: 1, 3: 1}


def test_errors_of_partitions_are_found_by_their_own_name() -> None:
    rows = [AddPartitionsToTxnPartitionResult(partition_error_code=code) for code in (0, 0, 48)]
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=rows)
    counts: dict[int, int] = {}
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
    count_errors(response, counts, 3)
    assert counts == {0: 2, 48: 1}


def test_partitions_that_no_replica_is_asked_for_are_no_requests_of_their_topic() -> None:
    metrics = RequestMetrics(lambda: 5)
    response = produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    metrics.observe(context(PRODUCE), response, ErrorCode.NONE, None)
    assert metrics.apis[PRODUCE].errors == {0: 0, 3: 1, 29: 1}
    assert metrics.topics == {}


def test_names_of_topics_that_clients_make_up_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_TOPICS", 10)
    metrics = RequestMetrics(lambda: 5)
    for number in range(100):
        rows = [PartitionData(partition_index=0, error_code=3)]
        topic = FetchableTopicResponse(topic=f"t{number}", partitions=rows)
        metrics.observe(
            context(FETCH, FetchRequest()), FetchResponse(responses=[topic]), ErrorCode.NONE, None
        )
    assert len(metrics.topics) == 10
    assert metrics.gone.fetch == 90
