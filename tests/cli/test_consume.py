"""The output of `kwire consume`."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kwire.records.batch import BatchBuilder, RecordBatch, iter_batches
from kwire.records.compression import Codec
from kwire.testing import Broker
from kwire.testing.client import records as kafka_records
from kwire.testing.client import topics
from server.__main__ import main
from server.cli.client import CommandError
from server.cli.consume import tell_trouble
from server.cli.printing import StandardOutput, text_of
from server.cli.record_format import formatter
from server.client.brokers import Brokers
from server.client.member import MemberRequests
from server.client.membership import GroupMembership
from server.client.reader import ReadRecords
from tests.support.batches import batch


@pytest.mark.parametrize("form", ["value", "%s|%o\n"])
def test_of_batches_only_what_was_asked_for_is_printed(form: str) -> None:
    stored = batch(0, b"a", b"b", b"c") + batch(3, b"d") + batch(4, b"e", b"f")
    batches = list(iter_batches(stored))

    def lines(begin: int, end: int, most: int | None = None) -> tuple[str, int, int]:
        printed = text_of(ReadRecords(("t", 0), begin, end, batches), formatter(form), most)
        text = "".join(line.split("|")[0] for line in printed.text.decode().splitlines())
        return text, printed.records, printed.next_offset

    assert lines(0, 6) == ("abcdef", 6, 6)
    assert lines(1, 5) == ("bcde", 4, 5)
    assert lines(0, 9) == ("abcdef", 6, 9)  # records that a consumer does not see follow
    assert lines(0, 6, 3) == ("abc", 3, 3)
    assert lines(0, 6, 4) == ("abcd", 4, 4)
    assert lines(1, 6, 1) == ("b", 1, 2)
    assert lines(0, 6, 5) == ("abcde", 5, 5)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_every_message_format_is_printed(magic: int, codec: Codec) -> None:
    builder = BatchBuilder(magic, codec, base_offset=5)
    builder.append(1, b"k", b"a")
    builder.append(1, None, None)
    batches = list(iter_batches(builder.build()))
    chunk = ReadRecords(("t", 0), 0, 7, batches)
    assert text_of(chunk, formatter("value"), None) == (b"a\n\n", 2, 7)
    assert text_of(chunk, formatter("%o%s\n"), None) == (b"5a\n6\n", 2, 7)


def test_damaged_batch_is_named() -> None:
    data = bytearray(batch(5, b"value"))
    data[-2] ^= 1
    with pytest.raises(CommandError, match=r"t-1: damaged at offset 5: .*CRC is"):
        text_of(ReadRecords(("t", 1), 5, 6, [RecordBatch(data)]), formatter("value"), None)


def test_partition_that_cannot_be_read_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    trouble = (100.0, "t-0: no leader")
    assert not tell_trouble(None, 105.0, True, False)
    assert not tell_trouble(trouble, 100.5, False, True)
    assert tell_trouble(trouble, 102.0, False, True)
    assert tell_trouble(trouble, 500.0, True, False)
    assert capsys.readouterr().err == "kwire: t-0: no leader; still trying\n"
    with pytest.raises(CommandError, match="t-0: no leader"):
        tell_trouble(trouble, 161.0, True, True)


def test_member_stays_alive_while_the_reader_of_its_output_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.cli.printing.SLOW_S", 0.001)
    source, sink = os.pipe()
    beats = []
    read = io.BytesIO()

    def slow() -> None:
        beats.append(1)
        read.write(os.read(source, 1 << 20))

    with open(sink, "wb") as stream:
        StandardOutput(stream, slow).write(bytes(range(256)) * 1000)
    read.write(os.read(source, 1 << 20))
    os.close(source)
    assert beats
    assert read.getvalue() == bytes(range(256)) * 1000


# -- on a broker


def consume(
    kafka: Broker, capfdbinary: pytest.CaptureFixture[bytes], *words: str, code: int = 0
) -> list[bytes]:
    """The printed lines."""
    capfdbinary.readouterr()
    assert main(["consume", "--bootstrap", kafka.bootstrap_servers, *words]) == code
    printed = capfdbinary.readouterr()
    return (printed.out if code == 0 else printed.err).splitlines()


def append(
    kafka: Broker, topic: str, records: Sequence[bytes], partition: int = 0, **more: Any
) -> None:
    """Write a batch."""
    builder = BatchBuilder(**more)
    for number, value in enumerate(records):
        builder.append(1000 + number, b"k", value)
    kafka_records.append(kafka.client, topic, partition, builder.build())


def test_every_codec_is_read(kafka: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    kafka.topic("t")
    for codec in Codec:
        append(kafka, "t", [codec.config_name.encode()] * 2, codec=codec)
    names = [codec.config_name.encode() for codec in Codec]
    assert consume(kafka, capfdbinary, "t", "-b", "-e") == [name for name in names for _ in "ab"]
    assert consume(kafka, capfdbinary, "t", "-o", "3", "--until", "6", "-f", r"%o%k%s\n") == [
        b"3kgzip",
        b"4ksnappy",
        b"5ksnappy",
    ]
    assert consume(kafka, capfdbinary, "t", "-o", "-3", "-n", "2") == [b"lz4", b"zstd"]
    assert consume(kafka, capfdbinary, "t", "-o", "@1001", "-n", "1", "-f", r"%o %T\n") == [
        b"1 1001"
    ]
    everything = consume(kafka, capfdbinary, "t", "-e")
    assert everything == [name for name in names for _ in "ab"]
    assert consume(kafka, capfdbinary, "t", "-e", "-o", "end") == []
    assert consume(kafka, capfdbinary, "t", "--timeout-ms", "1") == []


def test_all_partitions_are_read_in_order(
    kafka: Broker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    kafka.topic("t", partitions=3)
    for partition in (0, 1, 2):
        for number in range(0, 50, 10):
            append(kafka, "t", [b"%d" % each for each in range(number, number + 10)], partition)
    small = ("-X", "max.partition.fetch.bytes=100", "-X", "fetch.max.bytes=150")
    lines = consume(kafka, capfdbinary, "t", "-b", "-e", "-f", r"%p %s\n", *small)
    for partition in (0, 1, 2):
        found = [line.split()[1] for line in lines if line.startswith(b"%d " % partition)]
        assert found == [b"%d" % number for number in range(50)]
    assert len(consume(kafka, capfdbinary, "t", "-b", "-e", "-p", "1")) == 50


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
        ("Metadata", "LEADER_NOT_AVAILABLE"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "NOT_COORDINATOR"),
        ("JoinGroup", "UNKNOWN_MEMBER_ID"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "UNSTABLE_OFFSET_COMMIT"),
        ("OffsetCommit", "NOT_COORDINATOR"),
    ],
)
def test_error_that_passes_is_waited_for(
    kafka: Broker, capfdbinary: pytest.CaptureFixture[bytes], api: str, error: str
) -> None:
    kafka.topic("t")
    append(kafka, "t", [b"a", b"b"])
    with kafka.fault(api=api, nth=1, error=error):
        assert consume(kafka, capfdbinary, "t", "-b", "-e", "-g", "g") == [b"a", b"b"]
    assert kafka.committed("g", "t") == 2


def test_connection_that_breaks_is_made_again(
    kafka: Broker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    kafka.topic("t")
    append(kafka, "t", [b"a", b"b"])
    for api in ("Fetch", "ListOffsets", "OffsetCommit"):
        with kafka.fault(api=api, nth=1, close=True):
            assert consume(kafka, capfdbinary, "t", "-b", "-e", "-g", api) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("api", "error", "said"),
    [
        ("Fetch", "TOPIC_AUTHORIZATION_FAILED", b"kwire: t-0: not authorized to access this topic"),
        (
            "ListOffsets",
            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
            b"kwire: t-0: unsupported for message format",
        ),
        (
            "Metadata",
            "TOPIC_AUTHORIZATION_FAILED",
            b"kwire: t: not authorized to access this topic",
        ),
    ],
)
def test_error_that_stays_is_one_line(
    kafka: Broker, capfdbinary: pytest.CaptureFixture[bytes], api: str, error: str, said: bytes
) -> None:
    kafka.topic("t")
    with kafka.fault(api=api, error=error):
        assert consume(kafka, capfdbinary, "t", "-b", "-n", "1", code=1) == [said]


def test_topic_that_does_not_exist_is_not_waited_for(
    kafka: Broker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    said = b"kwire: nosuch: no such topic, or not authorized to see it"
    assert consume(kafka, capfdbinary, "nosuch", code=1) == [said]
    assert consume(kafka, capfdbinary, "nosuch", "-g", "g", code=1) == [said]
    assert topics.names(kafka.client) == []
    kafka.topic("t", partitions=2)
    said = b"kwire: t: no partition 5; its partitions are 0 to 1"
    assert consume(kafka, capfdbinary, "t", "-p", "5", code=1) == [said]


def test_group_goes_on_where_it_was(
    kafka: Broker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    kafka.topic("t")
    append(kafka, "t", [b"a", b"b", b"c"])
    assert consume(kafka, capfdbinary, "t", "-b", "-g", "g", "-n", "2") == [b"a", b"b"]
    assert kafka.committed("g", "t") == 2
    assert kafka.group("g").state == "Empty"
    assert consume(kafka, capfdbinary, "t", "-X", "group.id=g", "-e") == [b"c"]
    latest = "auto.offset.reset=latest"
    assert consume(kafka, capfdbinary, "t", "-g", "other", "-e", "-X", latest) == []
    assert consume(kafka, capfdbinary, "t", "-g", "third", "-e") == [b"a", b"b", b"c"]


def test_members_share_the_partitions_until_they_leave(kafka: Broker) -> None:
    kafka.topic("t", partitions=5)
    brokers = [Brokers(kafka.bootstrap_servers, {}) for _ in range(2)]
    first, second = (
        GroupMembership(each, MemberRequests("g", ["t"]), heartbeat_ms=1) for each in brokers
    )
    everything = [("t", number) for number in range(5)]
    assert first.join() == (everything, {})
    first.commit({("t", 0): 7})
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(second.join)
        while first.is_in:
            first.keep_alive()
        some, offsets = first.join()
        others, other_offsets = joining.result(10)
    assert (some + others if some[0] == everything[0] else others + some) == everything
    assert offsets | other_offsets == {("t", 0): 7}
    second.commit({others[0]: 9})
    second.leave()
    while first.is_in:
        first.keep_alive()
    assert first.join() == (everything, {("t", 0): 7, others[0]: 9})
    first.leave()
    assert kafka.group("g").state == "Empty"
    for each in brokers:
        each.close()


def test_records_deleted_before_they_are_read_are_told(
    kafka: Broker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from kwire.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    kafka.topic("t")
    append(kafka, "t", [b"a", b"b", b"c"])
    assert consume(kafka, capfdbinary, "t", "-b", "-g", "g", "-n", "1") == [b"a"]
    row = DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsTopic(name="t", partitions=[row])
    kafka.client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2)
    assert main(["consume", "--bootstrap", kafka.bootstrap_servers, "t", "-g", "g", "-e"]) == 0
    printed = capfdbinary.readouterr()
    assert printed.out == b"c\n"
    assert printed.err == b"kwire: t-0: offsets 1 to 1 were deleted; continuing at 2\n"
