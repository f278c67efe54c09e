"""The requests of `kwire produce`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kwire.records.record import write_record
from server.__main__ import main
from server.cli.produce import values_of, whole_lines
from server.client.batches import encode_values, murmur2, partition_of


def test_values_are_encoded_as_one_by_one() -> None:
    values = [b"", b"a", b"b" * 63, b"c" * 64, b"d" * 8190, b"e" * 16380, b"f" * 20_000]
    values += [b"%d" % number for number in range(20_000)]
    expected = [write_record(at, 0, None, value, ()) for at, value in enumerate(values)]
    assert encode_values(values) == b"".join(expected)


@pytest.mark.parametrize(
    ("key", "number"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_apache_kafkas_own_test(key: bytes, number: int) -> None:
    assert murmur2(key) == number & 0xFFFFFFFF  # UtilsTest.testMurmur2


class Pieces(io.RawIOBase):
    """A stream that returns one piece at a time."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def read(self, size: int = -1) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def test_pieces_end_with_lines() -> None:
    found = list(whole_lines(Pieces(b"a\nb", b"c", b"d\ne\n", b"f"), lambda: None))
    assert found == [b"a\n", b"bcd\ne\n", b"f"]


def test_ends_of_lines_are_no_part_of_values() -> None:
    assert values_of(b"a\n\r\nb\r\n c \n") == [b"a", b"", b"b", b" c "]
    assert values_of(b"last") == [b"last"]


def produce(kafka: Any, tmp_path: Path, text: bytes, *words: str) -> int:
    path = tmp_path / "lines"
    path.write_bytes(text)
    return main(["produce", "--bootstrap", kafka.bootstrap_servers, *words, str(path)])


def test_lines_reach_every_partition_once(kafka: Any, tmp_path: Path) -> None:
    kafka.topic("t", partitions=3)
    lines = [b"line %d" % number for number in range(100_000)]
    text = b"\n".join(lines)
    assert produce(kafka, tmp_path, text, "t", "-z", "lz4") == 0
    found = [[r.value for r in kafka.consume("t", partition=number)] for number in range(3)]
    assert sorted(value for part in found for value in part) == sorted(lines)
    assert all(found)


def test_keys_go_where_other_clients_send_them(kafka: Any, tmp_path: Path) -> None:
    kafka.topic("t", partitions=7)
    other = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    keys = [b"key %d" % number for number in range(50)]
    for key in keys:
        other.produce("t", b"other", key)
    other.flush()
    assert produce(kafka, tmp_path, b"\n".join(key + b":x" for key in keys), "t", "-K", ":") == 0
    for number in range(7):
        records = kafka.consume("t", partition=number)
        mine = {record.key for record in records if record.value == b"x"}
        assert mine == {record.key for record in records if record.value == b"other"}
        assert all(partition_of(key, 7) == number for key in mine)


def test_tab_between_key_and_value_may_be_written_with_a_backslash(
    kafka: Any, tmp_path: Path
) -> None:
    kafka.topic("t")
    assert produce(kafka, tmp_path, b"k\tv", "t", "-K", r"\t") == 0
    (record,) = kafka.consume("t")
    assert (record.key, record.value) == (b"k", b"v")


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"])
@pytest.mark.parametrize("after", [False, True])
def test_batch_that_is_sent_again_is_stored_once(
    kafka: Any, tmp_path: Path, error: str, after: bool
) -> None:
    kafka.topic("t")
    with kafka.fault(api="Produce", nth=1, error=error, after_apply=after):
        assert produce(kafka, tmp_path, b"a\nb\n", "t") == 0
    assert [record.value for record in kafka.consume("t")] == [b"a", b"b"]


def test_batch_that_is_too_large_is_sent_in_halves(
    kafka: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.topic("t", configs={"max.message.bytes": 1000})
    lines = [b"%04d" % number * 10 for number in range(200)]
    assert produce(kafka, tmp_path, b"\n".join(lines), "t") == 0
    assert [record.value for record in kafka.consume("t")] == lines
    assert produce(kafka, tmp_path, b"small\n" + b"x" * 2000 + b"\n", "t") == 1
    assert capsys.readouterr().err.endswith("larger than the topic allows (max.message.bytes)\n")


def test_properties_of_kafkas_tool_are_taken(kafka: Any, tmp_path: Path) -> None:
    kafka.topic("t")
    words = ["t", "--property", "parse.key=true", "--property", "key.separator=|"]
    assert produce(kafka, tmp_path, b"k|v\nn|NULL\n", *words, "--property", "null.marker=NULL") == 0
    assert [(record.key, record.value) for record in kafka.consume("t")] == [
        (b"k", b"v"),
        (b"n", None),
    ]
    assert produce(kafka, tmp_path, b"", "t", "--property", "parse.kee=true") == 2
    assert produce(kafka, tmp_path, b"", "t", "-X", "transactional.id=a") == 2
    assert produce(kafka, tmp_path, b"x\n", "t", "--acks", "0") == 0
    words = ["t", "-X", "compression.type=zstd", "-X", "acks=1"]
    with kafka.record() as recorded:
        assert produce(kafka, tmp_path, b"x\n", *words) == 0
    assert [each.request["acks"] for each in recorded.requests("Produce")] == [1]
