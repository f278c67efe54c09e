"""The content of an archive's tables, in the form in which replay and audit read manifests."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Iterable

from ..manifest import Archive, ArchiveFile, ManifestEntry
from ..problems import Problem
from .changes import TableState
from .place import TablePlace
from .tables import Table, TableFile


class TableContent:
    """The tables of one format, as of when this was made. The manifests are not read."""

    def __init__(
        self,
        archive: Archive,
        format: str,
        topics: Collection[str] | None,
        options: Namespace,
    ) -> None:
        """Read the tables of these topics, or of all. Raises Problem for one that is missing, damaged or rewritten."""
        self.path = archive.path
        self.name = f"{archive.path} ({format})"
        self.storage = archive.storage
        self._entries: list[ManifestEntry] = []
        self._ids: dict[str, str] = {}
        place = TablePlace(archive, options)
        try:
            for topic in sorted(place.topics(format) if topics is None else topics):
                table = place.table(format, topic)
                if table.open(create=False) and (state := table.state()) is not None:
                    self._add(table, state, topic)
        finally:
            place.close()

    def _add(self, table: Table, state: TableState, topic: str) -> None:
        if state.schema is not None:
            raise Problem(
                f"the table {table.name} has the columns of parsed values, and no longer the records' bytes: leave out --table"
            )
        root = self.storage.location("").rstrip("/")
        self._entries += entries_of(state, topic, table.described(), root, table.name)
        if state.topic_id is not None:
            self._ids[topic] = state.topic_id

    def entries(self, topics: Collection[str] | None = None) -> list[ManifestEntry]:
        """See manifest.Content: one entry for each partition."""
        return [one for one in self._entries if topics is None or one.topic in topics]

    def check(self, topics: Collection[str] | None = None) -> None:
        """See manifest.Content."""
        for entry in self.entries(topics):
            found = sum(file.rows for file in entry.files)
            if found != entry.rows:
                raise Problem(
                    f"the table of {entry.topic} in {self.name} is damaged: its files have {found} records of partition"
                    f" {entry.partition}, and it says {entry.rows}"
                )

    def topic_ids(self) -> dict[str, str]:
        """See manifest.Content."""
        return dict(self._ids)


def entries_of(
    state: TableState, topic: str, files: Iterable[TableFile], root: str, table: str
) -> list[ManifestEntry]:
    """The entries that a table's state and files make.

    Raises Problem for files that another program has written: they may hold several partitions, in any order.
    """
    found: dict[int, list[ArchiveFile]] = {int(number): [] for number in state.offsets}
    for file in files:
        path = file.location.removeprefix("file://").removeprefix(
            f"{root.removeprefix('file://')}/"
        )
        partition, last_partition = file.partitions
        earliest, latest = file.timestamps_ms
        if (
            partition != last_partition
            or not path.startswith(f"topic={topic}/")
            or f"/{topic}-{partition}-" not in path
            or earliest is None
            or latest is None
        ):
            raise Problem(
                f"another program has written {file.location} of the table {table}: leave out --table to read what was"
                " archived"
            )
        found.setdefault(partition, []).append(
            ArchiveFile(path, file.rows, file.size, *file.offsets, earliest, latest)
        )
    unknown = sorted(number for number in found if str(number) not in state.offsets)
    if unknown:
        raise Problem(
            f"the table {table} has files of partition {unknown[0]}, of which it says no offsets"
        )
    return [
        ManifestEntry(
            topic,
            number,
            state.first[str(number)],
            state.offsets[str(number)] - 1,
            state.rows.get(str(number), 0),
            tuple(sorted(some, key=lambda file: (file.first_offset, file.path))),
            tuple(state.lost.get(str(number), ())),
        )
        for number, some in sorted(found.items())
    ]
