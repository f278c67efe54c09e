"""Records, and the offsets of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.server.client.answers import offsets_in
from kwire.server.client.requests import EARLIEST as EARLIEST
from kwire.server.client.requests import LATEST as LATEST
from kwire.server.client.requests import Limits, fetch_request, offsets_request

from .connections import Address, Client, KafkaError
from .topics import leader, leaders

# Versions that Apache Kafka 2.4 and later all serve.
PRODUCE, FETCH, LIST_OFFSETS = 8, 11, 5


class Record(NamedTuple):
    """One record, as a consumer sees it. Unit: `timestamp` is in ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def append(client: Client, topic: str, partition: int, batch: bytes) -> int:
    """Append a batch and return the offset of its first record."""

    def send() -> int:
        address = leader(client, topic, partition)
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        row = client.ask(request, PRODUCE, address).responses[0].partition_responses[0]
        if row.error_code:
            raise KafkaError(
                f"cannot produce to {topic}-{partition}", row.error_code, row.error_message
            )
        return int(row.base_offset)

    return client.patiently(send)


def offset_at(client: Client, topic: str, partition: int, timestamp: int) -> int:
    """The offset for a time, or LATEST or EARLIEST."""

    def look() -> int:
        address = leader(client, topic, partition)
        request = offsets_request([(topic, partition)], timestamp)
        found, errors = offsets_in(client.ask(request, LIST_OFFSETS, address))
        for code in errors.values():
            raise KafkaError(f"offsets of {topic}-{partition}", code)
        return int(found[topic, partition])

    return client.patiently(look)


def fetch(
    client: Client, topic: str, offsets: Mapping[int, int], wait_ms: int, isolation_level: int
) -> tuple[dict[int, int], list[Record]]:
    """Read from these offsets; return the next ones, and what was read."""
    from kwire.server.client.visibility import aborted_in, batches_of, visible

    ends, records = dict(offsets), []
    by_leader: dict[Address, list[int]] = {}
    for partition, address in leaders(client, topic).items():
        if partition in offsets:
            by_leader.setdefault(address, []).append(partition)
    for address, partitions in by_leader.items():
        request = fetch_request(
            {(topic, each): offsets[each] for each in partitions},
            Limits(max_wait_ms=wait_ms // len(by_leader)),
            isolation_level,
        )
        answer = client.ask(request, FETCH, address)
        for row in answer.responses[0].partitions if answer.responses else ():
            partition = row.partition_index
            if row.error_code:
                raise KafkaError(f"cannot read {topic}-{partition}", row.error_code)
            batches = batches_of(row)
            if batches:
                ends[partition] = batches[-1].header.next_offset
            records += [
                Record(
                    topic,
                    partition,
                    each.offset,
                    each.key,
                    each.value,
                    tuple(each.headers),
                    each.timestamp,
                )
                for batch in visible(batches, aborted_in(row))
                for each in batch.records()
                if each.offset >= offsets[partition]
            ]
    return ends, records
