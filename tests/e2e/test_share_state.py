"""The share coordinator compared with that of Apache Kafka 4.3.0: the same requests, the same answers and records."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.records.batch import iter_batches
from kwire.types import uuid_to_str
from server.coordinator.share_state.records import (
    ShareRecord,
    ShareSnapshot,
    decode_record,
    encode_record,
)
from tests.support.broker_process import BrokerProcess, KwireBroker
from tests.support.kafka import KAFKA_4, kafka_broker
from tests.support.wire_client import WireClient

from ..support.polling import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

STATE = "__share_group_state"
UPDATES = 3
CONFIG = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES),
    "share.coordinator.state.topic.prune.interval.ms": "1000",
}
STEPS = 60
#: Programs of random requests: how many, and the seed of the first.
SEEDS = 40 if os.environ.get("KWIRE_LONG") else 4
FIRST_SEED = int(os.environ.get("KWIRE_SEED", "0"))


Begin = Callable[[BrokerProcess, str, str], "Play"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Give `Play`, whose connections end with the test."""
    with ExitStack() as stack:
        yield lambda *args: stack.enter_context(closing(Play(*args)))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    root = tmp_path_factory.mktemp("share-state")
    patient = {"broker.session.timeout.ms": "30000"}
    kafka = kafka_broker(KAFKA_4, root / "kafka", config=CONFIG | patient)
    kwire = KwireBroker(root / "kwire", config=CONFIG)
    with kafka, kwire:
        yield [kafka, kwire]


class Play:
    """One broker, a topic of two partitions on it, and its answers."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str) -> None:
        self.client = WireClient("127.0.0.1", broker.port, timeout_s=20)
        self.group = group
        made = self.ask(
            ApiKey.CREATE_TOPICS,
            7,
            {"topics": [{"name": topic, "num_partitions": 2, "replication_factor": 1}]},
        )
        assert not made["topics"][0]["error_code"], made
        self.topic_id = made["topics"][0]["topic_id"]
        self.answers: list[Any] = []
        key = f"{group}:{uuid_to_str(self.topic_id)}:0"
        wait_until(lambda: self.found(key)["error_code"] == 0)
        wait_until(self.is_known)  # KRaft answers before its coordinators know a new topic

    def close(self) -> None:
        """Remove the group's states: records before the oldest that anyone needs are kept by both brokers."""
        rows = [{"partition": number} for number in range(2)]
        topics = [{"topic_id": self.topic_id, "partitions": rows}]
        self.ask(ApiKey.DELETE_SHARE_GROUP_STATE, 0, {"group_id": self.group, "topics": topics})
        self.client.close()

    def ask(self, api: ApiKey, version: int, request: dict[str, Any]) -> Any:
        answer = self.client.call(api, version, request)
        assert answer is not None
        return answer

    def is_known(self) -> bool:
        """Whether the coordinator knows the topic."""
        partitions = [{"partition": 1, "leader_epoch": 0}]
        topics = [{"topic_id": self.topic_id, "partitions": partitions}]
        request = {"group_id": self.group, "topics": topics}
        answer = self.ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, request)
        return not answer["results"][0]["partitions"][0]["error_code"]

    def found(self, key: str) -> Any:
        request = {"key_type": 2, "coordinator_keys": [key]}
        return self.ask(ApiKey.FIND_COORDINATOR, 6, request)["coordinators"][0]

    def call(self, api: ApiKey, version: int, row: dict[str, Any], unknown: bool = False) -> None:
        topic_id = bytes(15) + b"\x09" if unknown else self.topic_id
        topics = [{"topic_id": topic_id, "partitions": [row]}]
        answer = self.ask(api, version, {"group_id": self.group, "topics": topics})
        (result,) = answer["results"]
        self.answers.append((api.name, row, result["partitions"]))

    def fetched(self, offset: int) -> Any:
        """The partition of __share_group_state from an offset on."""
        request = {
            **{"replica_id": -1, "max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 24},
            "session_id": 0,
            "session_epoch": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "topic": STATE,
                    "partitions": [
                        {
                            "partition": 0,
                            "fetch_offset": offset,
                            "partition_max_bytes": 1 << 24,
                        }
                    ],
                }
            ],
        }
        answer = self.ask(ApiKey.FETCH, 12, request)
        (row,) = answer["responses"][0]["partitions"]
        return row

    def stored(self) -> list[tuple[bytes, bytes | None]]:
        """The records of this group in __share_group_state, which may lose its first ones in the meantime."""
        rows: list[Any] = [None]

        def is_read() -> bool:
            rows[0] = self.fetched(self.offset(-2))
            return rows[0]["error_code"] != ErrorCode.OFFSET_OUT_OF_RANGE

        wait_until(is_read)
        (row,) = rows
        assert row["error_code"] == 0, row
        return [
            (record.key, record.value)
            for batch in iter_batches(row["records"])
            for record in batch.records()
            if record.key is not None and self.group.encode() in record.key
        ]

    def offset(self, timestamp: int) -> int:
        request = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {"name": STATE, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
            ],
        }
        answer = self.ask(ApiKey.LIST_OFFSETS, 7, request)
        found: int = answer["topics"][0]["partitions"][0]["offset"]
        return found


def without_times(key: bytes, value: bytes | None) -> ShareRecord:
    """A stored record without its topic id and times; its bytes are those that kwire writes."""
    record = decode_record(key, value)
    assert record is not None
    assert encode_record(record) == (key, value)
    found = record.value
    if isinstance(found, ShareSnapshot):
        found = found._replace(create_timestamp=0, write_timestamp=0)
    return ShareRecord(record.key._replace(topic_id=b""), found)


def step(rng: random.Random, counter: list[int]) -> tuple[ApiKey, int, dict[str, Any], bool]:
    """An operation that is mostly allowed. Shape: `counter` has the highest leader epoch and offset so far."""
    row: dict[str, Any] = {
        "partition": rng.choice([0, 0, 0, 1, 1, 2, -1] if rng.random() < 0.3 else [0, 1])
    }
    unknown = rng.random() < 0.03
    leader = max(0, counter[0] - (rng.random() < 0.1))
    kind = rng.choices(["initialize", "read", "write", "summary", "delete"], [6, 6, 40, 6, 2])[0]
    if kind == "initialize":
        row |= {"state_epoch": rng.choice([0, 1, 1, 2, -1]), "start_offset": rng.choice([-1, 0, 5])}
        return ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, row, unknown
    if kind == "read":
        counter[0] += rng.random() < 0.3
        row["leader_epoch"] = rng.choice([counter[0], counter[0], leader, -1])
        return ApiKey.READ_SHARE_GROUP_STATE, 0, row, unknown
    if kind == "summary":
        return (
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            rng.choice([0, 1]),
            row | {"leader_epoch": leader},
            unknown,
        )
    if kind == "delete":
        return ApiKey.DELETE_SHARE_GROUP_STATE, 0, row, unknown
    counter[1] += rng.randrange(4)
    batches = []
    for _ in range(rng.randrange(4)):
        first = counter[1] + rng.randrange(12)
        batches.append(
            {
                "first_offset": first,
                "last_offset": first + rng.randrange(6),
                "delivery_state": rng.choice([0, 2, 4]),
                "delivery_count": rng.randrange(1, 5),
            }
        )
    row |= {
        "state_epoch": rng.choice([0, 1, 2, 2, 2, -1]),
        "leader_epoch": rng.choice([leader, leader, leader, counter[0] + 1, -1]),
        "start_offset": rng.choice([counter[1], counter[1], -1]),
        "delivery_complete_count": rng.randrange(-1, 20),
        "state_batches": batches,
    }
    return ApiKey.WRITE_SHARE_GROUP_STATE, rng.choice([0, 1, 1]), row, unknown


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_random_operations_have_the_same_answers_and_records(
    brokers: list[BrokerProcess], begin: Begin, seed: int
) -> None:
    """Field by field, and byte by byte but for topic ids and times."""
    plays = [begin(each, f"random{seed}", f"group:{seed}") for each in brokers]
    rng, counter = random.Random(seed), [1, 0]
    for number in range(STEPS):
        api, version, row, unknown = step(rng, counter)
        for play in plays:
            play.call(api, version, row, unknown)
        theirs, ours = (play.answers[-1] for play in plays)
        assert ours == theirs, number
    # Records that were no longer needed may already be gone, on either broker.
    kafka, kwire = ([without_times(*each) for each in play.stored()] for play in plays)
    common = min(len(kafka), len(kwire))
    assert kwire[len(kwire) - common :] == kafka[len(kafka) - common :]
    if not common:  # everything was refused, or no stored record is left
        more = kafka or kwire
        assert not more or more[-1].value is None


def test_bad_keys_are_refused_as_by_apache_kafka(
    brokers: list[BrokerProcess], begin: Begin
) -> None:
    plays = [begin(each, "keys", "keys") for each in brokers]
    for key in (
        "",
        "g",
        "g:x:0",
        ":AAAAAAAAAAAAAAAAAAAACQ:0",
        "g:AAAAAAAAAAAAAAAAAAAACQ:x",
        "g:AAAAAAAAAAAAAAAAAAAACQ:0",
        "a:g:AAAAAAAAAAAAAAAAAAAACQ:1",
    ):
        kafka, kwire = (play.found(key) for play in plays)
        assert [kwire[name] for name in ("key", "error_code", "error_message")] == [
            kafka[name] for name in ("key", "error_code", "error_message")
        ]


def test_old_records_are_removed(brokers: list[BrokerProcess], begin: Begin) -> None:
    """Both remove records before the oldest one that is needed."""
    for broker in brokers:
        play = begin(broker, "pruned", "pruned")
        partition = {"partition": 0, "state_epoch": 0, "start_offset": 0}
        play.call(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, partition)
        before = play.offset(-2)

        def write(number: int, play: Play = play) -> None:
            batch = {
                "first_offset": number,
                "last_offset": number,
                "delivery_state": 2,
                "delivery_count": 1,
            }
            row = {
                **{"partition": 0, "state_epoch": 0, "leader_epoch": 0},
                **{"start_offset": number, "delivery_complete_count": 1, "state_batches": [batch]},
            }
            play.call(ApiKey.WRITE_SHARE_GROUP_STATE, 1, row)

        for number in range(3 * (UPDATES + 1)):
            write(number)
        wait_until(lambda play=play, before=before: play.offset(-2) > before)
        assert not any(row["error_code"] for *_, rows in play.answers for row in rows)
        (last, *_) = [decode_record(*each) for each in play.stored()]
        assert last is not None
        assert isinstance(last.value, ShareSnapshot)
