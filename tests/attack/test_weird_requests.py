"""Well-encoded requests with harmful content, to every API in every version.

Each must be answered (except a request with acks=0, which has no answer), without UNKNOWN_SERVER_ERROR and without an
internal error in the log.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwire.api import ApiKey, request_class
from kwire.codec import encode
from kwire.errors import ErrorCode

from ..support.wire_client import WireClient, build
from .conftest import Target, served
from .weird import Weird

pytestmark = pytest.mark.e2e

REQUESTS = 40


def errors_in(answer: Any) -> set[int]:
    """All error codes of an answer."""
    if isinstance(answer, dict):
        found = {v for k, v in answer.items() if k.endswith("error_code") and isinstance(v, int)}
        return found.union(*(errors_in(value) for value in answer.values()))
    if isinstance(answer, list):
        return set().union(*(errors_in(value) for value in answer))
    return set()


def ask(target: Target, client: WireClient, api: ApiKey, version: int, request: Any) -> Any:
    """Send a request and check that it was answered, and by no mistake."""
    answer = client.call_bytes(api, version, encode(request, version))
    log = target.new_log()
    said = f"{api.name} v{version} {request!r:.2000}\n{log[-3000:]}"
    assert "Traceback" not in log and " ERROR " not in log, said
    assert answer is not None, f"closed: {said}"
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in errors_in(answer), said
    return answer


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_every_api_answers_whatever_it_is_asked(target: Target, seed: int) -> None:
    rnd = random.Random(seed)
    with contextlib.closing(target.client()) as client:
        assert ask_at_random(target, client, rnd) > 0


#: For these, Apache Kafka treats unknown values of enumerations as a malformed request, and so does kwire.
CLOSING = (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)


def ask_at_random(target: Target, client: WireClient, rnd: random.Random) -> int:
    """Some requests, one after the other; returns how many were answered, each checked by `ask`."""
    weird = Weird(rnd)
    answered = 0
    apis = served(client)
    for _ in range(REQUESTS):
        api, lowest, highest = rnd.choice(apis)
        if api in CLOSING:
            continue
        version = rnd.randint(lowest, highest)
        request = weird.message(request_class(api), version)
        if api is ApiKey.PRODUCE:
            request.acks = request.acks or 1
        if api is ApiKey.JOIN_GROUP:  # a good one may rightly wait for other members
            request.session_timeout_ms = -1
        ask(target, client, api, version, request)
        answered += 1
    return answered


NAME = "n" * 32767


@pytest.mark.parametrize(
    ("api", "version", "values"),
    [
        (ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": NAME, "count": 2}]}),
        (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [{"resource_type": 2, "resource_name": NAME}]}),
        (ApiKey.METADATA, 11, {"topics": [{"topic_id": b"\1" * 16, "name": None}]}),
        (
            ApiKey.JOIN_GROUP,
            5,
            {
                "group_id": "g3",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 10,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
                "group_instance_id": NAME,
            },
        ),
        (
            ApiKey.OFFSET_COMMIT,
            2,
            {
                "group_id": "g4",
                "generation_id_or_member_epoch": -1,
                "retention_time_ms": 2**63 - 1,
                "topics": [{"name": "kept", "partitions": [{"committed_offset": 7}]}],
            },
        ),
        (
            ApiKey.LIST_OFFSETS,
            1,
            {
                "replica_id": -1,
                "topics": [{"name": "kept", "partitions": [{"timestamp": -1}]}],
            },
        ),
        (
            ApiKey.WRITE_TXN_MARKERS,
            1,
            {
                "markers": [
                    {"producer_id": -1, "topics": [{"name": "kept", "partition_indexes": [0]}]}
                ]
            },
        ),
    ],
)
def test_what_once_was_answered_by_a_mistake(
    target: Target, api: ApiKey, version: int, values: dict[str, Any]
) -> None:
    client = target.client()
    client.call(ApiKey.FIND_COORDINATOR, 0, {"key": "g3"})
    assert ask(target, client, api, version, build(request_class(api), values, version)) is not None
    client.close()


def test_a_request_for_partitions_without_end_is_refused_at_once(target: Target) -> None:
    client = target.client()
    topic = {"name": "endless", "num_partitions": 2**31 - 1, "replication_factor": 1}
    answer: Any = client.call(ApiKey.CREATE_TOPICS, 5, {"topics": [topic]})
    assert answer["topics"][0]["error_code"] == ErrorCode.POLICY_VIOLATION
    many = [{"name": f"many{n}", "num_partitions": 5000, "replication_factor": 1} for n in range(3)]
    answer = client.call(ApiKey.CREATE_TOPICS, 5, {"topics": many})
    assert {row["error_code"] for row in answer["topics"]} == {ErrorCode.POLICY_VIOLATION}
    grown = {"topics": [{"name": "kept", "count": 2**31 - 1, "assignments": None}]}
    answer = client.call(ApiKey.CREATE_PARTITIONS, 2, grown)
    assert answer["results"][0]["error_code"] == ErrorCode.POLICY_VIOLATION
    client.close()
