"""The longest turn of the loop while a cluster's metadata changes. python -m bench.attack.images [--topics N]

Two brokers of kwire, with Apache ZooKeeper as store, have 20,000 partitions in 2,000 topics. The longest turn of each broker,
in CPU seconds, is measured while the topics are created; while the broker that is not the controller stops, starts, is killed
and starts again, and so receives all partitions; and while the controller is killed and the other broker reads everything from
the store to take over.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from kwire.api import ApiKey
from tests.support.zookeeper import ZooKeeperServer

from .smallest import name_of
from .stages import create, topic
from .target import ROOT, MeteredKwire, make_target
from .wire import Wire

PARTITIONS = 10
WAIT_S = 600.0
#: Topics in one request.
AT_ONCE = 50

SETTINGS = {"zookeeper.session.timeout.ms": "6000", "auto.leader.rebalance.enable": "false"}


def led(broker: MeteredKwire, topics: int) -> int:
    """The number of partitions that have a leader, according to a broker."""
    wire = Wire(broker.port, WAIT_S)
    try:
        rows = wire.call(ApiKey.METADATA, 7, topics=None)["topics"]
    finally:
        wire.close()
    names = {name_of(number) for number in range(topics)}
    return sum(
        partition["leader_id"] >= 0
        for row in rows
        if row["name"] in names
        for partition in row["partitions"]
    )


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Check repeatedly. Errors: TimeoutError."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(1.0)


class Pair:
    """The two brokers; the first one starts first and therefore is the controller."""

    def __init__(self, brokers: tuple[MeteredKwire, MeteredKwire], topics: int) -> None:
        self.brokers = brokers
        self.topics = topics
        self.partitions = topics * PARTITIONS

    def measure(self, what: str, change: Callable[[], object]) -> None:
        """Print the longest turns until the running brokers have the expected state of every partition."""
        for broker in self.brokers:
            broker.clear_turn()
        began = time.monotonic()
        change()
        # Wait for work in progress: requests between the brokers, logs being created.
        time.sleep(5.0)
        turns = [f"{broker.longest_turn_s():.3f}" for broker in self.brokers]
        print(f"| {what} | {' | '.join(turns)} | {time.monotonic() - began:.0f} |", flush=True)

    def create(self) -> None:
        wire = Wire(self.brokers[0].port, WAIT_S)
        for first in range(0, self.topics, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, self.topics))
            create(wire, *(topic(name_of(number), PARTITIONS) for number in numbers))
        wire.close()
        self.wait(self.partitions)

    def wait(self, least: int, most: int | None = None) -> None:
        most = self.partitions if most is None else most
        for broker in self.brokers:
            if broker.process is not None and broker.process.poll() is None:
                wait_until(lambda b=broker: least <= led(b, self.topics) <= most, "leaders")  # type: ignore[misc]

    def start(self, number: int) -> None:
        self.brokers[number].start(WAIT_S)
        self.wait(self.partitions)

    def stop(self, number: int, *, kill: bool) -> None:
        if kill:
            self.brokers[number].kill()
        else:
            self.brokers[number].stop()
        self.wait(0, self.partitions - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.attack.images")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout of kwire to measure")
    parser.add_argument("--topics", type=int, default=2000)
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kwire-images-")))
        server = ZooKeeperServer()
        stack.callback(server.close)
        server.start()
        brokers = []
        for number in range(2):
            broker = make_target(directory / str(number), options.root.resolve(), None)
            assert isinstance(broker, MeteredKwire)
            broker.config = {**broker.config, **SETTINGS, "broker.id": str(number)}
            broker.arguments = ("--zookeeper", server.connect)
            broker.start(120.0)
            stack.callback(broker.kill)
            brokers.append(broker)
        pair = Pair((brokers[0], brokers[1]), options.topics)
        print("| change | controller, turn s | other broker, turn s | wall s |\n|---|--:|--:|--:|")
        pair.measure(f"{pair.partitions} partitions are created", pair.create)
        pair.measure("the other broker stops", lambda: pair.stop(1, kill=False))
        pair.measure("it starts", lambda: pair.start(1))
        pair.measure("it is killed", lambda: pair.stop(1, kill=True))
        pair.measure("it starts again", lambda: pair.start(1))
        pair.measure("the controller is killed", lambda: pair.stop(0, kill=True))
        pair.measure("the former controller starts", lambda: pair.start(0))
        for broker in brokers:
            for line in broker.log_path.read_text(errors="replace").splitlines():
                if "a turn of the event loop" in line:
                    print(line)


if __name__ == "__main__":
    main()
