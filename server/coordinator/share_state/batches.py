"""Combines the batches of a share partition: later ones replace earlier ones, and the result has as few as possible.

Source: PersisterStateBatchCombiner.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace

from .rows import StateBatch

#: First and last offset, delivery count, state.
_Ordered = tuple[int, int, int, int]


def combined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches without overlaps, and without offsets below the start offset, in the order of offsets.

    Shape: of two batches with the same offsets, the one with the higher delivery count wins; if the counts are equal,
    the one with the higher state wins, because states only move forward. A start offset of -1 removes nothing. A batch
    that ends before it begins is left out.
    """
    # First and last offset, delivery count, state: the order in which Apache Kafka processes them.
    waiting = [
        (first if first >= start_offset else start_offset, last, count, state)
        for first, last, state, count in batches
        if last >= start_offset and first <= last
    ]
    waiting.sort()
    done: list[StateBatch] = []
    knot: list[_Ordered] = []  # adjacent batches with equal state are joined
    end = 0
    for batch in waiting:
        first, last = batch[:2]
        if knot:
            before = knot[-1]
            if len(knot) == 1 and first == before[0] and last == before[1]:
                knot[0] = batch
                continue
            if first > end and (first > end + 1 or (len(knot) == 1 and before[2:] != batch[2:])):
                done += _untied(knot)
                knot = []
        end = max(end, last) if knot else last
        knot.append(batch)
    done += _untied(knot)
    return tuple(done)


def is_plain(batches: Iterable[StateBatch]) -> bool:
    """Whether batches follow each other without overlaps."""
    expected = None
    for first, last, _, _ in batches:
        if first > last or (expected is not None and first < expected):
            return False
        expected = last + 1
    return True


def _untied(knot: list[_Ordered]) -> Iterable[StateBatch]:
    """Combine batches that overlap or touch, in order."""
    if len(knot) == 1:
        first, last, count, state = knot[0]
        return (StateBatch(first, last, state, count),)
    heap: list[tuple[int, ...]] = [*knot]  # a sorted list is a heap
    done: list[StateBatch] = []
    while heap:
        first, last, *rank = heappop(heap)
        if not heap:
            done.append(_batch(first, last, rank))
            break
        next_first, next_last, *next_rank = heap[0]
        if next_first > last and not (next_first == last + 1 and next_rank == rank):
            done.append(_batch(first, last, rank))
            continue
        if next_rank == rank:
            heapreplace(heap, (first, max(last, next_last), *rank))
        elif next_rank > rank:
            if first < next_first:
                done.append(_batch(first, next_first - 1, rank))
            if next_last < last:
                heappush(heap, (next_last + 1, last, *rank))
        else:
            heapreplace(heap, (first, last, *rank))
            if next_last > last:
                heappush(heap, (last + 1, next_last, *next_rank))
    return done


def _batch(first: int, last: int, rank: list[int]) -> StateBatch:
    delivery_count, delivery_state = rank
    return StateBatch(first, last, delivery_state, delivery_count)
