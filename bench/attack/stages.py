"""The state of brokers before they are attacked, made by ordinary requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder

from .bystander import TOPIC
from .wire import Wire, body_of, errors_in, frame

#: The number of groups, of transactional ids, of producers of one partition, and of topics.
GROUPS = 100_000
PRODUCERS = 50_000
TOPICS = 2_000
NAMES = 5_000

#: A consumer group: its members, and the partitions that they read.
MEMBERS = 5_000
READ_PARTITIONS = 10_000

#: A long id, against which a pattern has to be matched.
LONG_ID = "a" * 10_000


def topic(name: str, partitions: int = 1, **configs: str) -> dict[str, object]:
    """A row of CreateTopics; config keys have _ instead of dots."""
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
    }


def create(wire: Wire, *topics: dict[str, object]) -> None:
    """Create topics. Errors: RuntimeError if one cannot be created."""
    answer = wire.call(ApiKey.CREATE_TOPICS, 4, topics=list(topics), timeout_ms=120_000)
    if errors_in(answer) - {0}:
        raise RuntimeError(f"cannot create topics: {answer!r:.500}")


def group_names() -> list[str]:
    return [f"group-{number}" for number in range(GROUPS)]


def plain(wire: Wire) -> None:
    """The bystander's topic, and one for each attack that stores records."""
    create(
        wire,
        topic(TOPIC),
        topic("victim", 20),
        topic("compacted", 20, cleanup_policy="compact"),
        topic("recompressed", 20, compression_type="gzip"),
        topic("old"),
    )
    ready(wire)


def ready(wire: Wire) -> None:
    """Create the internal topics, which takes a moment."""
    for kind, key in ((0, "group"), (1, "id")):
        deadline = time.monotonic() + 60
        while True:
            answer = wire.call(ApiKey.FIND_COORDINATOR, 2, key=key, key_type=kind)
            if answer["error_code"] == 0:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"no coordinator: {answer}")
            time.sleep(0.1)
    for _ in range(200):
        answer = wire.call(
            ApiKey.INIT_PRODUCER_ID, 1, transactional_id="id", transaction_timeout_ms=60_000
        )
        if answer["error_code"] == 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"no transactions: {answer}")


def groups(wire: Wire) -> None:
    """100,000 groups with one committed offset each."""
    rows = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    commits = (
        body_of(
            ApiKey.OFFSET_COMMIT,
            6,
            group_id=name,
            generation_id_or_member_epoch=-1,
            topics=[{"name": "victim", "partitions": rows}],
        )
        for name in group_names()
    )
    wire.pipeline([frame(ApiKey.OFFSET_COMMIT, 6, body) for body in commits])


def producers(wire: Wire) -> None:
    """50,000 idempotent producers that have written to one partition."""
    wire.pipeline(list(batches_of_producers(range(1_000_000, 1_000_000 + PRODUCERS))))


def batches_of_producers(ids: Iterable[int]) -> Iterable[bytes]:
    """A Produce request from each producer id."""
    for producer in ids:
        builder = BatchBuilder(producer_id=producer, producer_epoch=0, base_sequence=0)
        builder.append(int(time.time() * 1000), b"k", b"v")
        rows = [{"index": 0, "records": builder.build()}]
        topics = [{"name": "victim", "partition_data": rows}]
        body = body_of(ApiKey.PRODUCE, 7, acks=1, timeout_ms=30_000, topic_data=topics)
        yield frame(ApiKey.PRODUCE, 7, body)


def transactions(wire: Wire) -> None:
    """A transactional id of 10 KB with an open transaction."""
    answer = wire.call(
        ApiKey.INIT_PRODUCER_ID, 1, transactional_id=LONG_ID, transaction_timeout_ms=900_000
    )
    if answer["error_code"]:
        raise RuntimeError(f"no producer id: {answer}")
    wire.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        2,
        v3_and_below_transactional_id=LONG_ID,
        v3_and_below_producer_id=answer["producer_id"],
        v3_and_below_producer_epoch=answer["producer_epoch"],
        v3_and_below_topics=[{"name": "victim", "partitions": [0]}],
    )


def topics(wire: Wire) -> None:
    """2,000 topics."""
    names = [f"topic-{number}" for number in range(TOPICS)]
    for begin in range(0, TOPICS, 100):
        create(
            wire, *(topic(name, 1, retention_ms="1000000") for name in names[begin : begin + 100])
        )


def names(wire: Wire) -> None:
    """5,000 topics with nothing to set."""
    for begin in range(0, NAMES, 500):
        create(wire, *(topic(f"name-{number:04}") for number in range(begin, begin + 500)))


def consumer_heartbeat(group: str, member: str, names: list[str]) -> bytes:
    """The body of a request with which a member joins a consumer group, version 1."""
    return body_of(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=names,
        topic_partitions=[],
    )


def joining(first: int, count: int) -> list[bytes]:
    """Frames of requests with which further members join the group `many`."""
    return [
        frame(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            consumer_heartbeat("many", f"member-{number:05}", ["wide"]),
        )
        for number in range(first, first + count)
    ]


def members(wire: Wire) -> None:
    """A consumer group of 5,000 members, and a topic of 10,000 partitions that they read."""
    create(wire, topic("wide", READ_PARTITIONS))
    wire.pipeline(joining(0, MEMBERS))


#: Each is made on top of "plain".
STAGES: dict[str, Callable[[Wire], None] | None] = {
    "plain": None,
    "groups": groups,
    "producers": producers,
    "transactions": transactions,
    "topics": topics,
    "names": names,
    "members": members,
}
