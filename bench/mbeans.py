"""Compare kwire's metrics with Apache Kafka's MBeans: both brokers get the same requests and are then asked for the same values.

Apache Kafka 3.9.2 is asked for its MBeans with its own JmxTool, kwire for /metrics. Counters are compared by how much they grew
under the load, all other values as they are afterwards. `python -m bench.mbeans` prints the differences; `--record` keeps the
values for docs/results/metrics.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kwire.api import ApiKey
from kwire.records.builder import BatchBuilder
from server.metrics.names import MBeanKind
from server.metrics.table import ROWS, SeriesRow
from tests.metrics.scraped import parse
from tests.support.broker_process import BrokerProcess, KwireBroker, free_port
from tests.support.kafka import QUICK_JVM, Kafka39Broker, java_command
from tests.support.wire_client import WireClient

RECORDED = Path(__file__).parents[1] / "tests" / "metrics" / "beside_kafka.json"
SETTINGS = {
    "num.partitions": "2",
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
TOPIC, GROUP, ID = "orders", "readers", "payments"
#: The compared values of labels with many values: the load's own topic and clients, without the broker's own activity.
WANTED = {"topic": {TOPIC}, "listener": {"PLAINTEXT"}, "delayedOperation": {"Produce", "Fetch"}}

#: (MBean, label values) -> value.
Values = dict[tuple[str, tuple[str, ...]], float]


def batch(records: int = 10) -> bytes:
    """A batch of records of 100 bytes."""
    builder = BatchBuilder()
    for number in range(records):
        builder.append(1_790_000_000_000 + number, None, b"v" * 100)
    return builder.build()


class Load:
    """Requests of one connection, each after the answer to the one before."""

    def __init__(self, broker: BrokerProcess) -> None:
        host, port = broker.bootstrap.split(":")
        self.client = WireClient(host, int(port), 30)

    def call(self, api: ApiKey, version: int, **values: Any) -> dict[str, Any]:
        answer = self.client.call(api, version, values)
        assert answer is not None, api
        return answer

    def until(self, answers: Callable[[], int]) -> None:
        """Repeat a request until its error code is 0."""
        deadline = time.monotonic() + 60
        while answers():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def prepare(self) -> None:
        """Create the topics, so that the load meets an idle broker."""
        topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1}
        self.call(ApiKey.CREATE_TOPICS, 5, topics=[topic])
        for key, kind in ((GROUP, 0), (ID, 1)):
            self.until(
                lambda key=key, kind=kind: self.call(  # type: ignore[misc]
                    ApiKey.FIND_COORDINATOR, 3, key=key, key_type=kind
                )["error_code"]
            )
        self.until(lambda: self.commit(GROUP))
        self.until(self.begin)
        self.produce(0, batch())
        self.fetch(0)

    def produce(self, partition: int, records: bytes) -> None:
        rows = [{"index": partition, "records": records}]
        topic = {"name": TOPIC, "partition_data": rows}
        self.call(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=5000, topic_data=[topic])

    def fetch(self, partition: int, offset: int = 0, wait_ms: int = 0) -> None:
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topic = {"topic": TOPIC, "partitions": [row]}
        options = {"min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        self.call(ApiKey.FETCH, 12, max_wait_ms=wait_ms, topics=[topic], **options)

    def commit(self, group: str) -> int:
        rows = [{"partition_index": each, "committed_offset": 5} for each in (0, 1)]
        answer = self.call(
            ApiKey.OFFSET_COMMIT,
            7,
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[{"name": TOPIC, "partitions": rows}],
        )
        return max(int(row["error_code"]) for row in answer["topics"][0]["partitions"])

    def begin(self) -> int:
        self.identity = self.call(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=ID, transaction_timeout_ms=60_000
        )
        return int(self.identity["error_code"])

    def transaction(self) -> None:
        self.until(self.begin)
        who = {key: self.identity[key] for key in ("producer_id", "producer_epoch")}
        topic = {"name": TOPIC, "partitions": [0, 1]}
        old = {f"v3_and_below_{key}": value for key, value in who.items()}
        self.call(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=ID,
            v3_and_below_topics=[topic],
            **old,
        )
        self.call(ApiKey.END_TXN, 3, transactional_id=ID, committed=True, **who)

    def join(self) -> None:
        asked = {
            "group_id": "members",
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        self.until(
            lambda: self.call(ApiKey.FIND_COORDINATOR, 3, key="members", key_type=0)["error_code"]
        )
        given = self.call(ApiKey.JOIN_GROUP, 5, member_id="", **asked)["member_id"]
        joined = self.call(ApiKey.JOIN_GROUP, 5, member_id=given, **asked)
        member = {
            "group_id": "members",
            "generation_id": joined["generation_id"],
            "member_id": given,
        }
        assignments = [{"member_id": given, "assignment": b""}]
        self.call(ApiKey.SYNC_GROUP, 3, assignments=assignments, **member)
        for _ in range(5):
            self.call(ApiKey.HEARTBEAT, 3, **member)

    def run(self) -> None:
        """The load: requests of many kinds, valid and invalid."""
        good, broken = batch(), bytearray(batch())
        broken[-1] ^= 1
        for number in range(100):
            self.produce(number % 2, good)
        for _ in range(3):
            self.produce(7, good)
            self.produce(0, bytes(broken))
        for number in range(50):
            self.fetch(number % 2)
        for _ in range(4):
            self.fetch(0, offset=10_000_000)
        for _ in range(3):
            self.fetch(1, offset=500, wait_ms=200)
        for partition in (0, 1):
            row = {"partition_index": partition, "timestamp": -1}
            topic = {"name": TOPIC, "partitions": [row]}
            self.call(ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=[topic])
        for _ in range(5):
            self.call(ApiKey.METADATA, 9, topics=[{"name": TOPIC}])
        for _ in range(5):
            assert self.commit(GROUP) == 0
        row = {"name": TOPIC, "partition_indexes": [0, 1]}
        self.call(ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=[row])
        for _ in range(3):
            self.transaction()
        self.join()


def kafka_values(url: str) -> Values:
    """Every number of Apache Kafka's MBeans, by the MBean's name and the attribute in brackets."""
    command = [
        *java_command("3.9.2", flags=(*QUICK_JVM, "-Xmx128m")),
        *("org.apache.kafka.tools.JmxTool", "--jmx-url", url, "--one-time"),
        *("--report-format", "properties"),
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: Values = {}
    for line in text.splitlines():
        name, _, value = line.rpartition("=")
        bean, _, attribute = name.rpartition(":")
        with suppress(ValueError):
            found[f"{bean} [{attribute}]", ()] = float(value)
    return found


def kwire_values(port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every series of kwire, by its name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        series = parse(response.read().decode())
    return {(each.name, frozenset(each.labels.items())): each.value for each in series}


def attributes(row: SeriesRow) -> list[tuple[str, str, tuple[tuple[str, str], ...], bool]]:
    """The compared values of an MBean: (attribute, suffix of the series, further labels, whether it only grows)."""
    if row.kind is MBeanKind.METER:
        return [("Count", "", (), True)]
    if row.kind is MBeanKind.HISTOGRAM:
        return [
            ("Count", "_count", (), True),
            ("50thPercentile", "", (("quantile", "0.50"),), False),
            ("99thPercentile", "", (("quantile", "0.99"),), False),
        ]
    if row.kind is MBeanKind.FLAT:
        attribute = row.bean.partition("[")[2].rstrip("]")
        return [(attribute, "", (), attribute.endswith("-total"))]
    return [("Value", "", (), False)]


def compare(kafka: list[Values], kwire: list[Any]) -> list[dict[str, Any]]:
    """A row for each value of either broker. Shape: each list has the values before and after the load."""
    rows: list[dict[str, Any]] = []
    for row in ROWS:
        if not row.bean:
            continue
        bean = row.bean.partition(" [")[0]
        name = row.series[0].name
        for attribute, suffix, further, grows in attributes(row):
            for labels in label_sets(row, name + suffix, further, kwire[1]):
                full = bean
                for label, value in labels:
                    full = full.replace(f"{label}=*", f"{label}={value}", 1)
                full = full.replace(",version=*", "")
                if "=*" in full:  # the sum over a label is an MBean without that label
                    full = ",".join(part for part in full.split(",") if not part.endswith("=*"))
                key = f"{full} [{attribute}]", ()
                where = name + suffix, frozenset((*labels, *further))
                ours = kwire[1].get(where, 0.0)
                theirs = kafka[1].get(key)
                if grows:
                    ours -= kwire[0].get(where, 0.0)
                    theirs = None if theirs is None else theirs - kafka[0].get(key, 0.0)
                rows.append({"bean": full, "attribute": attribute, "kafka": theirs, "kwire": ours})
    return rows


def label_sets(
    row: SeriesRow, name: str, further: tuple[tuple[str, str], ...], values: Any
) -> Iterable[tuple[tuple[str, str], ...]]:
    """The labels of the series to compare, in the order of the MBean's."""
    for found, labels in values:
        given = dict(labels)
        if found != name or any(given.pop(key, None) != value for key, value in further):
            continue
        if all(value in WANTED.get(key, {value}) for key, value in given.items()):
            yield tuple((label, given[label]) for label in row.labels if label in given)


def around_load(broker: BrokerProcess, values: Callable[[], Any]) -> list[Any]:
    """The result of `values` before and after the load."""
    load = Load(broker)
    load.prepare()
    before = values()
    load.run()
    after = values()
    load.client.close()
    return [before, after]


def main() -> None:
    """Run the load on both brokers, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--record", action="store_true", help="keep the values for docs/results/metrics.md"
    )
    record = parser.parse_args().record
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jmx, http = free_port(), free_port()
        flags = (
            f"-Dcom.sun.management.jmxremote.port={jmx}",
            f"-Dcom.sun.management.jmxremote.rmi.port={jmx}",
            "-Dcom.sun.management.jmxremote.authenticate=false",
            "-Dcom.sun.management.jmxremote.ssl=false",
            "-Dcom.sun.management.jmxremote.host=127.0.0.1",
            "-Djava.rmi.server.hostname=127.0.0.1",
        )
        kafka = Kafka39Broker(folder / "kafka", config=SETTINGS, jvm=(*QUICK_JVM, *flags))
        kwire = KwireBroker(
            folder / "kwire", config={**SETTINGS, "kwire.http.listener": f"127.0.0.1:{http}"}
        )
        url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{jmx}/jmxrmi"
        with kafka:
            kafka_found = around_load(kafka, lambda: kafka_values(url))
        with kwire:
            kwire_found = around_load(kwire, lambda: kwire_values(http))
    rows = compare(kafka_found, kwire_found)
    for row in rows:
        if row["kafka"] != row["kwire"]:
            print(f"{row['bean']} [{row['attribute']}]: {row['kafka']} {row['kwire']}")
    print(f"{len(rows)} values, {sum(row['kafka'] == row['kwire'] for row in rows)} equal")
    if record:
        RECORDED.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    main()
