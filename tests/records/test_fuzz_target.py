"""The fuzz target itself, on a few seeds: it must reach the code and report findings."""

from __future__ import annotations

import pytest

from kwire.records.batch import RecordBatch
from kwire.records.compression import compress
from tests.fuzz import fuzz_records

from .samples import PLAIN_RECORDS, RECORDS, batch_of


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x01" + compress(1, 2, bytes(1 << 20)),
        b"\xff" + batch_of(RECORDS, codec=4),
        b"\x50" + batch_of(RECORDS) + b"tail",
        b"\xff" + batch_of(PLAIN_RECORDS, 1, 3),
    ],
)
def test_seeds_pass(data: bytes) -> None:
    fuzz_records.fuzz_one(data)


def test_other_errors_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(batch: RecordBatch, limit: int) -> None:
        raise IndexError

    monkeypatch.setattr(RecordBatch, "records", broken)
    with pytest.raises(IndexError):
        fuzz_records.fuzz_one(b"\xff" + batch_of(RECORDS))
