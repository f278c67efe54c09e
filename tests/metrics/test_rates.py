"""Rates between scrapes."""

from __future__ import annotations

from server.metrics.rates import WINDOW_MS, Rates


def test_rate_is_measured_over_at_least_a_window_once_there_is_one() -> None:
    rates = Rates(began_ms=0)
    assert rates.per_second("a", 10_000, 50) == 5
    for now_ms in range(10_000, 10 * WINDOW_MS, 1000):
        rate = rates.per_second("a", now_ms, now_ms / 500)
        assert rate == 2
    # No more events: the rate falls, and is 0 after two windows.
    end_ms, total = now_ms, now_ms / 500
    assert 0 < rates.per_second("a", end_ms + WINDOW_MS // 2, total) < 2
    rates.per_second("a", end_ms + WINDOW_MS, total)
    rates.per_second("a", end_ms + 2 * WINDOW_MS, total)
    assert rates.per_second("a", end_ms + 2 * WINDOW_MS + 1, total) == 0


def test_scrape_at_the_very_beginning_has_a_rate_of_zero() -> None:
    assert Rates(5).per_second("a", 5, 7) == 0
