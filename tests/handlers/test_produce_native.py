"""The native path of the plain Produce: the objects of the server that it needs, and failing writes."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from kwire.codec import encode
from kwire.errors import ErrorCode
from server.handlers.produce import produce
from server.log.file_layer import FileLayer, LogFile, OpenFile
from server.log.flush_state import FlushState
from server.log.log import Log
from server.log.log_config import LogConfig
from server.log.producer_state import ProducerStateEntry, ProducerStateManager
from server.log.reader import LogReader
from server.log.segment import LogSegment
from server.net.dispatcher import Plain
from server.replication.partition import Partition
from server.replication.purgatory import Waiters
from tests.fuzz import fuzz_native_produce
from tests.support.forms import SOURCES, form
from tests.support.replicas import NOW, Replicas, UnsyncedFiles, batch, values
from tests.support.requests import produce_request

#: The types of the variables in the native path.
CLASSES: dict[str, type] = {
    "partition": Partition,
    "log": Log,
    "segment": LogSegment,
    "file": LogFile,
    "opened": OpenFile,
    "layer": FileLayer,
    "producers": ProducerStateManager,
    "entry": ProducerStateEntry,
    "flush_state": FlushState,
    "config": LogConfig,
    "waiters": Waiters,
    "reader": LogReader,
}


def body(*rows: tuple[int, bytes], acks: int = 1) -> memoryview:
    request = produce_request(*(("a", *row) for row in rows), acks=acks)
    return memoryview(bytearray(encode(request, 11)))


def answer(room: Replicas, *rows: tuple[int, bytes], acks: int = 1) -> Any:
    assert produce.plain is not None
    return produce.plain(room.context(11), body(*rows, acks=acks), 0)


def test_native_path_uses_only_fields_that_there_are() -> None:
    source = next(each for each in SOURCES if each.name == "produce.pxi").read_text()
    used = set(re.findall(r"\b(\w+)\.(?!py\b)(\w+)", source))
    of_classes = {(name, field) for name, field in used if name in CLASSES}
    missing = [each for each in of_classes if not hasattr(CLASSES[each[0]], each[1])]
    assert missing == []
    assert len(of_classes) > 50


@pytest.mark.usefixtures("both_forms")
def test_failed_write_refuses_its_row_and_those_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Apache Kafka, the log directory is offline, and earlier appended rows are answered."""
    room = Replicas(tmp_path).start()
    try:
        room.create("a", 3)
        for number in range(3):
            room.produce("a", b"first", number=number)
        # A descriptor that is only read, as the system call itself is not replaced.
        file = room.partition("a", 1).log.active_segment.log
        opened = file.open()
        read_only = os.open(file.path, os.O_RDONLY)
        os.dup2(read_only, opened.fd)
        os.close(read_only)
        response = answer(room, (0, batch(b"x")), (1, batch(b"y")), (2, batch(b"z")))
        codes = [row.error_code for row in response.responses[0].partition_responses]
        failed = ErrorCode.KAFKA_STORAGE_ERROR
        assert codes[:2] == [0, failed]
        assert room.partition("a", 1).log.offline
        assert room.partition("a", 1).log.log_end_offset == 1
        assert codes[2] == (failed if room.partition("a", 2).log.offline else 0)
    finally:
        room.stop()


@pytest.mark.usefixtures("both_forms")
def test_file_layer_of_ones_own_makes_the_writes(tmp_path: Path) -> None:
    class Stuttering(UnsyncedFiles):
        calls = 0

        def pwrite(self, fd: int, data: Any, position: int) -> int:  # type: ignore[override]
            self.calls += 1
            return os.pwrite(fd, memoryview(data)[:50], position)

    layer = Stuttering()
    room = Replicas(tmp_path, layer=layer).start()
    try:
        room.create("a")
        room.produce("a", b"0")
        before = layer.calls
        assert type(answer(room, (0, batch(b"1")))) is Plain
        assert layer.calls > before + 1
    finally:
        room.stop()


@pytest.mark.usefixtures("both_forms")
def test_full_disk_of_a_file_layer_is_a_storage_error(tmp_path: Path) -> None:
    class Full(UnsyncedFiles):
        full = False

        def pwrite(self, fd: int, data: Any, position: int) -> int:  # type: ignore[override]
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return os.pwrite(fd, data, position)

    layer = Full()
    room = Replicas(tmp_path, layer=layer).start()
    try:
        room.create("a")
        room.produce("a", b"0")
        layer.full = True
        (row,) = answer(room, (0, batch(b"1"))).responses[0].partition_responses
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        layer.full = False
    finally:
        room.stop()


def test_fuzz_target_finds_both_forms_alike(tmp_path: Path) -> None:
    with form("native"):
        assert fuzz_native_produce.run(300, 1, tmp_path) > 30


def test_native_path_leaves_each_request_that_is_not_plain(tmp_path: Path) -> None:
    with form("native"):
        from server.handlers.produce_plain import _NATIVE_PATH as path

        room = Replicas(tmp_path).start()
        try:
            partition = room.create("a", 2)
            room.produce("a", b"0")

            def is_plain(frame: memoryview | bytes, at: int = 0, version: int = 11) -> bool:
                context = room.context(version)
                found = context.services.replica_manager.partitions
                done = path.answer(frame, at, version, found, NOW, context.services.metadata)
                return done is not None

            good = batch(b"x")
            assert is_plain(body((0, good)))
            assert not is_plain(bytes(body((0, good))))  # it cannot be stamped in place
            assert not is_plain(body((0, good)), version=8)
            assert not is_plain(body((0, good)), at=-2)
            assert not is_plain(body((0, good)), at=10_000)
            assert not is_plain(body((0, good), (0, good)))
            assert not is_plain(body((1, good)))  # the first batch of a segment
            assert not is_plain(body((0, good), acks=2))
            assert not is_plain(body((7, good)))
            for end in range(len(body((0, good)))):
                assert not is_plain(body((0, good))[:end])
            partition.is_leader = False
            assert not is_plain(body((0, good)))
            partition.is_leader = True
            partition.log.offline = True
            assert not is_plain(body((0, good)))
            partition.log.offline = False
            assert is_plain(body((0, good)))
            assert values(room.partition("a").log.read(0, 1 << 20, 3).data) == [b"0", b"x", b"x"]  # type: ignore[union-attr]
        finally:
            room.stop()
