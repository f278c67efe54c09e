"""A Delta table of a topic, with the archive's own files; partitioned by the day of the records' timestamps.

The table's folder is the topic's in the archive, so that its log names the files by relative paths. The manifest that a
commit has reached is also its application transaction (`txn`), Delta's own means against writing something twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from ..problems import Problem
from .changes import COMMIT, OFFSETS, RANGES, STATE, AddedFile, TableCommit, TableState, is_near
from .stores import for_delta
from .tables import CommitConflict, TableFile, TableSnapshot, prefix_of, rolled_back

if TYPE_CHECKING:
    from .place import TablePlace

#: The application id of our transactions.
APPLICATION = "kwire-archive"
_HOUR = re.compile(r"(?:^|/)date=([^/]+)/hour=(\d+|__HIVE_DEFAULT_PARTITION__)/")
_NEAR_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_DAY = re.compile(r"(?:^|/)date=([^/]+)/")


class Delta:
    """One Delta table, as of the last time it was looked at."""

    format = "delta"

    def __init__(
        self,
        root: str,
        folder: str,
        topic: str,
        schema: pa.Schema,
        settings: Mapping[str, str],
        prefix: str = "",
    ) -> None:
        """`folder` is the table's in the archive at `root`; `settings` are storage options of deltalake.

        `prefix` is what the columns of partition, offset and timestamp begin with.
        """
        self._folder = folder
        self._topic = topic
        self._names = tuple(f"{prefix}{name}" for name in ("partition", "offset", "timestamp"))
        self._schema = schema.append(pa.field("date", pa.date32()))
        self._settings = dict(settings)
        self.name = f"{root}/{folder}"
        self._table: DeltaTable | None = None

    @classmethod
    def of(cls, place: TablePlace, topic: str, kind: str, columns: pa.Schema) -> Delta:
        """See TablePlace.table. The files of tables of values are in folders of their own."""
        folder = f"{kind}/{cls.format}/{topic}" if kind else f"topic={topic}"
        return cls(
            place.path, folder, topic, columns, for_delta(place.settings), prefix_of(columns)
        )

    def open(self, *, create: bool) -> bool:
        """Read the table's newest state; without `create`, False if there is no such table."""
        try:
            if self._table is not None:
                self._table.update_incremental()
                return True
            if create:
                self._table = DeltaTable.create(
                    self.name,
                    Schema.from_arrow(self._schema),
                    mode="ignore",
                    partition_by=["date"],
                    storage_options=self._settings,
                )
            self._table = DeltaTable(self.name, storage_options=self._settings)
        except TableNotFoundError:
            return False
        except (DeltaError, OSError) as error:
            raise Problem(f"the Delta table {self.name} cannot be opened: {error}") from error
        return True

    @property
    def _there(self) -> DeltaTable:
        assert self._table is not None
        return self._table

    @property
    def identity(self) -> None:
        """See Table."""

    def state(self) -> TableState | None:
        """See Table. Another program's commits say nothing of the archive, so the newest one that does counts."""
        try:
            reached = self._there.transaction_version(APPLICATION)
            # Mostly the newest commit is ours, and reading all takes long.
            history = self._there.history(1)
            if not any(STATE in commit for commit in history):
                history = self._there.history()
        except (DeltaError, OSError) as error:
            raise Problem(f"the Delta table {self.name} cannot be read: {error}") from error
        restored: dict[str, Any] | None = None
        for commit in history:
            if restored is None and commit.get("operation") == "RESTORE":
                restored = commit
            if (text := commit.get(STATE)) is not None:
                state = TableState.of(text, self.name)
                if reached != state.commit:
                    raise Problem(
                        f"the Delta table {self.name} is damaged: its transaction {APPLICATION} is at {reached}, its newest"
                        f" commit of kwire at {state.commit}"
                    )
                if restored is not None and _is_before(restored, commit):
                    raise rolled_back(
                        f"the Delta table {self.name}", f"restore its version {commit['version']}"
                    )
                return state
        # Old commits are removed from the log, but their transaction state is kept.
        return None if reached is None else TableState(self._topic, reached, "")

    def evolve(self, schema: pa.Schema) -> None:
        """See Table."""
        there = pa.schema(self._there.schema().to_arrow())
        more = [field for field in schema if field.name not in there.names]
        for field in schema:
            if field.name in there.names and not _same(field.type, there.field(field.name).type):
                raise Problem(
                    f"the Delta table {self.name} has {field.name} as {there.field(field.name).type}, and Delta cannot change"
                    f" that to {field.type}"
                )
        if more:
            self._there.alter.add_columns(
                list(Schema.from_arrow(pa.schema(more)).fields),
            )
            self._there.update_incremental()

    def files(self) -> set[str]:
        """See Table."""
        return {f"{self._folder}/{path}" for path in self._actions().column("path").to_pylist()}

    def _actions(self) -> pa.Table:
        return pa.table(self._there.get_add_actions(flatten=True))

    def described(self) -> Iterator[TableFile]:
        """See Table."""
        actions = self._actions()
        # Not the day, which may be outside of Python's range.
        days = [name for name in actions.column_names if name.startswith("partition.")]
        for row in actions.drop_columns(
            [name for name in days if name.endswith("date")]
        ).to_pylist():
            stats = [
                row.get(f"{end}.{name}")
                for name in ("partition", "offset")
                for end in ("min", "max")
            ]
            if None in stats:
                raise Problem(
                    f"the Delta table {self.name} has no statistics of {row['path']}, so its offsets are unknown"
                )
            partition, last_partition, first, last = stats
            times = [row.get(f"{end}.timestamp") for end in ("min", "max")]
            yield TableFile(
                f"{self.name}/{row['path']}",
                row["num_records"],
                row["size_bytes"],
                (partition, last_partition),
                (first, last),
                (_ms(times[0]), _ms(times[1])) if None not in times else _hour(row["path"]),
            )

    def commit(self, change: TableCommit) -> None:
        """See Table."""
        added = [self._added(file, change) for file in change.added]
        days = {path: _day(path) for path in change.removed}
        removed = [
            RemoveAction(
                path=path.removeprefix(f"{self._folder}/"),
                data_change=False,
                deletion_timestamp=_now_ms(),
                partition_values={"date": day},
            )
            for path, day in sorted(days.items())
        ]
        # Delta retries after another commit, but that commit may have added the same files.
        properties = CommitProperties(
            custom_metadata={STATE: change.state.text(), **change.properties()},
            max_commit_retries=0,
            app_transactions=[Transaction(APPLICATION, change.state.commit)],
        )
        try:
            self._there.create_write_transaction(
                [*added, *removed],
                "append",
                self._there.schema(),
                ["date"],
                commit_properties=properties,
            )
        except CommitFailedError as error:
            raise CommitConflict(f"the Delta table {self.name}: {error}") from error
        except (DeltaError, OSError) as error:
            raise Problem(f"the Delta table {self.name} cannot be written: {error}") from error

    def _added(self, one: AddedFile, change: TableCommit) -> AddAction:
        partition, file = one
        ends = {
            "minValues": (partition, file.first_offset, file.first_timestamp_ms),
            "maxValues": (partition, file.last_offset, file.last_timestamp_ms),
        }
        names = self._names
        statistics: dict[str, object] = {
            "numRecords": file.rows,
            "nullCount": dict.fromkeys(names, 0),
        }
        for end, (number, offset, stamp) in ends.items():
            bounds: dict[str, object] = dict(zip(names, (number, offset), strict=False))
            # Other years are left out, because not every reader can parse them.
            if is_near(file):
                bounds[names[2]] = _iso(stamp)
            statistics[end] = bounds
        return AddAction(
            path=file.path.removeprefix(f"{self._folder}/"),
            size=file.size,
            partition_values={"date": _day(file.path)},
            modification_time=_now_ms(),
            # Files that replace others have the same records.
            data_change=bool(change.ranges),
            stats=json.dumps(statistics),
        )

    def snapshots(self) -> list[TableSnapshot]:
        """See Table."""
        return [
            TableSnapshot(
                commit["version"],
                commit["timestamp"],
                commit.get("operation", ""),
                {name: commit[name] for name in (COMMIT, OFFSETS, RANGES) if name in commit},
            )
            for commit in reversed(self._there.history())
        ]

    def expire(self, before_ms: int) -> int:
        """See Table. How long Delta keeps its log is a property of the table (`delta.logRetentionDuration`, 30 days).

        So `before_ms` decides nothing here. What older versions name may be gone by then, as after Delta's VACUUM.
        """
        before = len(self._there.history())
        self._there.create_checkpoint()
        self._there.cleanup_metadata()
        return before - len(DeltaTable(self.name, storage_options=self._settings).history())

    def close(self) -> None:
        """See Table."""
        self._table = None


def _is_before(restored: dict[str, Any], commit: dict[str, Any]) -> bool:
    """Whether a RESTORE went back behind a commit."""
    to = restored.get("operationParameters", {})
    if str(to.get("version")).isdecimal():
        return int(to["version"]) < int(commit["version"])
    if str(to.get("datetime")).isdecimal():  # in ms, as delta-rs writes it
        return int(to["datetime"]) < int(commit["timestamp"])
    return False


def _same(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether Delta stores both in the same way: names of elements and sizes of offsets do not matter."""
    kinds = [Schema.from_arrow(pa.schema([pa.field("x", kind)])).to_json() for kind in (one, other)]
    return bool(kinds[0] == kinds[1])


def _day(path: str) -> str | None:
    """The day in a file's path; None for years that not every reader can parse."""
    found = _DAY.search(path)
    assert found is not None, path
    return found[1] if _NEAR_DAY.fullmatch(found[1]) else None


def _hour(path: str) -> tuple[int | None, int | None]:
    """The first and the last millisecond of the hour in a file's path, or of the day if it has no hour; None if there is neither."""
    found = _HOUR.search(path)
    if found is None:
        return None, None
    day = int(np.datetime64(unquote(found[1]), "D").astype(np.int64)) * 24
    first, hours = (day + int(found[2]), 1) if found[2].isdecimal() else (day, 24)
    return first * 3_600_000, (first + hours) * 3_600_000 - 1


def _iso(ms: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ms(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
