"""Clients that stay connected while the data directory is moved from one broker to another."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder

from ...support.polling import wait_until
from .asking import ask, committed_offsets, describe_transaction
from .content import DEADLINE_S


class OpenTransaction:
    """A transaction that begins under one broker and ends under another by the same producer.

    It has written to a partition and includes an offset of a group. The requests are made one by one here: the id and
    epoch of the producer are those from before the move.
    """

    def __init__(self, address: str, name: str, partition: int) -> None:
        self.address = address
        self.name = name
        self.partition = partition
        self.group = f"group of {name}"
        self.values = [b"%s %d" % (name.encode(), number) for number in range(5)]
        self.after = [b"%s after the move %d" % (name.encode(), number) for number in range(5)]
        self.sequence = 0
        values = {"transactional_id": name, "transaction_timeout_ms": 600_000}
        begun = ask(address, ApiKey.INIT_PRODUCER_ID, 4, values)
        self.producer = {name: begun[name] for name in ("producer_id", "producer_epoch")}
        self._send(self.values)
        self._send_offset(17)
        self.described = describe_transaction(address, name)
        assert self.described["transaction_state"] == "Ongoing"

    def _send(self, values: list[bytes]) -> None:
        topics = [{"name": "transactions", "partitions": [self.partition]}]
        ask(
            self.address,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": self.name,
                "v3_and_below_producer_id": self.producer["producer_id"],
                "v3_and_below_producer_epoch": self.producer["producer_epoch"],
                "v3_and_below_topics": topics,
            },
        )
        builder = BatchBuilder(is_transactional=True, base_sequence=self.sequence, **self.producer)
        for value in values:
            builder.append(int(time.time() * 1000), None, value)
        self.sequence += len(values)
        data = [{"index": self.partition, "records": builder.build()}]
        ask(
            self.address,
            ApiKey.PRODUCE,
            9,
            {
                "transactional_id": self.name,
                "acks": -1,
                "timeout_ms": 10_000,
                "topic_data": [{"name": "transactions", "partition_data": data}],
            },
        )

    def _send_offset(self, offset: int) -> None:
        common = {"transactional_id": self.name, "group_id": self.group, **self.producer}
        ask(self.address, ApiKey.ADD_OFFSETS_TO_TXN, 3, common)
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        topics = [{"name": "codecs", "partitions": [row]}]
        ask(self.address, ApiKey.TXN_OFFSET_COMMIT, 3, {**common, "topics": topics})

    def end(self, commit: bool) -> None:
        """Check that the broker knows the transaction unchanged, write more to it, and end it."""
        assert describe_transaction(self.address, self.name) == self.described
        assert ("codecs", 0) not in committed_offsets(self.address, self.group)
        self._send(self.after)
        self._send_offset(23)
        values = {"transactional_id": self.name, "committed": commit, **self.producer}
        ask(self.address, ApiKey.END_TXN, 3, values)
        wanted = "CompleteCommit" if commit else "CompleteAbort"
        now: dict[str, Any] = {}

        def ended() -> bool:
            now.update(describe_transaction(self.address, self.name))
            return bool(now["transaction_state"] == wanted)

        wait_until(ended, f"{self.name}: {now}")
        assert {name: now[name] for name in self.producer} == self.producer
        found = committed_offsets(self.address, self.group)
        assert found.get(("codecs", 0)) == ((23, "m") if commit else None)


class Seen(NamedTuple):
    """A record of `codecs` that the group's member got."""

    partition: int
    offset: int


class StandingMember:
    """A group member that keeps running while its broker and coordinator are replaced."""

    def __init__(self, address: str, group: str, *, protocol: str = "classic") -> None:
        self.assignments = 0
        self.seen: list[Seen] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                # In the other protocol, the group determines it.
                **({"session.timeout.ms": 120_000} if protocol == "classic" else {}),
                "group.protocol": protocol,
            }
        )
        self.consumer.subscribe(["codecs"], on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def read_up_to(self, count: int) -> None:
        """Read until count records of each partition are known, and commit."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.seen) < 5 * count:
            assert time.monotonic() < deadline, f"{len(self.seen)} of {5 * count}"
            message = self.consumer.poll(0.5)
            if message is not None and message.error() is None:
                self.seen.append(Seen(message.partition(), message.offset()))
        assert sorted(self.seen) == [Seen(p, o) for p in range(5) for o in range(count)]
        places = [TopicPartition("codecs", partition, count) for partition in range(5)]
        self.consumer.commit(offsets=places, asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


def read_some_and_commit(
    address: str, group: str, count: int, **settings: str
) -> dict[tuple[str, int], list[int]]:
    """Join a group, read count records, commit them and leave; returns the offsets by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe(["codecs"])
    found: dict[tuple[str, int], list[int]] = {}
    read = 0
    deadline = time.monotonic() + DEADLINE_S
    while read < count:
        assert time.monotonic() < deadline
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            continue
        found.setdefault((message.topic(), message.partition()), []).append(message.offset())
        read += 1
    offsets = [
        TopicPartition(topic, partition, read[-1] + 1, metadata="up to here")
        for (topic, partition), read in found.items()
    ]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    return found
