"""The expected results of an aggregate, computed record by record in plain Python, and test records."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

#: Event times are around here: 2026-01-01T00:00:00Z.
START_MS = 1_767_225_600_000


@dataclass
class Sent:
    """A produced record; `fault` is the beginning of its reason, None for a good one."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    timestamp_ms: int = START_MS + 86_400_000
    fault: str | None = None
    time_ms: int = 0
    group: tuple[str, ...] = ()
    number: float = 0.0
    place: tuple[int, int] = (-1, -1)  # partition and offset, once sent


def iso(time_ms: int) -> str:
    """`2026-01-01T00:00:00.000Z`, as results have it."""
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def broken(seed: random.Random, column: str, kind: str, time: str) -> list[Sent]:
    """One record of each kind of fault, with a required column of some type besides the time, of type TIMESTAMP or
    BIGINT.
    """
    moments = [START_MS, 4_070_908_800_000]  # the second one is in 2099
    start, ahead = [iso(moment) if time == "TIMESTAMP" else moment for moment in moments]
    good: dict[str, Any] = {"time": start, "service": "a", "level": "i", "name": "a", "user": "a"}
    good |= {"value": 1.5}

    def without(name: str) -> str:
        return json.dumps({key: value for key, value in good.items() if key != name})

    def other(**columns: Any) -> str:
        return json.dumps({**good, **columns})

    texts = [
        ("not a JSON object", "no JSON at all"),
        ("not a JSON object", ""),
        ("not a JSON object", "[1, 2]"),
        ("not a JSON object", "17"),
        ("not a JSON object", json.dumps(good)[:-1]),
        ("not a JSON object", json.dumps(good) + " and more"),
        ("not a JSON object", json.dumps(good) * 2),
        ("time is missing", without("time")),
        ("time is missing", other(time=None)),
        (f"time is not {time}: yesterday", other(time="yesterday")),
        ("time is ahead of the record's timestamp", other(time=ahead)),
        (f"{column} is missing", without(column)),
        (
            f"{column} is not {kind}: {{" if kind != "STRING" else f"{column} is missing",
            other(**{column: {"a": 1} if kind != "STRING" else ""}),
        ),
    ]
    found = [Sent(text.encode(), fault=fault) for fault, text in texts]
    found += [Sent(None, fault="no value"), Sent(b'{"name": "\xff\xfe"}', fault="not UTF-8")]
    for number, sent in enumerate(found):
        sent.key = None if number % 3 == 0 else f"key {number}".encode()
        sent.headers = [("trace", b"\x00\xff")] if number % 2 else []
    seed.shuffle(found)
    return found


@dataclass
class Model:
    """Spark's event time: records below the watermark of earlier runs are late; windows below it close.

    `spans` returns the windows of an event, (start, end); a session's are merged where they overlap.
    """

    watermark_ms: int
    spans: Callable[[int], list[tuple[int, int]]]
    merged: bool = False
    mark_ms: int = 0
    late: list[Sent] = field(default_factory=list)
    results: list[tuple[tuple[str, ...], int, int, list[Sent]]] = field(default_factory=list)
    _open: dict[tuple[str, ...], list[tuple[int, int, list[Sent]]]] = field(default_factory=dict)

    def run(self, records: Iterable[Sent]) -> None:
        """One run to the current end, in one batch."""
        latest = 0
        for sent in records:
            if sent.fault is not None:
                continue
            latest = max(latest, sent.time_ms)
            spans = self.spans(sent.time_ms)
            kept = [span for span in spans if span[1] > self.mark_ms]
            if len(kept) < len(spans):
                self.late.append(sent)
            for start, end in kept:
                self._open.setdefault(sent.group, []).append((start, end, [sent]))
        self._merge()
        self.mark_ms = max(self.mark_ms, latest - self.watermark_ms)
        for group, spans_ in self._open.items():
            self.results += [(group, *span) for span in spans_ if span[1] <= self.mark_ms]
            spans_[:] = [span for span in spans_ if span[1] > self.mark_ms]

    def _merge(self) -> None:
        for group, spans in self._open.items():
            found: list[tuple[int, int, list[Sent]]] = []
            for start, end, events in sorted(spans, key=lambda span: span[:2]):
                last = found[-1] if found else None
                same = last is not None and (
                    start <= last[1] if self.merged else last[:2] == (start, end)
                )
                if same and last is not None:
                    found[-1] = (last[0], max(last[1], end), last[2] + events)
                else:
                    found.append((start, end, events))
            self._open[group] = found


def windows(length_ms: int, slide_ms: int) -> Callable[[int], list[tuple[int, int]]]:
    """The windows of an event, which begin at multiples of the slide."""

    def spans(time_ms: int) -> list[tuple[int, int]]:
        first = (time_ms - length_ms) // slide_ms * slide_ms + slide_ms
        return [(start, start + length_ms) for start in range(first, time_ms + 1, slide_ms)]

    return spans


def percentile(numbers: list[float], rank: float) -> float:
    """Linear interpolation between the two neighbours."""
    ordered = sorted(numbers)
    position = (len(ordered) - 1) * rank / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
