"""Time of a rebalance: the consumer protocol and the classic one, kwire and Apache Kafka 4.3.0. python -m bench.rebalances

Members are connections of one load generator (bench/go). They do not wait between their requests, so the times contain no
heartbeat intervals. Classic protocol: the leader asks for a rebalance, and all members join and fetch their assignments.
Consumer protocol: one more member joins a group whose members have two partitions each, and all members send heartbeats in
rounds until they are in one epoch and every partition has one owner. Both brokers set group.initial.rebalance.delay.ms and
group.consumer.assignment.interval.ms to 0; the defaults can add 3 s and 1 s. The brokers run one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess, KwireBroker
from tests.support.kafka import KAFKA_4, kafka_broker

from .broker import BROKER_JVM, note
from .suite.tools import go_program

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}
PARTITIONS_EACH = 2


def load(what: str, broker: BrokerProcess, **options: object) -> dict[str, Any]:
    """Run the load generator, and return its output."""
    words = [f"-{name}={value}" for name, value in options.items()]
    command = [str(go_program()), what, f"-brokers={broker.bootstrap}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(broker: BrokerProcess, members: int, rounds: int) -> dict[str, Any]:
    """Seconds of rebalances of a group of each protocol, and the number of heartbeats of each member."""
    topic, partitions = f"read-by-{members}", members * PARTITIONS_EACH
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(120)
    classic = load("members", broker, group=f"classic-{members}", members=members, rounds=rounds)
    consumer = load(
        "consumers",
        broker,
        group=f"consumers-{members}",
        members=members,
        rounds=rounds,
        topic=topic,
        partitions=partitions,
    )
    return {
        "classic": classic["rebalance_seconds"],
        "consumer": consumer["rebalance_seconds"],
        "rounds": consumer["rounds"],
        "classic_forms": classic["form_seconds"],
        "consumer_forms": consumer["form_seconds"],
    }


def milliseconds(seconds: list[float]) -> str:
    """The median, minimum and maximum."""
    values = [f"{1000 * each:,.0f}" for each in (median(seconds), min(seconds), max(seconds))]
    return f"{values[0]} ({values[1]} to {values[2]})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.rebalances")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--members", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    go_program()
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print(
        "| broker | members | classic ms | consumer protocol ms | heartbeats each | classic forms s | consumer group forms s |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for kind in ("kwire", "Apache Kafka 4.3.0"):
        with tempfile.TemporaryDirectory(prefix="kwire-rebalances-") as folder:
            broker: BrokerProcess = (
                KwireBroker(Path(folder), config=CONFIG)
                if kind == "kwire"
                else kafka_broker(KAFKA_4, Path(folder), config=CONFIG, jvm=BROKER_JVM)
            )
            with broker:
                for members in given.members:
                    note(f"{kind}, {members} members, load {os.getloadavg()[0]:.1f}")
                    found = measure(broker, members, given.rounds)
                    print(
                        f"| {kind} | {members:,} | {milliseconds(found['classic'])} | {milliseconds(found['consumer'])} |"
                        f" {found['rounds']:.1f} | {found['classic_forms']:.2f} | {found['consumer_forms']:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
