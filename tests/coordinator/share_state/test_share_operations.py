"""The messages of the operations: they say what the rows say."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from server.coordinator.share_state.operations import (
    DELETE_STATE,
    INITIALIZE_STATE,
    READ_STATE,
    READ_SUMMARY,
    WRITE_STATE,
    StateOperation,
)
from server.coordinator.share_state.rows import (
    InitializeState,
    ReadState,
    StateBatch,
    StateOutcome,
    StatePartition,
    StateRead,
    StateSummary,
    WriteState,
)
from server.turns import exhaust

A, B = bytes(15) + b"\x01", bytes(15) + b"\x02"
BATCHES = (StateBatch(3, 7, 2, 1), StateBatch(9, 9, 0, 4))

CASES: list[tuple[StateOperation[Any, Any], list[Any], list[Any]]] = [
    (
        INITIALIZE_STATE,
        [InitializeState(A, 0, 5, 6), InitializeState(B, 7, 8, -1)],
        [StateOutcome(A, 0), StateOutcome(B, 7, ErrorCode.FENCED_STATE_EPOCH, "later")],
    ),
    (
        READ_STATE,
        [ReadState(A, 0, 5), ReadState(A, 1, -1), ReadState(B, 0, 2)],
        [StateRead(A, 0, ErrorCode.NONE, None, 4, 3, BATCHES), StateRead(A, 1)],
    ),
    (
        WRITE_STATE,
        [WriteState(A, 0, 1, 2, 3, BATCHES, 4), WriteState(B, 1, 1, 2, -1)],
        [StateOutcome(A, 0), StateOutcome(B, 1, ErrorCode.FENCED_LEADER_EPOCH, "older")],
    ),
    (DELETE_STATE, [StatePartition(A, 3), StatePartition(B, 4)], [StateOutcome(A, 3)]),
    (
        READ_SUMMARY,
        [ReadState(A, 0, -1)],
        [StateSummary(A, 0, ErrorCode.NONE, None, 1, 2, 3, 4), StateSummary(B, 0)],
    ),
]


def sent(message: Any, version: int) -> Any:
    return decode(type(message), encode(message, version), version)


@pytest.mark.parametrize(
    ("operation", "rows", "outcomes"), CASES, ids=[case[0].name for case in CASES]
)
def test_rows_and_outcomes_are_the_same_on_the_other_side(
    operation: StateOperation[Any, Any], rows: list[Any], outcomes: list[Any]
) -> None:
    request = sent(exhaust(operation.request("g", rows)), operation.newest)
    assert request.group_id == "g"
    assert exhaust(operation.rows(request)) == rows
    response = sent(exhaust(operation.response(outcomes)), operation.newest)
    assert exhaust(operation.outcomes(response)) == outcomes


def test_row_with_an_error_has_the_defaults_of_its_message() -> None:
    failed = StateSummary(A, 0, ErrorCode.INVALID_REQUEST, "no")
    (topic,) = exhaust(READ_SUMMARY.response([failed])).results
    assert topic.partitions[0].start_offset == 0
    assert failed.start_offset == -1
