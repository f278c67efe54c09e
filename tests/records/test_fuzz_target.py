"""The fuzz target itself, on a few seeds: it must reach the code and report findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kwire.errors import RecordError
from kwire.records.batch import RecordBatch
from kwire.records.compression import compress
from tests.fuzz import fuzz_records

from .samples import PLAIN_RECORDS, RECORDS, batch_of

#: What the target does with each batch.
OPERATIONS = ("validate_records", "down_convert", "up_convert", "recompress")


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations that the target performs, with their outcomes."""
    seen: list[str] = []

    def watched(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            try:
                result = work(*args, **options)
            except RecordError:
                seen.append(f"{name} refused")
                raise
            seen.append(name)
            return result

        return call

    for name in ("decompress", *OPERATIONS):
        monkeypatch.setattr(fuzz_records, name, watched(name, getattr(fuzz_records, name)))
    monkeypatch.setattr(RecordBatch, "verify_crc", watched("crc", RecordBatch.verify_crc))
    return seen


ALL = ["crc", "validate_records", "down_convert", "down_convert", "up_convert", "recompress"]
#: Older formats have no zstd.
ZSTD = ["crc", "validate_records", *["down_convert refused"] * 2, "up_convert", "recompress"]
#: The records do not end where the batch does; only `recompress` does not read them one by one.
DAMAGED = [
    "crc",
    "validate_records refused",
    *["down_convert refused"] * 2,
    "up_convert refused",
    "recompress",
]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\x00", ["decompress"]),
        (b"\x01" + compress(1, 2, bytes(1000)), ["decompress"]),
        (b"\x01" + compress(1, 2, bytes(1 << 20)), ["decompress refused"]),
        (b"\xff" + batch_of(RECORDS, codec=1), ALL),
        (b"\xff" + batch_of(RECORDS, codec=4), ZSTD),
        (b"\x50" + batch_of(RECORDS) + b"tail", DAMAGED),
        (b"\xff" + batch_of(PLAIN_RECORDS, 1, 3), ALL[:-1]),
    ],
)
def test_seeds_pass_and_reach_every_operation(
    outcomes: list[str], data: bytes, expected: list[str]
) -> None:
    fuzz_records.fuzz_one(data)
    assert outcomes == expected


def test_other_errors_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(batch: RecordBatch, limit: int) -> None:
        raise IndexError

    monkeypatch.setattr(RecordBatch, "records", broken)
    with pytest.raises(IndexError):
        fuzz_records.fuzz_one(b"\xff" + batch_of(RECORDS))


def test_bytes_above_the_limit_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_records, "decompress", lambda *_: bytes(fuzz_records.LIMIT + 1))
    with pytest.raises(AssertionError):
        fuzz_records.fuzz_one(b"\x00")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_error_of_one_operation_is_not_hidden_by_another(
    monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise IndexError

    monkeypatch.setattr(fuzz_records, operation, broken)
    with pytest.raises(IndexError):
        fuzz_records.fuzz_one(b"\xff" + batch_of(RECORDS))
