"""The interface of a table, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..problems import Problem
from .changes import TableCommit, TableState

if TYPE_CHECKING:
    import pyarrow as pa


class CommitConflict(Exception):
    """Another commit was made first; nothing was written."""


def prefix_of(columns: pa.Schema) -> str:
    """What the columns of partition, offset and timestamp begin with: "_" beside columns of values."""
    return "_" if "_offset" in columns.names else ""


def rolled_back(table: str, remedy: str) -> Problem:
    """What to say if another program has taken commits of kwire back: the next commits would not add their records again."""
    return Problem(
        f"{table} was rolled back by another program and lacks records that it had: {remedy} again, or drop the table, and the"
        " next run creates it anew"
    )


class TableSnapshot(NamedTuple):
    """One commit of a table: its number or id, when (ms since 1970), what was done, and what it says of the archive."""

    number: int
    at_ms: int
    operation: str
    properties: dict[str, str]


class TableFile(NamedTuple):
    """A file of a table as its statistics describe it; each pair is the smallest and the largest value in it."""

    location: str
    rows: int
    size: int
    partitions: tuple[int, int]
    offsets: tuple[int, int]
    timestamps_ms: tuple[int | None, int | None]


class Table(Protocol):
    """One table of a topic. Everything raises Problem where the table cannot be reached or is damaged."""

    #: Where it is, or what its catalog calls it.
    name: str
    #: As `--table` names it.
    format: str

    @property
    def identity(self) -> str | None:
        """The id of a table that is open, where its catalog may have others; None where its place says which one it is."""

    def open(self, *, create: bool) -> bool:
        """Read the table's newest state; without `create`, False if there is no such table."""

    def state(self) -> TableState | None:
        """The table's state of the archive's commits; None if nothing was committed yet."""

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns that the table lacks, and widen types that can be. Raises Problem for other changes."""

    def files(self) -> set[str]:
        """The paths of its files, relative to the archive."""

    def described(self) -> Iterator[TableFile]:
        """Its files by their statistics."""

    def commit(self, change: TableCommit) -> None:
        """Do all of a change in one commit. Raises Conflict if another commit came first."""

    def snapshots(self) -> list[TableSnapshot]:
        """Its commits, the oldest first."""

    def expire(self, before_ms: int) -> int:
        """Forget the states of the table from before a time (ms since 1970), except the newest; returns how many."""

    def close(self) -> None:
        """End connections."""
