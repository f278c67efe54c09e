"""Records of __cluster_metadata with their frames."""

from __future__ import annotations

import pytest

from kwire.errors import BadVersion, EncodeError, Truncated
from kwire.messages.internal.cluster_metadata import (
    NoOpRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from kwire.messages.internal.cluster_metadata_frames import (
    UnknownRecord,
    decode_frame,
    encode_frame,
)
from kwire.messages.internal.offset_commit import OffsetCommitKey

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("record", "version"),
    [
        (TopicRecord(name="t", topic_id=TOPIC_ID), 0),
        (NoOpRecord(), 0),
        (PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID, isr=[], leader=-1), 2),
    ],
)
def test_record_is_read_as_it_was_written(record: object, version: int) -> None:
    assert decode_frame(encode_frame(record, version)) == (record, version)


def test_frame_begins_with_its_version_the_key_and_the_version_of_the_record() -> None:
    frame = encode_frame(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID), 1)
    assert frame[:3] == bytes((1, 5, 1))


def test_record_of_a_later_release_is_named_by_its_number() -> None:
    with pytest.raises(UnknownRecord) as caught:
        decode_frame(bytes((1, 99, 0)))
    assert caught.value.api_key == 99


@pytest.mark.parametrize("frame", [bytes((0, 2, 0)), bytes((2, 2, 0)), bytes((1, 2, 7))])
def test_unknown_versions_are_refused(frame: bytes) -> None:
    with pytest.raises(BadVersion):
        decode_frame(frame)


def test_frame_that_is_cut_short_is_refused() -> None:
    with pytest.raises(Truncated):
        decode_frame(b"\x01")


def test_other_messages_have_no_frame() -> None:
    with pytest.raises(EncodeError):
        encode_frame(OffsetCommitKey(group="g", topic="t", partition=0), 0)
