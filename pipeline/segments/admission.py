"""The reader of streaming queries for Spark 4.2 and newer, in which Spark limits the size of a batch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from .readers import SegmentStreamReader

#: Whether this Spark supports admission control.
IS_SUPPORTED = find_spec("pyspark.sql.streaming.datasource") is not None

if IS_SUPPORTED:
    from pyspark.sql.streaming.datasource import (  # type: ignore[import-not-found]
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    class AdmittingStreamReader(SegmentStreamReader, SupportsTriggerAvailableNow):
        """One streaming query.

        Trigger.AvailableNow reads the data present at its start, in batches of maxOffsetsPerTrigger.
        """

        def getDefaultReadLimit(self) -> ReadLimit:
            limit = self._options.max_offsets_per_trigger
            return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            return self._follower.after(start, rows)

        def reportLatestOffset(self) -> dict[str, Any]:
            return self._follower.newest()

        def prepareForTriggerAvailableNow(self) -> None:
            self._follower.stop_at_newest()
