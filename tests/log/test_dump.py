"""The output of `kwire dump-log`, which continues after damage."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest

from server.log.dump import UnknownFile, dump_file
from tests.support.kafka import KAFKA_3, java_command

from .logs import NOW, append, batch, config, end_transaction, open_log
from .test_append import lying_batch


def dump(path: Path, *, deep: bool = True) -> str:
    """The text printed for a file."""
    out = io.StringIO()
    dump_file(str(path), deep, out)
    return out.getvalue()


def fill(folder: Path) -> Path:
    """Create a closed log with all kinds of batches; return its directory."""
    log = open_log(folder, config(index_interval_bytes=10, segment_bytes=900))
    append(log, batch(b"a", b"b"), epoch=2)
    for codec in range(1, 5):
        append(log, batch(b"packed" * 20, b"x", codec=codec, timestamp=NOW + codec), epoch=2)
    for n in range(3):
        append(log, batch(b"t", pid=4, sequence=n, transactional=True), epoch=3)
        end_transaction(log, 4, commit=n == 1, epoch=3)
    append(log, batch(b"open", pid=5, sequence=7, transactional=True), epoch=3)
    log.close()
    return folder / "topic-0"


def test_segment_shows_batches_and_with_deep_their_records(tmp_path: Path) -> None:
    path = fill(tmp_path) / f"{0:020d}.log"
    shallow = dump(path, deep=False).splitlines()
    assert shallow[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert shallow[2].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
        "producerEpoch: -1 partitionLeaderEpoch: 2 isTransactional: false isControl: false "
        f"deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: {NOW + 1} size: "
    )
    assert all(line.endswith("isvalid: true") for line in shallow[2:])
    deep = dump(path).splitlines()
    assert (
        f"| offset: 1 CreateTime: {NOW + 1} keySize: 1 valueSize: 1 sequence: -1 headerKeys: [] "
        "key: k payload: b"
    ) in deep
    assert any("endTxnMarker: ABORT coordinatorEpoch: 0" in line for line in deep)


def test_damage_is_reported_and_the_rest_is_shown(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, lying_batch())
    append(log, batch(b"good"))
    append(log, batch(b"bad crc"))
    log.close()
    path = tmp_path / "topic-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data + b"torn tail")
    text = dump(path)
    assert "the batch's records cannot be read" in text
    assert "payload: good" in text
    assert text.count("isvalid: false") == 1
    assert f"Found 9 invalid bytes at the end of {path.name}" in text


def test_what_strangers_wrote_does_not_steer_the_terminal(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"\x1b[2Jred\x07\xff\xc3\xa9"))
    log.close()
    text = dump(tmp_path / "topic-0" / f"{0:020d}.log")
    assert "\x1b" not in text
    assert "payload: \\x1b[2Jred\\x07\\xffé" in text


def test_other_files_show_their_entries(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    assert "offset: 3 position: " in dump(folder / f"{0:020d}.index")
    assert f"timestamp: {NOW + 2} offset: 3" in dump(folder / f"{0:020d}.timeindex")
    texts = [dump(path) for path in sorted(folder.glob("*.txnindex"))]
    assert "producerId: 4 firstOffset: 10 lastOffset: 11 lastStableOffset: 12" in "".join(texts)
    snapshot = dump(max(folder.glob("*.snapshot")))
    assert "producerId: 5 producerEpoch: 0 coordinatorEpoch: -1" in snapshot
    assert "currentTxnFirstOffset: OptionalLong[16]" in snapshot
    assert dump(folder / "leader-epoch-checkpoint").endswith(
        "epoch: 2 startOffset: 0\nepoch: 3 startOffset: 10\n"
    )
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 5 77\n")
    assert dump(checkpoint).endswith("topic: t partition: 5 offset: 77\n")


def test_damaged_and_preallocated_files_are_told(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.index").write_bytes(bytes(80))
    assert "10 entries are preallocated" in dump(tmp_path / f"{0:020d}.index")
    (tmp_path / f"{0:020d}.timeindex").write_bytes(b"\0\0\0\0\0\0\0\x05\0\0\0\x01" + bytes(17))
    assert dump(tmp_path / f"{0:020d}.timeindex").endswith(
        "timestamp: 5 offset: 1\n1 entries are preallocated\n"
        "Found 5 bytes of an incomplete entry at the end\n"
    )
    for name in (f"{5:020d}.snapshot", f"{5:020d}.txnindex", "leader-epoch-checkpoint"):
        (tmp_path / name).write_bytes(b"not so")
        assert "is damaged: " in dump(tmp_path / name)


def test_other_names_are_refused(tmp_path: Path) -> None:
    for name in ("readme.txt", "x.log", "meta.properties"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(UnknownFile, match=name):
            dump_file(str(tmp_path / name), False, io.StringIO())


@pytest.mark.jvm
def test_apache_kafka_reads_our_files_and_says_the_same(tmp_path: Path) -> None:
    """kafka-dump-log finds nothing wrong and prints the same, line by line."""
    folder = fill(tmp_path)
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".log", ".index"))
    paths += sorted(path for path in folder.iterdir() if path.suffix in (".timeindex", ".txnindex"))
    paths += sorted(folder.glob("*.snapshot"))
    command = [*java_command(KAFKA_3), "kafka.tools.DumpLogSegments", "--files"]
    for option in (["--deep-iteration", "--print-data-log"], []):
        run = subprocess.run(
            [*command, ",".join(map(str, paths)), *option],
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        ours = "".join(dump(path, deep=bool(option)) for path in paths)
        assert run.stdout == ours
    verify = subprocess.run(
        [*command, ",".join(map(str, paths)), "--verify-index-only"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert "mismatch" not in verify.stdout.lower() + verify.stderr.lower()
