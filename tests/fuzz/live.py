"""Fuzz a whole broker through its socket for a bounded number of requests, generated from the schemas.

    python -m tests.fuzz.live [--requests 200000] [--workers 2] [--seed 1] [--zookeeper | --cluster]
    python -m tests.fuzz.live --show 1.2.345        prints one request of such a run

Half of the requests are encoded correctly but have random content; the others are cut short, lengthened, or have bytes changed.
The broker must answer each of them or close its connection. A finding is: UNKNOWN_SERVER_ERROR; a traceback or an error in the
log; a response that cannot be decoded; no response to a request that has nothing to wait for; a broker that does not respond at
the end, that keeps descriptors or sockets of clients that have gone, or that reports other topics, groups and configs after a
restart.

The client id of each request, SEED.WORKER.NUMBER, is in the broker's log lines; `--show` needs nothing else.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.attack.wire import Wire, errors_in, frame
from kwire.api import ApiKey, request_class
from kwire.codec import encode
from kwire.errors import ErrorCode, WireError

from ..attack.weird import Weird
from ..compat.mixed.cluster import KAFKA, KWIRE, MixedCluster
from ..support.broker_process import KwireBroker, resident_bytes
from ..support.kwire_cluster import KwireCluster
from ..support.polling import wait_until
from ..support.zookeeper import ZooKeeperServer

ANSWER_S = 3.0

#: Their answers may rightly wait: for records, members, acknowledgements, or for the time in the request.
WAITING = {
    ApiKey.FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.PRODUCE,
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.ELECT_LEADERS,
    # Their writes have to be replicated, within 5 s and 30 s; in a cluster that may fail.
    ApiKey.OFFSET_COMMIT,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.WRITE_TXN_MARKERS,
}
#: Apache Kafka's own tools name themselves so, and may write to internal topics.
ADMIN = b"__admin_client"

#: Brokers send these. A client that sends them removes much of the state that the others need.
OF_BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
}

SETTINGS = {
    # The state of a group, a producer or a transaction must expire soon enough to wait for it.
    "group.min.session.timeout.ms": "1",
    "group.max.session.timeout.ms": "10000",
    "transaction.max.timeout.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}

#: With several brokers, false roles keep replicas out of sync, and writes wait for them this long: less than a request.
CLUSTER_SETTINGS = {**SETTINGS, "request.timeout.ms": "8000"}


class Request(NamedTuple):
    """One request of a run."""

    api: ApiKey
    version: int
    body: bytes
    client_id: bytes
    mutated: bool
    message: Any


class Requests:
    """The requests of one worker; each depends on its number only."""

    def __init__(
        self, seed: int, worker: int, served: list[tuple[ApiKey, int, int]], of_brokers: bool
    ) -> None:
        self.name = f"{seed}.{worker}"
        self.served = [row for row in served if of_brokers or row[0] not in OF_BROKERS]
        if of_brokers:  # a deleted topic gets no more requests
            self.served = [row for row in self.served if row[0] is not ApiKey.DELETE_TOPICS]
            self.served += [row for row in served if row[0] in OF_BROKERS] * 5

    def make(self, number: int) -> Request:
        name = f"{self.name}.{number}"
        rnd = random.Random(name)
        while True:
            api, lowest, highest = rnd.choice(self.served)
            version = rnd.randint(lowest, highest)
            message = Weird(rnd).message(request_class(api), version)
            if api is ApiKey.PRODUCE:
                message.acks = message.acks or 1
            if api is ApiKey.JOIN_GROUP:
                message.session_timeout_ms = min(message.session_timeout_ms, 1000)
                if version > 0:
                    message.rebalance_timeout_ms = min(message.rebalance_timeout_ms, 1000)
            try:
                body = encode(message, version)
            except WireError:  # a name that is too long for one field or another
                continue
            break
        mutated = rnd.random() < 0.5
        if mutated:
            body = mutate(rnd, body)
        client_id = name.encode()
        if (other := rnd.random()) < 0.06:  # the broker's log does not distinguish these
            client_id = ADMIN if other < 0.05 else b"x" * 32767
        return Request(api, version, body, client_id, mutated, message)


def mutate(rnd: random.Random, body: bytes) -> bytes:
    """Change bytes, or cut some out, repeat some, or cut the end off."""
    data = bytearray(body)
    for _ in range(rnd.choice((1, 1, 1, 2, 4))):
        at = rnd.randrange(len(data) + 1)
        kind = rnd.randrange(6)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << rnd.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = rnd.choice((0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)))
        elif kind == 2:
            del data[at : at + rnd.randrange(1, 9)]
        elif kind == 3:
            data[at:at] = data[at : at + rnd.randrange(1, 40)]
        elif kind == 4:
            number = rnd.choice((-1, 0, 1, 2**31 - 1, -(2**31), 65536, 1000))
            data[at : at + 4] = number.to_bytes(4, "big", signed=True)
        else:
            del data[at:]
    return bytes(data)


class Findings:
    """Errors, a few of each kind, and the number of requests by outcome."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.said: list[str] = []
        self.kinds: Counter[str] = Counter()

    def add(self, kind: str, text: str) -> None:
        self.kinds[kind] += 1
        if self.kinds[kind] <= 3:
            self.said.append(f"{kind}: {text}")

    def merge(self, other: Findings) -> None:
        self.counts += other.counts
        self.kinds += other.kinds
        self.said += other.said


def work(port: int, requests: Requests, numbers: range, answer_s: float = ANSWER_S) -> Findings:
    """Send some requests of a worker, one after the other."""
    found = Findings()
    wire: Wire | None = None
    for number in numbers:
        request = requests.make(number)
        wire = wire or Wire(port, answer_s)
        name = f"{requests.name}.{number} {request.api.name} v{request.version}"
        try:
            wire.socket.sendall(
                frame(request.api, request.version, request.body, request.client_id)
            )
            answer = wire.receive(request.api, request.version)
        except TimeoutError:
            if request.api not in WAITING:
                found.add(f"no answer {request.api.name}", name)
            found.counts["waiting"] += 1
        except OSError:
            if not request.mutated and request.api.name not in CLOSING:
                found.add(f"closed {request.api.name}", f"{name} {request.message!r:.600}")
            found.counts["closed"] += 1
        except WireError as error:
            found.add(f"unreadable {request.api.name}", f"{name} {error}")
        else:
            found.counts["answered"] += 1
            if ErrorCode.UNKNOWN_SERVER_ERROR in errors_in(answer):
                found.add(f"UNKNOWN_SERVER_ERROR {request.api.name}", f"{name} {answer!r:.600}")
            continue
        wire.close()
        wire = None
    if wire is not None:
        wire.close()
    return found


#: Apache Kafka treats unknown values of their enumerations as a malformed request, and so does kwire.
CLOSING = {"DESCRIBE_ACLS", "CREATE_ACLS", "DELETE_ACLS"}


def served(port: int) -> list[tuple[ApiKey, int, int]]:
    """The APIs that the broker advertises: (API, lowest, highest version)."""
    wire = Wire(port)
    answer = wire.call(ApiKey.API_VERSIONS, 0)
    wire.close()
    return [
        (ApiKey(row["api_key"]), row["min_version"], row["max_version"])
        for row in answer["api_keys"]
    ]


# The broker's state


def told(port: int) -> dict[str, Any]:
    """The broker's view of its topics, groups, transactional ids, and the configs of topics."""
    wire = Wire(port, 60.0)
    topics = wire.call(ApiKey.METADATA, 7, topics=None)["topics"]
    for topic in topics:
        topic["partitions"].sort(key=lambda row: row["partition_index"])
        for row in topic["partitions"]:
            row.pop("leader_epoch", None)  # it rises when a broker starts
    resources = [{"resource_type": 2, "resource_name": topic["name"]} for topic in topics]
    configs = wire.call(ApiKey.DESCRIBE_CONFIGS, 1, resources=resources)["results"]
    ids = wire.call(ApiKey.LIST_TRANSACTIONS, 0)["transaction_states"]
    wire.close()
    return {
        "topics": {topic["name"]: topic for topic in topics},
        "configs": {row["resource_name"]: row for row in configs},
        "groups": committed(port),
        "transactional ids": {row["transactional_id"]: row["producer_id"] for row in ids},
    }


def committed(port: int) -> dict[str, Any]:
    """The groups with offsets, and these."""
    wire = Wire(port, 60.0)
    groups = wire.call(ApiKey.LIST_GROUPS, 2)["groups"]
    found = {}
    for group in groups:
        answer = wire.call(ApiKey.OFFSET_FETCH, 5, group_id=group["group_id"], topics=None)
        if answer["topics"]:
            found[group["group_id"]] = sorted(map(repr, answer["topics"]))
    wire.close()
    return found


def client_sockets(pid: int) -> int:
    """The number of descriptors of a process that are sockets."""
    found = 0
    for name in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += os.readlink(name).startswith("socket:")
        except OSError:
            continue
    return found


#: How each line of the log begins that is not the continuation of another.
RECORD = re.compile(r"^(?=\d{4}-\d\d-\d\d \d\d:\d\d:)", re.MULTILINE)


def check_log(broker: KwireBroker, found: Findings) -> None:
    """Tracebacks and errors in the log."""
    for record in RECORD.split(broker.log_path.read_text(errors="replace")):
        if "refused" in record and "STALE_CONTROLLER_EPOCH" in record:
            continue  # as in Apache Kafka, a false controller deposes this one
        if "Traceback" in record or re.search(r"\bERROR\b", record[:60]):
            lines = record.strip().splitlines()
            where = [line for line in lines if line.lstrip().startswith("File ")]
            found.add(f"log: {lines[-1][:90]}", "\n    ".join([lines[0], *where[-4:], lines[-1]]))


#: Connections between the brokers of a cluster, which open and close.
BETWEEN_BROKERS = 10


def check_sockets(broker: KwireBroker, most: int, found: Findings) -> None:
    """Sockets of clients that have gone."""
    deadline = time.monotonic() + 30
    while client_sockets(broker.pid) > most and time.monotonic() < deadline:
        time.sleep(0.1)  # the broker notices that connections are closed
    left = client_sockets(broker.pid)
    if left > most:
        found.add("sockets left", f"{left}, {most} are expected")


def check_left_behind(
    broker: KwireBroker, sockets: int, found: Findings, *, same_again: bool
) -> None:
    """The remaining state when all clients have gone, and after a restart.

    Shape: `same_again` means that the broker must report the same topics and groups after that. A client that poses as
    the controller has changed them; the broker then must still know the existing topics.
    """
    check_sockets(broker, sockets, found)
    time.sleep(3.5)  # the longest timeout of a transaction, and the round that ends it
    before = told(broker.port)
    broker.restart()
    after = told(broker.port)
    if not same_again:
        for name in {"t1", "t2"} - after["topics"].keys():
            found.add("after a restart: no topic", name)
        return
    for what, values in before.items():
        for name in sorted(values.keys() | after[what].keys()):
            one, other = values.get(name), after[what].get(name)
            if one != other:
                found.add(f"after a restart: {what}", f"{name!r} {one!r:.500}\n   {other!r:.500}")


# Running


def campaign(
    directory: Path, *, seed: int, requests: int, workers: int, zookeeper: bool, of_brokers: bool
) -> Findings:
    """A whole run on a new broker."""
    found = Findings()
    with ExitStack() as stack:
        arguments: tuple[str, ...] = ()
        if zookeeper:
            server = ZooKeeperServer()
            stack.callback(server.close)
            server.start()
            arguments = ("--zookeeper", server.connect)
        broker = KwireBroker(directory, config=SETTINGS, arguments=arguments)
        broker.start()
        stack.callback(broker.stop)
        sockets = client_sockets(broker.pid)
        prepare(broker.port)
        apis = served(broker.port)
        began = time.monotonic()
        each = requests // workers
        jobs = [
            (broker.port, Requests(seed, worker, apis, of_brokers), range(each))
            for worker in range(workers)
        ]
        if workers == 1:
            parts = [work(*jobs[0])]
        else:
            with multiprocessing.get_context("spawn").Pool(workers) as pool:
                parts = pool.starmap(work, jobs)
        for part in parts:
            found.merge(part)
        found.counts["seconds"] = round(time.monotonic() - began)
        found.counts["MB resident"] = resident_bytes(broker.pid) // 1_000_000
        check_left_behind(broker, sockets, found, same_again=not of_brokers)
        check_log(broker, found)
    return found


def cluster_campaign(directory: Path, *, seed: int, requests: int) -> Findings:
    """A whole run on three brokers, each with its own worker, including requests that only brokers send."""
    found = Findings()
    cluster = KwireCluster(directory, settings=CLUSTER_SETTINGS)
    try:
        cluster.start()
        prepare(cluster.brokers[cluster.controller()].port, replicas=3)
        wait_until(lambda: knows_all(cluster), "topics")
        apis = served(cluster.brokers[0].port)
        jobs = [
            (broker.port, Requests(seed, number, apis, True), range(requests // 3), 4 * ANSWER_S)
            for number, broker in enumerate(cluster.brokers)
        ]
        began = time.monotonic()
        with multiprocessing.get_context("spawn").Pool(3) as pool:
            for part in pool.starmap(work, jobs):
                found.merge(part)
        found.counts["seconds"] = round(time.monotonic() - began)
        for broker in cluster.brokers:
            check_log(broker, found)
        # False information is corrected when they start again, at the latest.
        for broker in cluster.brokers:
            broker.restart()
        try:
            wait_until(lambda: knows_all(cluster), "topics", 60.0)
        except AssertionError:
            rows = [cluster.metadata(number, *TOPICS)["topics"] for number in range(3)]
            found.add("not in sync after a restart", f"{rows!r:.3000}")
    finally:
        cluster.stop()
    return found


def mixed_campaign(directory: Path, *, seed: int, requests: int) -> Findings:
    """The same on two brokers in a cluster whose controller is Apache Kafka 3.9.2."""
    found = Findings()
    with MixedCluster(directory, (KAFKA, KWIRE, KWIRE), CLUSTER_SETTINGS) as cluster:
        controller = cluster.controller()
        assert controller is not None
        prepare(cluster.seat(controller).port, replicas=3)
        cluster.wait_until_in_sync()
        seats = [seat for seat in cluster.seats if seat.kind == KWIRE]
        sockets = [client_sockets(seat.broker.pid) for seat in seats if seat.broker is not None]
        jobs = [
            (
                seat.port,
                Requests(seed, number, served(seat.port), True),
                range(requests // len(seats)),
                4 * ANSWER_S,
            )
            for number, seat in enumerate(seats)
        ]
        began = time.monotonic()
        with multiprocessing.get_context("spawn").Pool(len(seats)) as pool:
            for part in pool.starmap(work, jobs):
                found.merge(part)
        found.counts["seconds"] = round(time.monotonic() - began)
        for seat, before in zip(seats, sockets, strict=True):
            assert isinstance(seat.broker, KwireBroker)
            check_log(seat.broker, found)
            check_sockets(seat.broker, before + BETWEEN_BROKERS, found)
            found.counts["MB resident, the larger"] = max(
                found.counts["MB resident, the larger"],
                resident_bytes(seat.broker.pid) // 1_000_000,
            )
        for seat in seats:
            seat.kill()
            seat.start()
        try:
            cluster.wait_until_in_sync()
        except AssertionError as error:
            found.add("not in sync after a restart", f"{error!s:.3000}")
    return found


def knows_all(cluster: KwireCluster) -> bool:
    """Whether each broker knows the topics, with all replicas in sync."""
    for number in range(3):
        for topic in cluster.metadata(number, *TOPICS)["topics"]:
            rows = topic["partitions"]
            if topic["error_code"] or any(len(row["isr_nodes"]) < 3 for row in rows):
                return False
    return True


TOPICS = ("t1", "t2", "compacted")


def prepare(port: int, replicas: int = 1) -> None:
    """The topics that the requests name."""
    wire = Wire(port)
    rows = [("t1", 2, {}), ("t2", 2, {"compression.type": "gzip"})]
    rows.append(("compacted", 1, {"cleanup.policy": "compact"}))
    topics = [
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        for name, partitions, configs in rows
    ]
    answer = wire.call(ApiKey.CREATE_TOPICS, 4, topics=topics, timeout_ms=10_000)
    assert errors_in(answer) == {0}, answer
    wire.call(ApiKey.FIND_COORDINATOR, 2, key="g1", key_type=0)
    wire.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.fuzz.live")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--zookeeper", action="store_true", help="use a real ZooKeeper as the store"
    )
    parser.add_argument(
        "--of-brokers", action="store_true", help="also send requests that only brokers send"
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="use three brokers, and also send requests that only brokers send",
    )
    parser.add_argument(
        "--mixed", action="store_true", help="use two brokers, with Apache Kafka as controller"
    )
    parser.add_argument("--keep", type=Path, help="keep the broker's data and log here")
    parser.add_argument("--show", help="print one request, SEED.WORKER.NUMBER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = options.keep or Path(name)
        if options.show:
            return show(directory, options)
        if options.mixed:
            found = mixed_campaign(directory, seed=options.seed, requests=options.requests)
        elif options.cluster:
            found = cluster_campaign(directory, seed=options.seed, requests=options.requests)
        else:
            found = campaign(
                directory,
                seed=options.seed,
                requests=options.requests,
                workers=options.workers,
                zookeeper=options.zookeeper,
                of_brokers=options.of_brokers,
            )
    print(dict(found.counts))
    print(dict(found.kinds))
    for text in found.said:
        print("-", text)
    return 1 if found.kinds else 0


def show(directory: Path, options: argparse.Namespace) -> int:
    """Print one request of a run."""
    seed, worker, number = map(int, options.show.split("."))
    with ExitStack() as stack:
        arguments: tuple[str, ...] = ()
        if options.zookeeper:
            server = ZooKeeperServer()
            stack.callback(server.close)
            server.start()
            arguments = ("--zookeeper", server.connect)
        broker = KwireBroker(directory, arguments=arguments)
        broker.start()
        stack.callback(broker.stop)
        apis = served(broker.port)
    request = Requests(seed, worker, apis, options.of_brokers).make(number)
    print(request.api.name, request.version, "mutated" if request.mutated else "as made")
    print(request.message)
    print(request.body.hex())
    return 0


if __name__ == "__main__":
    sys.exit(main())
