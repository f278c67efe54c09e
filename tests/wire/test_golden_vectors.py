"""The golden vectors of Apache Kafka."""

from __future__ import annotations

import pytest

from tests.golden.recorded import DATA
from tests.golden.vectors import check, read_vectors, run


def test_golden_vectors_are_read_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    passed, failed = run(DATA)
    assert failed == 0, capsys.readouterr().out
    assert passed > 4000


def test_a_wrong_vector_is_reported() -> None:
    vector = next(
        each
        for each in read_vectors()
        if each["name"] == "MetadataRequest" and each["kind"] == "full"
    )
    assert check(vector) == ""
    assert "decoded as" in check({**vector, "json": {**vector["json"], "topics": []}})
    assert "Truncated" in check({**vector, "hex": vector["hex"][:-2]})
    assert "header version" in check({**vector, "header": 7})
