"""Writes with an unknown outcome: read the nodes and compare.

If the connection breaks after a transaction was sent, it is unknown whether it was applied. A transaction is atomic: if
all its nodes are in the state after the transaction, it was applied. If not, it is sent again, and the store's answer
is valid (NodeExists, as usual, if another client has created a node).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .store import (
    ANY_VERSION,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Op,
    OpResult,
    SetData,
    Stat,
    Store,
)


class Left(NamedTuple):
    """The state of a node after a transaction; None for values that the transaction does not determine."""

    there: bool
    data: bytes | None = None
    version: int | None = None
    ephemeral: bool | None = None


async def commit(store: Store, ops: Sequence[Op]) -> list[OpResult]:
    """Run a multi, and repeat it after each lost connection unless it turns out to be applied.

    Shape: results as from `Store.multi`; the path of a sequential node is only its prefix if the answer was lost.
    Errors: those of `Store.multi` without ConnectionLost.
    """
    while True:
        try:
            return await store.multi(ops)
        except ConnectionLost:
            await store.connected()
            found = await was_applied(store, ops)
            if found is not None:
                return found


def leaves(ops: Sequence[Op]) -> dict[str, Left]:
    """The nodes that a transaction changes, in their state after it."""
    after: dict[str, Left] = {}
    for op in ops:
        if isinstance(op, Create):
            if not op.sequential:
                after[op.path] = Left(True, op.data, 0, op.ephemeral)
        elif isinstance(op, SetData):
            before = after.get(op.path)
            base = before.version if before else None
            if op.version != ANY_VERSION:
                base = op.version
            after[op.path] = Left(
                True,
                op.data,
                None if base is None else base + 1,
                before.ephemeral if before else None,
            )
        elif isinstance(op, Delete):
            after[op.path] = Left(False)
    return after


async def was_applied(store: Store, ops: Sequence[Op]) -> list[OpResult] | None:
    """The results of a transaction if every node is in the state after it, else None."""
    expected = leaves(ops)
    if not expected:
        return None
    found = dict(zip(expected, await store.get_many(list(expected)), strict=True))
    for path, left in expected.items():
        entry = found[path]
        if entry is None:
            if left.there:
                return None
            continue
        data, stat = entry
        owner = stat.ephemeral_owner
        if (
            not left.there
            or data != left.data
            or left.version not in (None, stat.version)
            or (left.ephemeral is not None and owner != (store.session_id if left.ephemeral else 0))
        ):
            return None
    return [result_of(op, found) for op in ops]


def result_of(op: Op, found: dict[str, tuple[bytes | None, Stat] | None]) -> OpResult:
    """The result of the multi for one op."""
    if isinstance(op, Create):
        return op.path
    if isinstance(op, Check | Delete):
        return None
    entry = found[op.path]
    return None if entry is None else entry[1]


def stat_of(result: OpResult) -> Stat:
    """The Stat among the results of a multi."""
    assert isinstance(result, Stat)
    return result
