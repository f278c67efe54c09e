"""Writes the table in Prometheus' text format, in pieces.

prometheus_client can only write a whole registry, and takes three times as long for a series. A scrape of 10,000
partitions has some 150,000 series, so this module writes a few of them at a time. A test reads the output with
prometheus_client's parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from .histogram import quantile_us
from .names import MBeanKind

if TYPE_CHECKING:
    from ..replication.partition import Partition
    from ..telemetry.series import ClientSeries
    from .table import SeriesRow
    from .view import View

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: The number of lines made in one step.
STEP = 128
QUANTILES = (
    ("0.50", 0.5),
    ("0.75", 0.75),
    ("0.95", 0.95),
    ("0.98", 0.98),
    ("0.99", 0.99),
    ("0.999", 0.999),
)


def text_of(rows: Iterable[SeriesRow], view: View) -> Iterator[str]:
    """The text of all rows, in pieces of a few lines; a piece may be empty."""
    labels: list[tuple[Partition, str]] = []
    for number, partition in enumerate(view.partitions):
        if number % STEP == 0:
            yield ""
        tp = partition.tp
        labels.append(
            (partition, labels_text(("topic", "partition"), (tp.topic, str(tp.partition))))
        )
    for row in rows:
        if row.each is not None:
            yield from _of_partitions(row, labels)
        elif row.kind is MBeanKind.HISTOGRAM:
            yield from _of_histograms(row, view)
        else:
            yield from _of_samples(row, view)


def _of_partitions(row: SeriesRow, labels: list[tuple[Partition, str]]) -> Iterator[str]:
    each, led = row.each, row.led
    assert each is not None
    for series in row.series:
        yield head(series.name, row.doc, series.counts)
        name = series.name
        for first in range(0, len(labels), STEP):
            yield "".join(
                f"{name}{text} {each(partition):d}\n"
                for partition, text in labels[first : first + STEP]
                if not led or partition.is_leader
            )


def _of_samples(row: SeriesRow, view: View) -> Iterator[str]:
    assert row.read is not None
    samples: list[Any] = []
    for sample in row.read(view):
        samples.append(sample)
        if len(samples) % STEP == 0:
            yield ""
    for series in row.series:
        yield head(series.name, row.doc, series.counts)
        for first in range(0, len(samples), STEP):
            yield "".join(
                f"{series.name}{labels_text(series.labels, values)} {value}\n"
                for values, value in samples[first : first + STEP]
            )


def _of_histograms(row: SeriesRow, view: View) -> Iterator[str]:
    """Quantiles and the count, in the form of the JMX exporter's rules for Apache Kafka's histograms. Unit:
    milliseconds.
    """
    assert row.read is not None
    counts: list[str] = []
    (series,) = row.series
    yield head(series.name, row.doc, False)
    for distribution in row.read(view):
        values, buckets, count = distribution  # type: ignore[misc]
        yield "".join(
            f"{series.name}{labels_text((*series.labels, 'quantile'), (*values, text))}"
            f" {quantile_us(buckets, q) / 1000:.6g}\n"
            for text, q in QUANTILES
        )
        counts.append(f"{series.name}_count{labels_text(series.labels, values)} {count}\n")
    yield head(f"{series.name}_count", row.doc, True) + "".join(counts)


def text_of_clients(series: ClientSeries) -> Iterator[str]:
    """The text of pushed series, in pieces of a few lines; does not iterate over anything that may change."""
    for name, family in list(series.families.items()):
        yield head(name, "Pushed by clients.", family.counts)
        values = list(family.values.items())
        for first in range(0, len(values), STEP):
            yield "".join(
                f"{name}{{{','.join(pair(*label) for label in labels)}}} {number(value)}\n"
                for labels, value in values[first : first + STEP]
            )


def pair(name: str, value: str) -> str:
    """One label of a sample."""
    return f'{name}="{escaped(value)}"'


def number(value: float) -> str:
    """A value in text form; it can be any float."""
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else ("+Inf" if value > 0 else "-Inf")


def head(name: str, doc: str, counts: bool) -> str:
    """The lines that precede the samples of a series.

    Shape: a counter whose name does not end in _total is untyped, since readers would change its name.
    """
    text = doc.replace("\\", r"\\").replace("\n", r"\n")
    kind = "gauge"
    if counts:
        kind = "counter" if name.endswith("_total") else "untyped"
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def labels_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """The labels of a sample in braces; labels without a value are omitted."""
    if not values:
        return ""
    pairs = zip(names, values, strict=False)
    return "{" + ",".join(pair(*each) for each in pairs) + "}"


def escaped(value: str) -> str:
    """A label's value in escaped form."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def names_of(rows: Iterable[SeriesRow]) -> dict[str, tuple[str, ...]]:
    """Every name that is served, with its labels."""
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        for series in row.series:
            if row.kind is MBeanKind.HISTOGRAM:
                found[series.name] = (*series.labels, "quantile")
                found[f"{series.name}_count"] = series.labels
            else:
                found[series.name] = series.labels
    return found
