"""Small plots of rates, as the points of SVG paths. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

#: The interval between samples, which cover ten minutes.
SAMPLE_S = 5
SAMPLES = 120
WIDTH, HEIGHT = 240, 48


class Sample(NamedTuple):
    """Counters at one moment. Unit: ms of a clock that never goes back."""

    at_ms: int
    bytes_in: int
    bytes_out: int
    messages_in: int
    requests: int


class Chart(NamedTuple):
    """One plot. Shape: `line` and `area` are SVG path data in a box of WIDTH by HEIGHT; empty without two points."""

    name: str
    unit: str
    now: float | None
    most: float
    line: str
    area: str


class History:
    """The samples of the last ten minutes."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=SAMPLES + 1)

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        self.samples.append(sample)

    def rates(self, field: str) -> list[float]:
        """The rate between each pair of samples. Shape: a counter that decreased, as after a restart, counts as 0."""
        found = []
        previous: Sample | None = None
        for sample in self.samples:
            if previous is not None and sample.at_ms > previous.at_ms:
                grown = getattr(sample, field) - getattr(previous, field)
                found.append(max(0, grown) * 1000 / (sample.at_ms - previous.at_ms))
            previous = sample
        return found

    def charts(self) -> list[Chart]:
        """All plots."""
        return [
            chart("Bytes in", "B", self.rates("bytes_in")),
            chart("Bytes out", "B", self.rates("bytes_out")),
            chart("Messages in", "", self.rates("messages_in")),
            chart("Requests", "", self.rates("requests")),
        ]


def chart(name: str, unit: str, values: Sequence[float]) -> Chart:
    """Plot values, the newest at the right edge."""
    if not values:
        return Chart(name, unit, None, 0.0, "", "")
    most = max(values)
    scale = (HEIGHT - 2) / most if most else 0.0
    step = WIDTH / (SAMPLES - 1)
    left = WIDTH - step * (len(values) - 1)
    points = [
        f"{left + step * index:.1f} {HEIGHT - 1 - value * scale:.1f}"
        for index, value in enumerate(values)
    ]
    if len(points) < 2:
        return Chart(name, unit, values[-1], most, "", "")
    line = f"M{' L'.join(points)}"
    return Chart(
        name, unit, values[-1], most, line, f"{line} L{WIDTH} {HEIGHT} L{left:.1f} {HEIGHT}Z"
    )
