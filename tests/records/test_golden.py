"""The golden batches of Apache Kafka 3.9.2, where the reference data lies beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.records import check_case, load_cases

DIRECTORY = Path(__file__).parents[3] / "shared" / "protocol"


def test_golden_batches_are_read_and_rewritten() -> None:
    if not (DIRECTORY / "records" / "records.jsonl.gz").exists():
        pytest.skip(f"no golden data in {DIRECTORY}; make golden GOLDEN=DIR runs it from elsewhere")
    cases = list(load_cases(DIRECTORY))
    assert len(cases) > 100
    for case in cases:
        check_case(case)
