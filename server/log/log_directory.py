"""One entry of `log.dirs`: lock, identity, clean-shutdown marker, checkpoints.

.lock                  held while a broker uses the directory
meta.properties        meta_properties.py
.kafka_cleanshutdown   JSON {"version":0,"brokerEpoch":N}; there only after a clean stop
*-checkpoint           checkpoint.py
<topic>-<partition>/                       a log
<topic>-<partition>.<32 hex>-delete/       a deleted log that waits to be removed
<topic>-<partition>.<32 hex>-future/       a log that is being copied from another directory of this broker
<topic>-<partition>.<32 hex>-stray/        left alone
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ..metadata.internal_topics import CLUSTER_METADATA_TOPIC
from ..metadata.topic_partition import TopicPartition
from .checkpoint import CLEANER_OFFSET, CorruptCheckpoint
from .checkpoint_writer import CheckpointWrite, CheckpointWriter
from .file_layer import FileLayer
from .meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
MAX_NAME = 255

_SPECIAL = re.compile(r"(.+)-(\d+)\.([0-9a-f]{32})-(delete|future|stray)")

logger = logging.getLogger(__name__)


class LogDirectoryError(Exception):
    """A log directory cannot be used as it is; the message says what to do."""


class LogDirInUse(LogDirectoryError):
    """Another process holds the directory's lock."""


class NotImported(LogDirectoryError):
    """The directory is that of a broker of a KRaft cluster, whose metadata was not imported."""


class MissingMetadata(LogDirectoryError):
    """The directory has logs, but the metadata that names their topics is gone."""


class InconsistentBrokerId(LogDirectoryError):
    """The directory belongs to another broker."""


class InconsistentClusterId(LogDirectoryError):
    """The directory belongs to another cluster."""


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition of a log's directory name; None for other names."""
    topic, separator, partition = name.rpartition("-")
    if not separator or not topic or not partition.isascii() or not partition.isdigit():
        return None
    return TopicPartition(topic, int(partition))


def retired_name(tp: TopicPartition, unique: str, suffix: str = DELETE_SUFFIX) -> str:
    """The name of a retired log's directory; the topic is cut so that it fits a file name."""
    suffix = f"-{tp.partition}.{unique}{suffix}"
    return tp.topic[: MAX_NAME - len(suffix)] + suffix


def future_name(tp: TopicPartition, unique: str) -> str:
    """The name of the directory of a log that is being copied; longer than MAX_NAME for very long topics.

    Source: UnifiedLog.logFutureDirName, which does not cut the topic either.
    """
    return f"{tp}.{unique}{FUTURE_SUFFIX}"


class LogDirectory:
    """One log directory of this broker."""

    def __init__(self, layer: FileLayer, path: str) -> None:
        self.layer = layer
        self.path = os.path.abspath(path)
        self.offline = False
        self.clean = False
        """True if the last stop was clean; only right after `note_clean_shutdown`."""
        self.log_count = 0
        self.on_error: Callable[[OSError], None] | None = None
        """Called when a log in this directory meets an I/O error."""
        self._lock: int | None = None
        self._checkpoints = CheckpointWriter(layer, self.path)
        self._cleaned_to: dict[TopicPartition, int] | None = None

    def __repr__(self) -> str:
        return f"LogDirectory({self.path})"

    def file(self, name: str) -> str:
        """The path of a file or directory in here."""
        return f"{self.path}/{name}"

    def is_there(self) -> bool:
        """Whether the directory is still accessible: it has the file that `lock` made."""
        try:
            return self.layer.file_size(self.file(LOCK)) is not None
        except OSError:
            return False

    # -- locking -----------------------------------------------------------------------------------

    def lock(self) -> None:
        """Create the directory if it is missing and lock it. Errors: LogDirInUse, OSError."""
        try:
            self.layer.make_directory(self.path)
        except FileExistsError:
            if os.path.islink(self.path):
                raise NotADirectoryError(
                    f"{self.path} is a symbolic link that leads to no directory; mend the link, or choose"
                    " another data directory (log.dirs)"
                ) from None
            raise NotADirectoryError(
                f"{self.path} is a file, where a data directory should be; move the file away, or choose"
                " another data directory (log.dirs)"
            ) from None
        self._lock = self.layer.lock(self.file(LOCK))
        if self._lock is None:
            raise LogDirInUse(
                f"{self.path} is in use by another broker; stop it, or choose another data "
                "directory (log.dirs)"
            )

    def unlock(self) -> None:
        """Release the lock; safe to call twice."""
        if self._lock is not None:
            self.layer.unlock(self._lock)
            self._lock = None

    def meta_properties(self) -> MetaProperties | None:
        """The broker and cluster that the directory belongs to; None if it is new. Errors: CorruptMetaProperties."""
        try:
            data = self.layer.read_file(self.file(META_PROPERTIES))
        except FileNotFoundError:
            return None
        return parse_meta_properties(data, self.file(META_PROPERTIES))

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Check that the directory is this broker's, or write the ids into a new one.

        Errors: InconsistentBrokerId, InconsistentClusterId, CorruptMetaProperties.
        """
        stored = self.meta_properties()
        meta = stored or MetaProperties()
        if meta.cluster_id not in (None, cluster_id):
            raise InconsistentClusterId(
                f"{self.path} belongs to cluster {meta.cluster_id}, but this is {cluster_id}; "
                "use the coordination store it was made with, or another data directory"
            )
        if meta.broker_id not in (None, broker_id):
            raise InconsistentBrokerId(
                f"{self.path} belongs to broker {meta.broker_id}, but this is broker {broker_id}; "
                f"use broker.id={meta.broker_id}, or another data directory"
            )
        if stored is None or meta.cluster_id is None or meta.broker_id is None:
            meta.cluster_id = cluster_id
            meta.broker_id = broker_id
            self.layer.replace_file(self.file(META_PROPERTIES), format_meta_properties(meta))

    # -- clean shutdown ----------------------------------------------------------------------------

    def was_stopped_cleanly(self) -> bool:
        """Whether the marker of a clean stop is there. Errors: OSError."""
        return self.layer.file_size(self.file(CLEAN_SHUTDOWN)) is not None

    def note_clean_shutdown(self) -> None:
        """Look for the marker of a clean stop, and remove it, on the device too."""
        self.clean = self.was_stopped_cleanly()
        if self.clean:
            self.layer.unlink(self.file(CLEAN_SHUTDOWN))
            # If a power cut brought it back, incomplete files would be taken for complete ones.
            self.layer.sync_directory(self.path)

    def mark_clean_shutdown(self, broker_epoch: int = -1) -> None:
        """Write the marker of a clean stop; everything else must be on the device by now."""
        text = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        self.layer.replace_file(self.file(CLEAN_SHUTDOWN), text.encode())

    # -- checkpoints -------------------------------------------------------------------------------

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Offsets of a checkpoint file; an unreadable one is logged and counts as empty."""
        try:
            return self._checkpoints.read(name)
        except CorruptCheckpoint as e:
            logger.error("%s; continuing without it", e)
            return {}

    def begin_checkpoint(
        self, name: str, offsets: Mapping[TopicPartition, int]
    ) -> CheckpointWrite | None:
        """The write of a checkpoint file, to be run on any thread; None if nothing has changed."""
        return self._checkpoints.begin(name, offsets)

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint file at once; it supersedes writes that have not run yet. Errors: OSError."""
        write = self._checkpoints.begin(name, offsets)
        if write is not None:
            write.run()

    def checkpoints_name(self, tp: TopicPartition) -> bool:
        """Whether a checkpoint file has an entry for this partition."""
        return self._checkpoints.names(tp)

    # -- how far logs are compacted ----------------------------------------------------------------

    def cleaned_to(self, tp: TopicPartition) -> int | None:
        """Where the last round of compaction over a log ended; None if there was none. Errors: OSError."""
        return self._cleaned().get(tp)

    def begin_cleaned_to(self, tp: TopicPartition, offset: int) -> CheckpointWrite | None:
        """Record that a round over a log has ended at offset; returns the write, to be run off the loop."""
        self._cleaned()[tp] = offset
        return self.begin_checkpoint(CLEANER_OFFSET, dict(self._cleaned()))

    def lower_cleaned_to(self, tp: TopicPartition, offset: int) -> None:
        """Lower the cleaner checkpoint after the log was truncated to offset; on the device when this returns.

        Errors: OSError. Source: LogCleanerManager.maybeTruncateCheckpoint.
        """
        if self._cleaned().get(tp, 0) > offset:
            self._cleaned()[tp] = offset
            self.write_checkpoint(CLEANER_OFFSET, dict(self._cleaned()))

    def forget_cleaned_to(self, tp: TopicPartition) -> None:
        """Remove the cleaner checkpoint of a deleted log, so that a new log with its name starts uncleaned.

        Errors: OSError.
        """
        if self._cleaned().pop(tp, None) is not None:
            self.write_checkpoint(CLEANER_OFFSET, dict(self._cleaned()))

    def _cleaned(self) -> dict[TopicPartition, int]:
        if self._cleaned_to is None:
            self._cleaned_to = dict(self.read_checkpoint(CLEANER_OFFSET))
        return self._cleaned_to

    # -- logs --------------------------------------------------------------------------------------

    def partitions(self) -> FoundLogs:
        """The logs in this directory, by partition."""
        return split_names(self.layer.list_subdirectories(self.path), self.path)


class FoundLogs(NamedTuple):
    """The logs found in a log directory.

    Shape: the partitions that have a log, the paths of deleted logs that are still to be removed, and the names of logs
    that are being copied to this directory.
    """

    logs: list[TopicPartition]
    deleted: list[str]
    futures: dict[TopicPartition, str]


def split_names(names: Iterable[str], directory: str) -> FoundLogs:
    """Tell logs from deleted ones and copies among directory names; others are logged and left alone."""
    logs: list[TopicPartition] = []
    deleted: list[str] = []
    futures: dict[TopicPartition, str] = {}
    for name in sorted(names):
        special = _SPECIAL.fullmatch(name)
        if special is not None:
            copied = TopicPartition(special.group(1), int(special.group(2)))
            if special.group(4) == "delete":
                deleted.append(f"{directory}/{name}")
            elif special.group(4) == "future" and copied not in futures:
                futures[copied] = name
            else:
                logger.warning("%s/%s is left alone", directory, name)
            continue
        tp = parse_directory_name(name)
        if tp is not None:
            if tp.topic != CLUSTER_METADATA_TOPIC:  # of KRaft: metadata_log.py
                logs.append(tp)
        elif not name.startswith("."):
            logger.warning("%s/%s is not the log of a partition and is left alone", directory, name)
    return FoundLogs(logs, deleted, futures)
