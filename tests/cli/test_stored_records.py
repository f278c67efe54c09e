"""Records of the coordinators' topics, as `kwire dump-log` shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kwire.codec import encode
from kwire.messages.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kwire.messages.internal.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from kwire.messages.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from kwire.messages.internal.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from kwire.records.batch import BatchBuilder
from kwire.records.record import Record
from server.__main__ import main
from server.cli.stored_records import decoder_of

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def stored(number: int, version: int, key: object, value: object | None) -> Record:
    prefix = number.to_bytes(2, "big")
    data = None if value is None else version.to_bytes(2, "big") + encode(value, version)
    return Record(0, 0, prefix + encode(key, 0), data)


def parsed(topic: str, record: Record) -> tuple[object, object]:
    decoder = decoder_of(topic)
    assert decoder is not None
    text = decoder(record)
    assert text is not None
    key, _, value = text.removeprefix("key: ").partition(" payload: ")
    return json.loads(key), value if value == "<DELETE>" else json.loads(value)


COMMIT_KEY = OffsetCommitKey(group="g", topic="t", partition=1)


def test_committed_offset_is_shown_with_kafkas_names() -> None:
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=7)
    key, shown = parsed(OFFSETS, stored(1, 3, COMMIT_KEY, value))
    assert key == {"type": "1", "data": {"group": "g", "topic": "t", "partition": 1}}
    assert isinstance(shown, dict)
    assert shown["version"] == "3"
    assert (shown["data"]["offset"], shown["data"]["commitTimestamp"]) == (5, 7)


def test_removed_offset_is_shown_as_such() -> None:
    assert parsed(OFFSETS, stored(1, 3, COMMIT_KEY, None))[1] == "<DELETE>"


def test_subscription_and_assignment_of_members_can_be_read() -> None:
    tps = [TopicPartition(topic="t", partitions=[0, 1])]
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/1.2.3.4",
        rebalance_timeout=1,
        session_timeout=1,
        subscription=b"\0\0" + encode(ConsumerProtocolSubscription(topics=["t"]), 0),
        assignment=b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=tps), 0),
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m", members=[member]
    )
    _, shown = parsed(OFFSETS, stored(2, 3, GroupMetadataKey(group="g"), value))
    assert isinstance(shown, dict)
    (found,) = shown["data"]["members"]
    assert found["subscription"]["topics"] == ["t"]
    assert found["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [0, 1]}]
    value.protocol_type = "connect"
    _, shown = parsed(OFFSETS, stored(2, 3, GroupMetadataKey(group="g"), value))
    assert isinstance(shown, dict)
    assert isinstance(shown["data"]["members"][0]["assignment"], str)


def test_transaction_is_shown() -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=1,
        transaction_timeout_ms=1000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0])],
        transaction_last_update_timestamp_ms=2,
        transaction_start_timestamp_ms=1,
    )
    key, shown = parsed(TRANSACTIONS, stored(0, 0, TransactionLogKey(transactional_id="id"), value))
    assert key == {"type": "0", "data": {"transactionalId": "id"}}
    assert isinstance(shown, dict)
    assert shown["data"]["transactionPartitions"] == [{"topic": "t", "partitionIds": [0]}]


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\x7f\0", b"\0\x01short"])
def test_what_is_not_understood_is_left_to_others(key: bytes | None) -> None:
    decoder = decoder_of(OFFSETS)
    assert decoder is not None
    assert decoder(Record(0, 0, key, b"x")) is None
    assert decoder_of("orders") is None
    assert decoder_of(None) is None


def test_directory_is_dumped_with_all_that_is_a_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = BatchBuilder()
    record = stored(1, 3, COMMIT_KEY, OffsetCommitValue(offset=5, metadata="", commit_timestamp=7))
    builder.append(0, record.key, record.value)
    log = tmp_path / f"{OFFSETS}-3"
    log.mkdir()
    (log / "00000000000000000000.log").write_bytes(builder.build())
    (log / "00000000000000000000.index").write_bytes(b"")
    (log / "partition.metadata").write_text("version: 0\n")
    (tmp_path / "meta.properties").write_text("version=0\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n0\n")
    assert main(["dump-log", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert [line.rpartition("/")[2] for line in out.splitlines() if line.startswith("Dump")] == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "replication-offset-checkpoint",
    ]
    assert '"group":"g"' in out
    assert not err
    assert main(["dump-log", "--raw", str(log)]) == 0
    assert '"group":"g"' not in capsys.readouterr().out
    assert main(["dump-log"]) == 2
    assert main(["dump-log", str(tmp_path / "none.log")]) == 1


# -- the metadata of a KRaft cluster, beside what Apache Kafka 4.3.0's tool shows of the same files

KRAFT = Path(__file__).parents[1] / "coordination" / "kraft_4_3_0"


def comparable(line: str) -> object:
    """A line with its JSON parsed: the tool writes 5.0E9 for 5000000000.0."""
    text, brace, document = line.partition(" {")
    if "headerKeys" not in line or not brace:
        return line
    return text, json.loads("{" + document)


@pytest.mark.parametrize("shown", sorted(path.name for path in KRAFT.glob("*.txt")))
def test_metadata_is_shown_as_kafkas_tool_shows_it(
    capsys: pytest.CaptureFixture[str], shown: str
) -> None:
    path = KRAFT / "__cluster_metadata-0" / shown.removesuffix(".txt")
    assert main(["dump-log", str(path)]) == 0
    ours = capsys.readouterr().out.splitlines()
    theirs = (KRAFT / shown).read_text().splitlines()
    assert ours[0] == f"Dumping {path}"
    assert [comparable(line) for line in ours[1:]] == [comparable(line) for line in theirs]


def test_metadata_in_another_directory_is_decoded_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes((KRAFT / "__cluster_metadata-0" / path.name).read_bytes())
    assert main(["dump-log", str(path)]) == 0
    assert "TOPIC_RECORD" not in capsys.readouterr().out
    for option in ("--cluster-metadata-decoder", "--metadata"):
        assert main(["dump-log", option, str(path)]) == 0
        assert '"type":"TOPIC_RECORD","version":0,"data":{"name":"plain"' in capsys.readouterr().out


def test_what_a_directory_was_formatted_with_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in Apache Kafka 4.3.0's tool."""
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(
        (KRAFT / "__cluster_metadata-0" / f"{37:020d}-0000000001.checkpoint").read_bytes()
    )
    assert main(["dump-log", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"Dumping {path}", "KRaft bootstrap snapshot"]
    assert any('"type":"TOPIC_RECORD"' in line for line in lines)


def test_unknown_metadata_record_is_shown_as_bytes() -> None:
    decoder = decoder_of("__cluster_metadata")
    assert decoder is not None
    assert decoder(Record(0, 0, None, bytes((1, 99, 0)))) is None
    assert decoder(Record(0, 0, None, None)) is None
    assert decoder(Record(0, 0, b"\0\0\0\x63", b"\0\0")) is None
