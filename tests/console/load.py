"""Content for the pages: topics, records, groups and transactions, made by stock clients."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CITIES = ("Lisbon", "Oslo", "Quito", "Nairobi", "Hanoi", "Perth")


def create(bootstrap: str, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
    """Create topics: partitions and configs by name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic(name, num_partitions=count, replication_factor=1, config=config)
        for name, (count, config) in topics.items()
    ]
    for at in range(0, len(wanted), 100):
        some = admin.create_topics(wanted[at : at + 100], request_timeout=120)
        for future in some.values():
            future.result(120)


class Load:
    """Clients of a small shop. Shape: `stop` closes them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.consumers: list[Consumer] = []
        random.seed(7)
        create(
            bootstrap,
            {
                "orders": (6, {"retention.ms": "259200000"}),
                "payments": (3, {}),
                "customers": (3, {"cleanup.policy": "compact"}),
                "page-views": (12, {"retention.bytes": "1073741824", "compression.type": "lz4"}),
                "shipments": (3, {"min.insync.replicas": "1"}),
                "empty-topic": (1, {}),
            },
        )

    def produce(self, count: int = 600) -> None:
        """Write records of several forms; some transactions, one of them aborted and one left open."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "client.id": "shop"})
        for number in range(count):
            order = {
                "order": 10_000 + number,
                "customer": f"c-{number % 97}",
                "city": random.choice(CITIES),
                "total": round(random.uniform(5, 400), 2),
                "items": [{"sku": f"s-{number % 31}", "count": number % 4 + 1}],
            }
            producer.produce(
                "orders",
                key=f"c-{number % 97}",
                value=json.dumps(order),
                headers=[("trace", f"{number:08x}".encode()), ("source", b"web")],
            )
            producer.produce("page-views", key=f"c-{number % 97}", value=f"/products/{number % 31}")
            producer.produce("page-views", value=f"/cart?id={number}")
            if number % 3 == 0:
                value = None if number % 30 == 0 else json.dumps({"name": f"Customer {number}"})
                producer.produce("customers", key=f"c-{number % 97}", value=value)
            if number % 5 == 0:
                producer.produce("shipments", value=bytes([number % 256, 0xFF, 0, 1, 2, 3]))
            producer.poll(0)
        producer.flush(30)

    def transactions(self) -> Producer:
        """A committed, an aborted and an open transaction. Shape: the returned producer holds the open one."""
        for name, commits in (("billing-1", True), ("billing-2", False)):
            producer = self._transactional(name)
            producer.begin_transaction()
            for number in range(4):
                producer.produce(
                    "payments", key=f"p-{number}", value=f'{{"by": "{name}"}}', partition=0
                )
            producer.flush(30)
            if commits:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        producer = self._transactional("billing-3", 600_000)
        producer.begin_transaction()
        producer.produce("payments", key="p-9", value='{"by": "billing-3"}', partition=0)
        producer.flush(30)
        return producer

    def _transactional(self, name: str, timeout_ms: int = 60_000) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": name,
                "client.id": name,
                "transaction.timeout.ms": timeout_ms,
            }
        )
        producer.init_transactions(30)
        return producer

    def consume(self, group: str, topics: list[str], most: int, members: int = 1) -> None:
        """Members that read up to `most` records and commit, then only keep their place."""
        ready = []
        for number in range(members):
            consumer = Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": group,
                    "client.id": f"{group}-{number}",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            consumer.subscribe(topics)
            self.consumers.append(consumer)
            assigned = threading.Event()
            ready.append(assigned)
            thread = threading.Thread(
                target=self._run, args=(consumer, most, assigned), daemon=True
            )
            thread.start()
            self._threads.append(thread)
        for each in ready:
            each.wait(30)

    def _run(self, consumer: Consumer, most: int, assigned: threading.Event) -> None:
        seen = 0
        while not self._stopped.is_set():
            message = consumer.poll(0.2)
            if message is None or message.error():
                if consumer.assignment():
                    assigned.set()
                continue
            seen += 1
            if seen <= most:
                consumer.commit(message, asynchronous=False)
            if seen == most:
                assigned.set()
                consumer.pause(consumer.assignment())
        consumer.close()

    def commit(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        """Commit for a group without members."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        consumer.commit(
            offsets=[TopicPartition(topic, number, at) for (topic, number), at in offsets.items()],
            asynchronous=False,
        )
        consumer.close()

    def stop(self) -> None:
        """Close the clients."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)


def everything(bootstrap: str) -> tuple[Load, Any]:
    """The whole shop. Shape: the second is kept, so that its transaction stays open."""
    load = Load(bootstrap)
    load.produce()
    open_transaction = load.transactions()
    load.consume("billing", ["orders"], 150, members=2)
    load.consume("search-index", ["customers", "orders"], 10_000)
    load.commit("nightly-report", {("orders", 0): 3, ("orders", 1): 0, ("page-views", 4): 12})
    return load, open_transaction
