"""Offsets of a streaming query: where it begins, how far it may read now, and what lies between.

An offset is JSON, `{"topic": {"0": 23}}`: for each partition the offset after the last record that was read.
"""

from __future__ import annotations

from typing import Any

from . import plan
from .errors import SegmentError
from .logs import Memory, PartitionLog, topic_id
from .options import Options
from .plan import Logs, Offsets, Place
from .slices import OffsetSlice

Json = dict[str, dict[str, int]]


def to_json(offsets: Offsets) -> Json:
    """Write offsets as JSON, sorted because Spark compares the text."""
    found: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(json: Json) -> Offsets:
    """Read what `to_json` wrote."""
    return {
        (topic, int(partition)): offset
        for topic, offsets in json.items()
        for partition, offset in offsets.items()
    }


class Follower:
    """The state of a streaming query: how far it has been planned, which Spark passes with each plan.

    After a restart Spark first plans its last batch, or an empty one at the last offset, and then asks for the latest
    offset. For a new query it asks for the latest offset first, and then for the initial one.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._initial: Offsets | None = None
        self._planned: Offsets | None = None
        self._target: Offsets | None = None
        self._memories: dict[Place, Memory] = {}
        self._topic_ids: dict[Place, str] = {}

    def initial(self) -> Json:
        """Where a new query begins; the same at each call."""
        if self._initial is None:
            self._initial = plan.starts(self._find(), self._options)
        if self._planned is None:
            self._planned = self._initial
        return to_json(self._initial)

    def latest(self) -> Json:
        """Where the next batch may end: at most maxOffsetsPerTrigger beyond the last plan."""
        planned = self._planned
        if planned is None:
            planned = from_json(self.initial())
        return to_json(self._until(planned, self._options.max_offsets_per_trigger))

    def after(self, start: Json, limit: int | None) -> Json:
        """Where a batch may end that begins at `start` and has at most `limit` offsets."""
        return to_json(self._until(from_json(start), limit))

    def newest(self) -> Json:
        """Where everything ends that there is now."""
        return to_json({place: self._end(log) for place, log in self._find().items()})

    def stop_at_newest(self) -> None:
        """Never read beyond the present end of the present partitions."""
        self._target = from_json(self.newest())

    def _end(self, log: PartitionLog) -> int:
        return plan.latest(log, self._options)

    def _until(self, planned: Offsets, limit: int | None) -> Offsets:
        logs = self._find()
        ends = {place: self._end(log) for place, log in logs.items()}
        if self._target is not None:
            ends = {place: min(ends.get(place, end), end) for place, end in self._target.items()}
        # A partition that is gone stays in the offset, so that planning notices its absence; no offset goes back.
        for place, offset in planned.items():
            ends[place] = max(ends.get(place, offset), offset)
        if limit is not None:
            begins = {
                place: planned.get(place, logs[place].log_start_offset if place in logs else end)
                for place, end in ends.items()
            }
            ends = limited(begins, ends, limit)
        return ends

    def slices(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetSlice]:
        """The slices between two offsets. Errors: SegmentError for records that are gone."""
        until = from_json(end)
        self._planned = until
        return plan.between(self._find(), from_json(start), until, self._options)

    def _find(self) -> Logs:
        logs = plan.find(self._options)
        for place, log in logs.items():
            self._check_same(place, log)
            log.memory = self._memories.setdefault(place, log.memory)
        return logs

    def _check_same(self, place: Place, log: PartitionLog) -> None:
        """Raises SegmentError for a partition of another topic of the same name, whose offsets begin again."""
        found = topic_id(log.directory)
        if found is None:
            return
        known = self._topic_ids.setdefault(place, found)
        if found == known:
            return
        if self._options.fail_on_data_loss:
            raise SegmentError(
                f"{log}: the topic was deleted and created again (id {known} before, {found} now), so it is unknown which records"
                " were not read; read it in another query (failOnDataLoss=false continues at the old offset)"
            )
        self._topic_ids[place] = found
        self._memories.pop(place, None)


def limited(begins: Offsets, ends: Offsets, limit: int) -> Offsets:
    """Ends that are together at most `limit` offsets after the begins; each partition gets its share by its lag.

    Shape: a partition with lag advances by at least one. Source: KafkaMicroBatchStream.rateLimit.
    """
    waiting = {place: max(end - begins[place], 0) for place, end in ends.items()}
    total = sum(waiting.values())
    if total <= limit:
        return ends
    return {
        place: begins[place] + min(count, max(limit * count // total, 1)) if count else ends[place]
        for place, count in waiting.items()
    }
