"""Distributions of durations in fixed buckets."""

from __future__ import annotations

import random

import pytest

from server.metrics.histogram import BOUNDS_US, WINDOW_MS, Histogram, merged, quantile_us


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("q", [0.5, 0.95, 0.99, 0.999])
def test_quantile_is_within_a_tenth_of_the_value(seed: int, q: float) -> None:
    chance = random.Random(seed)
    values = sorted(round(chance.lognormvariate(7, 1.5)) + 9 for _ in range(5000))
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = values[int(q * len(values)) - 1]
    assert quantile_us(histogram.window(), q) == pytest.approx(exact, rel=0.1)


def test_nothing_counted_has_quantiles_of_zero() -> None:
    assert quantile_us(Histogram().window(), 0.99) == 0


def test_value_beyond_the_last_bound_is_the_last_bound() -> None:
    histogram = Histogram()
    histogram.add(10 * BOUNDS_US[-1])
    assert quantile_us(histogram.window(), 0.5) == BOUNDS_US[-1]


def test_weight_counts_as_many_values() -> None:
    one, other = Histogram(), Histogram()
    for _ in range(8):
        one.add(1000)
    one.add(50_000)
    other.add(1000, weight=8)
    other.add(50_000)
    assert one.window() == other.window()


def test_old_values_leave_the_window() -> None:
    histogram = Histogram()
    histogram.roll(now_ms=1_000_000)
    histogram.add(1000)
    histogram.roll(1_000_000 + WINDOW_MS - 1)
    assert sum(histogram.recent) == 1
    histogram.roll(1_000_000 + WINDOW_MS)
    assert sum(histogram.window()) == 1
    histogram.roll(1_000_000 + 2 * WINDOW_MS)
    assert sum(histogram.window()) == 0


def test_merged_is_the_sum_by_bucket() -> None:
    one, other = Histogram(), Histogram()
    one.add(100)
    other.add(100)
    other.add(90_000)
    both = merged([one.window(), other.window()])
    assert sum(both) == 3
    assert max(both) == 2
