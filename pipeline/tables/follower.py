"""Brings the tables of an archive to where its manifests are."""

from __future__ import annotations

import re
import time
from argparse import Namespace

from ..manifest import Archive
from ..options import topic_names
from ..problems import Problem
from .changes import change
from .options import formats
from .place import Place
from .tables import Conflict, Table

#: Says which formats an archive has tables of: one empty file for each.
MARKS = "_tables"
#: How often another's commit may come first.
TRIES = 10


class Follower:
    """The tables of an archive's topics, in the formats asked for; does nothing where none is."""

    def __init__(self, archive: Archive, options: Namespace) -> None:
        """Raises WrongCall for a format whose package is not installed."""
        self._archive = archive
        self._options = options
        self.formats = formats(options)
        self._place = Place(archive, options)
        self._tables: dict[tuple[str, str], Table] = {}

    def follow(self) -> int:
        """Bring every table up to date; returns how many commits that took.

        Raises Problem if a table is of another archive, or cannot be reached: the archive keeps what it has, and the next
        run continues.
        """
        if not self.formats:
            return 0
        self._archive.refresh()
        topics = sorted({entry.topic for entry in self._archive.entries()})
        return sum(
            self._follow(format, topic)
            for topic in topics
            if self._is_chosen(topic)
            for format in self.formats
        )

    def _is_chosen(self, topic: str) -> bool:
        names, pattern = topic_names(self._options), self._options.topics_pattern
        if pattern:
            return re.fullmatch(pattern, topic) is not None
        return not names or topic in names

    def _follow(self, format: str, topic: str) -> int:
        key = format, topic
        if key not in self._tables:
            self._archive.storage.create(f"{MARKS}/{format}", b"")
            self._tables[key] = self._place.table(format, topic)
        table = self._tables[key]
        for _ in range(TRIES):
            table.open(create=True)
            self._archive.refresh()
            wanted = change(self._archive, topic, table.state(), table.files, table.name)
            if wanted is None:
                return 0
            try:
                table.commit(wanted)
                return 1
            except Conflict as error:
                reason = error
        raise Problem(
            f"{reason}: other commits came first {TRIES} times; run the same command again"
        )

    def check_all(self) -> None:
        """Raises Problem if the archive has tables of a format that was not asked for: they would keep what is replaced."""
        for format in sorted(self._marks() - set(self.formats)):
            raise Problem(
                f"{self._archive.path} has {format} tables, which have to follow: add --table {format}"
            )

    def _marks(self) -> set[str]:
        return {item.name for item in self._archive.storage.list(MARKS)}

    def is_free(self, path: str) -> bool:
        """Whether no table names a file that the archive no longer does, since all that may have it follow."""
        marks = self._marks()
        topic = path.partition("/")[0].removeprefix("topic=")
        return not marks or (marks <= set(self.formats) and self._is_chosen(topic))

    def expire(self, keep_ms: int) -> int:
        """Forget states of the tables from more than `keep_ms` ago; returns how many."""
        before = time.time_ns() // 1_000_000 - keep_ms
        return sum(table.expire(before) for table in self._tables.values())

    def close(self) -> None:
        """End connections."""
        for table in self._tables.values():
            table.close()
        self._tables.clear()
        self._place.close()
