"""Reads the progress of streaming queries from their checkpoints alone: plain files, no Spark.

A query's folder has `offsets/<batch>`, written before a batch is run, and `commits/<batch>`, written after it. Both open
with `v1` and a line of JSON; an offsets file then has one line for each source: a kafka source's is
`{"topic": {"<partition>": <offset to read next>}}`, and `-` means none. `sources/<n>/0` says where source n began, after a
zero byte. Source: Spark's OffsetSeqLog, CommitLog, KafkaSourceInitialOffsetWriter (4.0).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from ..problems import Problem

#: (topic, partition) -> offset.
Offsets = dict[tuple[str, int], int]

#: Folders in a checkpoint that hold no other checkpoint.
_OWN = frozenset({"offsets", "commits", "sources", "state", "_archive", "_staging"})


@dataclass(slots=True)
class QueryState:
    """One query. Shape: `processed` are the next offsets it needs; `batch` is the last finished batch, None if there is none."""

    name: str
    path: Path
    processed: Offsets = field(default_factory=dict)
    batch: int | None = None
    #: When that batch was finished, in ms since 1970.
    finished_ms: int | None = None
    #: The batch that has begun but is not finished, if any.
    running: int | None = None


def find_queries(folder: Path) -> list[QueryState]:
    """The queries whose checkpoints are in a folder or below it. Raises Problem if there is none."""
    if not folder.is_dir():
        raise Problem(f"there is no folder {folder}")
    found = []
    for path, folders, _ in os.walk(folder):
        if "offsets" in folders:
            found.append(read_query(Path(path), folder))
        folders[:] = sorted(name for name in folders if name not in _OWN)
    if not found:
        raise Problem(f"there is no checkpoint of a streaming query in {folder}")
    return found


def read_query(path: Path, folder: Path | None = None) -> QueryState:
    """The state of one query. Raises a Problem that names a damaged file."""
    state = QueryState(_name(path, folder or path), path)
    begun, done = _newest(path / "offsets"), _newest(path / "commits")
    if done is not None:
        state.batch = done
        state.finished_ms = (path / "commits" / str(done)).stat().st_mtime_ns // 1_000_000
        state.processed = _offsets(path / "offsets" / str(done))
    else:
        state.processed = _initial(path)
        if begun is not None:
            # A partition added later begins at its start.
            for where in _offsets(path / "offsets" / str(begun)):
                state.processed.setdefault(where, 0)
    if begun is not None and begun != done:
        state.running = begun
    return state


def _name(path: Path, folder: Path) -> str:
    """The name of a query: its job, according to kwire's own file, else its folder."""
    own = path / "kwire.json"
    below = path.relative_to(folder)
    place = path.name if str(below) == "." else f"{folder.name}/{below}"
    try:
        return f"{json.loads(own.read_text())['job']} ({place})"
    except (OSError, ValueError, TypeError, KeyError):
        return place


def _newest(folder: Path) -> int | None:
    # A batch's file may have been merged into <batch>.compact.
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return max((int(name) for name in names if name.isdigit()), default=None)


def _offsets(path: Path) -> Offsets:
    try:
        version, *lines = path.read_text().splitlines() or [""]
    except FileNotFoundError as error:
        raise Problem(f"the checkpoint is damaged: {path} is missing") from error
    if version != "v1" or not lines:
        raise Problem(
            f"the checkpoint is damaged: {path} does not begin with v1 and a line of JSON"
        )
    return _together(path, lines[1:])


def _initial(path: Path) -> Offsets:
    texts = []
    for file in sorted((path / "sources").glob("*/0")):
        _, _, text = file.read_text().lstrip("\0").partition("\n")
        texts.append(text)
    return _together(path / "sources", texts)


def _together(path: Path, lines: list[str]) -> Offsets:
    """The offsets of all kafka sources; for a topic that two of them read, those of the one that is behind."""
    found: Offsets = {}
    for line in lines:
        if line.strip() in ("-", ""):
            continue
        try:
            tree = json.loads(line)
            offsets = {
                (topic, int(partition)): int(offset)
                for topic, partitions in tree.items()
                for partition, offset in partitions.items()
            }
        except (AttributeError, TypeError):
            continue  # a source that does not read topics
        except ValueError as error:
            raise Problem(f"the checkpoint is damaged: {path}: {error}") from error
        for where, offset in offsets.items():
            found[where] = min(found.get(where, offset), offset)
    return found
