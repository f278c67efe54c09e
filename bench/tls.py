"""The cost of TLS for a broker: kwire and Apache Kafka 3.9.2 with and without TLS, with Apache Kafka's own tools.

Each broker has one listener without TLS and one with it (TLS 1.3, a certificate on an elliptic curve). The rounds alternate
between both brokers and both listeners. With --librdkafka, confluent-kafka produces and consumes; it sends each piece of a
request in a separate TLS record.

    python -m bench.tls --rounds 3 --gb 0.5
"""

from __future__ import annotations

import argparse
import os
import platform
import ssl
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from kwire.testing.certificates import Authority
from tests.support.broker_process import BrokerProcess, KwireBroker, cpu_seconds, free_port
from tests.support.kafka import Kafka39Broker, write_properties

from .broker import BROKER_JVM, RECORD_BYTES, Subject, note, spread

BATCH = 131_072
PROTOCOLS = ("PLAINTEXT", "SSL")


class TwoListeners(KwireBroker):
    """kwire with the listeners in its settings, the plain one first."""

    def command(self) -> list[str]:
        """The command line without --listen."""
        command = super().command()
        at = command.index("--listen")
        return command[:at] + command[at + 2 :]


class Client:
    """Runs a client at one of a broker's listeners."""

    def __init__(self, broker: BrokerProcess, protocol: str, port: int, folder: Path) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self.properties = {"security.protocol": protocol}
        self.ca = folder / "ca.pem"
        self.batch = BATCH
        if protocol.endswith("SSL"):
            self.properties |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca),
            }
        self.properties |= self.login()
        self.file = write_properties(folder / f"{protocol}-{port}.properties", self.properties)

    def login(self) -> dict[str, str]:
        """The properties for its login: none."""
        return {}

    def produce(self, topic: str, records: int) -> None:
        """Produce with kafka-producer-perf-test."""
        Subject._tool(
            "ProducerPerformance",
            *("--topic", topic, "--num-records", str(records)),
            *("--record-size", str(RECORD_BYTES), "--throughput", "-1"),
            *("--producer.config", str(self.file), "--producer-props"),
            *(f"bootstrap.servers={self.bootstrap}", f"batch.size={self.batch}"),
            *("acks=all", "linger.ms=5", "buffer.memory=67108864"),
        )

    def consume(self, topic: str, records: int) -> None:
        """Consume with kafka-consumer-perf-test."""
        Subject._tool(
            "ConsumerPerformance",
            *("--bootstrap-server", self.bootstrap, "--topic", topic),
            *("--messages", str(records), "--timeout", "30000"),
            *("--consumer.config", str(self.file)),
        )


class RdkafkaClient(Client):
    """The same with confluent-kafka."""

    def _options(self) -> dict[str, str]:
        options = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.properties["security.protocol"],
        }
        if options["security.protocol"] == "SSL":
            options["ssl.ca.location"] = str(self.ca)
        return options

    def produce(self, topic: str, records: int) -> None:
        """Produce until all records are acknowledged."""
        from confluent_kafka import Producer

        producer = Producer({**self._options(), "batch.size": self.batch, "linger.ms": 5})
        value = os.urandom(RECORD_BYTES)
        for number in range(records):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush()

    def consume(self, topic: str, records: int) -> None:
        """Consume all records."""
        from confluent_kafka import Consumer

        options = {"group.id": topic, "auto.offset.reset": "earliest"}
        consumer = Consumer({**self._options(), **options})
        consumer.subscribe([topic])
        count = 0
        while count < records:
            count += len(consumer.consume(10_000, 1.0))
        consumer.close()


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.tls")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--gb", type=float, default=0.5, help="GB produced and consumed in each run"
    )
    parser.add_argument(
        "--librdkafka", action="store_true", help="use confluent-kafka as the client"
    )
    parser.add_argument("--only", choices=("kwire", "kafka"), help="measure only this broker")
    options = parser.parse_args()
    records = int(options.gb * 1e9 / RECORD_BYTES)
    kind = RdkafkaClient if options.librdkafka else Client
    figures: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        authority = Authority()
        authority.write(folder / "ca.pem")
        store = authority.issue("CN=broker").write(folder / "broker.pem")
        brokers: dict[str, tuple[BrokerProcess, dict[str, int]]] = {}
        for name in ("kwire", "Apache Kafka 3.9.2"):
            if options.only and options.only not in name.lower():
                continue
            ports = dict(zip(PROTOCOLS, (free_port(), free_port()), strict=True))
            config = {
                "listeners": ",".join(f"{each}://127.0.0.1:{ports[each]}" for each in PROTOCOLS),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(store),
            }
            broker: BrokerProcess
            if name == "kwire":
                broker = TwoListeners(folder / "kwire", config=config, port=ports["PLAINTEXT"])
            else:
                broker = Kafka39Broker(
                    folder / "kafka", config=config, port=ports["PLAINTEXT"], jvm=BROKER_JVM
                )
            broker.start()
            brokers[name] = broker, ports
        try:
            for number in range(options.rounds + 1):  # the first round warms up
                for name, (broker, ports) in brokers.items():
                    for protocol in PROTOCOLS:
                        client = kind(broker, protocol, ports[protocol], folder)
                        topic = f"bench-{time.monotonic_ns()}"
                        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
                        admin.create_topics([NewTopic(topic, 6, 1)])
                        for work in ("produce", "consume"):
                            before = cpu_seconds(broker.pid)
                            getattr(client, work)(topic, records)
                            used = (cpu_seconds(broker.pid) - before) / options.gb
                            note(f"{number} {name} {protocol} {work} {used:.2f} CPU s per GB")
                            if number:
                                figures[(work, name, protocol)].append(used)
                        admin.delete_topics([topic])
                        admin.close()
        finally:
            for broker, _ in brokers.values():
                broker.stop()
    print(
        f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()},"
    )
    print(f"{ssl.OPENSSL_VERSION}; {options.rounds} rounds of {options.gb} GB, records of 1 KB,")
    print(f"batches of 128 KiB, 6 partitions, acks=all; client: {kind.__name__}\n")
    print("| work | broker | CPU s per GB without TLS | with TLS | TLS alone |")
    print("|---|---|---|---|---|")
    for work in ("produce", "consume"):
        for name in brokers:
            plain, tls = (figures[(work, name, protocol)] for protocol in PROTOCOLS)
            extra = median(tls) - median(plain)
            print(f"| {work} | {name} | {spread(plain)} | {spread(tls)} | {extra:.2f} |")


if __name__ == "__main__":
    main()
