"""Transactional batches, and markers that end transactions, written directly to a partition."""

from __future__ import annotations

from kwire.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from server.log.log import AppendOrigin
from server.log.validator import AppendInfo

from .replicas import NOW, Replicas, batch


def transactional(producer_id: int, sequence: int, *values: bytes, codec: int = 0) -> bytes:
    """A batch of an open transaction."""
    return batch(
        *values,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def end(room: Replicas, name: str, producer_id: int, kind: ControlType) -> None:
    """Write a marker as the coordinator does."""
    marker = end_transaction_batch(
        EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=NOW
    )
    info = room.append(name, marker, origin=AppendOrigin.COORDINATOR)
    assert isinstance(info, AppendInfo), info


def abort(room: Replicas, name: str, producer_id: int) -> None:
    end(room, name, producer_id, ControlType.ABORT)


def commit(room: Replicas, name: str, producer_id: int) -> None:
    end(room, name, producer_id, ControlType.COMMIT)
