"""The handling of damaged batches: an error that names the place, or a count of skipped batches."""

from __future__ import annotations

import sys
from collections.abc import Callable

from .errors import SegmentError
from .slices import OffsetSlice

FAIL = "fail"
SKIP = "skip"
#: Each damaged batch is a separate row (rows=batches with the column `valid`).
SHOW = "show"


class Damage:
    """The damage found in one slice."""

    def __init__(self, cut: OffsetSlice, path: str, mode: str, fail_on_data_loss: bool) -> None:
        self._cut = cut
        self._path = path
        self._mode = mode
        self._fail_on_data_loss = fail_on_data_loss
        self._places: list[str] = []
        self._bytes = 0
        self.write: Callable[[str], object] = sys.stderr.write

    def batch(self, position: int, size: int, offsets: str, reason: object) -> None:
        """Note an unusable batch. Errors: SegmentError, unless damage is to be skipped."""
        place = f"{offsets} at position {position} of {self._path}: {reason}"
        if self._mode == FAIL:
            raise SegmentError(
                f"{self._cut} has a damaged batch, {place} (kwire-log with corrupt=skip leaves it out)"
            )
        self._places.append(place)
        self._bytes += size

    def missing(self, offset: int, reason: str) -> None:
        """Note that records from an offset on are missing. Errors: SegmentError, unless data loss is accepted."""
        text = f"{self._cut}, offset {offset}: {reason}"
        if self._fail_on_data_loss:
            raise SegmentError(f"{text} (failOnDataLoss=false continues without them)")
        self.write(f"kwire-log: {text}\n")

    def report(self) -> None:
        """Write one line about what was skipped to the log of the task."""
        if self._places and self._mode == SKIP:
            more = f" and {len(self._places) - 1} more" if len(self._places) > 1 else ""
            self.write(
                f"kwire-log: {self._cut}: skipped {len(self._places)} damaged batches, {self._bytes} bytes: "
                f"{self._places[0]}{more}\n"
            )
