"""Published dashboards run on kwire unmodified: every metric and label of their queries is served, or listed as missing."""

from __future__ import annotations

import asyncio

import pytest

from tests.metrics.dashboards import DASHBOARDS, MISSING, SCRAPE_LABELS, Dashboard
from tests.metrics.scraped import Series, busy, parse


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> list[Series]:
    return parse(asyncio.run(busy(tmp_path_factory.mktemp("broker"))))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_every_query_of_a_dashboard_finds_its_metrics_and_labels(
    dashboard: Dashboard, series: list[Series]
) -> None:
    assert dashboard.asks
    lacking = []
    for metric, labels in dashboard.asks.items():
        assert not labels & set(SCRAPE_LABELS)
        if metric in MISSING:
            continue
        if not any(each.name == metric and labels <= set(each.labels) for each in series):
            lacking.append((metric, sorted(labels)))
    assert lacking == []


def test_what_is_said_to_be_missing_is_asked_for_and_missing(series: list[Series]) -> None:
    asked = {metric for dashboard in DASHBOARDS for metric in dashboard.asks}
    assert set(MISSING) <= asked
    assert not set(MISSING) & {each.name for each in series}
