"""Opening after a crash: for every cut, the log contains a prefix of the appended records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from server.log.file_layer import FileLayer
from server.log.log import Log
from server.log.log_config import LogConfig
from server.log.recovery.loader import finish_file_operations, load_log

from ..logs import NOW, append, batch, config, end_transaction, open_log, read_batches, values

SETTINGS = config(segment_bytes=350, index_interval_bytes=100)


def fill(folder: Path, settings: LogConfig = SETTINGS, count: int = 12) -> tuple[Log, list[bytes]]:
    """A log with several segments, and the value of each record."""
    log = open_log(folder, settings)
    data = []
    for n in range(count):
        data.append(b"value-%03d" % n)
        append(log, batch(data[-1], pid=3, sequence=n), epoch=n // 5)
    return log, data


def directory(folder: Path) -> Path:
    """The partition's directory."""
    return folder / "topic-0"


def files(folder: Path) -> dict[str, bytes]:
    """The files in the partition's directory."""
    return {path.name: path.read_bytes() for path in sorted(directory(folder).iterdir())}


def test_cut_at_every_byte_leaves_the_whole_batches_before_it(tmp_path: Path) -> None:
    log, data = fill(tmp_path)
    last = log.active_segment
    path = Path(last.log.path)
    content = path.read_bytes()
    ends = [each.header.next_offset for each in read_batches(log, last.base_offset)]
    sizes = [each.header.size for each in read_batches(log, last.base_offset)]
    assert len(sizes) >= 2
    original = tmp_path / "original"
    shutil.copytree(directory(tmp_path), original)
    start_of_last = len(content) - sizes[-1]
    for cut in [*range(0, start_of_last, 9), *range(start_of_last - 1, len(content))]:
        shutil.rmtree(directory(tmp_path))
        shutil.copytree(original, directory(tmp_path))
        path.write_bytes(content[:cut])
        whole = sum(1 for n in range(len(sizes)) if sum(sizes[: n + 1]) <= cut)
        end = ends[whole - 1] if whole else last.base_offset
        reopened = open_log(tmp_path, SETTINGS)
        assert reopened.log_end_offset == end, cut
        assert path.stat().st_size == sum(sizes[:whole])
        assert values(reopened) == data[:end]
        # and it can be used: the producer's next record follows the last one that is left
        append(reopened, batch(b"next", pid=3, sequence=end), epoch=7)
        assert values(reopened) == [*data[:end], b"next"]


def test_file_that_lost_its_end_after_a_clean_stop_is_cut_before_more_is_written(
    tmp_path: Path,
) -> None:
    log, data = fill(tmp_path, count=7)
    last = log.active_segment
    ends = [
        last.base_offset,
        *(each.header.next_offset for each in read_batches(log, last.base_offset)),
    ]
    log.close()
    path = Path(last.log.path)
    content = path.read_bytes()
    size = len(content) // (len(ends) - 1)
    original = tmp_path / "original"
    shutil.copytree(directory(tmp_path), original)
    for cut in {*range(0, len(content), 7), *range(0, len(content), size)}:
        shutil.rmtree(directory(tmp_path))
        shutil.copytree(original, directory(tmp_path))
        path.write_bytes(content[:cut])
        end = ends[cut // size]
        reopened = open_log(tmp_path, SETTINGS, clean=True, recovery_point=len(data))
        assert reopened.log_end_offset == end, cut
        append(reopened, batch(b"next"), epoch=7)
        reopened.close()
        again = open_log(tmp_path, SETTINGS, clean=True, recovery_point=end + 1)
        assert values(again) == [*data[:end], b"next"], cut
        again.close()
        positions = path.with_suffix(".index").read_bytes()
        times = path.with_suffix(".timeindex").read_bytes()
        assert int.from_bytes(positions[-4:], "big") < path.stat().st_size, cut
        assert int.from_bytes(times[-4:], "big") <= end - last.base_offset, cut


def test_every_damaged_byte_of_the_last_batch_cuts_it_off(tmp_path: Path) -> None:
    log, data = fill(tmp_path, config(), count=4)
    path = Path(log.active_segment.log.path)
    content = path.read_bytes()
    start = len(content) - read_batches(log)[-1].header.size
    harmless = set(range(start, start + 8)) | set(range(start + 12, start + 16))
    for at in range(start, len(content)):
        if at in harmless:  # base offset and leader epoch are outside the CRC
            continue
        bad = bytearray(content)
        bad[at] ^= 0x41
        path.write_bytes(bad)
        assert values(open_log(tmp_path)) == data[:-1], at - start


def test_damage_in_an_earlier_segment_ends_the_log_there(tmp_path: Path) -> None:
    log, data = fill(tmp_path)
    assert len(log.segments) >= 3
    middle = log.segments[1]
    path = Path(middle.log.path)
    bad = bytearray(path.read_bytes())
    bad[-1] ^= 1
    path.write_bytes(bad)
    reopened = open_log(tmp_path, SETTINGS)
    assert reopened.log_end_offset == log.segments[2].base_offset - 1
    assert values(reopened) == data[: reopened.log_end_offset]
    names = {name.partition(".")[0] for name in files(tmp_path) if name.endswith(".log")}
    assert len(names) == 2
    assert reopened.leader_epoch_cache.entries()[-1][1] < reopened.log_end_offset


@pytest.mark.parametrize("garbage", [b"\0" * 4096, b"\xff" * 100, b"garbage" * 30])
def test_garbage_after_the_last_batch_is_cut_off(tmp_path: Path, garbage: bytes) -> None:
    log, data = fill(tmp_path)
    path = Path(log.active_segment.log.path)
    with path.open("ab") as file:
        file.write(garbage)
    reopened = open_log(tmp_path, SETTINGS)
    assert values(reopened) == data
    assert path.stat().st_size == reopened.active_segment.size


def test_killed_process_loses_nothing_it_wrote(tmp_path: Path) -> None:
    _, data = fill(tmp_path, count=40)
    assert values(open_log(tmp_path, SETTINGS)) == data


def test_recovery_gives_the_files_of_a_clean_stop(tmp_path: Path) -> None:
    log, _ = fill(tmp_path)
    shutil.copytree(directory(tmp_path), tmp_path / "crashed" / "topic-0")
    log.close()
    clean = files(tmp_path)
    open_log(tmp_path / "crashed", SETTINGS).close()
    assert files(tmp_path / "crashed") == clean


def test_missing_short_and_odd_indexes_are_rebuilt_after_a_clean_stop(tmp_path: Path) -> None:
    log, data = fill(tmp_path)
    log.close()
    before = files(tmp_path)
    for damage in ("missing", "odd"):
        for path in [
            *directory(tmp_path).glob("*.index"),
            *directory(tmp_path).glob("*.timeindex"),
        ]:
            if damage == "missing":
                path.unlink()
            else:
                path.write_bytes(path.read_bytes() + b"x")
        reopened = open_log(tmp_path, SETTINGS, clean=True)
        assert values(reopened) == data
        reopened.close()
        assert files(tmp_path) == before


def test_index_that_points_into_a_batch_is_rebuilt(tmp_path: Path) -> None:
    log, data = fill(tmp_path, config(index_interval_bytes=50), count=6)
    log.close()
    path = directory(tmp_path) / f"{0:020d}.index"
    entries = bytearray(path.read_bytes())
    entries[-1] += 3
    path.write_bytes(entries)
    reopened = open_log(tmp_path, config(index_interval_bytes=50), clean=True)
    assert reopened.log_end_offset == 6
    assert values(reopened) == data


def test_only_segments_above_the_recovery_point_are_read(tmp_path: Path) -> None:
    reads = []

    class Watching(FileLayer):
        def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
            data = super().pread(fd, size, position)
            reads.append(len(data))
            return data

    log, data = fill(tmp_path, count=200)
    log.flush(NOW)
    point = log.recovery_point
    assert point == 200
    append(log, batch(b"after", pid=3, sequence=200), epoch=40)
    layer = Watching()
    loaded = load_log(
        layer,
        str(directory(tmp_path)),
        SETTINGS,
        clean=False,
        log_start_offset=0,
        recovery_point=point,
        now_ms=NOW,
    )
    assert loaded.recovered_segments <= 2  # the segment that ends there may have been sealed since
    assert sum(reads) < log.size_bytes / 5
    assert values(open_log(tmp_path, SETTINGS, recovery_point=point)) == [*data, b"after"]


def test_clean_start_reads_no_batches_but_the_last_ones(tmp_path: Path) -> None:
    log, _ = fill(tmp_path, count=300)
    log.close()
    reads = []

    class Watching(FileLayer):
        def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
            data = super().pread(fd, size, position)
            reads.append(len(data))
            return data

    reopened = open_log(tmp_path, SETTINGS, clean=True, layer=Watching())
    assert reopened.log_end_offset == 300
    assert len(reads) < 16
    assert sum(reads) < 4000
    assert all(segment.log.opened is None for segment in reopened.segments)


def test_stale_snapshots_are_removed_and_the_newest_kept(tmp_path: Path) -> None:
    log, _ = fill(tmp_path)
    log.close()
    bases = {segment.base_offset for segment in log.segments}
    for offset in (1, log.log_end_offset + 5):
        (directory(tmp_path) / f"{offset:020d}.snapshot").write_bytes(b"stale")
    reopened = open_log(tmp_path, SETTINGS, clean=True)
    names = {int(n[:20]) for n in files(tmp_path) if n.endswith(".snapshot")}
    assert names == (bases - {0}) | {12}
    assert sorted(reopened.snapshots.offsets) == sorted(names)
    assert reopened.producers.producers[3].last_sequence == 11


def test_log_start_beyond_the_end_starts_an_empty_log_there(tmp_path: Path) -> None:
    fill(tmp_path)
    log = open_log(tmp_path, SETTINGS, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert [name for name in files(tmp_path) if name.endswith(".log")] == [f"{100:020d}.log"]
    append(log, batch(b"x"))
    assert values(log) == [b"x"]


def test_empty_directory_is_an_empty_log_at_the_checkpointed_start(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)


def test_epochs_beyond_the_recovered_end_are_dropped(tmp_path: Path) -> None:
    fill(tmp_path)
    path = directory(tmp_path) / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n4\n0 0\n1 5\n2 10\n9 12\n")
    assert open_log(tmp_path, SETTINGS).leader_epoch_cache.entries() == [(0, 0), (1, 5), (2, 10)]


def test_lost_epoch_file_is_rebuilt_from_the_batches(tmp_path: Path) -> None:
    fill(tmp_path)[0].leader_epoch_cache.save()
    (directory(tmp_path) / "leader-epoch-checkpoint").unlink()
    assert open_log(tmp_path, SETTINGS).leader_epoch_cache.entries() == [(0, 0), (1, 5), (2, 10)]


@pytest.mark.parametrize("clean", [True, False])
def test_damaged_epoch_file_is_rebuilt_from_the_batches(tmp_path: Path, clean: bool) -> None:
    fill(tmp_path)[0].close()
    (directory(tmp_path) / "leader-epoch-checkpoint").write_bytes(b"0\n9\n1 1\n")
    reopened = open_log(tmp_path, SETTINGS, clean=clean, recovery_point=12)
    assert reopened.leader_epoch_cache.entries() == [(0, 0), (1, 5), (2, 10)]


def test_bit_rot_below_the_recovery_point_does_not_stop_the_start(tmp_path: Path) -> None:
    log, _ = fill(tmp_path)
    log.close()
    for path in directory(tmp_path).glob("*.snapshot"):
        path.unlink()
    path = Path(log.segments[0].log.path)
    bad = bytearray(path.read_bytes())
    bad[78 + 16] = 9  # magic of the second batch
    path.write_bytes(bad)
    reopened = open_log(tmp_path, SETTINGS, clean=True)
    assert reopened.log_end_offset == 12
    for offset in range(12):
        for max_bytes in (1, 100, 1 << 20):
            reopened.read(offset, max_bytes, 12)  # returns without an error


def test_open_transaction_is_open_after_recovery(tmp_path: Path) -> None:
    log = open_log(tmp_path, SETTINGS)
    append(log, batch(b"a", pid=3, sequence=0, transactional=True))
    append(log, batch(b"b", pid=4, sequence=0, transactional=True))
    end_transaction(log, 3, commit=True)
    reopened = open_log(tmp_path, SETTINGS)
    assert reopened.last_stable_offset == 1
    end_transaction(reopened, 4, commit=True)
    assert reopened.last_stable_offset == 4


# -- what compaction may leave behind --------------------------------------------------------------


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(name.encode())


def test_deleted_and_cleaned_files_go(tmp_path: Path) -> None:
    make(tmp_path, f"{0:020d}.log", f"{0:020d}.log.deleted", f"{5:020d}.log.cleaned")
    layer = FileLayer()
    left = finish_file_operations(layer, str(tmp_path), layer.list_directory(str(tmp_path)))
    assert set(left) == {f"{0:020d}.log"} == {path.name for path in tmp_path.iterdir()}


def test_swap_beside_a_cleaned_file_is_undone(tmp_path: Path) -> None:
    make(tmp_path, f"{0:020d}.log", f"{0:020d}.log.swap", f"{0:020d}.log.cleaned")
    layer = FileLayer()
    left = finish_file_operations(layer, str(tmp_path), layer.list_directory(str(tmp_path)))
    assert set(left) == {f"{0:020d}.log"}
    assert (tmp_path / f"{0:020d}.log").read_bytes() == f"{0:020d}.log".encode()


def test_finished_swap_takes_the_place_of_its_sources(tmp_path: Path) -> None:
    log, data = fill(tmp_path)
    log.close()
    first, second, third = log.segments[:3]
    merged = Path(first.log.path).read_bytes() + Path(second.log.path).read_bytes()
    (directory(tmp_path) / f"{0:020d}.log.swap").write_bytes(merged)
    reopened = open_log(tmp_path, SETTINGS, clean=True)
    assert [segment.base_offset for segment in reopened.segments[:2]] == [0, third.base_offset]
    assert values(reopened) == data
