"""Encoding: buffers that are handed on, and values that a version cannot carry."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.codec import decode, encode, encode_parts, encoded_size
from kwire.errors import EncodeError
from kwire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire.messages.find_coordinator import FindCoordinatorRequest
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.list_offsets import ListOffsetsRequest
from kwire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.support.forms import form


class StoredSlice:
    """A replacement for bytes in a file."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def fetched(*records: Any) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="orders", partitions=[PartitionData(records=each) for each in records]
            )
        ]
    )


def test_records_in_a_file_are_handed_on_untouched() -> None:
    stored = StoredSlice(5000)
    parts = encode_parts(fetched(b"small", stored, None), 12)
    assert [type(part) for part in parts] == [bytes, StoredSlice, bytes]
    assert parts[1] is stored
    in_memory = bytes(5000)
    assert b"".join(in_memory if part is stored else part for part in parts) == encode(
        fetched(b"small", in_memory, None), 12
    )
    assert encoded_size(parts) == len(encode(fetched(b"small", in_memory, None), 12))


def test_small_slice_of_a_file_is_handed_on_too() -> None:
    stored = StoredSlice(5)
    assert encode_parts(fetched(stored), 12)[1] is stored


def test_large_records_are_not_copied() -> None:
    large, small = memoryview(bytes(5000)), memoryview(b"abc")
    parts = encode_parts(fetched(small, large), 12)
    assert len(parts) == 3
    assert parts[1] is large
    assert b"abc" in parts[0]


def test_message_without_records_is_one_buffer() -> None:
    assert encode_parts(HeartbeatRequest(group_id="g"), 0) == [
        encode(HeartbeatRequest(group_id="g"), 0)
    ]


def test_records_in_a_file_cannot_be_joined() -> None:
    with pytest.raises(EncodeError, match="StoredSlice is not bytes") as caught:
        encode(fetched(StoredSlice(5000)), 12)
    assert caught.value.path == "responses[0].partitions[0].records"


def test_wrong_value_beside_records_in_a_file_is_named() -> None:
    response = fetched(StoredSlice(5000))
    response.session_id = "x"  # type: ignore[assignment]
    with pytest.raises(EncodeError) as caught:
        encode_parts(response, 12)
    assert caught.value.path == "session_id"


def test_decoded_records_are_views_and_the_rest_is_not() -> None:
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=b"abc")])
        ]
    )
    buffer = bytearray(encode(request, 9))
    decoded = decode(ProduceRequest, memoryview(buffer), 9)
    records = decoded.topic_data[0].partition_data[0].records
    assert type(records) is memoryview
    buffer[buffer.index(b"abc")] = ord("x")
    assert bytes(records) == b"xbc"
    assert decoded.topic_data[0].name == "orders"


def test_field_the_version_lacks_is_refused_unless_default() -> None:
    encode(ProduceRequest(), 0)
    with pytest.raises(EncodeError, match="'tx' cannot be sent in this version") as caught:
        encode(ProduceRequest(transactional_id="tx"), 2)
    assert (caught.value.api, caught.value.version) == ("ProduceRequest", 2)
    assert caught.value.path == "transactional_id"


def test_ignorable_field_the_version_lacks_is_dropped() -> None:
    response = MetadataResponse(cluster_id="c", throttle_time_ms=5)
    assert decode(MetadataResponse, encode(response, 0), 0) == MetadataResponse()


def test_list_the_version_lacks_is_refused_unless_empty() -> None:
    encode(FindCoordinatorRequest(), 3)
    with pytest.raises(EncodeError) as caught:
        encode(FindCoordinatorRequest(coordinator_keys=["a"]), 3)
    assert caught.value.path == "coordinator_keys"


def test_none_is_refused_where_the_version_has_no_null() -> None:
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(EncodeError, match="None") as caught:
        encode(MetadataRequest(topics=None), 0)
    assert caught.value.path == "topics"


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"isolation_level": 128}, "isolation_level"),
        ({"replica_id": "1"}, "replica_id"),
        ({"replica_id": 1 << 31}, "replica_id"),
        ({"topics": 5}, "topics"),
        ({"topics": [None]}, "topics[0]"),
        ({"topics": [MetadataRequestTopic()]}, "topics[0]"),
    ],
)
def test_wrong_value_is_named(values: dict[str, Any], path: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(ListOffsetsRequest(**values), 6)
    assert caught.value.path == path


@pytest.mark.parametrize("topic_id", [b"", bytes(15), bytes(17), "x" * 16])
def test_id_of_other_than_16_bytes_is_refused(topic_id: Any) -> None:
    with pytest.raises(EncodeError):
        encode(MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id)]), 12)


def test_string_is_at_most_32767_bytes() -> None:
    for version in (0, 4):
        longest = HeartbeatRequest(group_id="x" * 32767)
        assert decode(HeartbeatRequest, encode(longest, version), version) == longest
        with pytest.raises(EncodeError, match="32768"):
            encode(HeartbeatRequest(group_id="x" * 32768), version)


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(EncodeError) as caught:
        encode(HeartbeatRequest(group_id="\ud800"), 0)
    assert caught.value.path == "group_id"


def produced(leader: LeaderIdAndEpoch | None) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                partition_responses=[PartitionProduceResponse(current_leader=leader)]
            )
        ]
    )


def test_tagged_struct_is_sent_unless_default() -> None:
    absent = encode(produced(None), 10)
    assert encode(produced(LeaderIdAndEpoch()), 10) == absent
    leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=7)
    data = encode(produced(leader), 10)
    assert len(data) == len(absent) + 2 + 9
    decoded = decode(ProduceResponse, data, 10)
    assert decoded.responses[0].partition_responses[0].current_leader == leader


def test_unknown_tags_survive_in_order() -> None:
    request = HeartbeatRequest()
    request.unknown_tags = {200: b"later", 7: b""}  # type: ignore[attr-defined]
    data = encode(request, 4)
    assert data.endswith(b"\x02\x07\x00\xc8\x01\x05later")
    assert decode(HeartbeatRequest, data, 4) == request


def test_unknown_tags_are_refused_where_they_cannot_be() -> None:
    request = HeartbeatRequest()
    request.unknown_tags = {7: b""}  # type: ignore[attr-defined]
    with pytest.raises(EncodeError, match="no tagged fields"):
        encode(request, 3)
    response = ProduceResponse()
    response.unknown_tags = {0: b""}  # type: ignore[attr-defined]
    with pytest.raises(EncodeError, match="node_endpoints"):
        encode(response, 10)


def test_compiled_code_names_message_and_version() -> None:
    from kwire.compiler import compile_decoder

    with form("pure"):
        decoder: Any = compile_decoder(ProduceRequest, 9, False)
    assert decoder.__code__.co_filename == "<kwire:ProduceRequest_v9>"


def test_error_code_may_stand_for_its_number() -> None:
    from kwire.errors import ErrorCode

    assert encode(MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED), 13) == encode(
        MetadataResponse(error_code=129), 13
    )
