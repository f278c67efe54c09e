"""Which batches a reader of committed records sees."""

from __future__ import annotations

import pytest

from kwire.records.batch import RecordBatch
from kwire.records.builder import BatchBuilder
from kwire.records.control import ControlType
from server.client.visibility import control_of, judged, visible
from tests.support.batches import batch, marker


def read(*batches: bytes) -> list[RecordBatch]:
    return [RecordBatch(each) for each in batches]


def test_aborted_transactions_and_markers_are_not_seen() -> None:
    batches = read(
        batch(0, b"aborted", producer=1),
        batch(1, b"committed", producer=2),
        batch(2, b"plain", producer=1, transactional=False),
        marker(3, 1, ControlType.ABORT),
        marker(4, 2, ControlType.COMMIT),
        batch(5, b"later", producer=1),
        marker(6, 1, ControlType.COMMIT),
        batch(7, b"aborted too", producer=1),
    )
    seen = [
        record.value for each in visible(batches, [(1, 7), (1, 0)]) for record in each.records()
    ]
    assert seen == [b"committed", b"plain", b"later"]
    assert len(list(visible(batches, ()))) == 5  # read_uncommitted


def test_batch_that_spans_the_first_offset_of_a_transaction_is_aborted() -> None:
    """Brokers list the transaction's first offset, which need not be the batch's."""
    batches = read(batch(0, b"a", b"b", b"c", producer=1), marker(3, 1, ControlType.ABORT))
    assert [is_aborted for _, is_aborted in judged(batches, [(1, 2)])] == [True, False]


def test_only_an_abort_ends_what_is_hidden() -> None:
    """A commit of the same producer cannot come before the abort, so other markers say nothing about it."""
    batches = read(
        batch(0, b"a", producer=1),
        marker(1, 1, ControlType.COMMIT),
        batch(2, b"b", producer=1),
        marker(3, 1, ControlType.ABORT),
        batch(4, b"c", producer=1),
    )
    values = [record.value for each in visible(batches, [(1, 0)]) for record in each.records()]
    assert values == [b"c"]


@pytest.mark.parametrize("cut", [1, 20])
def test_marker_that_cannot_be_read_is_of_no_known_kind(cut: int) -> None:
    builder = BatchBuilder(is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)
    builder.append(1, b"\0" if cut == 1 else b"\xff" * cut, b"")
    assert control_of(RecordBatch(builder.build())) is ControlType.UNKNOWN
