"""The reports of Apache Kafka's kafka-dump-log about the files in a data directory."""

from __future__ import annotations

from pathlib import Path

from ...support.kafka_tools import ToolServer
from .content import COMPACTED, INTERNAL

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
INDEXES = (".index", ".timeindex")
#: On standard output; all other complaints are on standard error.
FAULTS = ("isvalid: false", "bytes left", "Could not", "unknown", "Exception")
GAPS = "Non-consecutive offsets in "


Written = dict[Path, tuple[int, int, int]]
"""The identity of a file that does not change when it is moved: its inode, age and size."""


def written(data: Path) -> Written:
    """The current files of all partitions."""
    return {
        path: (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        for path in data.glob("*-*/*")
        if path.suffix in SUFFIXES and (stat := path.stat())
    }


def faults(tools: ToolServer, data: Path, before: Written) -> list[str]:
    """Every complaint about files that the last broker wrote.

    Unchanged files are skipped, even if the directory of a deleted partition has been renamed: a killed broker leaves
    its indexes unfinished, and the next one rebuilds them in memory. Apache Kafka's cleaner writes index entries that
    its own tool reports as "Mismatches in".
    """
    same = set(before.values())
    files = sorted(path for path, state in written(data).items() if state not in same)
    assert any(path.suffix == ".log" for path in files)
    runs: list[tuple[list[Path], tuple[str, ...]]] = [
        (files, ("--deep-iteration", "--verify-index-only")),
        ([path for path in files if path.suffix in INDEXES], ("--index-sanity-check",)),
    ]
    for topic, decoder in zip(
        INTERNAL, ("--offsets-decoder", "--transaction-log-decoder"), strict=True
    ):
        found = [path for path in sorted(data.glob(f"{topic}-*/*.log")) if path.stat().st_size]
        if found:
            runs.append((found, (decoder, "--deep-iteration")))
    return [line for paths, options in runs for line in complaints_of(tools, paths, options)]


def complaints_of(tools: ToolServer, paths: list[Path], options: tuple[str, ...]) -> list[str]:
    """The complaints of one run of the tool."""
    ran = tools.run("kafka-dump-log", *options, "--files", ",".join(map(str, paths)))
    found = [line for line in ran.output.splitlines() if any(fault in line for fault in FAULTS)]
    allowed = False
    for line in ran.errors.splitlines():
        # Compaction leaves gaps: Apache Kafka's does so too.
        if line.startswith(GAPS):
            allowed = Path(line.removeprefix(GAPS)).parent.name.rsplit("-", 1)[0] in (
                *COMPACTED,
                *INTERNAL,
            )
        elif not line.startswith("  "):
            allowed = False
        if not allowed:
            found.append(line)
    if ran.status:
        found.append(f"kafka-dump-log {' '.join(options)}: status {ran.status}")
    return found
