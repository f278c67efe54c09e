"""The values that clients have pushed, as series for Prometheus; pure."""

from __future__ import annotations

import re
from collections.abc import Hashable

from ..shares import NOBODY, Shares
from .clients import ClientInstance
from .otlp import MAX_CHARACTERS, Point

#: The prefix of most metrics of clients, and its replacement.
THEIR_PREFIX = "org.apache.kafka."
OUR_PREFIX = "kafka_client_"
NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")

#: A series with more characters in its labels counts more than once.
LABEL_CHARACTERS = 1_000

#: The values of labels, in the order of their names.
Labels = tuple[tuple[str, str], ...]


class Family:
    """The series of one name. Shape: `counts` if their values only increase."""

    __slots__ = ("counts", "values")

    def __init__(self, counts: bool) -> None:
        self.counts = counts
        self.values: dict[Labels, float] = {}


class ClientSeries:
    """The series of all clients, at most `limit` of them.

    Shape: `families` by name. `left_out` counts values that arrived when the limit, or the client's share of it, was
    reached; `ignored` counts values that are not numbers, or not used here. `count` counts series with very long labels
    more than once.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.families: dict[str, Family] = {}
        self.left_out = self.ignored = 0
        self._shares = Shares()
        self._of_client: dict[bytes, tuple[Hashable, set[tuple[str, Labels]]]] = {}

    @property
    def count(self) -> int:
        return self._shares.used

    def take(self, instance: ClientInstance, point: Point | None) -> None:
        """Add a value from a client; None counts as unused."""
        if point is None:
            self.ignored += 1
            return
        name = name_of(point.name)
        labels = labels_of(instance, point)
        family = self.families.get(name)
        if family is None or labels not in family.values:
            account, known = self._of_client.get(instance.id) or (instance.account, set())
            size = weight(labels)
            if self._shares.refuses(account, size, self.limit):
                self.left_out += 1
                return
            self._shares.hold(account, size)
            if family is None:
                family = self.families[name] = Family(point.is_sum)
            family.values[labels] = 0
            known.add((name, labels))
            self._of_client[instance.id] = account, known
        if point.is_delta:
            family.values[labels] += point.value
        else:
            family.values[labels] = point.value

    def forget(self, instance_id: bytes) -> None:
        """Drop the series of a client."""
        account, known = self._of_client.pop(instance_id, (NOBODY, ()))
        for name, labels in known:
            values = self.families[name].values
            del values[labels]
            self._shares.hold(account, -weight(labels))
            if not values:
                del self.families[name]


def weight(labels: Labels) -> int:
    """The number of series that one with these labels counts as."""
    return 1 + sum(len(name) + len(value) for name, value in labels) // LABEL_CHARACTERS


def name_of(metric: str) -> str:
    """The name of a series: kafka_client_producer_x for org.apache.kafka.producer.x."""
    return OUR_PREFIX + NOT_IN_NAMES.sub("_", metric.removeprefix(THEIR_PREFIX)[:MAX_CHARACTERS])


def labels_of(instance: ClientInstance, point: Point) -> Labels:
    """The labels of a value: its sender and its attributes, none of which can imitate another client."""
    found = {}
    for key, value in point.attributes:
        name = NOT_IN_NAMES.sub("_", key)
        if (
            name[:2] == "__"
        ):  # reserved by Prometheus: __name__ would replace the name of the series
            name = name.strip("_")
        if name[:1].isdigit() or not name:
            name = f"_{name}"
        found[name] = value
    found["client_id"] = instance.client.client_id[:MAX_CHARACTERS]
    found["client_instance_id"] = instance.client.client_instance_id
    return tuple(sorted(found.items()))
