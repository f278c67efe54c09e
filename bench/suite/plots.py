"""The plots of the page, as SVG; the same results give the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from .results import Results
from .subjects import KAFKA_39, KAFKA_43, KWIRE, NAMES, PURE

COLOURS = {KAFKA_39: "#9aa5b1", KAFKA_43: "#5b7083", KWIRE: "#d9822b", PURE: "#e8b98a"}
#: Kind -> figures and their axis labels.
BARS = {
    "produce": (("mb_s", "MB/s"), ("cpu_s_per_gb", "broker CPU s per GB")),
    "catch-up": (("mb_s", "MB/s"), ("cpu_s_per_gb", "broker CPU s per GB")),
    "latency": (("p50_us", "p50 µs"), ("p99_us", "p99 µs"), ("p999_us", "p99.9 µs")),
}
#: Figures in which cells differ by orders of magnitude.
LOGARITHMIC = ("cpu_s_per_gb", "p50_us", "p99_us", "p999_us")
AXES = {
    "cpu_s_per_gb": "broker CPU s per GB",
    "mb_s": "MB/s",
    "per_s": "requests/s",
    "grown_mb": "MB grown",
}


class Compared(NamedTuple):
    """A figure of the comparison with Apache Kafka."""

    label: str
    unit: str
    kind: str
    case: str
    figure: str
    more_is_better: bool = False


_PRODUCED = "produce", "java 1000 B 16 KiB none acks=all 6p 1c idempotent"
_CONSUMED = "catch-up", "java x1, 16 KiB batches, fetch 1024 KiB, cache"
COMPARISON = "comparison.svg"
#: The subjects of the comparison.
COMPARED = (KAFKA_39, KAFKA_43, KWIRE)
#: Its figures. Clients are Java's, except for latency and rebalances.
FIGURES = (
    Compared("start, to the first answer", "s", "start", "a clean directory", "seconds"),
    Compared("memory at rest", "MB", "start", "a clean directory", "rest_mb"),
    Compared("memory with 10,000 partitions", "MB", "partitions", "10,000 partitions", "memory_mb"),
    Compared("produce", "MB/s", *_PRODUCED, "mb_s", more_is_better=True),
    Compared("broker CPU for a GB produced", "s", *_PRODUCED, "cpu_s_per_gb"),
    Compared("latency p99 at 10,000 records/s", "µs", "latency", "10,000 records/s", "p99_us"),
    Compared("consume", "MB/s", *_CONSUMED, "mb_s", more_is_better=True),
    Compared("broker CPU for a GB consumed", "s", *_CONSUMED, "cpu_s_per_gb"),
    Compared("rebalance of 1,000 members", "ms", "rebalance", "1,000 members", "rebalance_ms"),
)


def compared(results: Results) -> list[Compared]:
    """The figures of the comparison that a run has for kwire."""
    return [each for each in FIGURES if results.values(each.kind, each.case, KWIRE, each.figure)]


def wanted(results: Results) -> list[str]:
    """The kinds that have a plot."""
    return [
        kind
        for kind, figures in BARS.items()
        if {name for name, _ in figures} & set(results.figures_of(kind))
    ]


def curves_of(results: Results) -> list[str]:
    """The names of the curves; a curve's case is `NAME: NUMBER`."""
    return list(dict.fromkeys(case.split(": ")[0] for case in results.cases("curve")))


def curve_file(name: str) -> str:
    """The file name of a curve."""
    return f"curve-{name.replace(' ', '-')}.svg"


def _figure(width: float, height: float, panels: int, *, columns: int) -> tuple[Any, list[Any]]:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "kwire"
    matplotlib.rcParams["font.size"] = 8
    from matplotlib import pyplot

    shape = -(-panels // columns), columns
    figure, axes = pyplot.subplots(*shape, figsize=(width, height), squeeze=False)
    return figure, list(axes.flat)


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _bars(results: Results, kind: str, path: Path) -> None:
    cases, panels = results.cases(kind), BARS[kind]
    height = 0.6 + 0.42 * len(cases)
    figure, axes = _figure(10, height, len(panels), columns=len(panels))
    for axis, (name, label) in zip(axes, panels, strict=True):
        for row, subject in enumerate(NAMES):
            at, lengths, below, above = [], [], [], []
            for index, case in enumerate(cases):
                value = results.spread(kind, case, subject, name)
                if value is not None:
                    at.append(index + (row - 1.5) * 0.2)
                    lengths.append(value.middle)
                    below.append(value.middle - value.low)
                    above.append(value.high - value.middle)
            error = {"elinewidth": 0.6}
            axis.barh(
                at,
                lengths,
                0.18,
                xerr=(below, above),
                color=COLOURS[subject],
                label=subject,
                error_kw=error,
            )
        axis.set_yticks(range(len(cases)), cases if axis is axes[0] else [""] * len(cases))
        axis.invert_yaxis()
        axis.set_xlabel(label)
        if name in LOGARITHMIC:
            axis.set_xscale("log")
    axes[-1].legend(fontsize=7)
    _save(figure, path)


def _curve(results: Results, name: str, path: Path) -> None:
    cases = [case for case in results.cases("curve") if case.startswith(f"{name}: ")]
    figures = [
        figure
        for figure in AXES
        if any(results.values("curve", case, KWIRE, figure) for case in cases)
    ]
    panels = max(1, len(figures))
    figure, axes = _figure(4.2 * panels, 3, panels, columns=panels)
    for axis, shown in zip(axes, figures, strict=False):
        for subject in NAMES:
            points = [
                (float(case.split(": ")[1].replace(",", "")), middle)
                for case in cases
                if (middle := results.middle("curve", case, subject, shown)) is not None
            ]
            if points:
                axis.plot(*zip(*points, strict=True), "o-", color=COLOURS[subject], label=subject)
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_xlabel(name)
        axis.set_ylabel(AXES[shown])
    axes[-1].legend(fontsize=7)
    _save(figure, path)


def _digits(value: float) -> str:
    """Three significant digits, and thousands separators."""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _comparison(results: Results, path: Path) -> None:
    shown = compared(results)
    figure, axes = _figure(10, 1.25 * -(-len(shown) // 3), len(shown), columns=3)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    for axis, each in zip(axes, shown, strict=False):
        values = {
            name: results.middle(each.kind, each.case, name, each.figure) for name in COMPARED
        }
        names = [name for name in COMPARED if values[name] is not None]
        bars = axis.barh(names, [values[name] for name in names], color=[COLOURS[n] for n in names])
        axis.bar_label(bars, fmt=_digits, padding=2)
        axis.margins(x=0.25)
        axis.invert_yaxis()
        axis.set_xticks([])
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.set_title(
            f"{each.label}, {each.unit}" + (" (more is better)" if each.more_is_better else ""),
            loc="left",
            fontsize=8,
        )
    _save(figure, path)


def draw(results: Results, folder: Path) -> None:
    """Write every plot for which the results have figures."""
    if compared(results):
        _comparison(results, folder / COMPARISON)
    for kind in wanted(results):
        _bars(results, kind, folder / f"{kind}.svg")
    for name in curves_of(results):
        _curve(results, name, folder / curve_file(name))
