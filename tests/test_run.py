"""The messages of a process that cannot start, and its notifications to service managers."""

from __future__ import annotations

import errno
import logging
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from server.cli.log_output import ReopenedFile
from server.config import BrokerConfig
from server.coordination.store import StoreError
from server.run import (
    free_port_after,
    notify_manager,
    reload,
    say_ready,
    trim_memory,
    what_failed,
    what_helps,
)


def config_of(tmp_path: Path, **settings: str) -> BrokerConfig:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig({"log.dirs": str(tmp_path), **names})


def test_port_in_use_comes_with_one_that_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = config_of(tmp_path, listeners=f"PLAINTEXT://localhost:{port}")
        free = free_port_after(port)
        said = what_helps(OSError(errno.EADDRINUSE, "cannot listen"), config)
    assert said == f"; port {free} is free: --listen localhost:{free}"
    assert free is not None and free > port


def test_port_for_http_in_use_comes_with_one_for_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = config_of(tmp_path, kwire_http_listener=f"localhost:{port}")
        error = OSError(errno.EADDRINUSE, f"cannot listen on 127.0.0.1:{port}: in use")
        free = free_port_after(port)
        assert what_helps(error, config) == f"; port {free} is free: --http localhost:{free}"


def test_system_errors_are_told_without_their_number() -> None:
    assert (
        what_failed(OSError(errno.EACCES, "Permission denied", "/data"))
        == "/data: Permission denied"
    )
    assert what_failed(OSError(errno.EADDRINUSE, "cannot listen")) == "cannot listen"
    assert what_failed(StoreError("damaged")) == "damaged"


def test_zookeeper_that_is_not_there_comes_with_the_way_without(tmp_path: Path) -> None:
    config = config_of(tmp_path, zookeeper_connect="localhost:1")
    assert "--zookeeper ''" in what_helps(StoreError("no answer"), config)
    assert what_helps(StoreError("damaged"), config_of(tmp_path)) == ""


def test_child_of_another_command_gets_no_advice_about_options_that_nobody_gave_it(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = config_of(
            tmp_path, listeners=f"PLAINTEXT://localhost:{port}", zookeeper_connect="localhost:1"
        )
        said = what_helps(OSError(errno.EADDRINUSE, "cannot listen"), config, "worker")
    assert said == (
        "; each worker has the next port after that of the first worker (--listen HOST:PORT): choose another one"
    )
    assert what_helps(StoreError("no answer"), config, "worker") == ""


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), StoreError("database or disk is full")]
)
def test_full_disk_comes_with_what_takes_most(tmp_path: Path, error: Exception) -> None:
    for name, size in (("small-0", 1), ("large-0", 3_000_000), ("old-0.abc-delete", 2_000_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_bytes(bytes(size))
    said = what_helps(error, config_of(tmp_path))
    assert f"{tmp_path} has " in said
    assert "the largest here are large-0 (2.9 MiB), old-0.abc-delete (1.9 MiB), small-0" in said
    assert "folders that end in -delete may be removed (1.9 MiB)" in said


def test_full_disk_of_the_metadata_is_the_one_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    config = config_of(tmp_path, metadata_log_dir=str(tmp_path / "own"))
    said = what_helps(StoreError("database or disk is full"), config)
    assert said.startswith(f"; {tmp_path / 'own'} has ")
    assert f"{tmp_path} has " not in said
    assert f"{tmp_path / 'own'} has " in what_helps(OSError(errno.ENOSPC, "No space"), config)


def test_file_for_kraft_is_told_of_the_embedded_store(tmp_path: Path) -> None:
    config = config_of(tmp_path, process_roles="broker", controller_quorum_voters="1@a:9093")
    assert any("embedded store" in sentence for sentence in config.notices())
    assert not any("embedded store" in sentence for sentence in config_of(tmp_path).notices())


def test_service_manager_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notify_manager("READY=1")
        assert manager.recv(100) == b"READY=1"
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    notify_manager("READY=1")  # a missing manager is no reason to stop
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_manager("READY=1")


def test_log_goes_on_in_a_new_file_after_it_was_renamed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    handler = ReopenedFile(str(path))
    root = logging.getLogger()
    root.addHandler(handler)
    reloaded: list[bool] = []
    broker: Any = SimpleNamespace(tls=SimpleNamespace(reload=lambda: reloaded.append(True)))
    try:
        root.warning("first")
        path.rename(tmp_path / "log.1")
        root.warning("second")
        reload(broker)
        root.warning("third")
    finally:
        root.removeHandler(handler)
        handler.stream.close()
    assert (tmp_path / "log.1").read_text() == "first\nsecond\n"
    assert path.read_text().endswith("third\n")
    assert reloaded == [True]


def test_words_of_another_broker_come_after_the_ready_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KWIRE_READY_LINES", "Kafka Server started")
    say_ready("kwire ready localhost:9092")
    assert capsys.readouterr().out == "kwire ready localhost:9092\nKafka Server started\n"


def test_free_memory_is_given_back_where_the_c_library_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ctypes

    called: list[int] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=called.append))
    trim_memory()
    assert called == [0]
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    trim_memory()
    monkeypatch.setitem(sys.modules, "ctypes", None)
    trim_memory()
    assert called == [0]
