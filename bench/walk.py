"""The calls that one request makes, in order, and how often they return to a file: `python -m bench.walk`.

Two brokers run in this process, with a store served by `kwire zookeeper`. A client in a separate thread sends one request of
each kind twice. The first does what happens only once, such as compiling codecs and loading modules. The second is recorded
on the brokers' thread with `sys.setprofile` until the client has its response.

An entry is a call into a source file of kwire from another file. A return is an entry into a file that was entered before:
the fewer there are, the more easily a reader can follow a request from file to file without turning back. Calls are all
Python calls, including those of compiled codecs and the standard library.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from kwire.api import ApiKey
from kwire.records.builder import BatchBuilder
from server.broker import Broker
from server.config import BrokerConfig
from tests.support.wire_client import WireClient

REPOSITORY = Path(__file__).resolve().parent.parent
ROOMS = tuple(f"{REPOSITORY / room}/" for room in ("kwire", "server"))
#: Time for work that the previous request has started: followers, the controller, the coordinator's log.
SETTLE_S = 0.3
REQUESTS = ("Produce", "Fetch", "JoinGroup", "CreateTopics", "follower's fetch")


class Walk:
    """The recorded calls."""

    def __init__(self) -> None:
        self.recording = False
        self.calls = 0
        self.entries: list[tuple[str, str]] = []

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Record a call; for sys.setprofile."""
        if not self.recording or event != "call":
            return
        self.calls += 1
        name = frame.f_code.co_filename
        if not name.startswith(ROOMS):
            return
        caller = frame.f_back
        # A caller through the standard library (a callback of the loop, a dataclass) counts as a new entry.
        if caller is None or caller.f_code.co_filename != name:
            entry = (name.removeprefix(f"{REPOSITORY}/"), frame.f_code.co_qualname)
            if not self.entries or self.entries[-1] != entry:
                self.entries.append(entry)

    @property
    def returns(self) -> int:
        """Number of entries into a file that was entered before."""
        return len(self.entries) - len({name for name, _ in self.entries})


class Brokers(threading.Thread):
    """Two brokers on one loop, on a thread whose calls are recorded."""

    def __init__(self, folder: Path, zookeeper: str, walk: Walk) -> None:
        super().__init__(daemon=True)
        self.ports: list[int] = []
        self.ready = threading.Event()
        self._folder, self._zookeeper, self._walk = folder, zookeeper, walk
        self._end: Callable[[], object] = lambda: None

    def run(self) -> None:
        """Serve until stopped."""
        sys.setprofile(self._walk.profile)
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._end = lambda: loop.call_soon_threadsafe(stopped.set)
        brokers = [
            Broker(
                BrokerConfig(
                    {
                        "broker.id": str(number),
                        "zookeeper.connect": self._zookeeper,
                        "listeners": "PLAINTEXT://127.0.0.1:0",
                        "log.dirs": str(self._folder / str(number)),
                        "log.cleaner.enable": "false",
                        "offsets.topic.num.partitions": "1",
                        "offsets.topic.replication.factor": "1",
                        "group.initial.rebalance.delay.ms": "0",
                        # Nothing may run on its own while a request is recorded.
                        "replica.fetch.wait.max.ms": "10000",
                        "replica.lag.time.max.ms": "600000",
                        "zookeeper.session.timeout.ms": "60000",
                    }
                )
            )
            for number in (1, 2)
        ]
        for broker in brokers:
            await broker.start()
            self.ports.append(int(broker.address.rpartition(":")[2]))
        self.ready.set()
        await stopped.wait()
        for broker in reversed(brokers):
            await broker.stop()

    def stop(self) -> None:
        """Stop both and wait."""
        self._end()
        self.join()


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    """The store that the brokers share, in a separate process."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "server",
            "zookeeper",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            str(folder),
        ],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().split()[-1]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


class Requests:
    """One request of each kind, to broker 1."""

    def __init__(self, port: int) -> None:
        self._client = WireClient("127.0.0.1", port, 20.0)
        self._topics = 0
        self._replicated = 0
        builder = BatchBuilder()
        builder.append(int(time.time() * 1000), b"key", b"value")
        self._records = builder.build()

    def topic(self, replicas: list[int]) -> str:
        """Create a topic with one partition."""
        self._topics += 1
        name = f"topic-{self._topics}"
        assignment = [{"partition_index": 0, "broker_ids": replicas}]
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignment,
        }
        answer = self._client.call(
            ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 15_000}
        )
        assert answer is not None and answer["topics"][0]["error_code"] == 0, answer
        return name

    def produce(self, topic: str, acks: int = 1) -> None:
        """Append one batch."""
        partition = {"index": 0, "records": self._records}
        topics = [{"name": topic, "partition_data": [partition]}]
        values = {"acks": acks, "timeout_ms": 10_000, "topic_data": topics}
        answer = self._client.call(ApiKey.PRODUCE, 9, values)
        assert answer is not None
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer

    def fetch(self, topic: str) -> None:
        """Read what was appended."""
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        topics = [{"topic": topic, "partitions": [partition]}]
        values = {"max_wait_ms": 500, "min_bytes": 1, "topics": topics}
        answer = self._client.call(ApiKey.FETCH, 11, values)
        assert answer is not None and answer["responses"][0]["partitions"][0]["records"], answer

    def join(self, group: str) -> None:
        """Join a group as its only member."""
        values: dict[str, Any] = {
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        answer = self._client.call(ApiKey.JOIN_GROUP, 3, values)
        assert answer is not None and answer["error_code"] == 0, answer

    def coordinator_port(self, group: str) -> int:
        """Wait until the group has a coordinator, and return its port."""
        for _ in range(100):
            answer = self._client.call(ApiKey.FIND_COORDINATOR, 2, {"key": group, "key_type": 0})
            assert answer is not None
            if answer["error_code"] == 0:
                time.sleep(0.5)  # its log is still being read
                return int(answer["port"])
            time.sleep(0.1)
        raise TimeoutError("no coordinator")

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def walk_requests(which: tuple[str, ...]) -> dict[str, Walk]:
    """Record one request of each requested kind."""
    walks: dict[str, Walk] = {}
    walk = Walk()
    with tempfile.TemporaryDirectory() as name, zookeeper(Path(name, "zookeeper")) as address:
        brokers = Brokers(Path(name), address, walk)
        brokers.start()
        assert brokers.ready.wait(30)
        requests = Requests(brokers.ports[0])
        plain, replicated = requests.topic([1]), requests.topic([1, 2])
        coordinator = Requests(requests.coordinator_port("group"))
        actions: dict[str, Callable[[], object]] = {
            "Produce": lambda: requests.produce(plain),
            "Fetch": lambda: requests.fetch(plain),
            "JoinGroup": lambda: coordinator.join(f"group-{time.monotonic_ns()}"),
            "CreateTopics": lambda: requests.topic([1]),
            # From the append at the leader, through both brokers, until the record is committed.
            "follower's fetch": lambda: requests.produce(replicated, acks=-1),
        }
        for kind in REQUESTS:
            actions[kind]()
            if kind not in which:
                continue
            time.sleep(SETTLE_S)
            walk.entries, walk.calls, walk.recording = [], 0, True
            actions[kind]()
            walk.recording = False
            walks[kind] = Walk()
            walks[kind].entries, walks[kind].calls = walk.entries, walk.calls
        requests.close()
        coordinator.close()
        brokers.stop()
    return walks


def main() -> None:
    """Print the walks, or their counts."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.walk", description=__doc__.partition(":")[0]
    )
    parser.add_argument(
        "requests",
        nargs="*",
        metavar="REQUEST",
        help=f"requests to record, of {', '.join(REQUESTS)}; default: all",
    )
    parser.add_argument("--counts", action="store_true", help="print only the counts")
    arguments = parser.parse_args()
    unknown = set(arguments.requests) - set(REQUESTS)
    if unknown:
        parser.error(f"no such request: {', '.join(sorted(unknown))}")
    for kind, walk in walk_requests(tuple(arguments.requests) or REQUESTS).items():
        files = len({name for name, _ in walk.entries})
        print(
            f"{kind}: {len(walk.entries)} entries, {files} files, {walk.returns} returns, {walk.calls} calls"
        )
        if not arguments.counts:
            for file, function in walk.entries:
                print(f"    {file:<45} {function}")


if __name__ == "__main__":
    main()
