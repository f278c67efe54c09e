"""How to answer a request that names the same thing many times."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import TypeVar

from ..turns import each_in_steps

RowT = TypeVar("RowT")
TopicT = TypeVar("TopicT", bound=Hashable)

#: How many rows are looked at in one step.
STEP = 256

#: A request with up to this many rows is answered row by row, repeats included, as Apache Kafka
#: does. No client sends more rows with repeats; answering them would turn a few bytes of request
#: into kilobytes of response each.
ANSWERED_AS_ASKED = 100


def without_many_repeats(
    rows: Sequence[RowT], key: Callable[[RowT], Hashable] | None = None
) -> Generator[None, None, Sequence[RowT]]:
    """Return the rows; if there are very many, each only once.

    Shape: in steps, in the order of the request; rows with equal `key` (by default equal rows) are repeats.
    """
    if len(rows) <= ANSWERED_AS_ASKED:
        return rows
    return (yield from without_repeats(rows, key))


def without_repeats(
    rows: Sequence[RowT], key: Callable[[RowT], Hashable] | None = None
) -> Generator[None, None, list[RowT]]:
    """Return the rows, each only once; otherwise as `without_many_repeats`."""
    once: dict[Hashable, RowT] = {}
    for first in range(0, len(rows), STEP):
        yield
        for row in rows[first : first + STEP]:
            once[row if key is None else key(row)] = row
    return list(once.values())


def partitions_without_many_repeats(
    topics: Sequence[tuple[TopicT, Sequence[int]]],
) -> Generator[None, None, Sequence[tuple[TopicT, Sequence[int]]]]:
    """Return topics with their partitions, in steps; if there are very many, each partition only once."""
    if (
        len(topics) <= ANSWERED_AS_ASKED
        and sum(len(partitions) for _, partitions in topics) <= ANSWERED_AS_ASKED
    ):
        return topics
    once: dict[TopicT, dict[int, None]] = {}
    for topic, partitions in topics:
        yield
        kept = once.setdefault(topic, {})
        for first in range(0, len(partitions), STEP):
            yield
            kept.update(dict.fromkeys(partitions[first : first + STEP]))
    return (yield from each_in_steps(lambda item: (item[0], list(item[1])), once.items()))
