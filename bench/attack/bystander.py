"""An honest client in a separate process: produces with acks=all, fetches, requests metadata, joins a group.

    python -m bench.attack.bystander PORT PID [TOPIC BATCH_BYTES]

Each request follows 2 ms after the previous answer, until standard input closes. Then a line of JSON gives the
duration of each request, and the CPU time of the broker's main thread in that time. With a topic and a size, the
client only produces batches of that size to the topic.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder

from .wire import Wire, body_of, errors_in

TOPIC = "bystander"
PAUSE_S = 0.002
TIMEOUT_S = 120.0


def main_thread_cpu_s(pid: int) -> float:
    """CPU seconds of a process's main thread, in nanosecond steps."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


class Bystander:
    """The requests of one honest client, each with its times."""

    def __init__(self, port: int, pid: int, topic: str, batch_bytes: int) -> None:
        self.wire = Wire(port, TIMEOUT_S)
        self.port = port
        self.pid = pid
        self.topic = topic
        builder = BatchBuilder()
        builder.append(int(time.time() * 1000), b"key", os.urandom(batch_bytes))
        self.batch = builder.build()
        self.offset = 0
        self.member_id = ""
        #: Request, when it was sent, its wall and its CPU seconds.
        self.times: list[tuple[str, float, float, float]] = []
        self.errors: list[str] = []

    def ask(self, name: str, api: ApiKey, version: int, body: bytes) -> None:
        """Send one request and record its cost."""
        cpu = main_thread_cpu_s(self.pid)
        began = time.monotonic()
        try:
            self.wire.send(api, version, body)
            answer = self.wire.receive(api, version)
            failed = errors_in(answer) - {0}
            if failed:
                self.errors.append(f"{name}: error codes {sorted(failed)}")
            elif name == "join":
                self.member_id = answer["member_id"]
            elif name == "produce":
                self.offset = answer["responses"][0]["partition_responses"][0]["base_offset"]
        except OSError as error:
            self.errors.append(f"{name}: {error!r}")
            self.wire.close()
            time.sleep(0.1)
            try:
                self.wire = Wire(self.port, TIMEOUT_S)
            except OSError as again:
                self.errors.append(f"connect: {again!r}")
        wall = time.monotonic() - began
        self.times.append((name, began, wall, main_thread_cpu_s(self.pid) - cpu))
        time.sleep(PAUSE_S)

    def produce(self) -> None:
        rows = [{"index": 0, "records": self.batch}]
        topics = [{"name": self.topic, "partition_data": rows}]
        body = body_of(ApiKey.PRODUCE, 7, acks=-1, timeout_ms=30_000, topic_data=topics)
        self.ask("produce", ApiKey.PRODUCE, 7, body)

    def fetch(self) -> None:
        rows = [{"partition": 0, "fetch_offset": self.offset, "partition_max_bytes": 100_000}]
        topics = [{"topic": self.topic, "partitions": rows}]
        body = body_of(ApiKey.FETCH, 11, max_wait_ms=500, min_bytes=1, topics=topics)
        self.ask("fetch", ApiKey.FETCH, 11, body)

    def metadata(self) -> None:
        body = body_of(ApiKey.METADATA, 7, topics=[{"name": self.topic}])
        self.ask("metadata", ApiKey.METADATA, 7, body)

    def join(self) -> None:
        """Join a group whose only member has left, which takes a rebalance."""
        body = body_of(
            ApiKey.JOIN_GROUP,
            2,
            group_id=self.topic,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        self.ask("join", ApiKey.JOIN_GROUP, 2, body)
        body = body_of(ApiKey.LEAVE_GROUP, 2, group_id=self.topic, member_id=self.member_id)
        self.ask("leave", ApiKey.LEAVE_GROUP, 2, body)


def main() -> None:
    port, pid = int(sys.argv[1]), int(sys.argv[2])
    topic = sys.argv[3] if len(sys.argv) > 3 else TOPIC
    size = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    client = Bystander(port, pid, topic, size)
    requests: tuple[Callable[[], None], ...] = (client.produce,)
    if topic == TOPIC:
        requests = (client.produce, client.fetch, client.metadata, client.join)
    while not ended.is_set():
        for request in requests:
            request()
    print(json.dumps({"times": client.times, "errors": client.errors}))


if __name__ == "__main__":
    main()
