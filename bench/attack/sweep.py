"""The longest turn of the loop for each API, for every array that a request can fill. python -m bench.attack.sweep [API ...]

Each array of each served API is filled with the smallest elements until the request has 1, 4 and 16 MB: with identical elements,
with distinct ones, and with one element in each nested array. With 1 MB, this is done in the oldest and the newest version, and
in each version whose elements differ in fields or encoding from those of the next version; with 4 and 16 MB, in the newest
version of each encoding. The broker holds a share group with a state in 20,000 partitions, 100,000 groups, 100,000
transactional ids, 100,000 producer ids, and 2,000 topics with 20,000 partitions and every config set. Distinct elements use
these names. `--short` sends requests of 1 MB, in the newest versions, to a broker without this data; `--denied` sends them as a
client that may do nothing.

The turn is in CPU seconds of the event loop's thread. Memory is the largest growth of the broker's resident set.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from kwire.api import ApiKey, request_class
from kwire.records.batch import BatchBuilder
from kwire.schema import schema_of
from tests.support.broker_process import BrokerFailed, resident_bytes

from .smallest import Path as ArrayPath
from .smallest import array_paths, element_shape, name_of, smallest_request
from .stages import consumer_heartbeat, create, plain, topic
from .target import MEGABYTE, ROOT, MeteredKwire, children_of, make_target, peak_bytes
from .wire import Wire, body_of, frame

GROUPS = TRANSACTIONAL_IDS = PRODUCER_IDS = 100_000
TOPICS = 2_000
PARTITIONS = 10
SIZES = (1, 4, 16)
ANSWER_S = 120.0
#: A share group and its member, and the time limit for creating the states of its partitions.
SHARE_GROUP, SHARE_MEMBER = "shares", "member"
STATES_S = 300.0
TURN_GOAL_S = 0.05
MEMORY_GOAL = 300.0

#: These remove the state that the others need, so they come last.
DESTRUCTIVE = (
    ApiKey.DELETE_RECORDS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_GROUPS,
    ApiKey.DELETE_TOPICS,
    ApiKey.STOP_REPLICA,
    ApiKey.LEADER_AND_ISR,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
)

#: Only a user that does not exist has permissions.
NOTHING_ALLOWED = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:nobody",
}

#: Values of fields outside the filled array, chosen so that the request gets as far as possible.
VALUES: dict[str, object] = {
    "group_id": "group",
    "member_id": "",
    "protocol_type": "consumer",
    "name": name_of(0),
    "topic": name_of(0),
    "topic_name": name_of(0),
    "transactional_id": name_of(0),
    "v3_and_below_transactional_id": name_of(0),
    "resource_name": name_of(0),
    "resource_type": 2,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "timeout_ms": 1000,
    "acks": -1,
    "max_wait_ms": 0,
    "session_epoch": -1,
    "replica_id": -1,
    "max_bytes": 1_000_000,
    "partition_max_bytes": 1000,
    "num_partitions": 1,
    "replication_factor": 1,
    "committed_offset": 1,
    "response_partition_limit": 2000,
    "generation_id_or_member_epoch": -1,
    "include_synonyms": True,
    "include_documentation": True,
    "allow_auto_topic_creation": False,
    "key_type": 0,
}


#: The same for single APIs: a member's partitions count only after it has joined, its topics only when it joins.
OF_API: dict[ApiKey, dict[str, object]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {"group_id": "members", "member_id": "member"},
    ApiKey.UPDATE_FEATURES: {"validate_only": True},
    **{
        api: {"group_id": SHARE_GROUP, "member_id": SHARE_MEMBER}
        for api in (
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.SHARE_FETCH,
            ApiKey.SHARE_ACKNOWLEDGE,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        )
    },
}
#: Fields of the share partitions' rows that only some APIs have, so that a session begins, and writes are accepted.
OF_API[ApiKey.SHARE_FETCH] |= {"share_session_epoch": 0, "max_records": 500, "batch_size": 500}
JOINING = {"member_epoch": 0, "rebalance_timeout_ms": 300_000, "topic_partitions": []}


class Case(NamedTuple):
    """One request of the sweep."""

    api: ApiKey
    version: int
    path: ArrayPath
    megabytes: float
    kind: str

    def body(self) -> bytes:
        values = VALUES | OF_API.get(self.api, {})
        if self.api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            values |= JOINING if self.path == ("subscribed_topic_names",) else {"member_epoch": 2}
        return smallest_request(
            self.api,
            self.version,
            self.path,
            int(self.megabytes * 1_000_000),
            distinct=self.kind != "alike",
            values=values,
            inner=self.kind == "inner",
        )

    def __str__(self) -> str:
        return f"v{self.version} {'.'.join(self.path)} {self.megabytes} MB, {self.kind}"


class Found(NamedTuple):
    """The cost of a request."""

    case: Case
    turn_s: float
    memory_mb: float
    outcome: str
    said: str  # the watchdog's text about the turn, if it was long


def cases(
    served: Iterable[tuple[ApiKey, int, int]], sizes: Iterable[int], *, all_versions: bool
) -> Iterator[Case]:
    """The requests; those that destroy state come last."""
    order = sorted(
        served, key=lambda row: DESTRUCTIVE.index(row[0]) if row[0] in DESTRUCTIVE else -1
    )
    for api, lowest, highest in order:
        cls = request_class(api)
        seen: set[object] = set()
        for version in range(highest, (lowest if all_versions else highest) - 1, -1):
            paths = list(array_paths(cls, version))
            flexible = version in schema_of(cls).flexible
            for path in paths:
                shape = (path, flexible, element_shape(cls, path, version))
                if version != lowest and shape in seen:
                    continue
                seen.add(shape)
                for megabytes in sizes:
                    # The larger sizes once for each array and encoding.
                    if megabytes > 1:
                        if (path, flexible, megabytes) in seen:
                            continue
                        seen.add((path, flexible, megabytes))
                    yield Case(api, version, path, megabytes, "distinct")
                    yield Case(api, version, path, megabytes, "alike")
                    if any(
                        len(other) > len(path) and other[: len(path)] == path for other in paths
                    ):
                        yield Case(api, version, path, megabytes, "inner")


# State that makes requests expensive


def make_state(wire: Wire, divisor: int, *, shares: bool) -> None:
    """The state in the module's docstring, or a part of it."""
    began = time.monotonic()
    for first in range(0, TOPICS // divisor, 50):
        create(wire, *(full_topic(name_of(first + n)) for n in range(min(50, TOPICS // divisor))))
    note(f"topics after {time.monotonic() - began:.0f} s")
    if shares:  # before all the other groups, which leave no memory for members with so many topics
        share_topics(wire, TOPICS // divisor)
    rows = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    wire.pipeline(
        [
            frame(
                ApiKey.OFFSET_COMMIT,
                6,
                body_of(
                    ApiKey.OFFSET_COMMIT,
                    6,
                    group_id=name_of(number),
                    generation_id_or_member_epoch=-1,
                    topics=[{"name": name_of(0), "partitions": rows}],
                ),
            )
            for number in range(GROUPS // divisor)
        ]
    )
    note(f"groups after {time.monotonic() - began:.0f} s")
    wire.pipeline(
        [
            frame(
                ApiKey.INIT_PRODUCER_ID,
                1,
                body_of(
                    ApiKey.INIT_PRODUCER_ID,
                    1,
                    transactional_id=name_of(number),
                    transaction_timeout_ms=60_000,
                ),
            )
            for number in range(TRANSACTIONAL_IDS // divisor)
        ]
    )
    note(f"transactional ids after {time.monotonic() - began:.0f} s")
    wire.pipeline([producer_batch(number) for number in range(PRODUCER_IDS // divisor)])
    note(f"producer ids after {time.monotonic() - began:.0f} s")


def producer_batch(number: int) -> bytes:
    """A Produce request with its own producer id, to one of ten partitions."""
    builder = BatchBuilder(producer_id=10_000_000 + number, producer_epoch=0, base_sequence=0)
    builder.append(int(time.time() * 1000), b"k", b"v")
    rows = [{"index": number % PARTITIONS, "records": builder.build()}]
    topics = [{"name": name_of(0), "partition_data": rows}]
    body = body_of(ApiKey.PRODUCE, 7, acks=1, timeout_ms=30_000, topic_data=topics)
    return frame(ApiKey.PRODUCE, 7, body)


def full_topic(name: str) -> dict[str, object]:
    """A topic with as many configs as can be set together."""
    return topic(
        name,
        PARTITIONS,
        **{
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "delete.retention.ms": "86400001",
            "file.delete.delay.ms": "60001",
            "flush.messages": "9223372036854775806",
            "flush.ms": "9223372036854775806",
            "follower.replication.throttled.replicas": "0:0",
            "index.interval.bytes": "4097",
            "leader.replication.throttled.replicas": "0:0",
            "max.compaction.lag.ms": "9223372036854775806",
            "max.message.bytes": "1048589",
            "message.timestamp.type": "CreateTime",
            "min.cleanable.dirty.ratio": "0.51",
            "min.compaction.lag.ms": "1",
            "min.insync.replicas": "1",
            "preallocate": "false",
            "retention.bytes": "1000000000",
            "retention.ms": "604800001",
            "segment.bytes": "1073741823",
            "segment.index.bytes": "10485761",
            "segment.jitter.ms": "1",
            "segment.ms": "604800001",
            "unclean.leader.election.enable": "false",
        },
    )


def join_group(wire: Wire) -> None:
    """A member of a consumer group."""
    body = consumer_heartbeat("members", "member", [name_of(0)])
    wire.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body)
    wire.receive(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)


def share_topics(wire: Wire, topics: int) -> None:
    """A share group with a state in each partition of the topics, and a member that has subscribed to all of them."""
    began = time.monotonic()
    names = [name_of(number) for number in range(topics)]

    def heartbeat(epoch: int) -> dict[str, Any]:
        return wire.call(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=SHARE_GROUP,
            member_id=SHARE_MEMBER,
            member_epoch=epoch,
            subscribed_topic_names=names if not epoch else None,
        )

    def states() -> int:
        asked = [{"group_id": SHARE_GROUP, "topics": None}]
        (row,) = wire.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked)["groups"]
        return sum(len(topic["partitions"]) for topic in row["topics"])

    answer = heartbeat(0)
    epoch = answer["member_epoch"]
    while (found := states()) < topics * PARTITIONS:
        time.sleep(1)
        answer = heartbeat(epoch)
        epoch = answer["member_epoch"] if not answer["error_code"] else 0
        if time.monotonic() > began + STATES_S:
            note(f"only {found} share partitions have a state: {answer!r:.200}")
            break
    # Rows of share partitions must belong to the group where ids need not be distinct.
    answer = wire.call(ApiKey.METADATA, 12, topics=[{"topic_id": bytes(16), "name": names[0]}])
    VALUES["topic_id"] = answer["topics"][0]["topic_id"]
    note(f"share partitions: {found}, after {time.monotonic() - began:.0f} s")


# Measuring


class Sweep:
    """Sends the requests to one broker after the other; a new one starts when one has ended."""

    def __init__(self, target: MeteredKwire) -> None:
        self.target = target
        self.found: list[Found] = []

    def run(self, case: Case) -> Found:
        target = self.target
        assert target.process is not None
        if target.process.poll() is not None:
            raise BrokerFailed(f"the broker ended before {case}: {target.log_tail(5)}")
        body = case.body()
        # Reset the maximum of the resident set.
        with contextlib.suppress(OSError):
            Path(f"/proc/{target.pid}/clear_refs").write_text("5")
        before = resident_bytes(target.pid)
        target.clear_turn()
        outcome = self.ask(case, body)
        grown = (peak_bytes(target.pid) - before) / MEGABYTE
        lines = [line for line in target.log_tail(50).splitlines() if "a turn of the event" in line]
        turn_s = target.longest_turn_s()
        said = lines[-1].partition("event loop ")[2] if turn_s > TURN_GOAL_S and lines else ""
        found = Found(case, turn_s, grown, outcome, said)
        self.found.append(found)
        return found

    def ask(self, case: Case, body: bytes) -> str:
        wire = Wire(self.target.port, ANSWER_S)
        try:
            wire.send(case.api, case.version, body)
            began = time.monotonic()
            size = wire.answer_size()
            return f"{size / MEGABYTE:.1f} MB in {time.monotonic() - began:.1f} s"
        except TimeoutError:
            return "no answer"
        except OSError:
            return "closed"
        finally:
            wire.close()
            with contextlib.suppress(OSError):
                served(self.target.port)  # a turn is measured when it ends


def note(text: str) -> None:
    """Print progress to standard error, apart from the table."""
    print(text, file=sys.stderr, flush=True)


def served(port: int) -> list[tuple[ApiKey, int, int]]:
    """The APIs that the broker advertises: (API, lowest, highest version)."""
    wire = Wire(port, 10 * ANSWER_S)
    answer = wire.call(ApiKey.API_VERSIONS, 0)
    wire.close()
    return [
        (ApiKey(row["api_key"]), row["min_version"], row["max_version"])
        for row in answer["api_keys"]
    ]


def report(found: Iterable[Found]) -> None:
    """Print the worst of each API."""
    by_api: dict[ApiKey, list[Found]] = {}
    for one in found:
        by_api.setdefault(one.case.api, []).append(one)
    print("| API | requests | turn s | of | MB grown | of |")
    print("|---|--:|--:|---|--:|---|")
    for api, rows in sorted(by_api.items(), key=lambda item: -max(r.turn_s for r in item[1])):
        turn = max(rows, key=lambda row: row.turn_s)
        memory = max(rows, key=lambda row: row.memory_mb)
        name = api.name.title().replace("_", "")
        print(
            f"| {name} | {len(rows)} | {turn.turn_s:.3f} | {turn.case} ({turn.outcome}) |"
            f" {memory.memory_mb:.0f} | {memory.case} ({memory.outcome}) |"
        )


def make_stage(target: MeteredKwire, options: argparse.Namespace) -> None:
    """Bring the broker into the state that the options require."""
    wire = Wire(target.port, 600.0)
    plain(wire)
    if not options.zookeeper:
        join_group(wire)
    if not options.short:
        make_state(wire, options.divisor, shares=not options.zookeeper)
    wire.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.attack.sweep")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "apis",
        nargs="*",
        metavar="API",
        help="APIs, or parts of names, such as describe_; default: all",
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout of kwire to measure")
    parser.add_argument(
        "--python", help="the checkout's interpreter; default: that of its .venv, if there is one"
    )
    parser.add_argument("--short", action="store_true", help="1 MB, newest versions, no state")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="MB")
    parser.add_argument("--newest", action="store_true", help="test only the newest versions")
    parser.add_argument("--divisor", type=int, default=1, help="divide the amount of state by this")
    parser.add_argument(
        "--zookeeper", action="store_true", help="use a real ZooKeeper as the store"
    )
    parser.add_argument(
        "--denied", action="store_true", help="send the requests as a client that may do nothing"
    )
    parser.add_argument("--json", type=Path, help="also write all results to this file")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kwire-sweep-")))
        target = make_target(directory, options.root.resolve(), options.python)
        assert isinstance(target, MeteredKwire)
        if options.zookeeper:
            from tests.support.zookeeper import ZooKeeperServer

            server = ZooKeeperServer()
            stack.callback(server.close)
            server.start()
            target.arguments = ("--zookeeper", server.connect)
        if options.denied:
            target.config |= NOTHING_ALLOWED
        target.start(120.0)
        stack.callback(target.stop)
        if not options.denied:
            make_stage(target, options)
        sweep = Sweep(target)
        sizes = (1,) if options.short else options.sizes
        try:
            for case in cases(
                served(target.port), sizes, all_versions=not (options.short or options.newest)
            ):
                if options.apis and not any(
                    part.lower() in case.api.name.lower() for part in options.apis
                ):
                    continue
                found = sweep.run(case)
                if found.turn_s > TURN_GOAL_S or found.memory_mb > MEMORY_GOAL:
                    note(
                        f"{case.api.name} {case}: {found.turn_s:.3f} s, {found.memory_mb:.0f} MB,"
                        f" {found.outcome}; {found.said}"
                    )
        finally:
            report(sweep.found)
            workers = sum(peak_bytes(child) for child in children_of(target.pid)) / MEGABYTE
            print(f"\n{len(sweep.found)} requests; worker processes at the end: {workers:.0f} MB")
            if options.json:
                rows = [
                    {**one._asdict(), "case": f"{one.case.api.name} {one.case}"}
                    for one in sweep.found
                ]
                options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
