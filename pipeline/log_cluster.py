"""What archive asks of a cluster (`cluster.py`), answered by log directories: no broker is asked.

Offsets are those that the brokers had committed when they last wrote their checkpoints of high watermarks.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence

from kwire.server.log.file_layer import FileLayer
from kwire.server.log.meta_properties import CorruptMetaProperties, read_topic_id
from kwire.types import uuid_to_str

from .offsets import Offsets
from .options import chosen_topics
from .problems import Problem
from .segments import plan
from .segments.errors import SegmentError
from .segments.logs import PartitionLog
from .segments.options import Options, parse
from .segments.slices import OffsetSlice


class LogCluster:
    """Log directories in place of a cluster."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = list(folders)
        #: As messages name it.
        self.bootstrap = ", ".join(self.folders)

    def __enter__(self) -> LogCluster:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def _logs(self, topics: Collection[str] | None = None) -> dict[tuple[str, int], PartitionLog]:
        try:
            logs = plan.find(parse({"paths": json.dumps(self.folders)}))
        except SegmentError as error:
            raise Problem(str(error)) from error
        return {place: log for place, log in logs.items() if topics is None or place[0] in topics}

    def chosen(self, options: Namespace) -> dict[str, int]:
        """Topic -> number of partitions; those that the directories do not have count if a later one is there."""
        there: dict[str, int] = {}
        for topic, number in self._logs():
            there[topic] = max(there.get(topic, 0), number + 1)
        return chosen_topics(options, there, self.where)

    @property
    def where(self) -> str:
        """Where topics are, as messages say it."""
        return f"in {self.bootstrap}"

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Topic -> its id, from the `partition.metadata` of the partitions."""
        found: dict[str, str] = {}
        for (topic, _), log in self._logs(set(topics)).items():
            try:
                own = read_topic_id(FileLayer(), log.directory)
            except CorruptMetaProperties as error:
                raise Problem(str(error)) from error
            if own is not None:
                text = uuid_to_str(own)
                if found.setdefault(topic, text) != text:
                    raise Problem(
                        f"{self.bootstrap} has partitions of two topics named {topic}, with ids {found[topic]} and {text}"
                    )
        return found

    def starts(self, topics: Mapping[str, int]) -> Offsets:
        """See Cluster; partitions that the directories do not have are left out."""
        return {place: log.log_start_offset for place, log in self._logs(topics.keys()).items()}

    def ends(self, topics: Mapping[str, int], *, read_committed: bool = False) -> Offsets:
        """See Cluster; partitions that the directories do not have are left out."""
        try:
            return {
                place: log.last_stable_offset if read_committed else log.high_watermark
                for place, log in self._logs(topics.keys()).items()
            }
        except SegmentError as error:
            raise Problem(str(error)) from error

    def slices(
        self, begins: Offsets, ends: Offsets, *, read_committed: bool, go_on: bool
    ) -> tuple[Options, list[OffsetSlice]]:
        """What tasks have to read between these offsets, and how. Raises Problem if records are gone, unless it is to go on."""
        isolation = "read_committed" if read_committed else "read_uncommitted"
        options = parse(
            {
                "paths": json.dumps(self.folders),
                "isolation": isolation,
                "failOnDataLoss": str(not go_on).lower(),
            }
        )
        topics = {topic for topic, _ in ends}
        try:
            return options, plan.between(self._logs(topics), begins, ends, options)
        except SegmentError as error:
            raise Problem(str(error)) from error

    def commit(self, group: str, offsets: Offsets) -> None:
        """Nothing: there is no broker that keeps groups."""
