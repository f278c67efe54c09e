"""The small files, byte by byte, and the zeros at the end of Apache Kafka's index files."""

from __future__ import annotations

import random
from bisect import bisect_right
from pathlib import Path

import pytest

from server.log.checkpoint import (
    CorruptCheckpoint,
    format_checkpoint,
    parse_checkpoint,
    read_offsets,
    write_offsets,
)
from server.log.file_layer import FileLayer
from server.log.index.offset_index import OffsetIndex
from server.log.index.time_index import TimeIndex
from server.log.leader_epoch_cache import LeaderEpochCache
from server.log.meta_properties import (
    CorruptMetaProperties,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
    read_topic_id,
    write_topic_id,
)
from server.metadata.topic_partition import TopicPartition

from .logs import append, batch, config, open_log, read_bytes, values

TOPIC_ID = bytes.fromhex("90af3dfac391 46b8adD6d516548e0e39".replace(" ", "").lower())


def test_offset_index_entry_is_last_offset_and_start_of_the_append(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(index_interval_bytes=10))
    size = len(batch(b"a", b"b"))
    for _ in range(3):
        append(log, batch(b"a", b"b"))
    log.close()
    data = (tmp_path / "topic-0" / f"{0:020d}.index").read_bytes()
    # The first append never has an entry: nothing was written before it.
    assert data.hex() == f"00000003{size:08x}00000005{2 * size:08x}"


def test_time_index_entries_grow_and_end_with_the_largest_timestamp(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(index_interval_bytes=10))
    for timestamp in (1000, 3000, 2000, 2500, 9000):
        append(log, batch(timestamp=timestamp))
    log.close()
    data = (tmp_path / "topic-0" / f"{0:020d}.timeindex").read_bytes()
    assert data.hex() == (
        f"{3000:016x}00000001"  # with the second append
        f"{9000:016x}00000004"  # with the fifth; the third and fourth had no later timestamp
    )


def test_zero_tail_of_a_preallocated_offset_index_is_not_read(tmp_path: Path) -> None:
    stem = str(tmp_path / "0")
    entries = b"".join(n.to_bytes(4, "big") + (n * 100).to_bytes(4, "big") for n in range(1, 6))
    for tail in (0, 1, 2, 1000):
        (tmp_path / "0.index").write_bytes(entries + bytes(8 * tail))
        index = OffsetIndex(FileLayer(), stem, 1000)
        assert len(index) == 5
        assert index.lookup(1003) == 300
        assert index.lookup(1 << 40) == 500
        assert index.lookup(1000) == 0
        assert index.floor_position(399) == 300
        index.load()
        assert index.entry(4) == (1005, 500)
        index.append(1006, 600)
        index.close()
        assert (tmp_path / "0.index").stat().st_size == 48
    (tmp_path / "0.index").write_bytes(bytes(800))
    assert len(OffsetIndex(FileLayer(), stem, 1000)) == 0


@pytest.mark.parametrize("sizes", [(100,), (90, 110), (10, 10, 10, 4000), (1, 2, 4, 8, 900)])
@pytest.mark.parametrize("entries", [0, 1, 7, 8, 9, 10, 300])
def test_floor_position_is_the_same_wherever_it_is_looked_for_first(
    tmp_path: Path, sizes: tuple[int, ...], entries: int
) -> None:
    draw = random.Random(entries)
    index = OffsetIndex(FileLayer(), str(tmp_path / "0"), 0, new=True)
    positions = [0]
    for number in range(1, entries + 1):
        positions.append(positions[-1] + draw.choice(sizes))
        index.append(number, positions[-1])
    size = positions[-1] + 50
    for sealed in (False, True):
        if sealed:
            index.seal()
        for position in [*positions, *(draw.randrange(size + 1) for _ in range(100))]:
            expected = positions[bisect_right(positions, position) - 1]
            assert index.floor_position(position, size) == expected
            assert index.floor_position(position) == expected


def test_a_sealed_index_of_even_entries_is_read_in_few_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = OffsetIndex(FileLayer(), str(tmp_path / "0"), 0, new=True)
    for number in range(1, 50_001):
        index.append(number, number * 16_000 + number % 7)
    index.seal()
    looked_at: list[int] = []
    raw = index.raw

    def counted(_: OffsetIndex, number: int) -> bytes | bytearray:
        looked_at.append(number)
        return raw(number)

    monkeypatch.setattr(OffsetIndex, "raw", counted)
    assert index.floor_position(40_000 * 16_000 + 20, 50_001 * 16_000) == 40_000 * 16_000 + 2
    assert len(looked_at) <= 8
    assert index.floor_position(40_000 * 16_000 + 20) == 40_000 * 16_000 + 2
    assert len(looked_at) > 20


def test_zero_tail_of_a_preallocated_time_index_is_not_read(tmp_path: Path) -> None:
    entries = b"".join((n * 10).to_bytes(8, "big") + n.to_bytes(4, "big") for n in range(1, 4))
    (tmp_path / "0.timeindex").write_bytes(entries + bytes(12 * 100))
    index = TimeIndex(FileLayer(), str(tmp_path / "0"), 50)
    assert index.last() == (30, 53)
    assert index.lookup(25) == 52
    assert index.lookup(9) == 50
    index.maybe_append(30, 60)
    index.maybe_append(31, 60)
    assert index.last() == (31, 60)


def test_log_with_preallocated_indexes_opens_after_a_crash(tmp_path: Path) -> None:
    settings = config(index_interval_bytes=100)
    log = open_log(tmp_path, settings)
    for n in range(20):
        append(log, batch(b"%d" % n))
    for suffix, size in ((".index", 10_485_760), (".timeindex", 10_485_756)):
        with (tmp_path / "topic-0" / f"{0:020d}{suffix}").open("wb") as file:
            file.truncate(size)
    reopened = open_log(tmp_path, settings)
    assert len(values(reopened)) == 20
    reopened.close()
    assert (tmp_path / "topic-0" / f"{0:020d}.index").stat().st_size < 200
    assert read_bytes(open_log(tmp_path, settings, clean=True), 19)


def test_checkpoint_round_trip(tmp_path: Path) -> None:
    layer = FileLayer()
    path = str(tmp_path / "replication-offset-checkpoint")
    offsets = {TopicPartition("a-b.c", 0): 5, TopicPartition("t", 11): 1 << 40}
    write_offsets(layer, path, offsets)
    assert Path(path).read_bytes() == b"0\n2\na-b.c 0 5\nt 11 1099511627776\n"
    assert read_offsets(layer, path) == offsets
    assert read_offsets(layer, path + ".missing") == {}
    assert format_checkpoint([]) == b"0\n0\n"
    assert [path.name for path in tmp_path.iterdir()] == ["replication-offset-checkpoint"]


def test_empty_checkpoint_has_no_entries() -> None:
    assert parse_checkpoint(b"", 3, "f") == []


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n",
        b"0\nx\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"0\n0\na 0 1\n",
        b"0\n1\na 0 9223372036854775808\n",
        b"0\n1\na " + b"9" * 5000 + b" 1\n",
        b"0\n1\na\xff 0 1\n",
    ],
)
def test_damaged_checkpoint_is_told(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        read_offsets(FileLayer(), str(path))


def test_leader_epochs_follow_kafkas_rules(tmp_path: Path) -> None:
    cache = LeaderEpochCache(FileLayer(), str(tmp_path))
    assert cache.end_offset_for(0, 100) == (-1, -1)
    cache.assign(1, 0)
    cache.assign(1, 50)  # known already
    cache.assign(3, 10)
    cache.assign(4, 20)
    cache.save()
    path = tmp_path / "leader-epoch-checkpoint"
    assert path.read_bytes() == b"0\n3\n1 0\n3 10\n4 20\n"
    assert cache.end_offset_for(4, 100) == (4, 100)
    assert cache.end_offset_for(3, 100) == (3, 20)
    assert cache.end_offset_for(2, 100) == (1, 10)
    assert cache.end_offset_for(0, 100) == (0, 0)
    assert cache.end_offset_for(9, 100) == (-1, -1)
    assert [cache.epoch_for_offset(o) for o in (0, 9, 10, 25)] == [1, 1, 3, 4]
    cache.truncate_from_start(12)
    assert cache.entries() == [(3, 12), (4, 20)]
    cache.truncate_from_end(20)
    assert cache.entries() == [(3, 12)]
    cache.assign(5, 12)  # an epoch without writes is replaced
    assert cache.entries() == [(5, 12)]
    cache.save()
    again = LeaderEpochCache(FileLayer(), str(tmp_path))
    again.load()
    assert (again.entries(), again.latest) == ([(5, 12)], 5)


def test_new_leader_epoch_is_written_when_asked_for_or_with_what_is_cut(tmp_path: Path) -> None:
    cache = LeaderEpochCache(FileLayer(), str(tmp_path))
    path = tmp_path / "leader-epoch-checkpoint"
    cache.assign(1, 0)
    assert not path.exists()
    assert cache.unsynced_path() == str(path)
    assert path.read_bytes() == b"0\n1\n1 0\n"
    assert cache.unsynced_path() is None
    cache.assign(4, 20)
    assert (cache.latest, cache.entries()) == (4, [(1, 0), (4, 20)])
    assert path.read_bytes() == b"0\n1\n1 0\n"
    cache.save()
    assert path.read_bytes() == b"0\n2\n1 0\n4 20\n"
    assert cache.unsynced_path() == str(path)  # written, but not yet on the device
    assert cache.unsynced_path() is None
    cache.assign(5, 30)
    cache.assign(6, 40)
    cache.truncate_from_end(40)
    assert path.read_bytes() == b"0\n3\n1 0\n4 20\n5 30\n"


def test_meta_properties_of_both_versions_are_read() -> None:
    zk = parse_meta_properties(b"#\n#Sat Nov 21\nbroker.id=3\nversion=0\ncluster.id=abc\n")
    assert (zk.broker_id, zk.cluster_id, zk.version) == (3, "abc", 0)
    kraft = parse_meta_properties(
        b"version=1\nnode.id=4\ncluster.id=x-_y\ndirectory.id=dir\nfuture=1\n"
    )
    assert (kraft.broker_id, kraft.directory_id, kraft.other) == (4, "dir", {"future": "1"})
    assert parse_meta_properties(format_meta_properties(kraft)) == kraft
    assert format_meta_properties(MetaProperties(7, "id")) == (
        b"version=0\nbroker.id=7\ncluster.id=id\n"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"version=0\nbroker.id=" + b"9" * 5_000 + b"\n",
        b"version=" + b"9" * 5_000 + b"\n",
        b"version=2\n",
        b"version=x\n",
        b"nonsense\n",
        b"broker.id=x\n",
    ],
)
def test_damaged_meta_properties_are_told(data: bytes) -> None:
    with pytest.raises(CorruptMetaProperties):
        parse_meta_properties(data)


def test_partition_metadata_is_kafkas_43_bytes(tmp_path: Path) -> None:
    layer = FileLayer()
    assert read_topic_id(layer, str(tmp_path)) is None
    write_topic_id(layer, str(tmp_path), TOPIC_ID)
    data = (tmp_path / "partition.metadata").read_bytes()
    assert len(data) == 43
    assert data.startswith(b"version: 0\ntopic_id: kK89-sORRritvtbVFlSODjk"[:25])
    assert read_topic_id(layer, str(tmp_path)) == TOPIC_ID
    (tmp_path / "partition.metadata").write_bytes(b"version: 0\ntopic_id: short")
    with pytest.raises(CorruptMetaProperties):
        read_topic_id(layer, str(tmp_path))
