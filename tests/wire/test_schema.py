"""The declaration language: ranges, constructors, comparison, defaults."""

from __future__ import annotations

import copy

import pytest

from kwire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kwire.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
)
from kwire.schema import VersionRange, field, message, schema_of, struct
from kwire.types import Array, Int16, Int32, String


@pytest.mark.parametrize("text", ["0+", "3", "3-7", "none", "0-13"])
def test_range_prints_as_it_is_written(text: str) -> None:
    assert repr(VersionRange.parse(text)) == text


def test_range_contains_both_ends() -> None:
    versions = VersionRange.parse("3-5")
    assert [version for version in range(8) if version in versions] == [3, 4, 5]
    assert not VersionRange.parse("none")


def test_constructor_takes_every_default() -> None:
    request = ProduceRequest()
    assert (request.transactional_id, request.acks, request.topic_data) == (None, 0, [])
    assert request.unknown_tags is None  # type: ignore[attr-defined]
    assert PartitionProduceResponse().log_append_time_ms == -1


def test_lists_are_not_shared_between_objects() -> None:
    MetadataResponseTopic().partitions.append(None)  # type: ignore[arg-type]
    assert MetadataResponseTopic().partitions == []


def test_constructor_refuses_positions_and_unknown_names() -> None:
    with pytest.raises(TypeError):
        ProduceRequest(1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="ack"):
        ProduceRequest(ack=1)  # type: ignore[call-arg]


def test_misspelt_attribute_is_refused() -> None:
    with pytest.raises(AttributeError):
        ProduceRequest().ack = 1  # type: ignore[attr-defined]


def test_equal_content_is_equal() -> None:
    assert ProduceRequest(acks=1) == ProduceRequest(acks=1)
    assert ProduceRequest(acks=1) != ProduceRequest(acks=0)
    assert MetadataRequest() != MetadataResponse()
    tagged = ProduceRequest()
    tagged.unknown_tags = {5: b""}  # type: ignore[attr-defined]
    assert tagged != ProduceRequest()


def test_messages_are_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(ProduceRequest())


def test_representation_can_be_read() -> None:
    assert repr(PartitionProduceData(index=3, records=b"x")) == (
        "PartitionProduceData(index=3, records=b'x')"
    )


def test_copy_is_equal_and_independent() -> None:
    request = MetadataRequest(topics=[])
    twin = copy.deepcopy(request)
    assert twin == request
    assert twin.topics is not None
    twin.topics.append(None)  # type: ignore[arg-type]
    assert request.topics == []


def test_tagged_struct_begins_as_none_and_others_as_themselves() -> None:
    @struct
    class Point:
        x: int = field(Int32)

    @message(kind="data", versions="0-1", flexible="0+")
    class Shape:
        center: Point = field(Point)
        other: Point | None = field(Point, tag=0)
        points: list[Point] = field(Array(Point))

    shape = Shape()
    assert shape.center == Point()
    assert shape.other is None
    assert PartitionProduceResponse(current_leader=LeaderIdAndEpoch()).current_leader is not None


def test_declaration_is_kept_in_wire_order() -> None:
    @message(kind="data", versions="0-2", flexible="none")
    class Sample:
        """Documented."""

        second: int = field(Int16)
        first: str = field(String, "1+")

    schema = schema_of(Sample)
    assert [each.name for each in schema.fields] == ["second", "first"]
    assert Sample.__doc__ == "Documented."
    assert Sample.__slots__ == ("second", "first")  # type: ignore[attr-defined]


def test_class_that_is_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match="not a declared message"):
        schema_of(int)
