"""Computes what a topic's table has to add and remove to follow an archive; rules without I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ..manifest import Archive, ArchiveFile, ManifestEntry
from ..problems import Problem

#: The range of Python's datetime, from the first of these to before the second.
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000

#: Offsets of a topic's partitions by number, as text, because JSON has no other keys.
Numbers = dict[str, int]


@dataclass(frozen=True)
class TableState:
    """What a table says of itself, written in each of its commits.

    Shape: `commit` is the number of the archive's manifest that the table has reached, and `checksum` that manifest's, which
    tells archives apart; it is empty where the table no longer knows. By partition: `first`, the first offset; `offsets`, the one that comes next; `rows`, the number of
    records; `lost`, ranges (first and last) that the topic no longer had.
    """

    topic: str
    commit: int
    checksum: str
    first: Numbers = field(default_factory=dict)
    offsets: Numbers = field(default_factory=dict)
    rows: Numbers = field(default_factory=dict)
    lost: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    topic_id: str | None = None
    #: The columns of the values (`values.ValueSchema.text`), or None where the table has the values as bytes.
    schema: str | None = None

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def of(text: str, table: str) -> TableState:
        """Read what `text` wrote. Raises Problem if it is damaged."""
        try:
            tree: dict[str, Any] = json.loads(text)
            state = TableState(**tree)
            lost = {number: [(a, b) for a, b in some] for number, some in state.lost.items()}
            if type(state.commit) is not int:
                raise TypeError(f"commit is {state.commit!r}")
        except (ValueError, TypeError, AttributeError) as error:
            raise Problem(f"the table {table} is damaged: its property {STATE}: {error}") from error
        return TableState(**{**tree, "lost": lost})


#: The properties of a table's commits. Offsets and ranges have the form that Spark's kafka source takes.
STATE = "kwire.state"
COMMIT = "kwire.archive-commit"
OFFSETS = "kwire.offsets"
RANGES = "kwire.ranges"


class AddedFile(NamedTuple):
    """A file, and the partition whose records it has."""

    partition: int
    file: ArchiveFile


@dataclass(frozen=True)
class TableCommit:
    """One commit of a table: files of the archive to add and remove, and the table's state afterwards."""

    state: TableState
    added: tuple[AddedFile, ...]
    removed: frozenset[str]
    #: The first and the last offset that the commit adds, by partition.
    ranges: dict[str, tuple[int, int]]

    def properties(self) -> dict[str, str]:
        """What the commit says of itself, for people who list a table's snapshots."""
        topic = self.state.topic
        return {
            COMMIT: str(self.state.commit),
            OFFSETS: json.dumps({topic: self.state.offsets}),
            RANGES: json.dumps({topic: self.ranges}),
        }


def change(
    archive: Archive,
    topic: str,
    known: TableState | None,
    files: Callable[[], Collection[str]],
    table: str,
    named: Callable[[str], str] = lambda path: path,
) -> TableCommit | None:
    """What brings a table of a topic to the archive's newest commit; None if nothing has changed.

    `known` is what the table says, None if it is new, and `files` gives the paths of its files, which are asked for only where
    files were replaced. `named` gives the path in the table of an archive's file; the change's `added` are the archive's, and
    `removed` the table's. Raises Problem if the table is of another archive, or has reached more than the archive has.
    """
    news: list[dict[str, Any]] = []
    if known is not None:
        _check_same(archive, topic, known, table)
        news = [commit for commit in archive.commits(known.commit + 1) if _is_about(commit, topic)]
        if not news:
            return None
        if known.checksum and not any(commit.get("removed") for commit in news):
            # The usual case, whose work grows only with the new entries.
            entries = [
                ManifestEntry.of(entry)
                for commit in news
                for entry in commit["added"]
                if entry["topic"] == topic
            ]
            added = tuple(
                AddedFile(entry.partition, file) for entry in entries for file in entry.files
            )
            return _change(archive, topic, known, entries, added)
    entries = archive.entries({topic})
    if not entries:
        return None
    live = {
        named(file.path): AddedFile(entry.partition, file)
        for entry in entries
        for file in entry.files
    }
    there = frozenset(files())
    if known is None and there - live.keys():
        raise Problem(
            f"the table {table} has files that are not this archive's: choose another table or archive"
        )
    added = tuple(file for path, file in live.items() if path not in there)
    before = known.offsets if known is not None else {}
    return _change(archive, topic, None, entries, added, there - live.keys(), before)


def _change(
    archive: Archive,
    topic: str,
    known: TableState | None,
    entries: Collection[ManifestEntry],
    added: tuple[AddedFile, ...],
    removed: frozenset[str] = frozenset(),
    before: Numbers | None = None,
) -> TableCommit:
    """The change to the state that `entries` make, of the topic or, with `known`, beyond what that has."""
    state = _state(archive, topic, entries, known)
    offsets = known.offsets if known is not None else (before or {})
    ranges = {
        number: (offsets.get(number, state.first[number]), end - 1)
        for number, end in state.offsets.items()
        if end > offsets.get(number, state.first[number])
    }
    return TableCommit(state, added, removed, ranges)


def _is_about(commit: dict[str, Any], topic: str) -> bool:
    return any(entry["topic"] == topic for entry in commit.get("added", ())) or any(
        name == topic for name, *_ in commit.get("removed", ())
    )


def _check_same(archive: Archive, topic: str, known: TableState, table: str) -> None:
    if known.topic != topic:
        raise Problem(f"the table {table} is of topic {known.topic}, not of {topic}")
    if known.commit > archive.number:
        raise Problem(
            f"the table {table} has commit {known.commit} of its archive, and {archive.path} ends at {archive.number}:"
            " it is another archive, or an older copy"
        )
    if known.checksum and archive.checksum(known.commit) != known.checksum:
        raise Problem(
            f"the table {table} is of another archive than {archive.path}: choose another table or archive"
        )


def _state(
    archive: Archive, topic: str, entries: Collection[ManifestEntry], known: TableState | None
) -> TableState:
    first = dict(known.first) if known is not None else {}
    offsets = dict(known.offsets) if known is not None else {}
    rows = dict(known.rows) if known is not None else {}
    lost = {number: [*some] for number, some in known.lost.items()} if known is not None else {}
    for entry in entries:
        number = str(entry.partition)
        first.setdefault(number, entry.first_offset)
        offsets[number] = entry.last_offset + 1
        rows[number] = rows.get(number, 0) + entry.rows
        if entry.lost:
            lost.setdefault(number, []).extend(entry.lost)
    return TableState(
        topic,
        archive.number,
        archive.checksum(archive.number),
        first,
        offsets,
        rows,
        lost,
        archive.topic_ids().get(topic),
    )


def is_near(file: ArchiveFile) -> bool:
    """Whether all times are in the years 1 to 9999, which is what Python's datetime knows."""
    return file.first_timestamp_ms >= _YEAR_1_MS and file.last_timestamp_ms < _YEAR_10000_MS
