"""The plots of the page, as SVG; the same results give the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def _figure(width: float, height: float, panels: int, *, beside: bool) -> tuple[Any, list[Any]]:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "kwire"
    matplotlib.rcParams["font.size"] = 8
    from matplotlib import pyplot

    shape = (1, panels) if beside else (panels, 1)
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
    figure, axes = _figure(10, height, len(panels), beside=True)
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
    figure, axes = _figure(4.2 * max(1, len(figures)), 3, max(1, len(figures)), beside=True)
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


def draw(results: Results, folder: Path) -> None:
    """Write every plot for which the results have figures."""
    for kind in wanted(results):
        _bars(results, kind, folder / f"{kind}.svg")
    for name in curves_of(results):
        _curve(results, name, folder / curve_file(name))
