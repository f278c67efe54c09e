"""Bytes that no honest peer sends: one typed error with a position, and no memory wasted."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire import interpreter
from kwire.codec import decode, decode_prefix, decode_steps, encode
from kwire.errors import (
    BadLength,
    BadTag,
    BadUtf8,
    BadVersion,
    MessageTooLarge,
    Truncated,
    WireError,
)
from kwire.header import decode_request_header
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.messages.delete_groups import DeleteGroupsRequest
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kwire.messages.fetch import FetchRequest
from kwire.messages.headers import RequestHeader
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.join_group import JoinGroupRequest
from kwire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.schema import schema_of
from kwire.varint import uvarint
from server.turns import exhaust
from tests.support.catalogue import all_messages, all_versions
from tests.support.cpu_time import cpu_time

from .entropy import message_from

CLASSES = sorted(all_messages().values(), key=lambda cls: cls.__name__)

#: Bytes that are written over or between honest ones: lengths, counts and varints at their limits.
SPLICES = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xfe",
    b"\x80\x00",
    b"\x81\x00",
    b"\x7f",
    b"\x02\x01\x00",
]


def test_request_that_would_take_too_much_memory_is_refused_before_it_does() -> None:
    data = b"\x81\x80\x40" + b"\x01" * (1 << 20) + b"\0"  # a million groups without a name
    message, _ = exhaust(decode_steps(DeleteGroupsRequest, data, 2, 0, 1 << 30))
    assert len(message.groups_names) == 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge, match="more than 67108864 bytes of memory"):
            exhaust(decode_steps(DeleteGroupsRequest, data, 2))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_rows_of_the_response_count_as_memory_of_a_request() -> None:
    def needs(cls: type, version: int, data: bytes, most: int) -> bool:
        try:
            exhaust(decode_steps(cls, data, version, 0, most))
        except MessageTooLarge:
            return True
        return False

    names = b"\xe9\x07" + b"\x05name" * 1000  # 1,000 elements
    # A name, and a response row of 8 fields, two of them lists.
    assert needs(DescribeGroupsRequest, 5, names + b"\0\0", 250_000)
    assert not needs(DescribeGroupsRequest, 5, names + b"\0\0", 310_000)
    # The same name, and a row of an error and a name.
    assert needs(DeleteGroupsRequest, 2, names + b"\0", 150_000)
    assert not needs(DeleteGroupsRequest, 2, names + b"\0", 180_000)


def test_tagged_fields_of_a_header_take_little_memory() -> None:
    tags = b"\xff\xff\x3f" + b"\x01\x00" * (1 << 20)
    with pytest.raises(MessageTooLarge):
        decode_request_header(b"\0\x03\0\x0c\0\0\0\x01\xff\xff" + tags)
    with pytest.raises(MessageTooLarge):
        decode_request_header(
            b"\0\x03\0\x0c\0\0\0\x01\xff\xff\x01\x07\x80\x80\x40" + bytes(1 << 20)
        )


def test_fault_behind_many_elements_is_found_without_looking_at_each() -> None:
    data = b"\x81\x80\x40" + b"\x01" * (1 << 20)
    with cpu_time() as taken, pytest.raises(WireError, match="something is wrong from here on"):
        exhaust(decode_steps(DeleteGroupsRequest, data[:-1] + b"\x03", 2, 0, 1 << 30))
    assert taken.seconds < 2


def outcome(function: object, cls: type, data: bytes, version: int) -> object:
    """The message written again (a float that is not a number equals nothing), or the error."""
    try:
        return encode(function(cls, data, version), version)  # type: ignore[operator]
    except WireError as error:
        return type(error), error.reason, error.path, error.offset


def leniently(cls: type, data: bytes, version: int) -> object:
    return interpreter.decode_prefix(cls, data, version, lenient=True)[0]


def in_steps(cls: type, data: bytes, version: int) -> object:
    return exhaust(decode_steps(cls, data, version))[0]


def check_damaged(cls: type, version: int, data: bytes) -> None:
    """Compiled and interpreted codecs agree on damaged bytes, and errors have the required content."""
    compiled = outcome(decode, cls, data, version)
    assert compiled == outcome(interpreter.decode, cls, data, version)
    assert outcome(decode, cls, memoryview(data), version) == compiled  # type: ignore[arg-type]
    lenient = outcome(leniently, cls, data, version)
    assert outcome(in_steps, cls, data, version) == lenient
    padded = data + bytes(70_000)  # long enough to be decoded from a view
    lenient, steps = (
        outcome(leniently, cls, padded, version),
        outcome(in_steps, cls, padded, version),
    )
    # The error is searched only among the first fields.
    assert steps == lenient or (type(steps) is type(lenient) is tuple and steps[0] is WireError)
    try:
        decode(cls, data, version)
    except WireError as error:
        assert type(error) is not WireError, error
        assert (error.api, error.version) == (schema_of(cls).name, version)
        assert 0 <= error.offset <= len(data)


def damage(data: bytes, generator: random.Random) -> bytes:
    """Cut, overwrite, insert or leave out, somewhere."""
    at = generator.randrange(len(data) + 1)
    splice = generator.choice(SPLICES)
    return generator.choice(
        [
            data[:at],
            data[:at] + splice + data[at + len(splice) :],
            data[:at] + splice + data[at:],
            data[:at] + data[at + 1 :],
        ]
    )


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_damaged_messages_are_refused_or_read_alike(cls: type) -> None:
    versions = schema_of(cls).versions
    generator = random.Random(cls.__name__)
    for version in range(versions.lowest, versions.highest + 1):
        data = encode(message_from(cls, version, generator.randbytes(300)), version)
        for _ in range(6):
            check_damaged(cls, version, damage(data, generator))


@settings(max_examples=300)
@given(pair=st.sampled_from(all_versions()), data=st.binary(max_size=200))
def test_random_bytes_are_refused_or_read_alike(pair: tuple[type, int], data: bytes) -> None:
    check_damaged(*pair, data)


@settings(max_examples=200)
@given(
    pair=st.sampled_from(all_versions()),
    entropy=st.binary(max_size=400),
    at=st.integers(0, 2000),
    splice=st.sampled_from(SPLICES),
)
def test_lengths_at_their_limits_are_refused_or_read_alike(
    pair: tuple[type, int], entropy: bytes, at: int, splice: bytes
) -> None:
    cls, version = pair
    data = encode(message_from(cls, version, entropy), version)
    at %= len(data) + 1
    check_damaged(cls, version, data[:at] + splice + data[at + len(splice) :])


def test_every_prefix_of_a_message_is_refused() -> None:
    message = message_from(FetchRequest, 17, random.Random(1).randbytes(200))
    data = encode(message, 17)
    for size in range(len(data)):
        with pytest.raises((Truncated, BadLength)) as caught:
            decode(FetchRequest, data[:size], 17)
        assert 0 <= caught.value.offset <= size


def test_huge_counts_are_refused_before_memory_is_taken() -> None:
    # 30 kB of zeros behind it: enough that a decoder which trusts the count would get going.
    data = (2**31 - 1).to_bytes(4, "big") + bytes(30_000)
    decode(MetadataRequest, b"\0\0\0\0", 1)
    with pytest.raises(BadLength, match="2147483647 elements"):
        decode(MetadataRequest, data, 1)
    tracemalloc.start()
    try:
        for source in (data, memoryview(data)):
            with pytest.raises(BadLength):
                decode(MetadataRequest, source, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_huge_lengths_are_refused_before_memory_is_taken() -> None:
    for message in (RequestHeader, ApiVersionsRequest):
        with pytest.raises(Truncated):
            decode(message, b"", 1 if message is RequestHeader else 3)  # its decoders are made
    tracemalloc.start()
    try:
        with pytest.raises(Truncated) as caught:
            decode(RequestHeader, b"\0\0\0\0\0\0\0\0\x7f\xff" + b"a" * 9, 1)
        with pytest.raises(BadLength):
            decode(ApiVersionsRequest, b"\xff\xff\xff\xff\x0f" + b"a" * 9, 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert str(caught.value) == (
        "RequestHeader v1 client_id at byte 10: needs 32767 bytes, 9 are left"
    )


def produce(name: str = "orders") -> bytes:
    return encode(
        ProduceRequest(
            topic_data=[
                TopicProduceData(name="first"),
                TopicProduceData(
                    name=name, partition_data=[PartitionProduceData(records=b"records")]
                ),
            ]
        ),
        9,
    )


def test_error_names_api_version_path_and_byte() -> None:
    data = produce()
    at = data.index(b"records")
    with pytest.raises(Truncated) as caught:
        decode(ProduceRequest, data[: at + 3], 9)
    error = caught.value
    assert (error.api, error.version) == ("ProduceRequest", 9)
    assert error.path == "topic_data[1].partition_data[0].records"
    assert error.offset == at
    assert str(error) == (
        "ProduceRequest v9 topic_data[1].partition_data[0].records"
        f" at byte {at}: needs 7 bytes, 3 are left"
    )


def test_offset_counts_from_the_start_of_the_buffer() -> None:
    data = b"head" + produce()
    with pytest.raises(Truncated) as caught:
        decode(ProduceRequest, data[:-6], 9, 4)
    assert 4 < caught.value.offset <= len(data) - 6


def test_string_that_is_not_utf8_is_named() -> None:
    data = produce().replace(b"orders", b"ord\xffrs")
    with pytest.raises(BadUtf8) as caught:
        decode(ProduceRequest, data, 9)
    assert caught.value.path == "topic_data[1].name"
    assert caught.value.offset == data.index(b"\xff")


def test_null_where_it_is_not_allowed_is_refused() -> None:
    with pytest.raises(BadLength, match="null") as caught:
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)
    assert (caught.value.path, caught.value.offset) == ("topics", 0)


def test_negative_length_is_refused() -> None:
    with pytest.raises(BadLength, match="length -2 is negative"):
        decode(JoinGroupRequest, b"\xff\xfe" + bytes(40), 0)


def test_string_beyond_32767_bytes_is_refused() -> None:
    longest = encode(HeartbeatRequest(group_id="x" * 32767), 4)
    assert longest.startswith(b"\x80\x80\x02x")
    with pytest.raises(BadLength, match="string of 32768 bytes"):
        decode(HeartbeatRequest, b"\x81\x80\x02x" + longest[3:], 4)


def test_marker_of_a_nullable_struct_is_1_or_minus_1() -> None:
    data = encode(DescribeTopicPartitionsRequest(), 0)
    assert data.endswith(b"\xff\x00")
    with pytest.raises(BadLength, match="0 is neither") as caught:
        decode(DescribeTopicPartitionsRequest, data[:-2] + b"\x00\x00", 0)
    assert caught.value.path == "cursor"


@pytest.mark.parametrize(
    ("marker", "follows"),
    [(0x80, False), (0xBF, False), (0xFF, False), (0, True), (1, True), (0x7F, True)],
)
def test_marker_of_a_struct_in_a_request_says_by_its_sign_if_it_is_null(
    marker: int, follows: bool
) -> None:
    """Apache Kafka 4.3.0 reads DescribeTopicPartitionsRequestData.cursor so."""
    data = encode(DescribeTopicPartitionsRequest(), 0)
    cursor = b"\x02t\0\0\0\x07\0" if follows else b""
    read = in_steps(DescribeTopicPartitionsRequest, data[:-2] + bytes([marker]) + cursor + b"\0", 0)
    assert isinstance(read, DescribeTopicPartitionsRequest)
    assert (read.cursor is not None) is follows


def test_prefix_that_ends_within_its_last_field_is_refused() -> None:
    with pytest.raises(Truncated):
        decode_prefix(RequestHeader, b"\0\0\0\0\0\0\0\0\0\x05clie", 1)


def test_string_that_is_not_utf8_is_replaced_in_what_a_broker_is_sent() -> None:
    """As Java reads it; a client's answers are decoded strictly."""
    data = encode(HeartbeatRequest(group_id="grouq", generation_id=1, member_id="m"), 0)
    bad = data.replace(b"q", b"\xf0")
    message, end = decode_prefix(HeartbeatRequest, bad, 0)
    assert (message.group_id, message.generation_id, end) == ("grou\ufffd", 1, len(bad))
    with pytest.raises(BadUtf8):
        decode(HeartbeatRequest, bad, 0)


def test_length_below_minus_1_is_null_where_null_is_allowed_in_what_a_broker_is_sent() -> None:
    data = encode(MetadataRequest(topics=None), 1)
    bad = data.replace(b"\xff\xff\xff\xff", b"\xff\xff\xff\xf0")
    assert decode_prefix(MetadataRequest, bad, 1)[0].topics is None
    with pytest.raises(BadLength, match="negative"):
        decode(MetadataRequest, bad, 1)
    with pytest.raises(BadLength, match="negative"):  # a group id is never null
        decode_prefix(HeartbeatRequest, b"\xff\xf0", 0)


def test_varint_without_end_is_refused() -> None:
    with pytest.raises(BadLength, match="does not end"):
        decode(MetadataRequest, b"\xff" * 64, 9)


def test_tag_of_another_version_is_refused() -> None:
    # Tag 1 of FetchRequest is replica_state, which v14 does not have.
    data = encode(FetchRequest(), 14)
    assert data[-1] == 0
    with pytest.raises(BadTag, match="replica_state"):
        decode(FetchRequest, data[:-1] + b"\x01\x01\x00", 14)


def test_tag_that_does_not_fill_its_size_is_refused() -> None:
    data = encode(FetchRequest(), 15)
    honest = b"\x01\x01\x0d" + bytes(13)
    assert decode(FetchRequest, data[:-1] + honest, 15).replica_state is not None
    with pytest.raises(BadTag, match="leaves 1 bytes"):
        decode(FetchRequest, data[:-1] + b"\x01\x01\x0e" + bytes(14), 15)
    with pytest.raises(WireError):
        decode(FetchRequest, data[:-1] + b"\x01\x01\x0c" + bytes(13), 15)


def test_unknown_version_is_refused() -> None:
    with pytest.raises(BadVersion, match="has versions 0-13"):
        decode(MetadataResponse, b"", 14)
    with pytest.raises(BadVersion):
        encode(MetadataRequest(topics=[MetadataRequestTopic()]), -1)


def test_nested_tagged_sections_end_with_their_tag() -> None:
    # A tagged section inside a tag must not reach beyond that tag's size.
    data = encode(FetchRequest(), 15)
    inner = bytes(12) + b"\x01\x09\x7f"
    with pytest.raises(WireError):
        decode(FetchRequest, data[:-1] + b"\x01\x01" + bytes([len(inner)]) + inner + b"x" * 127, 15)


def test_string_that_is_too_long_once_its_bytes_are_replaced_is_refused() -> None:
    data = encode(DeleteGroupsRequest(groups_names=["a" * 32767]), 1)
    cut = data.replace(b"aa", b"\xff\xff")
    with pytest.raises(BadLength, match=r"string of 32767 bytes, more when"):
        decode_prefix(DeleteGroupsRequest, cut, 1)
    with pytest.raises(BadLength, match=r"string of 32767 bytes, more when"):
        exhaust(decode_steps(DeleteGroupsRequest, cut, 1))


@pytest.mark.parametrize("size", [0, 7, 9, 200])
def test_size_of_a_known_tagged_field_does_not_count_in_requests(size: int) -> None:
    """Java's generated classes read the field and take no notice of the size before it."""
    request = FetchRequest(cluster_id="cluster", topics=[])
    data = encode(request, 14)
    tagged = b"\x01\x00\x08\x08cluster"
    assert data.endswith(tagged)
    damaged = data[: -len(tagged)] + b"\x01\x00" + uvarint(size) + b"\x08cluster"
    assert decode_prefix(FetchRequest, damaged, 14) == (request, len(damaged))
    with pytest.raises(WireError):
        decode(FetchRequest, damaged, 14)
