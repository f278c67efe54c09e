"""The text of the table of a test's costs."""

from __future__ import annotations

import pytest

from bench.testing import ROWS, Kafka, Kwire, Mock, said, table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ([], ""),
        ([0.0042], "4.2 ms"),
        ([0.25, 0.2, 0.3], "250 ms (200 to 300)"),
        ([2.0, 11.04], "6.5 s (2.0 to 11.0)"),
    ],
)
def test_figures_are_medians_with_their_range(seconds: list[float], text: str) -> None:
    assert said(seconds) == text


def test_table_has_a_column_for_each_kind_and_leaves_what_was_not_measured_empty() -> None:
    subjects = [Kwire(), Kafka(), Mock()]
    subjects[0].figures[ROWS[0]].append(0.5)
    text = table(subjects, 1, 0.5, (1.0, 2.0, 3.0))
    assert "| | kwire.testing | Apache Kafka 3.9.2 | librdkafka's mock |" in text
    assert f"| {ROWS[0]} | 500 ms |  |  |" in text
    assert "load average before 1.0, 2.0, 3.0" in text
