"""Writes the checkpoint files of one log directory, in the order in which their content was collected.

The content is collected on the broker's loop, where offsets do not change meanwhile; a thread forces it to
the device. Two writes of one file may overlap: a timer's in a thread, and one that a caller waits for. Each
has a number, and a write that a later one has overtaken does nothing. Source: LogManager, OffsetCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from ..metadata.topic_partition import TopicPartition
from . import checkpoint
from .file_layer import FileLayer

Offsets = Mapping[TopicPartition, int]


class CheckpointWrite:
    """One file's next content; `run` may be called on any thread."""

    __slots__ = ("_writer", "name", "number", "offsets")

    def __init__(self, writer: CheckpointWriter, name: str, offsets: Offsets, number: int) -> None:
        self._writer = writer
        self.name = name
        self.offsets = offsets
        self.number = number

    def run(self) -> bool:
        """Replace the file, on the device when this returns; False if a later write did.

        Errors: OSError.
        """
        return self._writer.write(self)


class CheckpointWriter:
    """The checkpoint files of one directory: the content of each, and the writes that have begun."""

    def __init__(self, layer: FileLayer, directory: str) -> None:
        self._layer = layer
        self._directory = directory
        self._held: dict[str, Offsets] = {}
        self._pending: dict[int, CheckpointWrite] = {}
        self._locks: dict[str, Lock] = {}
        self._begun: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._number = 0

    def path(self, name: str) -> str:
        """The path of a checkpoint file."""
        return f"{self._directory}/{name}"

    def read(self, name: str) -> dict[TopicPartition, int]:
        """What a file holds. Errors: CorruptCheckpoint, OSError."""
        offsets = checkpoint.read_offsets(self._layer, self.path(name))
        self._held[name] = offsets
        return offsets

    def begin(self, name: str, offsets: Offsets) -> CheckpointWrite | None:
        """Make this the file's next content; None if it has it already. Call it on the loop.

        Shape: `offsets` is kept and must not change afterwards.
        """
        number = self._begun.get(name, 0)
        if number == self._written.get(name, 0) and self._held.get(name) == offsets:
            return None
        self._number = number = self._number + 1
        self._begun[name] = number
        self._locks.setdefault(name, Lock())
        write = self._pending[number] = CheckpointWrite(self, name, offsets, number)
        return write

    def write(self, write: CheckpointWrite) -> bool:
        """`CheckpointWrite.run`."""
        name = write.name
        try:
            with self._locks[name]:
                if write.number < self._written.get(name, 0):
                    return False
                checkpoint.write_offsets(self._layer, self.path(name), write.offsets)
                self._held[name] = write.offsets
                self._written[name] = write.number
                return True
        finally:
            self._pending.pop(write.number, None)

    def names(self, tp: TopicPartition) -> bool:
        """Whether a file has an entry for this partition, or may get one from a write that has begun."""
        return any(tp in held for held in list(self._held.values())) or any(
            tp in write.offsets for write in list(self._pending.values())
        )
