"""Keys and values of internal topics, with the numbers before them."""

from __future__ import annotations

import pytest

from kwire.errors import BadVersion, EncodeError, Truncated, WireError
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.internal import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    keys,
    topic_messages,
)
from kwire.messages.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from kwire.messages.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from kwire.messages.internal.transaction_log import TransactionLogKey, TransactionLogValue


def test_key_begins_with_its_type() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    data = encode_key(key)
    assert data == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    known = keys([OffsetCommitKey, GroupMetadataKey])
    assert decode_key(data, known) == key
    group = GroupMetadataKey(group="g")
    assert decode_key(encode_key(group), known) == group


def test_key_type_counts_within_its_topic() -> None:
    key = TransactionLogKey(transactional_id="tx")
    assert decode_key(encode_key(key), topic_messages("__transaction_state")) == key
    with pytest.raises(WireError):
        decode_key(encode_key(key), topic_messages("__consumer_offsets"))


def test_value_begins_with_its_version() -> None:
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9)
    for version in range(5):
        data = encode_value(value, version)
        assert data[:2] == bytes([0, version])
        assert decode_value(OffsetCommitValue, memoryview(data)) == value


def test_key_of_an_unknown_type_is_skipped() -> None:
    assert decode_key(b"\x00\x63abc", topic_messages("__consumer_offsets")) is None


def test_unknown_value_version_is_told_apart() -> None:
    with pytest.raises(BadVersion):
        decode_value(GroupMetadataValue, b"\x00\x63abc")
    with pytest.raises(BadVersion):
        decode_value(TransactionLogValue, b"\xff\xff")


def test_empty_bytes_are_refused() -> None:
    with pytest.raises(Truncated):
        decode_key(b"", keys([OffsetCommitKey]))
    with pytest.raises(Truncated):
        decode_value(GroupMetadataValue, b"\0")


def test_message_that_is_no_key_is_refused() -> None:
    with pytest.raises(EncodeError, match="not the key"):
        encode_key(HeartbeatRequest())
    with pytest.raises(EncodeError, match="not the key"):
        encode_key(GroupMetadataValue())
