"""The progress bar of a terminal, by its output; without Spark."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.pipeline.audit.progress import watched
from kwire.pipeline.bar import Bar, is_shown, watching_tasks
from kwire.pipeline.progress import Progress


def _terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error as a terminal, from here to the test's end."""
    written = io.StringIO()
    written.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", written)
    return written


def test_bar_is_for_terminals_and_users_who_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    assert is_shown(quiet=False) and not is_shown(quiet=True)
    terminal.isatty = lambda: False  # type: ignore[method-assign]
    assert not is_shown(quiet=False)


def test_bar_tells_rows_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    bar = Bar("replay", 1000)
    bar.at(250, 240, seconds=2.0)
    shown = terminal.getvalue().rpartition("\r")[2]
    assert shown.startswith("replay  25 % |")
    assert shown.endswith(" left, 240 rows, 120/s")
    bar.at(2000, 1900)
    assert "100 % |" in terminal.getvalue().rpartition("\r")[2]
    bar.end()


def _read_all(screen: int) -> Iterator[bytes]:
    """What was written to a terminal that is closed now, or soon."""
    with suppress(OSError):
        while part := os.read(screen, 65536):
            yield part


@pytest.mark.parametrize("columns", [0, 100])
def test_bar_on_a_terminal_that_may_not_know_its_size_is_whole(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", "")
    screen, terminal = pty.openpty()
    shown: list[bytes] = []
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", columns // 4, columns, 0, 0))
    with os.fdopen(terminal, "w") as written:
        monkeypatch.setattr(sys, "stderr", written)
        bar = Bar("replay", 1000)
        bar.at(250, 240, seconds=2.0)
        bar.end()
        reader = threading.Thread(target=lambda: shown.extend(_read_all(screen)))
        reader.start()
    reader.join()
    os.close(screen)
    first, last = (text for text in b"".join(shown).decode().split("\r") if text.strip())
    assert first.startswith("replay   0 % |") and first.rstrip().endswith("| 00:00, ? left")
    assert last.startswith("replay  25 % |") and last.rstrip().endswith("left, 240 rows, 120/s")
    assert len(last) == (columns or 80) - 1


def _event(start: int, end: int, latest: int, rows: int) -> Any:
    source = SimpleNamespace(
        description="KafkaV2[Subscribe[orders]]",
        startOffset=json.dumps({"orders": {"0": start}}),
        endOffset=json.dumps({"orders": {"0": end}}),
        latestOffset=json.dumps({"orders": {"0": latest}}),
    )
    return SimpleNamespace(
        progress=SimpleNamespace(numInputRows=rows, sources=[source], name=None, batchId=0)
    )


def test_batches_move_the_bar_instead_of_printing_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    bar = Bar("archive", 100)
    listener = Progress(scans=2, bar=bar)
    listener.onQueryProgress(_event(0, 50, 100, 90))
    assert "archive  50 % |" in terminal.getvalue() and "45 rows" in terminal.getvalue()
    # Records arrived during the run, so there is more work than was known.
    listener.onQueryProgress(_event(50, 100, 300, 100))
    assert "archive  33 % |" in terminal.getvalue() and "95 rows" in terminal.getvalue()
    assert "batch" not in terminal.getvalue()
    bar.end()


def test_tasks_of_spark_are_told_while_the_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.pipeline.bar.LOOK_S", 0.001)
    told: list[tuple[int, int, int]] = []
    tracker = SimpleNamespace(
        getActiveStageIds=lambda: [3],
        getStageInfo=lambda stage: SimpleNamespace(numCompletedTasks=2, numTasks=8),
    )
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    with watching_tasks(spark, lambda *what: told.append(what)):
        while not told:
            pass
    assert told[0] == (3, 2, 8)


def test_spark_that_is_gone_ends_the_watching_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kwire.pipeline.bar.LOOK_S", 0.001)
    asked = threading.Event()

    def gone() -> None:
        asked.set()
        raise ConnectionRefusedError

    tracker = SimpleNamespace(getActiveStageIds=gone)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    with watching_tasks(spark, lambda *what: None):
        assert asked.wait(10)
    assert capsys.readouterr().err == ""


def test_audit_on_a_terminal_has_a_bar_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.pipeline.bar.LOOK_S", 0.001)
    terminal = _terminal(monkeypatch)
    stages = iter([1, 1, 2])
    done = threading.Event()

    def active() -> list[int]:
        stage = next(stages, None)
        if stage is None:
            done.set()
        return [] if stage is None else [stage]

    tracker = SimpleNamespace(
        getActiveStageIds=active,
        getStageInfo=lambda stage: SimpleNamespace(numCompletedTasks=stage, numTasks=4),
    )
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    with watched(spark, quiet=False, offsets=1000):
        assert done.wait(10)
    assert "audit, stage 1  25 % |" in terminal.getvalue()
    assert "audit, stage 2  50 % |" in terminal.getvalue() and "500 rows" in terminal.getvalue()
