"""An Apache Iceberg table of a topic, with the archive's own files; partitioned by the day of the records' timestamps.

The catalog is any that pyiceberg knows. Files are added by what their footers say (`add_files`). What the table has reached is
a property of the table, changed in the same commit that adds the files, so that it outlives its snapshots; each snapshot
says it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.transforms import DayTransform
from pyiceberg.types import PrimitiveType

from ..problems import Problem
from .changes import COMMIT, OFFSETS, RANGES, STATE, TableCommit, TableState, is_near
from .far_times import data_file
from .options import ICEBERG
from .tables import CommitConflict, TableFile, TableSnapshot, prefix_of, rolled_back

if TYPE_CHECKING:
    from .place import TablePlace

#: pyiceberg retries after another commit, but that commit may have added the same files.
PROPERTIES = {
    TableProperties.COMMIT_NUM_RETRIES: "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


def is_elsewhere(one: str, other: str) -> bool:
    """Whether two places of this machine's are different ones; of others, catalogs may write the same place in several ways."""
    if not (one.startswith("file:") and other.startswith("file:")):
        return False
    first, second = (
        Path("/" + place.removeprefix("file:").lstrip("/")).resolve() for place in (one, other)
    )
    return first != second


def quoted(identifier: tuple[str, ...]) -> str:
    """A table's name as Spark's SQL accepts it: a part with dots, such as the name of a topic, is in backticks."""
    return ".".join(f"`{part}`" if "." in part else part for part in identifier)


class Iceberg:
    """One Iceberg table, as of the last time it was looked at."""

    format = "iceberg"

    def __init__(
        self,
        catalog: Catalog,
        identifier: tuple[str, ...],
        root: str,
        folder: str,
        schema: pa.Schema,
        day_of: str = "timestamp",
    ) -> None:
        """`root` is the archive's place, with a scheme, and `folder` the table's in it; `day_of` is the column of the partitions."""
        self._catalog = catalog
        self._identifier = identifier
        self._root = root
        self._location = f"{root}/{folder}"
        self._schema = schema
        self._day_of = day_of
        self.name = quoted(identifier)
        self._table: IcebergTable | None = None

    @classmethod
    def of(cls, place: TablePlace, topic: str, kind: str, columns: pa.Schema) -> Iceberg:
        """See TablePlace.table."""
        folder = f"{ICEBERG}/{kind}/{topic}" if kind else f"{ICEBERG}/{topic}"
        identifier = (*place.namespace, f"{topic}{kind}")
        day_of = f"{prefix_of(columns)}timestamp"
        return cls(place.catalog(), identifier, place.uri, folder, columns, day_of)

    def open(self, *, create: bool) -> bool:
        """See Table."""
        try:
            self._table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            if not create:
                return False
            self._create()
            self._table = self._catalog.load_table(self._identifier)
        except FileNotFoundError as error:
            raise self._moved(str(error).partition("'")[2].partition("'")[0]) from error
        if is_elsewhere(self._table.location(), self._location):
            raise self._moved(self._table.location())
        if self._table.properties.get(TableProperties.COMMIT_NUM_RETRIES) != "0":
            with self._table.transaction() as work:
                work.set_properties({TableProperties.COMMIT_NUM_RETRIES: "0"})
        return True

    def _moved(self, place: str) -> Problem:
        return Problem(
            f"the table {self.name} is not in {self._root.removeprefix('file://')}, but, by its catalog, at {place}: Iceberg's tables"
            " cannot be moved or copied with an archive; remove _catalog.db, _iceberg and _tables/ids of the copy, and the next run"
            " creates the table again"
        )

    def _create(self) -> None:
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self._identifier[:-1])
        with (
            suppress(TableAlreadyExistsError),
            self._catalog.create_table_transaction(
                self._identifier, self._schema, location=self._location, properties=PROPERTIES
            ) as work,
            work.update_spec() as spec,
        ):
            spec.add_field(self._day_of, DayTransform(), "day")

    @property
    def _there(self) -> IcebergTable:
        assert self._table is not None
        return self._table

    @property
    def identity(self) -> str:
        """See Table."""
        return str(self._there.metadata.table_uuid)

    def state(self) -> TableState | None:
        """See Table."""
        text = self._there.properties.get(STATE)
        if text is None:
            return None
        self._check_head()
        return TableState.of(text, self.name)

    def _check_head(self) -> None:
        """Raises Problem if an earlier snapshot is the current one again, since the properties remain those of the newest."""
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in self._there.snapshots()}
        commits = {
            number: int(text)
            for number, snapshot in snapshots.items()
            if snapshot.summary is not None
            and (text := snapshot.summary.additional_properties.get(COMMIT, "")).isdecimal()
        }
        number = self._there.metadata.current_snapshot_id
        while number is not None and number not in commits:
            if number not in snapshots:
                return  # forgotten, so that it is unknown what came before
            number = snapshots[number].parent_snapshot_id
        newest = max(commits.values(), default=0)
        if newest > (0 if number is None else commits[number]):
            raise rolled_back(f"the table {self.name}", "make its newest snapshot the current one")

    def evolve(self, schema: pa.Schema) -> None:
        """See Table."""
        try:
            with self._there.update_schema() as work:
                work.union_by_name(schema)
        except (ValidationError, ValueError, TypeError) as error:
            raise Problem(
                f"the columns of the table {self.name} cannot be changed: {error}"
            ) from error

    def files(self) -> set[str]:
        """See Table."""
        return {self._path(file) for file in self._data_files()}

    def _path(self, file: DataFile) -> str:
        path: str = file.file_path
        return path.removeprefix(f"{self._root}/")

    def _data_files(self) -> list[DataFile]:
        found = []
        for task in self._there.scan().plan_files():
            if task.delete_files:
                raise Problem(
                    f"records of the table {self.name} were deleted by another program, so it no longer equals the"
                    " archive"
                )
            found.append(task.file)
        return found

    def described(self) -> Iterator[TableFile]:
        """See Table."""
        schema = self._there.schema()
        fields = [schema.find_field(name) for name in ("partition", "offset", "timestamp")]
        for file in self._data_files():
            bounds: list[tuple[Any, Any]] = []
            for field in fields:
                low, high = (
                    (ends or {}).get(field.field_id)
                    for ends in (file.lower_bounds, file.upper_bounds)
                )
                if low is None or high is None:
                    raise Problem(
                        f"the table {self.name} has no statistics of {file.file_path}, so its offsets are unknown"
                    )
                kind = field.field_type
                assert isinstance(kind, PrimitiveType)
                bounds.append((from_bytes(kind, low), from_bytes(kind, high)))
            partitions, offsets, (earliest, latest) = bounds
            yield TableFile(
                file.file_path,
                file.record_count,
                file.file_size_in_bytes,
                partitions,
                offsets,
                (earliest // 1000, latest // 1000),
            )

    def commit(self, change: TableCommit) -> None:
        """See Table."""
        try:
            with self._there.transaction() as work:
                work.set_properties({STATE: change.state.text()})
                if change.removed:
                    self._replace(work, change)
                elif change.added:
                    self._add(work, change)
        except CommitFailedException as error:
            raise CommitConflict(f"the table {self.name}: {error}") from error
        except CommitStateUnknownException as error:
            raise Problem(
                f"the catalog did not say whether the table {self.name} was changed ({error}); nothing is lost: run the same"
                " command again"
            ) from error

    def _location_of(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _add(self, work: Transaction, change: TableCommit) -> None:
        paths = [self._location_of(one.file.path) for one in change.added]
        properties = change.properties()
        if all(is_near(one.file) for one in change.added):
            work.add_files(paths, snapshot_properties=properties, check_duplicate_files=False)
            return
        # As `add_files` does: the mapping tells which column of a file is which.
        names = work.table_metadata.schema().name_mapping.model_dump_json()
        if work.table_metadata.name_mapping() is None:
            work.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
        with work.update_snapshot(snapshot_properties=properties).fast_append() as files:
            for path in paths:
                files.append_data_file(data_file(self._there.io, work.table_metadata, path))

    def _replace(self, work: Transaction, change: TableCommit) -> None:
        old = {self._path(file): file for file in self._data_files()}
        with work.update_snapshot(snapshot_properties=change.properties()).overwrite() as files:
            for path in change.removed:
                files.delete_data_file(old[path])
            for one in change.added:
                location = self._location_of(one.file.path)
                files.append_data_file(data_file(self._there.io, work.table_metadata, location))

    def snapshots(self) -> list[TableSnapshot]:
        """See Table."""
        found = []
        for snapshot in self._there.snapshots():
            summary = snapshot.summary
            known = {} if summary is None else summary.additional_properties
            found.append(
                TableSnapshot(
                    snapshot.snapshot_id,
                    snapshot.timestamp_ms,
                    "" if summary is None else summary.operation.value,
                    {name: known[name] for name in (COMMIT, OFFSETS, RANGES) if name in known},
                )
            )
        return found

    def expire(self, before_ms: int) -> int:
        """See Table. The archive deletes its own files; only the table's manifests remain to be deleted."""
        current = self._there.current_snapshot()
        old = [
            snapshot
            for snapshot in self._there.snapshots()
            if snapshot.timestamp_ms < before_ms and snapshot != current
        ]
        if old:
            moment = datetime.fromtimestamp(before_ms / 1000, UTC)
            self._there.maintenance.expire_snapshots().older_than(moment).commit()
            self._table = self._catalog.load_table(self._identifier)
        return len(old)

    def close(self) -> None:
        """See Table."""
        self._table = None
