"""The assignment of new partitions' replicas to brokers: Kafka's round-robin, with and without racks.

First replicas rotate through the broker list from a random start. Followers rotate with a shift that increases by one
in each full round, so that the same brokers do not always follow the same leader. With racks, the list alternates
between racks, and a follower prefers a rack without a replica.
Source: org.apache.kafka.admin.AdminUtils.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kwire.errors import ErrorCode

from .refusal import ControllerRefusal


class UsableBroker(NamedTuple):
    """A broker that can hold replicas."""

    broker_id: int
    rack: str | None = None


def assign_replicas(
    brokers: Iterable[UsableBroker],
    partitions: int,
    replication_factor: int,
    start_index: int = -1,
    start_partition: int = -1,
) -> dict[int, tuple[int, ...]] | ControllerRefusal:
    """Assign replicas to `partitions` new partitions, the first of each the preferred leader.

    Shape: `start_index` is the position of partition 0's leader in the broker list and also the initial shift, -1 for
    random values; `start_partition` is the first number, for added partitions. Racks are used if every broker has one.
    If only some brokers have one, Kafka throws; kwire ignores racks.
    Errors: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
    """
    places = sorted(brokers)
    if partitions <= 0:
        return ControllerRefusal(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
        )
    if replication_factor <= 0:
        return ControllerRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
        )
    if replication_factor > len(places):
        return ControllerRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers:"
            f" {len(places)}.",
        )
    racks = {place.broker_id: place.rack for place in places if place.rack is not None}
    if len(racks) < len(places):
        racks = {}
    order = alternate_racks(racks) if racks else [place.broker_id for place in places]
    start = start_index if start_index >= 0 else random.randrange(len(order))
    shift = start_index if start_index >= 0 else random.randrange(len(order))
    assigned: dict[int, tuple[int, ...]] = {}
    first_partition = max(0, start_partition)
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start) % len(order)
        assigned[partition] = (
            with_racks(order, racks, first, shift, replication_factor)
            if racks
            else tuple(
                [order[first]]
                + [
                    order[follower_index(first, shift, j, len(order))]
                    for j in range(replication_factor - 1)
                ]
            )
        )
    return assigned


def with_racks(
    order: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """One partition's replicas: no rack (or broker) gets a second replica before all have one."""
    replicas = [order[first]]
    rack_count = len(set(racks.values()))
    taken_racks = {racks[order[first]]}
    step = 0
    while len(replicas) < replication_factor:
        broker = order[follower_index(first, shift * rack_count, step, len(order))]
        step += 1
        rack_free = racks[broker] not in taken_racks or len(taken_racks) == rack_count
        if rack_free and broker not in replicas:
            replicas.append(broker)
            taken_racks.add(racks[broker])
    return tuple(replicas)


def follower_index(first: int, shift: int, number: int, brokers: int) -> int:
    """The position in the list of a partition's follower `number` (0 is the first follower)."""
    return (first + 1 + (shift + number) % (brokers - 1)) % brokers


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Brokers in an order that alternates between racks: r1 0,1 and r2 2,3 give 0, 2, 1, 3."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    queues = [iter(by_rack[rack]) for rack in sorted(by_rack)]
    order: list[int] = []
    while len(order) < len(racks):
        order += [
            broker for broker in (next(queue, None) for queue in queues) if broker is not None
        ]
    return order
