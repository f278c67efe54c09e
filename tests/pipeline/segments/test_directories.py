"""Directories as left by brokers or by damage, read without Spark."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kwire.pipeline import segments
from kwire.pipeline.segments import plan
from kwire.pipeline.segments.damage import Damage
from kwire.pipeline.segments.errors import SegmentError
from kwire.pipeline.segments.files import found_again
from kwire.pipeline.segments.group import GroupProgress
from kwire.pipeline.segments.options import parse
from kwire.pipeline.segments.pushdown import Pushed
from kwire.pipeline.segments.source import SegmentSource
from kwire.pipeline.segments.stream import Follower
from kwire.records.compression import Codec
from server.log.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, write_offsets
from server.log.file_layer import FileLayer
from server.log.log import Log
from server.log.meta_properties import write_topic_id

from ...log.logs import NOW, TP, append, batch, config, end_transaction, open_log
from .reading import offsets, read, slices

#: Of the batches that `filled` makes.
BATCH_BYTES = 175


def checkpoint(folder: Path, name: str, offset: int) -> None:
    write_offsets(FileLayer(), f"{folder}/{name}", {TP: offset})


def filled(folder: Path, batches: int = 40, *, values: int = 3, segment_bytes: int = 1000) -> Log:
    """A log of several segments, `values` records of about 40 bytes a batch."""
    log = open_log(folder, config(segment_bytes=segment_bytes, index_interval_bytes=200))
    for number in range(batches):
        append(
            log,
            batch(
                *(b"%030d" % (number * values + n) for n in range(values)),
                timestamp=NOW + 10 * number,
            ),
        )
    log.close()
    return log


def segment_paths(folder: Path) -> list[Path]:
    return sorted((folder / str(TP)).glob("*.log"))


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(magic, codec) for magic in range(3) for codec in Codec if codec != Codec.ZSTD or magic == 2],
)
def test_every_codec_and_magic_gives_its_records(tmp_path: Path, magic: int, codec: Codec) -> None:
    folder = tmp_path / str(TP)
    folder.mkdir()
    path = folder / f"{0:020}.log"
    parts = [batch(b"a", b"b" * 500, b"", codec=codec, magic=magic, base_offset=0)]
    parts.append(batch(b"c", codec=0, magic=magic, base_offset=3))
    path.write_bytes(b"".join(parts))
    rows = read(tmp_path, "offset", "key", "value", "timestamp", "timestampType")
    assert [(row["offset"], row["value"]) for row in rows] == [
        (0, b"a"),
        (1, b"b" * 500),
        (2, b""),
        (3, b"c"),
    ]
    assert {row["key"] for row in rows} == {b"k"}
    assert {row["timestampType"] for row in rows} == {-1 if magic == 0 else 0}
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == (
        [-1] * 4 if magic == 0 else [NOW, NOW + 1, NOW + 2, NOW]
    )
    counted = read(tmp_path, "records", "firstOffset", rows="batches")
    assert sum(row["records"] for row in counted) == 4


def test_slices_together_are_every_record_once(tmp_path: Path) -> None:
    filled(tmp_path)
    whole = offsets(tmp_path)
    assert whole == list(range(120))
    for size in ("1", "300", "1000"):
        assert len(slices(tmp_path, bytesPerPartition=size)) >= len(segment_paths(tmp_path))
        assert offsets(tmp_path, bytesPerPartition=size) == whole
    assert len(slices(tmp_path, bytesPerPartition="1")) == 40


@pytest.mark.parametrize("start", [0, 1, 2, 50, 119, 120])
def test_a_range_of_offsets_begins_and_ends_within_batches(tmp_path: Path, start: int) -> None:
    filled(tmp_path)
    end = min(start + 31, 120)
    bounds = {
        "startingOffsets": f'{{"topic":{{"0":{start}}}}}',
        "endingOffsets": f'{{"topic":{{"0":{end}}}}}',
    }
    assert offsets(tmp_path, bytesPerPartition="300", **bounds) == list(range(start, end))
    # The same from batch headers alone.
    assert [row["offset"] for row in read(tmp_path, "offset", **bounds)] == list(range(start, end))
    rows = read(tmp_path, "records", "firstOffset", "lastOffset", rows="batches", **bounds)
    assert sum(row["records"] for row in rows) == end - start
    assert min((row["firstOffset"] for row in rows), default=start) == start


def test_timestamps_bound_as_the_broker_finds_offsets(tmp_path: Path) -> None:
    filled(tmp_path)
    found = offsets(tmp_path, startingTimestamp=str(NOW + 101), endingTimestamp=str(NOW + 200))
    assert found == list(range(31, 60))
    with pytest.raises(SegmentError, match="topic topic partition 0 has no record from timestamp"):
        offsets(tmp_path, startingTimestamp=str(NOW + 5000))
    assert (
        offsets(
            tmp_path,
            startingTimestamp=str(NOW + 5000),
            startingOffsetsByTimestampStrategy="latest",
        )
        == []
    )


def test_indexes_that_are_gone_or_wrong_change_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    bounds = {"startingTimestamp": str(NOW + 101), "bytesPerPartition": "300"}
    expected = offsets(tmp_path, **bounds)
    for index in (tmp_path / str(TP)).glob("*.index"):
        index.write_bytes((5).to_bytes(4, "big") + (77).to_bytes(4, "big"))
    assert offsets(tmp_path, **bounds) == expected
    for index in (tmp_path / str(TP)).glob("*index"):
        index.unlink()
    assert offsets(tmp_path, **bounds) == expected


def test_nothing_beyond_the_high_watermark_is_looked_at(tmp_path: Path) -> None:
    filled(tmp_path)
    checkpoint(tmp_path, HIGH_WATERMARK, 117)
    last = segment_paths(tmp_path)[-1]
    data = last.read_bytes()
    last.write_bytes(data[:-BATCH_BYTES] + b"\0" * BATCH_BYTES)  # an append in progress
    assert offsets(tmp_path) == list(range(117))
    checkpoint(tmp_path, LOG_START_OFFSET, 64)
    assert offsets(tmp_path) == list(range(64, 117))


def test_committed_records_that_the_newest_segment_lacks_are_missed(tmp_path: Path) -> None:
    filled(tmp_path)
    checkpoint(tmp_path, HIGH_WATERMARK, 120)
    last = segment_paths(tmp_path)[-1]
    os.truncate(last, last.stat().st_size - 10)
    with pytest.raises(SegmentError, match="topic topic partition 0"):
        offsets(tmp_path)


def test_a_torn_tail_ends_a_directory_without_checkpoints(tmp_path: Path) -> None:
    filled(tmp_path)
    last = segment_paths(tmp_path)[-1]
    whole = last.read_bytes()
    for cut in (1, 30, 70, 150):
        last.write_bytes(whole[:-cut])
        found = offsets(tmp_path)
        assert found == list(range(len(found)))
        assert len(found) in (117, 114)
    last.write_bytes(whole + b"\xff" * 100)
    assert offsets(tmp_path) == list(range(120))


def test_a_damaged_batch_fails_or_is_skipped_and_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path)
    path = segment_paths(tmp_path)[1]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    base = int(path.stem)
    with pytest.raises(SegmentError) as refused:
        offsets(tmp_path)
    assert f"offsets {base} to {base + 2} at position 0 of {path}" in str(refused.value)
    lost = range(base, base + 3)
    assert offsets(tmp_path, corrupt="skip") == [n for n in range(120) if n not in lost]
    assert f"partition 0: skipped 1 damaged batches, {BATCH_BYTES} bytes" in capfd.readouterr().err
    rows = read(tmp_path, "firstOffset", "records", "valid", "problem", rows="batches")
    (wrong,) = [row for row in rows if not row["valid"]]
    assert wrong["firstOffset"] == base and "CRC" in wrong["problem"] and wrong["records"] == 0


def test_batches_name_the_id_of_their_topic(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    write_topic_id(FileLayer(), str(tmp_path / str(TP)), bytes(range(16)))
    rows = read(tmp_path, "topic", "topicId", rows="batches")
    assert {row["topicId"] for row in rows} == {"AAECAwQFBgcICQoLDA0ODw"}


def test_a_damaged_length_loses_what_comes_before_the_next_index_entry(tmp_path: Path) -> None:
    filled(tmp_path)
    path = segment_paths(tmp_path)[1]
    data = bytearray(path.read_bytes())
    for length in (0, 5, 100, 0x7FFFFFFF):
        data[8:12] = length.to_bytes(4, "big")
        path.write_bytes(data)
        with pytest.raises(SegmentError, match=f"{path.name}"):
            offsets(tmp_path, startingOffsets='{"topic":{"0":0}}')
        found = offsets(tmp_path, corrupt="skip")
        lost = sorted(set(range(120)) - set(found))
        assert found == sorted(set(found))
        assert lost[0] == int(path.stem) and 3 <= len(lost) <= 12


#: Where a batch's base offset and last offset delta begin.
BASE_AT, DELTA_AT = 0, 23


@pytest.mark.parametrize(
    ("segment", "number", "place", "written"),
    [
        (1, 0, BASE_AT, b"\0\1"),
        (1, 1, BASE_AT, b"\0\1"),
        (1, 4, BASE_AT, b"\0\1"),
        (1, 4, BASE_AT, bytes(7) + b"\x1c"),  # one more, beyond the end of the segment
        (1, 1, BASE_AT, b"\x80"),
        (1, 1, BASE_AT, bytes(7) + b"\1"),
        (1, 0, BASE_AT, bytes(7) + b"\1"),
        (1, 1, BASE_AT, bytes(7) + b"\x13"),  # one more, as the next batch shows
        (-1, 1, BASE_AT, b"\0\1"),
        (1, 1, DELTA_AT, b"\x7f\xff\xff\xff"),
        (-1, 1, DELTA_AT, b"\0\0\1\0"),
    ],
)
def test_an_offset_that_cannot_be_right_is_damage_not_the_end(
    tmp_path: Path, segment: int, number: int, place: int, written: bytes
) -> None:
    """The CRC of a batch does not cover its base offset."""
    filled(tmp_path)
    checkpoint(tmp_path, HIGH_WATERMARK, 120)
    path = segment_paths(tmp_path)[segment]
    data = bytearray(path.read_bytes())
    at = number * BATCH_BYTES + place
    data[at : at + len(written)] = written
    path.write_bytes(data)
    with pytest.raises(SegmentError, match=f"damaged batch, .*{path.name}"):
        offsets(tmp_path)
    with pytest.raises(SegmentError, match=f"damaged batch, .*{path.name}"):
        offsets(tmp_path, bytesPerPartition="1")
    left = offsets(tmp_path, corrupt="skip")
    # What is skipped ends at the next entry of the index, and nothing is there that was not written.
    assert 120 - 12 <= len(left) == len(set(left))


def test_what_is_no_file_is_named_and_not_waited_for(tmp_path: Path) -> None:
    filled(tmp_path)
    path = segment_paths(tmp_path)[1]
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SegmentError, match=f"{path} is not a file"):
        offsets(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(SegmentError, match=f"{path} is not a file"):
        offsets(tmp_path)
    path.rmdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SegmentError, match=f"{path} is a symbolic link to a file that is gone"):
        offsets(tmp_path)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(SegmentError, match=f"{path}: Too many levels"):
        offsets(tmp_path)


def test_a_damaged_header_after_the_newest_snapshot_leaves_unknown_what_is_committed(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    path = segment_paths(tmp_path)[1]
    for snapshot in path.parent.glob("*.snapshot"):
        snapshot.unlink()
    data = bytearray(path.read_bytes())
    data[8:12] = bytes(4)
    path.write_bytes(data)
    for corrupt in ("fail", "skip"):
        with pytest.raises(SegmentError) as told:
            offsets(tmp_path, corrupt=corrupt, isolation="read_committed")
        assert f"{path}: " in str(told.value)
        assert "which transactions are open (isolation=read_uncommitted does not need this)" in str(
            told.value
        )
    assert offsets(tmp_path, corrupt="skip")


def test_isolation_hides_what_was_aborted_and_what_is_open(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=400))
    append(log, batch(b"plain", b"x" * 100))
    append(log, batch(b"aborted", pid=1, transactional=True))
    append(log, batch(b"kept", pid=2, transactional=True))
    append(log, batch(b"y" * 300))
    end_transaction(log, 1, commit=False)
    append(log, batch(b"again", pid=1, sequence=1, transactional=True))
    end_transaction(log, 2, commit=True)
    end_transaction(log, 1, commit=True)
    append(log, batch(b"open", pid=1, sequence=2, transactional=True))
    append(log, batch(b"after"))
    log.close()

    def values(**options: str) -> list[bytes]:
        return [row["value"][:7] for row in read(tmp_path, "value", **options)]

    everything = [b"plain", b"x" * 7, b"aborted", b"kept", b"y" * 7, b"again", b"open", b"after"]
    committed = [b"plain", b"x" * 7, b"kept", b"y" * 7, b"again"]
    for size in ("1", "128m"):
        assert values(bytesPerPartition=size) == everything
        assert values(bytesPerPartition=size, isolation="read_committed") == committed
    # Without snapshots the transactions are found from the start.
    for snapshot in (tmp_path / str(TP)).glob("*.snapshot"):
        snapshot.unlink()
    assert values(isolation="read_committed") == committed
    rows = read(tmp_path, "records", rows="batches", isolation="read_committed")
    assert sum(row["records"] for row in rows) == len(committed)
    rows = read(tmp_path, "control", rows="batches", includeControl="true")
    assert sum(row["control"] for row in rows) == 3


def test_files_that_vanish_are_found_again_or_missed(tmp_path: Path) -> None:
    filled(tmp_path)
    planned = slices(tmp_path)
    path = segment_paths(tmp_path)[0]
    # Compaction: another file of the same name, the records at other positions.
    data = path.read_bytes()
    path.rename(path.with_suffix(".old"))
    path.write_bytes(data)
    assert read(tmp_path, "offset", "value", cut=planned)[-1]["offset"] == 119
    # Retention has renamed it, not removed it yet.
    planned = slices(tmp_path)
    path.rename(path.with_suffix(".log.deleted"))
    assert len(read(tmp_path, "offset", "value", cut=planned)) == 120
    path.with_suffix(".log.deleted").unlink()
    with pytest.raises(SegmentError, match="topic topic partition 0, offset 0: it was deleted"):
        read(tmp_path, "offset", "value", cut=planned)
    first = int(segment_paths(tmp_path)[0].stem)
    left = read(tmp_path, "offset", "value", cut=planned, failOnDataLoss="false")
    assert [row["offset"] for row in left] == list(range(first, 120))
    with pytest.raises(SegmentError, match="begins at offset"):
        offsets(tmp_path, startingOffsets='{"topic":{"0":0}}')


def test_a_partition_that_vanishes_is_named(tmp_path: Path) -> None:
    filled(tmp_path)
    (cut, *_) = slices(tmp_path)
    (tmp_path / str(TP)).rename(tmp_path / "elsewhere")
    damage = Damage(cut, "", "fail", True)
    with pytest.raises(
        SegmentError, match="topic topic partition 0, offset 0: the partition was deleted"
    ):
        found_again(cut, damage)


def test_a_swap_that_never_ends_is_refused_not_read_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    path = segment_paths(tmp_path)[1]
    path.rename(path.with_suffix(".log.swap"))
    monkeypatch.setattr("kwire.pipeline.segments.logs._PAUSE_S", 0.0)
    with pytest.raises(SegmentError, match="partition 0: a swap of segments is not finished"):
        offsets(tmp_path)


def test_of_replicas_the_one_that_committed_most_is_read(tmp_path: Path) -> None:
    for name, batches in (("b0", 10), ("b1", 12), ("b2", 7)):
        (tmp_path / name).mkdir()
        filled(tmp_path / name, batches)
    assert len(offsets(tmp_path / "b*")) == 36
    assert len(offsets(tmp_path / "b0" / str(TP))) == 30


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("rows", "some", "rows must be records or batches, not 'some'"),
        ("colour", "red", "has no option colour"),
        ("startingOffsets", "{", "startingOffsets is not JSON"),
        (
            "startingOffsets",
            '{"other":{"0":1}}',
            "startingOffsets names other-0, which is not read",
        ),
        ("endingOffsets", '{"topic":{"0":500}}', "ends at offset 120, before endingOffsets 500"),
        ("endingOffsets", "earliest", "endingOffsets cannot be earliest"),
        ("topics", "nowhere", "there is no topic nowhere in"),
        ("subscribePattern", "(", "subscribePattern"),
        ("bytesPerPartition", "0", "bytesPerPartition must be a size such as 128m"),
        ("maxOffsetsPerTrigger", "-1", "maxOffsetsPerTrigger must be a positive number"),
        ("path", "/nowhere", "/nowhere is not a directory"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, option: str, text: str, message: str) -> None:
    filled(tmp_path)
    with pytest.raises(SegmentError) as refused:
        slices(
            tmp_path if option != "path" else Path(text),
            **{} if option == "path" else {option: text},
        )
    assert message in str(refused.value)


def test_stream_notices_a_partition_that_is_gone(tmp_path: Path) -> None:
    """Its records after the last read offset are unknown, but would be missing without notice."""
    filled(tmp_path)
    given = {"path": str(tmp_path), "subscribePattern": "t.*"}
    follower = Follower(parse(given))
    everything = follower.latest()
    assert follower.slices(follower.initial(), everything)
    shutil.rmtree(tmp_path / str(TP))
    later = follower.latest()
    assert later == everything
    with pytest.raises(SegmentError, match="is gone; its records from offset 120 on were not read"):
        follower.slices(everything, later)
    with pytest.raises(SegmentError, match="is gone; its records from offset 0 to 120 were not"):
        follower.slices({}, later)
    careless = Follower(parse({**given, "failOnDataLoss": "false"}))
    assert careless.slices(everything, later) == []


def test_stream_notices_a_topic_that_was_created_again(tmp_path: Path) -> None:
    """It has other records at the offsets that were read, and none of them would be missed."""
    filled(tmp_path, 10)
    folder = tmp_path / str(TP)
    given = {"path": str(tmp_path), "subscribe": "topic"}
    first = Follower(parse(given))
    first.latest()  # there is no id yet
    write_topic_id(FileLayer(), str(folder), bytes(range(16)))
    careless = Follower(parse({**given, "failOnDataLoss": "false"}))
    followers = [first, Follower(parse(given)), careless]
    everything = {"topic": {"0": 30}}
    assert [follower.latest() for follower in followers] == [everything] * 3
    rows = read(tmp_path, "topicId", rows="batches")
    assert {row["topicId"] for row in rows} == {"AAECAwQFBgcICQoLDA0ODw"}
    folder.rename(tmp_path / "old")  # so that the new files are other ones
    filled(tmp_path, 40)
    write_topic_id(FileLayer(), str(folder), bytes(range(16, 32)))
    for follower in followers[:2]:
        with pytest.raises(
            SegmentError,
            match=r"deleted and created again \(id AAECAwQFBgcICQoLDA0ODw before, EBESExQV",
        ):
            follower.slices(everything, everything)
    assert careless.latest() == {"topic": {"0": 120}}
    assert careless.slices(everything, careless.latest())
    rows = read(tmp_path, "topicId", rows="batches")
    assert {row["topicId"] for row in rows} == {"EBESExQVFhcYGRobHB0eHw"}


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_stream_with_an_end_is_refused(tmp_path: Path, option: str) -> None:
    filled(tmp_path)
    given = {"path": str(tmp_path), "topics": "topic", option: '{"topic":{"0":7}}'}
    source = SegmentSource(given)
    with pytest.raises(SegmentError, match="a stream has no end"):
        source.streamReader(source.schema())


@pytest.mark.parametrize("name", ["group", "maxOffsetsPerTrigger"])
def test_option_of_streams_is_refused_in_a_batch(name: str) -> None:
    options = {"path": "/data", name: "7", "kafka.bootstrap.servers": "localhost:9092"}
    source = SegmentSource(options)
    with pytest.raises(SegmentError, match="are for streams; this is a batch"):
        source.reader(source.schema())


def test_query_that_begins_behind_its_end_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    begin = {"path": str(tmp_path), "startingOffsets": '{"topic":{"0":500}}'}
    with pytest.raises(SegmentError, match="starting offset 500 is after ending offset 120"):
        plan.slices(parse(begin), Pushed())
    assert plan.slices(parse({**begin, "failOnDataLoss": "false"}), Pushed()) == []
    at_the_end = '{"topic":{"0":120}}'
    assert plan.slices(parse({**begin, "startingOffsets": at_the_end}), Pushed()) == []
    with pytest.raises(SegmentError, match="starting offset 120 is after ending offset 7"):
        ends = {"startingOffsets": at_the_end, "endingOffsets": '{"topic":{"0":7}}'}
        plan.slices(parse({**begin, **ends}), Pushed())


def test_sparks_processes_run_the_python_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(master: str, **conf: str) -> Any:
        conf_ = SimpleNamespace(contains=conf.__contains__)
        context = SimpleNamespace(master=master, getConf=lambda: conf_, pythonExec="python3")
        return SimpleNamespace(sparkContext=context)

    def chosen(spark: Any) -> str:
        segments._same_python(spark)
        found: str = spark.sparkContext.pythonExec
        return found

    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert chosen(session("local[2]")) == sys.executable
    # On other machines it may be elsewhere, and a user's choice stays.
    assert chosen(session("spark://h:7077")) == "python3"
    assert chosen(session("local[2]", **{"spark.pyspark.python": "x"})) == "python3"
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert chosen(session("local[2]")) == "python3"


def _grown(folder: Path, offset: int) -> None:
    log = open_log(folder, config(segment_bytes=2000))
    while log.log_end_offset < offset:
        append(log, batch(b"a", b"b"))
    log.close()
    write_offsets(FileLayer(), f"{folder}/{HIGH_WATERMARK}", {TP: offset})


def test_follower_admits_what_spark_asks_for_and_stops_where_it_was(tmp_path: Path) -> None:
    _grown(tmp_path, 30)
    follower = Follower(parse({"path": str(tmp_path), "subscribePattern": "t.*"}))
    start = follower.initial()
    assert start == {"topic": {"0": 0}}
    assert follower.after(start, 12) == {"topic": {"0": 12}}
    assert follower.after(start, None) == follower.newest() == {"topic": {"0": 30}}
    # Trigger.AvailableNow: later records are for the next query, as are new partitions.
    follower.stop_at_newest()
    _grown(tmp_path, 50)
    shutil.copytree(tmp_path / str(TP), tmp_path / "tail-0")
    assert follower.newest()["topic"] == {"0": 50}
    assert follower.after({"topic": {"0": 12}}, None) == {"topic": {"0": 30}}
    assert follower.after({"topic": {"0": 30}}, 5) == {"topic": {"0": 30}}
    # A query that is started again may be beyond the target already.
    assert follower.after({"topic": {"0": 40}}, None) == {"topic": {"0": 40}}
    # A stream without a target finds the new topic by its pattern.
    assert set(Follower(follower._options).after({"topic": {"0": 30}}, None)) == {"tail", "topic"}


def test_stream_commits_its_progress_to_a_group_and_goes_on_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commits: list[tuple[str, Any]] = []

    class Client:
        def __init__(self, settings: dict[str, str], group: str, logger: object) -> None:
            assert settings == {"bootstrap.servers": "h:1"}
            self.group = group

        def commit(self, offsets: Any, timeout_s: float) -> None:
            if not commits:
                commits.append((self.group, None))
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            commits.append((self.group, offsets))

        def close(self) -> None:
            commits.append(("closed", None))

    monkeypatch.setattr("kwire.pipeline.committer.OffsetCommitter", Client)
    GroupProgress(parse({"path": "p"})).commit({("topic", 0): 1})
    progress = GroupProgress(parse({"path": "p", "group": "g", "kafka.bootstrap.servers": "h:1"}))
    for end in (1, 2):
        progress.commit({("topic", 0): end})
    progress.close()
    assert commits == [("g", None), ("g", {("topic", 0): 2}), ("closed", None)]
    said = capsys.readouterr().err
    assert said.startswith("kwire-log: cannot commit offsets of group g: ")
    assert said.count("the stream continues") == 1
