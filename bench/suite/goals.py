"""The goals, each with the value of one run and whether it was met."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import NamedTuple

from . import consuming
from .cells import DEFAULT_CELLS
from .limits import MACHINE
from .results import Results
from .subjects import KAFKA_39, KAFKA_43, KWIRE

KAFKAS = (KAFKA_39, KAFKA_43)


class Value(NamedTuple):
    """A measured value, and a note for the reader."""

    number: float
    about: str = ""


class Goal(NamedTuple):
    """One line of the table. Shape: bound is inclusive; at_least says whether it is a lower bound."""

    what: str
    bound: float
    unit: str
    value: Callable[[Results], Value | None]
    at_least: bool = False

    def is_met(self, number: float) -> bool:
        """Whether a value is on the right side."""
        return number >= self.bound if self.at_least else number <= self.bound

    def wanted(self) -> str:
        """The goal in words."""
        return f"at {'least' if self.at_least else 'most'} {self.bound:g}{self.unit}"


def _worst(values: Iterable[Value | None], best: Callable[..., Value] = max) -> Value | None:
    known = [value for value in values if value is not None]
    return best(known, key=lambda value: value.number) if known else None


def _to_39(
    results: Results, kind: str, case: str, figure: str, about: str | None = None
) -> Value | None:
    ratio = results.ratio(kind, case, KWIRE, [KAFKA_39], figure)
    return None if ratio is None else Value(ratio, case if about is None else about)


def _cells(large: bool) -> list[tuple[str, int]]:
    return [(c.name, c.batch) for c in DEFAULT_CELLS if (c.batch > 16_384) is large]


def _produce_cpu(large: bool) -> Callable[[Results], Value | None]:
    return lambda results: _worst(
        _to_39(results, "produce", name, "cpu_s_per_gb") for name, _ in _cells(large)
    )


def _produce_to_limit(large: bool) -> Callable[[Results], Value | None]:
    def value(results: Results) -> Value | None:
        found = []
        for name, batch in _cells(large):
            own = results.middle("produce", name, KWIRE, "cpu_s_per_gb")
            limit = results.middle("limit", limit_case(batch), MACHINE, "cpu_s_per_gb")
            if own is not None and limit:
                found.append(Value(own / limit, name))
        return _worst(found)

    return value


def limit_case(batch: int) -> str:
    """The limit with which a batch size is compared: one with CRC, because brokers also compute it."""
    return f"socket to page cache, {batch // 1024} KiB, CRC"


def _first_minute(results: Results) -> Value | None:
    for case in results.cases("first minute"):
        whole = _to_39(results, "first minute", case, "with_start_cpu_s_per_gb")
        value = _to_39(results, "first minute", case, "cpu_s_per_gb")
        if value is not None and whole is not None:
            about = f"{case}; {whole.number:.2f} with the start itself"
            return Value(value.number, about)
    return None


def throughput_ratios(results: Results) -> list[Value]:
    """For each cell, kwire's MB/s relative to the better of the two."""
    found = []
    for case in results.cases("produce"):
        ratio = results.ratio("produce", case, KWIRE, KAFKAS, "mb_s", max)
        if ratio is not None:
            found.append(Value(ratio, case))
    return found


def _least_throughput(results: Results) -> Value | None:
    ratios = throughput_ratios(results)
    worst = _worst(ratios, min)
    if worst is None:
        return None
    reached = sum(one.number >= 1.0 for one in ratios)
    return Value(worst.number, f"{worst.about}; {reached} of {len(ratios)} cells reach it")


def _median_throughput(results: Results) -> Value | None:
    ratios = throughput_ratios(results)
    return Value(median(one.number for one in ratios), f"of {len(ratios)}") if ratios else None


def _tail(consumers: int) -> Callable[[Results], Value | None]:
    case = consuming.tail_name(consumers)
    return lambda results: _to_39(results, "tail", case, "cpu_s_per_gb")


def _of_sendfile(results: Results) -> Value | None:
    own = results.middle("catch-up", consuming.DISCARD.name, KWIRE, "wire_mb_s")
    limit = results.middle("limit", "sendfile", MACHINE, "mb_s")
    if own is None or not limit:
        return None
    return Value(own / limit, f"{own:,.0f} of {limit:,.0f} MB/s")


def _latency(figure: str, others: tuple[str, ...]) -> Callable[[Results], Value | None]:
    def value(results: Results) -> Value | None:
        found = []
        for case in results.cases("latency"):
            ratio = results.ratio("latency", case, KWIRE, others, figure)
            if ratio is not None:
                found.append(Value(ratio, case))
        return _worst(found)

    return value


def _absolute(kind: str, figure: str) -> Callable[[Results], Value | None]:
    def value(results: Results) -> Value | None:
        found = []
        for case in results.cases(kind):
            middle = results.middle(kind, case, KWIRE, figure)
            if middle is not None:
                found.append(Value(middle, case))
        return _worst(found)

    return value


def _relative(kind: str, figure: str) -> Callable[[Results], Value | None]:
    return lambda results: _worst(
        _to_39(results, kind, case, figure) for case in results.cases(kind)
    )


def _under_load(results: Results) -> Value | None:
    """kwire's peak memory relative to Apache Kafka's, each the largest over all cells and readings."""
    peaks = {}
    for subject in (KAFKA_39, KWIRE):
        found = [
            results.middle(kind, case, subject, "peak_mb")
            for kind in ("produce", "catch-up")
            for case in results.cases(kind)
        ]
        known = [one for one in found if one is not None]
        if not known:
            return None
        peaks[subject] = max(known)
    own, theirs = peaks[KWIRE], peaks[KAFKA_39]
    return Value(own / theirs, f"{own:.0f} of {theirs:.0f} MB")


def _partitions(figure: str) -> Callable[[Results], Value | None]:
    def value(results: Results) -> Value | None:
        cases = results.cases("partitions")
        return _to_39(results, "partitions", cases[-1], figure) if cases else None

    return value


def _rebalance(results: Results) -> Value | None:
    cases = results.cases("rebalance")
    return _to_39(results, "rebalance", cases[-1], "rebalance_ms") if cases else None


X = " x Apache Kafka 3.9.2"
GOALS = (
    Goal(
        "broker CPU for each GB produced, 16 KiB batches, warm, each record checked",
        0.45,
        X,
        _produce_cpu(False),
    ),
    Goal(
        "the same, beside the limit",
        2.5,
        " x the limit, socket to page cache with CRC",
        _produce_to_limit(False),
    ),
    Goal("broker CPU for each GB produced, 128 KiB and more, warm", 0.60, X, _produce_cpu(True)),
    Goal(
        "the same, beside the limit",
        2.0,
        " x the limit, socket to page cache with CRC",
        _produce_to_limit(True),
    ),
    Goal("broker CPU for each GB produced just after start", 0.20, X, _first_minute),
    Goal("produce throughput, the worst cell", 1.0, " x the better", _least_throughput, True),
    Goal("produce throughput, the median cell", 1.3, " x the better", _median_throughput, True),
    Goal(
        "broker CPU for each GB consumed, catch-up",
        0.40,
        X,
        lambda results: _to_39(results, "catch-up", consuming.JAVA.name, "cpu_s_per_gb"),
    ),
    Goal("broker CPU for each GB consumed, tail", 0.40, X, _tail(1)),
    Goal("broker CPU for each GB consumed, tail", 0.40, X, _tail(10)),
    Goal("catch-up by a client that discards", 0.8, " x the sendfile limit", _of_sendfile, True),
    Goal("end-to-end latency p50, worst load", 1.0, " x the better", _latency("p50_us", KAFKAS)),
    Goal("end-to-end latency p99, worst load", 0.5, X, _latency("p99_us", (KAFKA_39,))),
    Goal("end-to-end latency p99.9, worst load", 0.5, X, _latency("p999_us", (KAFKA_39,))),
    Goal("start to first metadata", 0.15, X, _relative("start", "seconds")),
    Goal("start to first metadata", 0.39, " s", _absolute("start", "seconds")),
    Goal("memory at rest", 34, " MB", _absolute("start", "rest_mb")),
    Goal("memory under load", 0.15, X, _under_load),
    Goal("many partitions: clean start", 0.5, X, _partitions("start_s")),
    Goal("many partitions: memory", 0.25, X, _partitions("memory_mb")),
    Goal("rebalance of the largest group", 0.5, X, _rebalance),
)


def lines(results: Results) -> list[list[str]]:
    """The description, goal, value and verdict of each goal."""
    rows = []
    for goal in GOALS:
        value = goal.value(results)
        if value is None:
            rows.append([goal.what, goal.wanted(), "--", "not measured"])
            continue
        shown = f"{value.number:.2f}" + (f" ({value.about})" if value.about else "")
        verdict = "met" if goal.is_met(value.number) else "**missed**"
        rows.append([goal.what, goal.wanted(), shown, verdict])
    return rows
