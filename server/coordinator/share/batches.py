"""How the batches of a share partition are put together: later ones over earlier ones, in as few as possible.

Source: PersisterStateBatchCombiner.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from .rows import StateBatch


def combined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches without overlaps and below the start offset nothing, in the order of offsets.

    Shape: of two batches with the same offsets that with the higher delivery count wins, and if they are equal that
    with the higher state: states go forward only. A start offset of -1 cuts nothing off.
    """
    waiting = [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]
    # First and last offset, delivery count, state: the order in which Apache Kafka takes them up.
    heap = [_ordered(batch) for batch in waiting]
    heapify(heap)
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
        heappop(heap)
        if next_rank == rank:
            heappush(heap, (first, max(last, next_last), *rank))
        elif next_rank > rank:
            if first < next_first:
                heappush(heap, (first, next_first - 1, *rank))
            heappush(heap, (next_first, next_last, *next_rank))
            if next_last < last:
                heappush(heap, (next_last + 1, last, *rank))
        else:
            heappush(heap, (first, last, *rank))
            if next_last > last:
                heappush(heap, (last + 1, next_last, *next_rank))
    return tuple(done)


def _ordered(batch: StateBatch) -> tuple[int, ...]:
    return batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state


def _batch(first: int, last: int, rank: list[int]) -> StateBatch:
    delivery_count, delivery_state = rank
    return StateBatch(first, last, delivery_state, delivery_count)
