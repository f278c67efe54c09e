"""The plots of an audit as SVG: records, offsets with findings, timestamps, batch sizes."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .facts import PartitionFacts
from .report import Report

#: Colours that colour-blind people can distinguish too (Okabe and Ito).
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7A7A7A")
_RED = "#B3261E"
#: The most bars or lines that are still readable.
MOST = 40
MAX_TOPICS = 6

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kwire",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8A8F98",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E6EA",
    "legend.frameon": False,
}


def plots(report: Report) -> list[tuple[str, str, str]]:
    """(title, caption, SVG) of each plot that has something to show."""
    made = []
    with matplotlib.rc_context(_STYLE):
        for title, text, draw in (
            ("Records", "Records of each partition, one color for each place.", _records),
            (
                "Offsets",
                "The range of each partition; red marks show faults, gray ones notes.",
                _offsets,
            ),
            (
                "Timestamps",
                "Timestamps over offsets. A falling line or a broad band means records out of order.",
                _timestamps,
            ),
            (
                "Batch sizes",
                "Number of batches by size: all batches of a log directory, samples of a topic.",
                _batches,
            ),
        ):
            figure = draw(report)
            if figure is not None:
                made.append((title, text, _svg(figure)))
    return made


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    svg = text[text.index("<svg") :]
    # The page decides how wide the plot is.
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*" height="[^"]*"|height="[^"]*" width="[^"]*"',
        r"\1",
        svg,
        count=1,
    )


def _figure(height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, Any]:
    figure = Figure(figsize=(9, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _names(report: Report) -> list[str]:
    return [name for name, _ in report.places]


def _records(report: Report) -> Figure | None:
    names = _names(report)
    rows: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    by_topic = len({facts.where for facts in report.partitions}) > MOST
    for facts in report.partitions:
        label = facts.topic if by_topic else f"{facts.topic}-{facts.partition}"
        rows[label][facts.place] += facts.rows
    if not any(sum(own.values()) for own in rows.values()):
        return None
    labels = list(rows)[:MOST]
    figure, axes = _figure(1.0 + 0.16 * len(labels) * (len(names) + 1))
    axis = axes[0][0]
    height = 0.8 / len(names)
    for number, name in enumerate(names):
        at = [row + (number - (len(names) - 1) / 2) * height for row in range(len(labels))]
        counts = [rows[label].get(name, 0) for label in labels]
        axis.barh(at, counts, height * 0.9, color=COLORS[number % len(COLORS)], label=name)
    axis.set_yticks(range(len(labels)), labels)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.xaxis.set_major_formatter(_thousands)
    axis.set_xlabel("records")
    _legend(figure, axis, names)
    return figure


def _offsets(report: Report) -> Figure | None:
    shown = [facts for facts in report.partitions if not facts.range.is_empty]
    # If there is no room for all, those with findings come first.
    found = {(one.place, one.topic, one.partition) for one in report.findings if one.is_wrong}
    if len(shown) > MOST:
        shown.sort(key=lambda facts: (facts.place, *facts.where) not in found)
        shown = shown[:MOST]
    if not shown:
        return None
    names = _names(report)
    figure, axes = _figure(1.0 + 0.24 * len(shown))
    axis = axes[0][0]
    for row, facts in enumerate(shown):
        color = COLORS[names.index(facts.place) % len(COLORS)]
        axis.barh(row, facts.range.size, 0.55, left=facts.range.start, color=color, alpha=0.45)
        for span in facts.unexplained:
            axis.barh(row, span.size, 0.55, left=span.first, color=_RED)
        own = (facts.place, facts.topic, facts.partition)
        for finding in report.findings:
            if finding.offset is not None and own == (
                finding.place,
                finding.topic,
                finding.partition,
            ):
                mark = {"color": _RED, "zorder": 3} if finding.is_wrong else {"color": "#5F6670"}
                axis.plot([finding.offset], [row], marker="v", markersize=6, linestyle="", **mark)
    axis.set_yticks(range(len(shown)), [f"{facts.topic}-{facts.partition}" for facts in shown])
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.xaxis.set_major_formatter(_thousands)
    axis.set_xlabel("offset")
    _legend(figure, axis, names)
    return figure


def _timestamps(report: Report) -> Figure | None:
    topics: dict[str, list[PartitionFacts]] = defaultdict(list)
    for facts in report.partitions:
        if facts.stretches:
            topics[facts.topic].append(facts)
    if not topics:
        return None
    chosen = list(topics)[:MAX_TOPICS]
    columns = min(2, len(chosen))
    lines = -(-len(chosen) // columns)
    figure, axes = _figure(2.6 * lines, columns, lines)
    for number, axis in enumerate(axes.flat):
        if number >= len(chosen):
            axis.set_visible(False)
            continue
        topic = chosen[number]
        for facts in topics[topic][:MOST]:
            _draw_times(axis, facts, _names(report).index(facts.place))
        partitions = sorted({facts.partition for facts in topics[topic]})
        if 1 < len(partitions) <= len(COLORS):
            patches = [_patch(COLORS[one % len(COLORS)], str(one)) for one in partitions]
            axis.legend(handles=patches, title="partition", fontsize=8, title_fontsize=8)
        axis.set_title(topic, loc="left", fontweight="bold", fontsize=9)
        axis.xaxis.set_major_formatter(_thousands)
        axis.set_xlabel("offset")
        axis.tick_params(axis="y", labelsize=8)
    return figure


def _draw_times(axis: Any, facts: PartitionFacts, place: int) -> None:
    color = COLORS[facts.partition % len(COLORS)]
    at = [part.first_offset for part in facts.stretches]
    low = [_time(part.min_timestamp) for part in facts.stretches]
    high = [_time(part.max_timestamp) for part in facts.stretches]
    at.append(facts.stretches[-1].last_offset)
    low.append(low[-1])
    high.append(high[-1])
    axis.fill_between(at, low, high, color=color, alpha=0.3, step="post", linewidth=0)
    style: Any = "-" if place == 0 else (0, (4, 2 + 2 * place))
    axis.step(at, low, where="post", color=color, linewidth=1.1, linestyle=style)


def _batches(report: Report) -> Figure | None:
    topics: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for facts in report.partitions:
        for bits, number in facts.batch_bytes.items():
            topics[facts.topic][bits] += number
    if not topics:
        return None
    chosen = list(topics)[:MAX_TOPICS]
    low = min(min(topics[topic]) for topic in chosen)
    high = max(max(topics[topic]) for topic in chosen)
    figure, axes = _figure(3.0)
    axis = axes[0][0]
    width = 0.8 / len(chosen)
    buckets = range(low, high + 1)
    for number, topic in enumerate(chosen):
        at = [bit + (number - (len(chosen) - 1) / 2) * width for bit in buckets]
        counts = [topics[topic].get(bit, 0) for bit in buckets]
        axis.bar(at, counts, width * 0.92, color=COLORS[number % len(COLORS)], label=topic)
    axis.set_xticks(buckets, [f"≤ {_bytes(1 << bit)}" for bit in buckets])
    axis.grid(axis="x", visible=False)
    axis.yaxis.set_major_formatter(_thousands)
    axis.set_ylabel("batches")
    _legend(figure, axis, chosen)
    return figure


def _legend(figure: Figure, axis: Any, names: Sequence[str]) -> None:
    if len(names) < 2:
        return
    handles = [_patch(COLORS[number % len(COLORS)], name) for number, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(len(names), 4), fontsize=8)


def _patch(color: str, label: str) -> Any:
    return Patch(color=color, label=label)


def _time(timestamp_ms: int) -> datetime:
    # Producers may send timestamps beyond the calendar's range.
    seconds = min(max(timestamp_ms / 1000, -62_000_000_000), 253_000_000_000)
    return datetime.fromtimestamp(seconds, UTC)


def _thousands(value: float, _: int) -> str:
    return f"{value:,.0f}" if value == int(value) else ""


def _bytes(size: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"
