"""Checkpoints read as files, and the forecast of retention: pure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kwire.pipeline.durations import duration_ms, shown
from kwire.pipeline.problems import Problem
from kwire.pipeline.status.forecast import CHECK_INTERVAL_MS, Fate, PartitionBounds, forecast
from kwire.pipeline.status.processed import find_queries

HOUR = 3_600_000
NOW = 1_800_000_000_000
DAY = {"cleanup.policy": "delete", "retention.ms": str(24 * HOUR), "segment.ms": str(24 * HOUR)}


def write_checkpoint(folder: Path, batches: list[str], committed: int, initial: str = "") -> Path:
    """A checkpoint with one line of offsets for each batch, and the given number of commits."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"x"}')
    for number, offsets in enumerate(batches):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offsets}')
    for number in range(committed):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    if initial:
        (folder / "sources/0/0").write_bytes(b"\0v1\n" + initial.encode())
    return folder


def test_finished_batch_says_what_is_processed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a", ['{"t":{"0":5}}', '{"t":{"0":9,"1":4}}'], 1)
    (state,) = find_queries(tmp_path / "a")
    assert state.processed == {("t", 0): 5}
    assert (state.name, state.batch, state.running) == ("a", 0, 1)


def test_query_without_a_finished_batch_needs_all_from_its_beginning(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, ['{"t":{"0":9,"1":4}}'], 0, initial='{"t":{"0":3}}')
    (state,) = find_queries(tmp_path)
    assert state.processed == {("t", 0): 3, ("t", 1): 0}
    assert (state.batch, state.running) == (None, 0)


def test_several_queries_and_several_sources_are_found(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "one", ['{"t":{"0":5}}\n-\n{"logOffset":3}\n{"t":{"0":2}}'], 1)
    write_checkpoint(tmp_path / "two" / "deep", ['{"u":{"0":1}}'], 1)
    (tmp_path / "two" / "deep" / "kwire.json").write_text('{"job": "archive"}')
    first, second = find_queries(tmp_path)
    assert first.processed == {("t", 0): 2}
    assert second.processed == {("u", 0): 1}
    assert second.name == f"archive ({tmp_path.name}/two/deep)"


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", 'v1\n{}\n{"t": {"0": '])
def test_damaged_checkpoint_is_named(tmp_path: Path, text: str) -> None:
    write_checkpoint(tmp_path, ["{}"], 1)
    (tmp_path / "offsets" / "0").write_text(text)
    with pytest.raises(Problem, match=r"damaged: .*offsets/0"):
        find_queries(tmp_path)


def test_folder_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no checkpoint of a streaming query"):
        find_queries(tmp_path)


def test_offsets_below_the_log_start_are_lost() -> None:
    told = forecast(10, PartitionBounds(25, 40), DAY, NOW)
    assert (told.fate, told.lost) == (Fate.LOST, 15)


@pytest.mark.parametrize(
    ("needed", "log", "configs", "fate"),
    [
        (5, None, DAY, Fate.GONE),
        (50, PartitionBounds(0, 40), DAY, Fate.BEYOND),
        (40, PartitionBounds(0, 40), DAY, Fate.CAUGHT_UP),
        (
            5,
            PartitionBounds(0, 40, NOW),
            {"cleanup.policy": "compact", "retention.ms": "1"},
            Fate.SAFE,
        ),
        (
            5,
            PartitionBounds(0, 40, NOW),
            {"cleanup.policy": "delete", "retention.ms": "-1"},
            Fate.SAFE,
        ),
        (5, PartitionBounds(0, 40, None), DAY, Fate.UNKNOWN),
    ],
)
def test_fates_without_a_time_left(
    needed: int, log: PartitionBounds | None, configs: dict[str, str], fate: Fate
) -> None:
    told = forecast(needed, log, configs, NOW)
    assert (told.fate, told.left_ms) == (fate, None)


def test_time_left_is_counted_from_the_next_record_needed() -> None:
    log = PartitionBounds(0, 40, needed_ms=NOW - 23 * HOUR, newest_ms=NOW - 2 * HOUR)
    told = forecast(5, log, DAY, NOW)
    assert (told.fate, told.left_ms) == (Fate.EXPIRING, HOUR)
    # Its segment may extend to the newest record of the log.
    assert told.latest_ms == 22 * HOUR + CHECK_INTERVAL_MS


def test_retention_that_is_over_is_due_now() -> None:
    log = PartitionBounds(0, 40, needed_ms=NOW - 25 * HOUR, newest_ms=NOW - 25 * HOUR)
    told = forecast(5, log, DAY, NOW)
    assert (told.fate, told.left_ms, told.latest_ms) == (Fate.DUE, 0, 0)


def test_size_limit_that_comes_first_decides() -> None:
    configs = {**DAY, "retention.bytes": "1500"}
    # 1000 of 2000 bytes are after the offset, and arrived in ten hours: the other 500 take five.
    log = PartitionBounds(0, 40, needed_ms=NOW - 10 * HOUR, newest_ms=NOW, size=2000)
    told = forecast(20, log, configs, NOW)
    assert (told.fate, told.left_ms) == (Fate.EXPIRING, 5 * HOUR)
    assert forecast(5, log, configs, NOW).fate is Fate.DUE


@pytest.mark.parametrize(
    ("span", "text"),
    [(450, "450 ms"), (59_000, "59 s"), (3_600_000, "1 h"), (90 * 60_000, "1 h 30 min")],
)
def test_spans_of_time_are_shown_in_two_units(span: int, text: str) -> None:
    assert shown(span) == text


@pytest.mark.parametrize(
    ("text", "span"), [("90s", 90_000), ("1.5h", 5_400_000), ("7d", 604_800_000)]
)
def test_spans_of_time_are_read(text: str, span: int) -> None:
    assert duration_ms(text) == span


def test_commit_file_tells_when_a_batch_was_finished(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, ['{"t":{"0":5}}'], 1)
    os.utime(tmp_path / "commits" / "0", (1000, 1000))
    assert find_queries(tmp_path)[0].finished_ms == 1_000_000
