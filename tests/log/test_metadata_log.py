"""Reading the log and the snapshots of a KRaft cluster's metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.records.batch import set_offset_and_epoch
from kwire.records.builder import BatchBuilder
from kwire.records.control import ControlType, control_key
from server.log.file_layer import FileLayer
from server.log.metadata_log import DIRECTORY, BadMetadataLog, MetadataLog


def data(offset: int, *values: bytes, epoch: int = 1) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(0, None, value)
    batch = bytearray(builder.build())
    set_offset_and_epoch(batch, 0, offset, epoch)
    return bytes(batch)


def control(offset: int, kind: ControlType) -> bytes:
    builder = BatchBuilder(base_offset=offset, is_control=True)
    builder.append(0, control_key(kind), b"\0\0\0")
    return builder.build()


def snapshot(*values: bytes, complete: bool = True) -> bytes:
    footer = control(len(values) + 1, ControlType.SNAPSHOT_FOOTER) if complete else b""
    return control(0, ControlType.SNAPSHOT_HEADER) + data(1, *values) + footer


def write(log_dir: Path, **files: bytes) -> None:
    """Write files of a metadata log: log_0=..., checkpoint_7=..."""
    folder = log_dir / DIRECTORY
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        kind, _, offset = name.partition("_")
        stem = f"{int(offset):020d}" + ("-0000000001" if kind == "checkpoint" else "")
        (folder / f"{stem}.{kind}").write_bytes(content)


def read(log_dir: Path) -> tuple[list[bytes], MetadataLog]:
    log = MetadataLog(FileLayer(), str(log_dir))
    return [record.value for record in log.records()], log


def test_records_of_all_segments_come_in_order_without_control_records(tmp_path: Path) -> None:
    first = control(0, ControlType.LEADER_CHANGE) + data(1, b"a", b"b")
    write(tmp_path, log_0=first, log_3=data(3, b"c", epoch=5))
    values, log = read(tmp_path)
    assert values == [b"a", b"b", b"c"]
    assert (log.end_offset, log.epoch, log.snapshot, log.torn) == (4, 5, None, None)


def test_newest_snapshot_stands_for_what_lies_before_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        checkpoint_2=snapshot(b"old"),
        checkpoint_4=snapshot(b"new", b"er"),
        log_3=data(3, b"in the snapshot") + data(4, b"after"),
    )
    values, log = read(tmp_path)
    assert values == [b"new", b"er", b"after"]
    assert log.snapshot is not None
    assert (log.snapshot.end_offset, log.end_offset) == (4, 5)


def test_batch_that_the_snapshot_has_in_part_is_read_from_there_on(tmp_path: Path) -> None:
    write(tmp_path, checkpoint_1=snapshot(b"s"), log_0=data(0, b"0", b"1", b"2"))
    assert read(tmp_path)[0] == [b"s", b"1", b"2"]


@pytest.mark.parametrize("newest", [snapshot(b"half", complete=False), snapshot(b"half")[:-9], b""])
def test_incomplete_snapshot_is_passed_over(tmp_path: Path, newest: bytes) -> None:
    write(tmp_path, checkpoint_2=newest, checkpoint_1=snapshot(b"s"), log_0=data(0, b"0", b"1"))
    values, log = read(tmp_path)
    assert values == [b"s", b"1"]
    (said,) = log.damaged
    assert f"{2:020d}-0000000001.checkpoint" in said


def test_damaged_snapshot_that_is_needed_is_refused_by_name(tmp_path: Path) -> None:
    """For every byte, unless the records are not affected."""
    whole = snapshot(b"some", b"records")
    write(tmp_path, checkpoint_2=whole, log_2=data(2, b"2"))
    wanted, _ = read(tmp_path)
    refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        write(tmp_path, checkpoint_2=bytes(damaged))
        try:
            assert read(tmp_path)[0] == wanted
        except BadMetadataLog as error:
            refused += 1
            assert "from offset 0 to 2 are missing" in str(error)
            assert f"{2:020d}-0000000001.checkpoint" in str(error)
    assert refused > len(whole) * 3 // 4


@pytest.mark.parametrize("end", [data(2, b"lost")[:-1], data(2, b"l")[:-1] + b"?", bytes(100)])
def test_torn_end_is_not_read(tmp_path: Path, end: bytes) -> None:
    write(tmp_path, log_0=data(0, b"0", b"1") + end)
    values, log = read(tmp_path)
    assert values == [b"0", b"1"]
    assert log.torn is not None


def test_damage_before_the_end_is_refused(tmp_path: Path) -> None:
    damaged = bytearray(data(0, b"0"))
    damaged[-1] ^= 1
    write(tmp_path, log_0=bytes(damaged) + data(1, b"1"))
    with pytest.raises(BadMetadataLog, match=r"0\.log is damaged at position 0"):
        read(tmp_path)


def test_torn_segment_that_is_not_the_last_is_refused(tmp_path: Path) -> None:
    write(tmp_path, log_0=data(0, b"0") + data(1, b"1")[:-3], log_2=data(2, b"2"))
    with pytest.raises(BadMetadataLog, match="cut short"):
        read(tmp_path)


def test_missing_changes_are_refused(tmp_path: Path) -> None:
    write(tmp_path, log_5=data(5, b"5"))
    with pytest.raises(BadMetadataLog, match="from offset 0 to 5 are missing"):
        read(tmp_path)
    write(tmp_path, log_0=data(0, b"0"))
    with pytest.raises(BadMetadataLog, match="offset 5 follows 0"):
        read(tmp_path)


def test_directory_without_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadMetadataLog, match=r"metadata\.log\.dir"):
        read(tmp_path)
