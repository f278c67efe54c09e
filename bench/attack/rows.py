"""The attacks: each is a request, or a flood of requests, that the protocol allows.

A row's function gets a Scene, attacks, and returns a short text about the result. It may take as long as the broker
needs; the experience of bystanders is measured elsewhere.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import zstandard

from kwire.api import ApiKey
from kwire.records.builder import BatchBuilder, write_batch
from kwire.records.compression import Codec
from kwire.records.record import write_record

from . import owners, stages
from .smallest import smallest_request
from .transactions import end_together, marked_topic, time_out_together
from .wire import Wire, body_of, frame

#: The maximum time of an attack before the next one.
LIMIT_S = 180.0
NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 1_000_000

#: The decompressed size of a batch: just below 100 MiB, the maximum that kwire accepts.
BOMB_BYTES = 99 << 20

SMALLEST_RECORD = write_record(0, 0, None, None)


class Scene:
    """A running broker, and connections to it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def wire(self) -> Wire:
        return Wire(self.port, LIMIT_S)

    def ask(self, api: ApiKey, version: int, body: bytes) -> str:
        """Send one request; returns a text about its answer."""
        began = time.monotonic()
        wire = self.wire()
        try:
            wire.send(api, version, body)
            size = wire.answer_size()
        except TimeoutError:
            return f"no answer in {LIMIT_S:.0f} s"
        except OSError:
            return f"closed after {time.monotonic() - began:.1f} s"
        finally:
            wire.close()
        return f"{size / 1e6:.1f} MB in {time.monotonic() - began:.1f} s"


class Row(NamedTuple):
    """An attack, the state of the broker before it, and additional work of a bystander."""

    name: str
    what: str
    stage: str
    run: Callable[[Scene], str]
    arrange: Callable[[Wire], None] | None = None
    #: A second bystander that produces to this topic, in batches of this many bytes.
    also: tuple[str, int] | None = None
    in_kafka: bool = True


# Record batches


def bomb(records: bytes, count: int, *, max_timestamp: int = NOW_MS) -> bytes:
    """A zstd batch with this many records, given as bytes."""
    return write_batch(
        zstandard.compress(records),
        attributes=int(Codec.ZSTD),
        base_offset=0,
        last_offset_delta=count - 1,
        base_timestamp=NOW_MS,
        max_timestamp=max_timestamp,
        records_count=count,
    )


def produce(batches: dict[tuple[str, int], bytes], acks: int = -1) -> bytes:
    """The body of a Produce request, version 7."""
    topics = [
        {"name": name, "partition_data": [{"index": index, "records": data}]}
        for (name, index), data in batches.items()
    ]
    return body_of(ApiKey.PRODUCE, 7, acks=acks, timeout_ms=30_000, topic_data=topics)


def store(wire: Wire, name: str, batch: bytes) -> None:
    """Put a batch into partition 0. Errors: RuntimeError if it is refused."""
    wire.send(ApiKey.PRODUCE, 7, produce({(name, 0): batch}))
    row = wire.receive(ApiKey.PRODUCE, 7)["responses"][0]["partition_responses"][0]
    if row["error_code"]:
        raise RuntimeError(f"not stored: {row}")


# Offsets by time


def store_lying_bomb(wire: Wire) -> None:
    """Only a broker that does not read records accepts it, so validation is disabled for the moment."""
    count = BOMB_BYTES // len(SMALLEST_RECORD)
    alter_validation(wire, SET, "standard")
    store(wire, "victim", bomb(SMALLEST_RECORD * count, count, max_timestamp=LATER_MS))
    alter_validation(wire, DELETE, None)


SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
ALL_BROKERS = {"resource_type": 4, "resource_name": ""}


def alter_validation(wire: Wire, operation: int, value: str | None) -> None:
    """Change kwire.produce.validation. Errors: RuntimeError if that is refused."""
    name = "kwire.produce.validation"
    config = {"name": name, "config_operation": operation, "value": value}
    resources = [{**ALL_BROKERS, "configs": [config]}]
    answer = wire.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False
    )
    if answer["responses"][0]["error_code"]:
        raise RuntimeError(f"not changed: {answer}")


def list_offsets(timestamp: int, version: int = 7) -> Callable[[Scene], str]:
    rows = [{"partition_index": 0, "timestamp": timestamp}]
    body = body_of(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=-1,
        topics=[{"name": "victim", "partitions": rows}],
    )
    return lambda scene: scene.ask(ApiKey.LIST_OFFSETS, version, body)


# Requests of tiny elements


def tiny(
    api: ApiKey, version: int, path: tuple[str, ...], megabytes: int, **values: Any
) -> Callable[[Scene], str]:
    """A request of the smallest distinct elements."""

    def run(scene: Scene) -> str:
        size = megabytes * 1_000_000
        body = smallest_request(api, version, path, size, distinct=True, values=values)
        return scene.ask(api, version, body)

    return run


def alike(
    api: ApiKey, version: int, path: tuple[str, ...], megabytes: int
) -> Callable[[Scene], str]:
    """A request of the smallest possible elements, all alike."""
    return lambda scene: scene.ask(
        api, version, smallest_request(api, version, path, megabytes * 1_000_000)
    )


TINY = (
    (ApiKey.DESCRIBE_GROUPS, 5, ("groups",), {}),
    (ApiKey.DELETE_GROUPS, 2, ("groups_names",), {}),
    (ApiKey.FIND_COORDINATOR, 4, ("coordinator_keys",), {}),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, ("transactional_ids",), {}),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, ("topics",), {}),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, ("topics", "partitions"), {"name": "victim"}),
)


#: Groups of the newer protocols, and the states of share groups.
TINY_SHARES = (
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ("group_ids",), {}),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1, ("group_ids",), {}),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, ("groups",), {}),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, ("topics",), {"group_id": "shares"}),
    (ApiKey.READ_SHARE_GROUP_STATE, 0, ("topics", "partitions"), {"group_id": "shares"}),
    (ApiKey.DELETE_SHARE_GROUP_STATE, 0, ("topics", "partitions"), {"group_id": "shares"}),
)
KAFKA_3_HAS_NOT = {ApiKey.DESCRIBE_TOPIC_PARTITIONS, *(api for api, *_ in TINY_SHARES)}


def tiny_rows() -> list[Row]:
    found = []
    for api, version, path, values in (*TINY, *TINY_SHARES):
        for megabytes in (1, 2, 4, 10) if (api, version, path, values) in TINY else (1, 4, 16):
            name = api.name.title().replace("_", "")
            found.append(
                Row(
                    f"tiny-{api.name.lower().replace('_', '-')}-{megabytes}",
                    f"{name} of {megabytes} MB of tiny elements",
                    "plain",
                    tiny(api, version, path, megabytes, **values),
                    in_kafka=api not in KAFKA_3_HAS_NOT,
                )
            )
    return found


def crowd(megabytes: int, connections: int) -> Callable[[Scene], str]:
    """Tiny elements on many connections at the same time, whose answers are read one after the other."""

    def run(scene: Scene) -> str:
        size = megabytes * 1_000_000
        body = smallest_request(ApiKey.DESCRIBE_GROUPS, 5, ("groups",), size, distinct=True)
        wires = [scene.wire() for _ in range(connections)]
        with ThreadPoolExecutor(
            connections
        ) as pool:  # many have to wait before they can send their request
            sending = [pool.submit(wire.send, ApiKey.DESCRIBE_GROUPS, 5, body) for wire in wires]
        answered = 0
        for wire, sent in zip(wires, sending, strict=True):
            with suppress(OSError):
                sent.result()
                wire.answer_size()
                answered += 1
            wire.close()
        return f"{answered} of {connections} answered"

    return run


def many_replicas(scene: Scene) -> str:
    """A reassignment to 250,000 brokers."""
    body = smallest_request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        ("topics", "partitions", "replicas"),
        1_000_000,
        distinct=True,
        values={"name": "victim"},
    )
    return scene.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)


def not_utf8(scene: Scene) -> str:
    """Tiny elements, the last of which is not UTF-8, so that the fast decoder cannot read them."""
    body = bytearray(
        smallest_request(ApiKey.DESCRIBE_GROUPS, 4, ("groups",), 4_000_000, distinct=True)
    )
    body[-2] = 0xFF
    return scene.ask(ApiKey.DESCRIBE_GROUPS, 4, bytes(body))


# Clients that do not read


def store_for_old_readers(wire: Wire) -> None:
    """4 MB in batches of nearly 1 MB."""
    for _ in range(4):
        builder = BatchBuilder()
        for _ in range(9):
            builder.append(NOW_MS, b"k", bytes(100_000))
        store(wire, "old", builder.build())


def old_fetches(scene: Scene, connections: int = 500, seconds: float = 10.0) -> str:
    """Fetch version 2 on many connections that never read."""
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 4_000_000}]
    body = body_of(
        ApiKey.FETCH, 2, max_wait_ms=0, min_bytes=0, topics=[{"topic": "old", "partitions": rows}]
    )
    return silent_readers(scene, frame(ApiKey.FETCH, 2, body) * 4, connections, seconds)


def silent_readers(scene: Scene, requests: bytes, connections: int, seconds: float) -> str:
    """Send requests on many connections without reading answers."""
    wires = []
    refused = 0
    for _ in range(connections):
        try:
            wire = scene.wire()
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.socket.sendall(requests)
        except OSError:
            refused += 1
            continue
        wires.append(wire)
    time.sleep(seconds)  # the broker makes answers; nothing shows when it is done
    for wire in wires:
        wire.close()
    return f"{len(wires)} connections, {refused} refused"


# Bombs


def small_bombs(name: str) -> Callable[[Scene], str]:
    def run(scene: Scene) -> str:
        one = bomb(write_record(0, 0, b"key", bytes(BOMB_BYTES)), 1)
        return scene.ask(ApiKey.PRODUCE, 7, produce({(name, n): one for n in range(20)}))

    return run


def large_bomb() -> bytes:
    """A bomb of more than 64 KB, which goes to the worker process."""
    first = write_record(0, 0, b"", os.urandom(70_000))
    record = write_record(0, 0, b"", None)
    count = BOMB_BYTES // len(record) - 70_000 // len(record)
    return bomb(first + record * count, count + 1)


def bomb_in_worker(scene: Scene) -> str:
    return scene.ask(ApiKey.PRODUCE, 7, produce({("compacted", 0): large_bomb()}))


# Groups


def abandoned_joins(scene: Scene, groups: int = 600) -> str:
    """Joins of groups with 1 MB of metadata each, whose connections are closed immediately."""
    refused = 0
    for number in range(groups):
        body = body_of(
            ApiKey.JOIN_GROUP,
            3,
            group_id=f"abandoned-{number}",
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": bytes(1_000_000)}],
        )
        wire = scene.wire()
        try:
            wire.send(ApiKey.JOIN_GROUP, 3, body)
            refused += wire.receive(ApiKey.JOIN_GROUP, 3)["error_code"] != 0
        except OSError:
            refused += 1
        finally:
            wire.close()
    return f"{groups} joins, {refused} refused"


def joins_of_a_large_group(scene: Scene) -> str:
    """A thousand members join over several seconds, so that several targets are computed."""
    began = time.monotonic()
    wire = scene.wire()
    for first in range(stages.MEMBERS, stages.MEMBERS + 1_000, 100):
        wire.pipeline(stages.joining(first, 100))
        time.sleep(0.5)
    wire.close()
    return f"1,000 joins in {time.monotonic() - began:.1f} s"


def describe_a_large_group(scene: Scene) -> str:
    wire = scene.wire()
    while wire.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["many"])["groups"][0][
        "error_code"
    ]:
        time.sleep(0.5)  # its coordinator is still loading the group
    wire.close()
    body = body_of(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        group_ids=["many"] * 20,
        include_authorized_operations=False,
    )
    return scene.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, body)


def heartbeats_with_many_names(scene: Scene) -> str:
    began = time.monotonic()
    names = [f"a topic with a name of its own {number:05}" for number in range(10_000)]
    wire = scene.wire()
    for number in range(100):
        body = stages.consumer_heartbeat("names", f"member-{number}", names)
        wire.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body)
        wire.receive(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
    wire.close()
    return f"100 requests in {time.monotonic() - began:.1f} s"


def offset_fetch(scene: Scene) -> str:
    groups = [{"group_id": name, "topics": None} for name in stages.group_names()]
    return scene.ask(
        ApiKey.OFFSET_FETCH, 8, body_of(ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=False)
    )


def delete_groups(scene: Scene) -> str:
    body = body_of(ApiKey.DELETE_GROUPS, 2, groups_names=stages.group_names())
    return scene.ask(ApiKey.DELETE_GROUPS, 2, body)


# Topics


def new_topics_by_metadata(scene: Scene) -> str:
    names = [{"name": f"new-{number}"} for number in range(20_000)]
    body = body_of(ApiKey.METADATA, 7, topics=names, allow_auto_topic_creation=True)
    return scene.ask(ApiKey.METADATA, 7, body)


def metadata_variants(scene: Scene) -> str:
    """All topics in each version, with each combination of options, at the same time."""
    wires = []
    for version in range(14):
        for options in range(4 if 8 <= version <= 10 else 2 if version > 10 else 1):
            values: dict[str, Any] = {"topics": [] if version == 0 else None}
            if 8 <= version <= 10:
                values["include_cluster_authorized_operations"] = bool(options & 2)
            if version >= 8:
                values["include_topic_authorized_operations"] = bool(options & 1)
            wires.append(scene.wire())
            wires[-1].send(ApiKey.METADATA, version, body_of(ApiKey.METADATA, version, **values))
    size = 0
    for wire in wires:
        size += wire.answer_size()
        wire.close()
    return f"{len(wires)} answers of {size / 1e6:.0f} MB"


def create_with_long_configs(scene: Scene) -> str:
    value = ",".join(f"{number}:0" for number in range(4000))
    rows = [
        stages.topic(f"long-{number}", 1, leader_replication_throttled_replicas=value)
        for number in range(500)
    ]
    body = body_of(ApiKey.CREATE_TOPICS, 5, topics=rows, timeout_ms=60_000)
    return scene.ask(ApiKey.CREATE_TOPICS, 5, body)


def describe_configs(scene: Scene) -> str:
    rows = [
        {"resource_type": 2, "resource_name": f"topic-{number}", "configuration_keys": None}
        for number in range(stages.TOPICS)
    ]
    body = body_of(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=rows,
        include_synonyms=True,
        include_documentation=True,
    )
    return scene.ask(ApiKey.DESCRIBE_CONFIGS, 4, body)


# Producers and transactions


def describe_producers(scene: Scene) -> str:
    body = body_of(
        ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": "victim", "partition_indexes": [0] * 20}]
    )
    return scene.ask(ApiKey.DESCRIBE_PRODUCERS, 0, body)


def write_txn_markers(scene: Scene) -> str:
    markers = [
        {
            "producer_id": 5_000_000 + number,
            "producer_epoch": 0,
            "transaction_result": False,
            "topics": [{"name": "victim", "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
        for number in range(10_000)
    ]
    body = body_of(ApiKey.WRITE_TXN_MARKERS, 1, markers=markers)
    return scene.ask(ApiKey.WRITE_TXN_MARKERS, 1, body)


def list_transactions(scene: Scene) -> str:
    body = body_of(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="(.*a?){1000}b")
    return scene.ask(ApiKey.LIST_TRANSACTIONS, 2, body)


# Floods


def acks_0_flood(scene: Scene, connections: int = 100, seconds: float = 6.0) -> str:
    """Small Produce requests with acks=0, as fast as the broker accepts them."""
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k", b"v")
    piece = frame(ApiKey.PRODUCE, 7, produce({("victim", 0): builder.build()}, acks=0)) * 20
    ready = selectors.DefaultSelector()
    left: dict[socket.socket, bytes] = {}
    wires = [scene.wire() for _ in range(connections)]
    for wire in wires:
        wire.socket.setblocking(False)
        ready.register(wire.socket, selectors.EVENT_WRITE)
    sent = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for key, _ in ready.select(0.1):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = left.get(connection) or piece
            try:
                count = connection.send(data)
            except BlockingIOError:
                continue
            left[connection] = data[count:]
            sent += count
    for wire in wires:
        wire.close()
    return f"{sent * 20 // len(piece)} requests in {seconds:.0f} s"


ROWS: tuple[Row, ...] = (
    Row(
        "list-offsets-by-time",
        "ListOffsets by time on a zstd batch that inflates to 99 MiB and lies about its timestamp",
        "plain",
        list_offsets(NOW_MS + 1),
        store_lying_bomb,
        in_kafka=False,  # it reads every produced record, which takes minutes
    ),
    Row(
        "list-offsets-max-timestamp",
        "ListOffsets -3 on the same batch",
        "plain",
        list_offsets(-3),
        store_lying_bomb,
        in_kafka=False,
    ),
    Row(
        "list-transactions-pattern",
        "ListTransactions with the pattern (.*a?){1000}b and an id of 10 KB",
        "transactions",
        list_transactions,
        in_kafka=False,
    ),
    *tiny_rows(),
    Row(
        "tiny-crowd",
        "DescribeGroups of 3 MB of tiny elements on 20 connections at once",
        "plain",
        crowd(3, 20),
    ),
    Row(
        "tiny-crowd-1",
        "DescribeGroups of 1 MB of tiny elements on 60 connections at once",
        "plain",
        crowd(1, 60),
    ),
    Row(
        "many-replicas",
        "AlterPartitionReassignments of a partition to 250,000 brokers",
        "plain",
        many_replicas,
    ),
    Row(
        "find-coordinator-alike",
        "FindCoordinator of 4 MB that names the group with the empty name each time",
        "plain",
        alike(ApiKey.FIND_COORDINATOR, 4, ("coordinator_keys",), 4),
    ),
    Row(
        "tiny-not-utf8",
        "DescribeGroups of 4 MB of tiny elements, the last of which is not UTF-8",
        "plain",
        not_utf8,
    ),
    Row(
        "silent-readers",
        "Fetch 2 of 4 MB, converted, on 500 connections that never read",
        "plain",
        old_fetches,
        store_for_old_readers,
    ),
    Row(
        "small-bombs-compacted",
        "Produce of 20 zstd bombs of 3 KB to a compacted topic",
        "plain",
        small_bombs("compacted"),
    ),
    Row(
        "small-bombs-recompressed",
        "Produce of 20 zstd bombs of 3 KB to a topic with another compression.type",
        "plain",
        small_bombs("recompressed"),
    ),
    Row(
        "bomb-in-worker",
        "Produce of one bomb of 80 KB to a compacted topic; another client's batches of 80 KB are"
        " recompressed meanwhile",
        "plain",
        bomb_in_worker,
        also=("recompressed", 80_000),
    ),
    Row(
        "describe-producers",
        "DescribeProducers that names a partition of 50,000 producers 20 times",
        "producers",
        describe_producers,
    ),
    Row(
        "abandoned-joins",
        "600 abandoned joins with 1 MB of metadata each",
        "plain",
        abandoned_joins,
    ),
    Row(
        "consumer-group-joins",
        "1,000 joins of a consumer group with 5,000 members and 10,000 partitions",
        "members",
        joins_of_a_large_group,
        in_kafka=False,
    ),
    Row(
        "consumer-group-describe",
        "ConsumerGroupDescribe that names a group of 5,000 members 20 times",
        "members",
        describe_a_large_group,
        in_kafka=False,
    ),
    Row(
        "consumer-group-names",
        "100 ConsumerGroupHeartbeats with 10,000 names each",
        "plain",
        heartbeats_with_many_names,
        in_kafka=False,
    ),
    Row("offset-fetch", "OffsetFetch of 100,000 groups", "groups", offset_fetch),
    Row("delete-groups", "DeleteGroups of 100,000 groups", "groups", delete_groups),
    Row(
        "metadata-new-names",
        "Metadata of 20,000 new names, created automatically",
        "plain",
        new_topics_by_metadata,
    ),
    Row(
        "metadata-variants",
        "Metadata of all topics in each version, with all options, at the same time",
        "topics",
        metadata_variants,
    ),
    Row(
        "create-topics",
        "CreateTopics of 500 topics with configs of 22 KB",
        "plain",
        create_with_long_configs,
    ),
    Row(
        "write-txn-markers",
        "WriteTxnMarkers of 10,000 markers",
        "plain",
        write_txn_markers,
    ),
    Row(
        "transactions-time-out",
        "4,000 transactions of 64 partitions that time out at one moment",
        "plain",
        time_out_together,
        marked_topic,
    ),
    Row(
        "transactions-end",
        "500 EndTxn for transactions of 512 partitions, sent together",
        "plain",
        end_together,
        marked_topic,
    ),
    Row(
        "describe-configs",
        "DescribeConfigs of 2,000 topics with synonyms and documentation",
        "topics",
        describe_configs,
    ),
    Row(
        "owners-expression",
        "2,000 consumer groups of one client with the expression .* over 5,000 topics",
        "names",
        owners.groups_with_an_expression,
        in_kafka=False,
    ),
    Row(
        "owners-expressions",
        "2,000 consumer groups of one client with an expression each over 5,000 topics",
        "names",
        owners.groups_with_expressions,
        in_kafka=False,
    ),
    Row(
        "owners-assignments",
        "2,000 consumer groups of one client that read a topic of 2,000 partitions",
        "plain",
        owners.groups_of_a_wide_topic,
        owners.wide,
        in_kafka=False,
    ),
    Row(
        "owners-share-groups",
        "100 share groups of one client that read a topic of 2,000 partitions",
        "plain",
        owners.share_groups_of_a_wide_topic,
        owners.wide,
        in_kafka=False,
    ),
    Row(
        "owners-share-offsets",
        "60 connections with AlterShareGroupOffsets of 2,000 partitions for a group each",
        "plain",
        owners.share_offsets,
        owners.wide,
        in_kafka=False,
    ),
    Row(
        "owners-metadata",
        "Metadata of 5,000 topics in 21 forms on 60 connections",
        "names",
        owners.metadata_of_all,
    ),
    Row(
        "owners-timers",
        "the sessions of 20,000 groups of one client, which end together",
        "plain",
        owners.sessions_that_end_together,
    ),
    Row(
        "acks-0-flood",
        "100 connections of small Produce requests with acks=0",
        "plain",
        acks_0_flood,
    ),
)
