"""How to answer a request that names the same thing many times."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

RowT = TypeVar("RowT")

#: A request with up to this many rows is answered row by row, repeats included, as Apache Kafka
#: does. No client sends more rows with repeats; answering them would turn a few bytes of request
#: into kilobytes of response each.
ANSWERED_AS_ASKED = 100


def without_many_repeats(
    rows: Sequence[RowT], key: Callable[[RowT], Hashable] | None = None
) -> Sequence[RowT]:
    """Return the rows; if there are very many, each only once.

    Shape: in the order of the request; rows with equal `key` (by default equal rows) are repeats.
    """
    if len(rows) <= ANSWERED_AS_ASKED:
        return rows
    if key is None:
        return list(dict.fromkeys(rows))
    return list({key(row): row for row in rows}.values())


def partitions_without_many_repeats(
    topics: Sequence[tuple[str, Sequence[int]]],
) -> Sequence[tuple[str, Sequence[int]]]:
    """Return topics with their partitions; if there are very many, each partition only once."""
    if sum(len(partitions) for _, partitions in topics) <= ANSWERED_AS_ASKED:
        return topics
    once: dict[str, dict[int, None]] = {}
    for topic, partitions in topics:
        once.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return [(topic, list(partitions)) for topic, partitions in once.items()]
