"""What to do with a request that names the same thing again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

RowT = TypeVar("RowT")

#: A request with up to this many rows is answered row by row, repeats included, as Apache Kafka
#: answers. No client asks for more with repeats, and a few bytes of request would otherwise buy
#: kilobytes of response each.
ANSWERED_AS_ASKED = 100


def without_many_repeats(
    rows: Sequence[RowT], key: Callable[[RowT], Hashable] | None = None
) -> Sequence[RowT]:
    """Return the rows, each only once if there are very many.

    Shape: in the order asked for; `key` says which rows are the same, by default equal ones.
    """
    if len(rows) <= ANSWERED_AS_ASKED:
        return rows
    if key is None:
        return list(dict.fromkeys(rows))
    return list({key(row): row for row in rows}.values())


def partitions_without_many_repeats(
    topics: Sequence[tuple[str, Sequence[int]]],
) -> Sequence[tuple[str, Sequence[int]]]:
    """Return topics with their partitions, each partition only once if there are very many."""
    if sum(len(partitions) for _, partitions in topics) <= ANSWERED_AS_ASKED:
        return topics
    once: dict[str, dict[int, None]] = {}
    for topic, partitions in topics:
        once.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return [(topic, list(partitions)) for topic, partitions in once.items()]
