"""The records of share groups; bytes of Apache Kafka 4.3.0 are compared in tests/e2e/differential.

GroupCoordinatorRecordHelpersTest; ShareGroupMemberTest: testUpdateWithShareGroupMemberMetadataValue.
"""

from __future__ import annotations

import pytest

from server.coordinator.group.modern.members import MemberState
from server.coordinator.group.share.member import ShareGroupMember
from server.coordinator.group.share.records import (
    NamedPartitions,
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareGroupRecord,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitions,
    StatePartitionsRecord,
)
from server.coordinator.group.stored import decode_record, encode_record

TOPIC = bytes(range(16))
SOME = frozenset({0, 2})

RECORDS = [
    ShareEpochRecord("g", (3, -5)),
    ShareMemberRecord(
        "g",
        "m",
        ShareGroupMember(
            "m",
            rack_id="r",
            client_id="c",
            client_host="/127.0.0.1",
            subscribed_topic_names=frozenset({"a", "b"}),
        ),
    ),
    ShareTargetEpochRecord("g", (3, 1_700_000_000_000)),
    ShareTargetRecord("g", "m", {TOPIC: SOME}),
    ShareTargetRecord("g", "m", {TOPIC: frozenset()}),
    ShareCurrentRecord("g", "m", ShareGroupMember("m", 3, 2, assigned={TOPIC: SOME})),
    StatePartitionsRecord(
        "g",
        StatePartitions(
            {TOPIC: NamedPartitions("a", SOME)}, {TOPIC: NamedPartitions("a", SOME)}, {TOPIC: "a"}
        ),
    ),
    StatePartitionsRecord("g", StatePartitions()),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_record_is_read_as_it_was_written(record: ShareGroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record
    gone = record._replace(value=None)
    key, value = encode_record(gone)
    assert value is None
    assert decode_record(key, None) == gone


def test_keys_are_those_of_apache_kafka() -> None:
    key, value = encode_record(StatePartitionsRecord("g", StatePartitions()))
    assert key == b"\0\x0f\0\x01g"
    assert value == b"\0\0\x01\x01\x01\0"
    assert encode_record(ShareEpochRecord("g", (1, 2)))[0] == b"\0\x0b\0\x01g"


def test_record_of_an_early_release_is_passed_over() -> None:
    assert decode_record(b"\0\x09\0\x01g", b"\0\0\x01\x01\0") is None


def test_state_of_a_later_release_is_unknown() -> None:
    record = ShareCurrentRecord("g", "m", ShareGroupMember("m", 1, 0, MemberState.UNKNOWN))
    assert decode_record(*encode_record(record)) == record
