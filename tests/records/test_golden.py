"""The golden batches of Apache Kafka 3.9.2."""

from __future__ import annotations

from tests.golden.records import check_case, load_cases


def test_golden_batches_are_read_and_rewritten() -> None:
    cases = list(load_cases())
    assert len(cases) > 100
    for case in cases:
        check_case(case)
