"""Times, numbers, names and transactions, in the words of `kwire explain`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from .facts import PendingTransaction

#: The maximum number of names in a sentence.
LISTED = 3


def when(time_ms: int | None) -> str:
    """A time in UTC, to the second."""
    if time_ms is None or time_ms < 0:
        return "an unknown time"
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(ms: float) -> str:
    """A duration in its two largest units."""
    ms = max(0, int(ms))
    if ms < 1000:
        return f"{ms} ms"
    parts = []
    left = ms // 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def counted(number: int, thing: str) -> str:
    """A number with its noun, which gets an s in the plural."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def listed(names: Sequence[str]) -> str:
    """Some names in a row; the others are counted."""
    shown, more = list(names[:LISTED]), len(names) - LISTED
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def text_of(transaction: PendingTransaction) -> str:
    """The owner of a transaction."""
    producer = f"producer {transaction.producer_id} (epoch {transaction.producer_epoch})"
    if transaction.transactional_id is None:
        return producer
    return f"{producer}, transactional id {transaction.transactional_id},"


def open_since(transaction: PendingTransaction, now_ms: int) -> str:
    """That a transaction is open: since when, and how long it may be."""
    start, timeout = transaction.start_ms, transaction.timeout_ms
    if start is None or start < 0:
        if transaction.last_write_ms is not None and transaction.last_write_ms >= 0:
            return f"is open; its last record was written {when(transaction.last_write_ms)}"
        return "is open"
    said = f"has been open since {when(start)} ({duration(now_ms - start)})"
    if timeout is not None:
        left = start + timeout - now_ms
        said += f"; its timeout of {duration(timeout)} " + (
            f"ends it in {duration(left)}" if left > 0 else f"expired {duration(-left)} ago"
        )
    return said


def transaction_details(transaction: PendingTransaction) -> dict[str, Any]:
    """A transaction as JSON."""
    return {
        "transaction": {
            "transactional_id": transaction.transactional_id,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "first_offset": transaction.first_offset,
            "state": transaction.state,
            "start_ms": transaction.start_ms,
            "timeout_ms": transaction.timeout_ms,
            "last_write_ms": transaction.last_write_ms,
            "hanging": transaction.hanging,
        }
    }
