"""Brings the tables of an archive to where its manifests are."""

from __future__ import annotations

import re
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..manifest import Archive, ArchiveFile
from ..options import topic_names
from ..problems import Problem
from ..schemas.values import ValueSchema
from .changes import AddedFile, TableCommit, TableState, change
from .derived import Work, columns_of, derive, derived, is_part
from .options import formats, value_schemas
from .place import KINDS, TablePlace
from .tables import CommitConflict, Table

if TYPE_CHECKING:
    import pyarrow as pa

#: Says which formats an archive has tables of: one empty file for each.
MARKS = "_tables"
#: Says which tables they are, where a catalog may have several: for each topic, and the values of it, the id of one.
IDS = f"{MARKS}/ids"
#: Makes something of each item.
Run = Callable[[Callable[[Work], ArchiveFile | None], Sequence[Work]], list[ArchiveFile | None]]
#: How often another commit may be made first.
TRIES = 10


def _in_turn(
    make: Callable[[Work], ArchiveFile | None], work: Sequence[Work]
) -> list[ArchiveFile | None]:
    return [make(one) for one in work]


class ArchiveTables:
    """The tables of an archive's topics, in the requested formats; does nothing without any."""

    def __init__(self, archive: Archive, options: Namespace, run: Run = _in_turn) -> None:
        """`run` makes files of values: here, one after the other, or as tasks of Spark.

        Raises WrongCall for a format whose package is not installed, and for a wrong schema.
        """
        self._archive = archive
        self._options = options
        self.formats = formats(options)
        self._place = TablePlace(archive, options)
        self._schemas = value_schemas(options)
        self._run = run
        self._tables: dict[tuple[str, str, str], Table] = {}
        self._values: set[str] | None = None

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
            self._brought(format, topic, kind)
            for topic in topics
            if self._is_chosen(topic)
            for format in self.formats
            for kind in ("", *(KINDS if self._schema_of(topic) else ()))
        )

    def _schema_of(self, topic: str) -> ValueSchema | None:
        return self._schemas.get(topic, self._schemas.get(None))

    def _is_chosen(self, topic: str) -> bool:
        names, pattern = topic_names(self._options), self._options.topics_pattern
        if pattern:
            return re.fullmatch(pattern, topic) is not None
        return not names or topic in names

    def _brought(self, format: str, topic: str, kind: str) -> int:
        try:
            return self._follow(format, topic, kind)
        except Problem:
            raise
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise Problem(
                f"the {format} table of {topic} cannot follow the archive: {type(error).__name__}: {first}; nothing is lost:"
                " run the same command again"
            ) from error

    def _follow(self, format: str, topic: str, kind: str) -> int:
        schema = self._schema_of(topic)
        columns = columns_of(kind, schema) if kind and schema else None
        key = format, topic, kind
        if key not in self._tables:
            self._archive.storage.create(f"{MARKS}/{format}", b"")
            self._tables[key] = self._first_opened(format, topic, kind, columns)
        table = self._tables[key]
        for _ in range(TRIES):
            table.open(create=True)
            self._archive.refresh()
            state = table.state()
            wanted = change(
                self._archive,
                topic,
                state,
                table.files,
                table.name,
                lambda path: derived(path, kind, format) if kind else path,
            )
            if wanted is None:
                return 0
            try:
                if columns is not None and schema is not None:
                    if state is not None and state.schema != schema.text:
                        table.evolve(columns)
                    wanted = self._derived(wanted, state, kind, format, schema)
                table.commit(wanted)
                return 1
            except CommitConflict as error:
                reason = error
        raise Problem(
            f"{reason}: other commits were made first {TRIES} times; run the same command again"
        )

    def _first_opened(self, format: str, topic: str, kind: str, columns: pa.Schema | None) -> Table:
        """The table, created if there was none. Raises Problem if another one, in another place, has followed so far.

        Two tables of one kind would share the files of values, and of two, one would keep what is deleted.
        """
        storage, name = self._archive.storage, f"{IDS}/{format}/{topic}{kind}"
        table = self._place.table(format, topic, kind, columns)
        known = storage.read(name)
        found = table.open(create=known is None) and table.identity
        if known is None and found:
            storage.create(name, found.encode())
            known = storage.read(name)
        if known is not None and known.decode() != found:
            raise Problem(
                f"the {format} table that has followed {self._archive.path} so far is not the {table.name} of this catalog: give"
                f" the same --catalog and --namespace or, if it was dropped, remove {storage.location(name)}"
            )
        return table

    def _derived(
        self,
        wanted: TableCommit,
        known: TableState | None,
        kind: str,
        format: str,
        schema: ValueSchema,
    ) -> TableCommit:
        """The change of a table of values or dead letters, whose files are made now.

        A record is parsed once: what compaction has made of files that the table has already is made of the table's files, whatever
        the schema is by now.
        """
        settings = self._place.settings
        compression = getattr(self._options, "compression", "zstd")
        ends = {} if known is None else known.offsets
        work = []
        for one in wanted.added:
            since = ends.get(str(one.partition), 0)
            path = derived(one.file.path, kind, format)
            sources = sorted(old for old in wanted.removed if is_part(old, path))
            if sources or one.file.last_offset >= since:
                item = Work(
                    self._archive.path,
                    one.file,
                    kind,
                    format,
                    schema,
                    settings,
                    compression,
                    since,
                    tuple(sources),
                )
                work.append((one.partition, item))
        made = self._run(derive, [one for _, one in work])
        added = [
            AddedFile(partition, file)
            for (partition, _), file in zip(work, made, strict=True)
            if file is not None
        ]
        return replace(wanted, state=replace(wanted.state, schema=schema.text), added=tuple(added))

    def check_all(self) -> None:
        """Raises Problem if the archive has tables of a format that was not asked for: they would keep what is replaced."""
        for format in sorted(self._marks() - set(self.formats)):
            raise Problem(
                f"{self._archive.path} has {format} tables, which have to follow: add --table {format}"
            )
        for topic in sorted(self._with_values()):
            if self._is_chosen(topic) and self._schema_of(topic) is None:
                raise Problem(
                    f"{self._archive.path} has tables of the values of {topic}, which have to follow: add --value-schema"
                )

    def _marks(self) -> set[str]:
        return {item.name for item in self._archive.storage.list(MARKS) if not item.is_folder}

    def _with_values(self) -> set[str]:
        """The topics that have tables of values, or of dead letters."""
        if self._values is None:
            self._values = {
                topic.name
                for kind in KINDS
                for format in self._archive.storage.list(kind)
                for topic in self._archive.storage.list(f"{kind}/{format.name}")
            }
        return self._values

    def is_free(self, path: str) -> bool:
        """Whether a file that the archive has dropped may be deleted: no table refers to it any more."""
        marks = self._marks()
        topic = path.partition("/")[0].removeprefix("topic=")
        if not marks:
            return True
        if not (marks <= set(self.formats) and self._is_chosen(topic)):
            return False
        return self._schema_of(topic) is not None or topic not in self._with_values()

    def forget(self, path: str) -> None:
        """Delete the files made from an archive file that is deleted, too."""
        for format in self._marks():
            for kind in KINDS:
                self._archive.storage.delete(derived(path, kind, format))

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
