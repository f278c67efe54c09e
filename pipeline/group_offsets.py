"""Commits the offsets a query has processed to a consumer group, so that Kafka's own tools show the job's lag."""

from __future__ import annotations

import sys
import threading

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from .cluster import Cluster
from .log_cluster import LogCluster
from .offsets import Offsets, kafka_offsets
from .problems import Problem


class BatchOffsets(StreamingQueryListener):
    """Keeps each finished batch's end offsets, until `flush` commits the latest ones to a group.

    Spark calls the listener in a thread of its own; `flush` is called by the thread that waits for the query, so that a broker
    that does not answer delays neither the query nor Spark's events. A failure is reported once, not each time.
    """

    def __init__(self, cluster: Cluster | LogCluster, group: str) -> None:
        self.cluster = cluster
        self.group = group
        self._lock = threading.Lock()
        self._finished: Offsets = {}
        self._failing = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do: no batch is finished yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Remember the end offsets of all topics the batch read."""
        for source in event.progress.sources:
            with self._lock:
                self._finished.update(kafka_offsets(source.endOffset))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to do: the last flush commits what is left."""

    def flush(self) -> None:
        """Commit what was finished since the last flush; after a failure it is left for the next one."""
        with self._lock:
            offsets, self._finished = self._finished, {}
        if not offsets:
            return
        try:
            self.cluster.commit(self.group, offsets)
        except Problem as problem:
            with self._lock:
                self._finished = {**offsets, **self._finished}
            if not self._failing:
                print(f"kwire pipeline: {problem}; the job continues", file=sys.stderr, flush=True)
            self._failing = True
        else:
            self._failing = False
