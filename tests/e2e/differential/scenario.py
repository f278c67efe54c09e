"""The table of scenarios and the records that they send."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kwire.api import ApiKey
from kwire.records.builder import BatchBuilder

from .peer import Peer

Body = Callable[[Peer, int], None]

OLD_MS = 1_600_000_000_000  # a time of records that is the same on both brokers


class Scenario(NamedTuple):
    """A function to run on both brokers, for each version from first to last."""

    name: str
    first: int
    last: int
    body: Body


SCENARIOS: list[Scenario] = []
SCENARIOS_OF_4: list[Scenario] = []  # for Apache Kafka 4.3.0


def scenario(api: ApiKey, first: int, last: int) -> Callable[[Body], Body]:
    """Enter a function in the table; versions are inclusive."""
    return _enter(SCENARIOS, api, first, last)


def scenario_of_4(api: ApiKey, first: int, last: int) -> Callable[[Body], Body]:
    """Enter a function in the table for 4.3; versions are inclusive."""
    return _enter(SCENARIOS_OF_4, api, first, last)


def _enter(table: list[Scenario], api: ApiKey, first: int, last: int) -> Callable[[Body], Body]:
    def enter(body: Body) -> Body:
        name = f"{api.name.lower()}/{body.__name__}"
        table.append(Scenario(name, first, last, body))
        return body

    return enter


def batch(
    *values: bytes | None,
    magic: int = 2,
    codec: int = 0,
    key: bytes | None = b"k",
    timestamp: int = OLD_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    **settings: bool,
) -> bytes:
    """Return one batch (or message set) with a record for each value, a millisecond apart."""
    producer_id, epoch, sequence = producer
    builder = BatchBuilder(
        magic,
        codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **settings,
    )
    for number, value in enumerate(values):
        headers = [("h", b"1"), ("h", None)] if magic == 2 else []
        builder.append(timestamp + number, key, value, headers)
    return bytes(builder.build())
