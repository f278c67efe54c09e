"""One client that fills what is limited for all, on a secured broker. python -m bench.attack.fills [ROW ...]

The same as `bench.attack.floods`, with rows in which mallory makes the broker keep as much as it accepts. Shortly before the end,
alice does once what needs a part of it: she joins a group, begins a transaction, pushes metrics, and reads /metrics. `asked` in
the output has the results; each should be "ok".
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from kwire.api import ApiKey
from kwire.records.builder import BatchBuilder
from tests.telemetry.pushed import gauge, payload

from .doors import SECRETS, Door, Secured, allow, http
from .floods import (
    GROUP_RESOURCE,
    GROUPS,
    PREFIXED,
    TOPIC_RESOURCE,
    Rows,
    in_threads,
    main,
    repeated,
)
from .stages import create, ready, topic
from .wire import body_of

TRANSACTION_RESOURCE = 5
WIDE, PARTITIONS = "swamp-wide", 4_000
SINGLE, RECORDS = "swamp-single", 2_000
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

Requests = Callable[[int], list[tuple[ApiKey, int, dict[str, Any]]]]


def prepare(broker: Secured) -> None:
    """Let alice and mallory use names with certain prefixes, and create mallory's topics."""
    admin = Door(broker.ports.admin, timeout_s=120.0)
    for who, prefix in (("alice", "alices-"), ("mallory", GROUPS)):
        for kind in (GROUP_RESOURCE, TRANSACTION_RESOURCE):
            assert allow(admin, f"User:{who}", kind, prefix, PREFIXED) == 0
    assert allow(admin, "User:mallory", TOPIC_RESOURCE, "swamp", PREFIXED) == 0
    create(admin, topic(SINGLE), topic(WIDE, PARTITIONS))
    ready(admin)
    for kind, name in ((0, "alices-group"), (1, "alices-id")):
        while admin.call(ApiKey.FIND_COORDINATOR, 1, key=name, key_type=kind)["error_code"]:
            time.sleep(0.1)
    builder = BatchBuilder()
    builder.append(0, b"", b"mud")
    rows = [{"index": 0, "records": builder.build()}]
    data = [{"name": SINGLE, "partition_data": rows}]
    body = body_of(ApiKey.PRODUCE, 7, acks=1, timeout_ms=30_000, topic_data=data)
    for _ in range(RECORDS):
        admin.send(ApiKey.PRODUCE, 7, body)
        admin.answer_size()


def flood(broker: Secured, ended: threading.Event, requests: Requests) -> int:
    return repeated(requests)(broker, ended)


def group_targets(broker: Secured, ended: threading.Event) -> int:
    def requests(number: int) -> list[tuple[ApiKey, int, dict[str, Any]]]:
        who = {"group_id": f"{GROUPS}{number % 2_000}", "member_id": "m", "member_epoch": 0}
        joins = {"subscribed_topic_names": [WIDE], "topic_partitions": []}
        return [
            (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**who, **joins, "rebalance_timeout_ms": 60_000})
        ]

    return flood(broker, ended, requests)


def share_targets(broker: Secured, ended: threading.Event) -> int:
    def requests(number: int) -> list[tuple[ApiKey, int, dict[str, Any]]]:
        who = {"group_id": f"{GROUPS}{number % 2_000}", "member_id": "m", "member_epoch": 0}
        return [(ApiKey.SHARE_GROUP_HEARTBEAT, 1, {**who, "subscribed_topic_names": [WIDE]})]

    return flood(broker, ended, requests)


def small_groups(broker: Secured, ended: threading.Event) -> int:
    protocols = [{"name": "range", "metadata": bytes(20_000)}]

    def requests(number: int) -> list[tuple[ApiKey, int, dict[str, Any]]]:
        joins = {"group_id": f"{GROUPS}{number}", "session_timeout_ms": 1_800_000}
        values = {**joins, "member_id": "", "protocol_type": "x", "protocols": protocols}
        return [(ApiKey.JOIN_GROUP, 3, {**values, "rebalance_timeout_ms": 60_000})]

    return flood(broker, ended, requests)


def transactional_ids(broker: Secured, ended: threading.Event) -> int:
    def requests(number: int) -> list[tuple[ApiKey, int, dict[str, Any]]]:
        name = f"{GROUPS}{number}".ljust(20_000, "x")
        values = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        return [(ApiKey.INIT_PRODUCER_ID, 1, values)]

    return flood(broker, ended, requests)


def telemetry_ids(broker: Secured, ended: threading.Event) -> int:
    def requests(number: int) -> list[tuple[ApiKey, int, dict[str, Any]]]:
        id_ = (number + 1_000).to_bytes(16, "big")
        return [(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": id_})]

    return flood(broker, ended, requests)


def telemetry_series(broker: Secured, ended: threading.Event) -> int:
    numbers = itertools.count(1_000)

    def once() -> int:
        with Door(broker.ports.sasl) as door:
            door.plain("mallory", SECRETS["mallory"])
            for _ in range(8):
                push(door, next(numbers).to_bytes(16, "big"), 1_000)
        return 8

    return in_threads(once, ended)


def push(door: Door, id_: bytes, series: int) -> int:
    """Push metrics of a client instance; the error code."""
    asked = door.call(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=id_)
    code: int = asked["error_code"]
    if code:
        return code
    values = {"client_instance_id": id_, "subscription_id": asked["subscription_id"]}
    metrics = payload(*(gauge(f"m{number}", 1) for number in range(series)))
    values |= {"terminating": False, "compression_type": 0, "metrics": metrics}
    code = door.call(ApiKey.PUSH_TELEMETRY, 0, **values)["error_code"]
    return code


def scrapes(broker: Secured, ended: threading.Event) -> int:
    return in_threads(lambda: len(http(broker.ports.http, SCRAPE)) // 1_000, ended)


def share_records(broker: Secured, ended: threading.Event) -> int:
    """Groups that each acquire 2,000 records, one at a time, and acknowledge none."""
    admin = broker.admin()
    asked = [{"topic_id": bytes(16), "name": SINGLE}]
    topic_id = admin.call(ApiKey.METADATA, 12, topics=asked)["topics"][0]["topic_id"]
    groups = [f"{GROUPS}{number}" for number in range(1_000)]
    config = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
    resources = [{"resource_type": 32, "resource_name": each, "configs": config} for each in groups]
    admin.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    waiting = iter(groups)

    def once() -> int:
        done = 0
        with Door(broker.ports.sasl) as door:
            door.plain("mallory", SECRETS["mallory"])
            while not ended.is_set():
                group = next(waiting, None)
                if group is None:
                    ended.wait()
                    return done
                done += acquire_all(door, group, topic_id)
            ended.wait()
        return done

    return in_threads(once, ended, 4)


def acquire_all(door: Door, group: str, topic_id: bytes) -> int:
    """Acquire up to 2,000 records for a new group, in batches of one; the number."""
    who = {"group_id": group, "member_id": "m"}
    for epoch in (0, 1, 1):
        names = [SINGLE] if epoch == 0 else None
        beat = {**who, "member_epoch": epoch, "subscribed_topic_names": names}
        door.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **beat)
    rows = [{"partition_index": 0, "acknowledgement_batches": []}]
    count = 0
    for epoch in range(8):
        topics = [{"topic_id": topic_id, "partitions": rows}] if epoch == 0 else []
        limits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500}
        values = {**who, "share_session_epoch": epoch, **limits, "batch_size": 1, "topics": topics}
        found = door.call(ApiKey.SHARE_FETCH, 1, **values)
        got = [row for each in found["responses"] for row in each["partitions"]]
        count += sum(len(row["acquired_records"]) for row in got)
        if count >= RECORDS:
            break
    return count


def ask(broker: Secured) -> dict[str, str]:
    """What alice gets."""
    said = {}
    with Door(broker.ports.sasl) as door:
        door.plain("alice", SECRETS["alice"])
        joins = {"group_id": "alices-group", "session_timeout_ms": 30_000, "member_id": ""}
        protocols = [{"name": "range", "metadata": b""}]
        joins |= {"rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
        said["join"] = door.call(ApiKey.JOIN_GROUP, 3, **joins, protocols=protocols)["error_code"]
        begins = {"transactional_id": "alices-id", "transaction_timeout_ms": 60_000}
        said["transaction"] = door.call(ApiKey.INIT_PRODUCER_ID, 1, **begins)["error_code"]
        said["telemetry"] = push(door, b"alice".ljust(16, b"!"), 1)
    answer = http(broker.ports.http, SCRAPE, 10.0)
    said["scrape"] = b" 200 " not in answer[:20] and answer[:30]
    said["shown"] = (
        b"alice"
        not in b"".join(
            line for line in answer.splitlines(True) if line.startswith(b"kafka_client_m0")
        ).replace(b"YWxpY2Uh", b"alice")
        and "not at /metrics"
    )
    return {what: str(error) if error else "ok" for what, error in said.items()}


ROWS: Rows = {
    "group-targets": ("Heartbeats of 2,000 consumer groups that read 4,000 partitions each", group_targets),
    "share-targets": ("The same of share groups", share_targets),
    "small-groups": ("JoinGroup of a new group with 20 KB of metadata each", small_groups),
    "transactional-ids": ("InitProducerId with a new id of 20,000 letters each", transactional_ids),
    "telemetry-ids": ("GetTelemetrySubscriptions with an invented id each", telemetry_ids),
    "telemetry-series": ("Pushes of 1,000 metrics with an invented id each", telemetry_series),
    "scrapes": ("Eight loops of GET /metrics", scrapes),
    "share-records": ("1,000 share groups that acquire 2,000 records each, one by one", share_records),
}  # fmt: skip


if __name__ == "__main__":
    main(ROWS, ask, prepare)
