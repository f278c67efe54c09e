"""Hostile clients of share groups, on a broker without an authorizer, where every client may also pose as a broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.attack.__main__ import CPU_GOAL_S, MEMORY_GOAL
from bench.attack.stages import create, ready, topic
from bench.attack.target import MEGABYTE, ROOT, MeteredKwire, peak_bytes
from bench.attack.wire import Wire, body_of, errors_in, frame
from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder
from server.coordinator.share_state.records import (
    ShareKey,
    ShareRecord,
    ShareSnapshot,
    Update,
    encode_record,
)
from server.coordinator.share_state.rows import StateBatch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GROUPS = [f"g{number}" for number in range(5)]
RECORDS = 20
TURNED = ((10, 15, 0, 1), (12, 3, 0, 2))


class Hostile:
    """A broker with a topic, a group for each attack, and an attacker."""

    def __init__(self, broker: MeteredKwire) -> None:
        self.broker = broker
        self.begin()
        create(self.wire, topic("t", 1))
        asked = [{"topic_id": bytes(16), "name": "t"}]
        self.topic_id = self.call(ApiKey.METADATA, 12, topics=asked)["topics"][0]["topic_id"]
        for _ in range(RECORDS):
            self.produce("t", [(b"", b"v")])
        earliest = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        for group in GROUPS:
            rows = [{"resource_type": 32, "resource_name": group, "configs": [earliest]}]
            self.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=rows, validate_only=False)
            self.join(group)

    def begin(self) -> None:
        self.wire = Wire(self.broker.port, 60.0)
        ready(self.wire)

    def call(self, api: ApiKey, version: int, **values: Any) -> dict[str, Any]:
        return self.wire.call(api, version, **values)

    def produce(
        self,
        name: str,
        records: list[tuple[bytes | None, bytes | None]],
        client: bytes = b"__admin_client",
    ) -> int:
        """As the client whose writes to internal topics are taken, as in Apache Kafka."""
        builder = BatchBuilder()
        for key, value in records:
            builder.append(int(time.time() * 1000), key, value)
        data = [{"name": name, "partition_data": [{"index": 0, "records": builder.build()}]}]
        body = body_of(ApiKey.PRODUCE, 7, acks=-1, timeout_ms=30_000, topic_data=data)
        self.wire.socket.sendall(frame(ApiKey.PRODUCE, 7, body, client))
        (code,) = errors_in(self.wire.receive(ApiKey.PRODUCE, 7))
        return code

    def join(self, group: str) -> None:
        epoch, deadline = 0, time.monotonic() + 60
        while True:
            values = {"group_id": group, "member_id": "m", "member_epoch": epoch}
            names = None if epoch else ["t"]
            answer = self.call(
                ApiKey.SHARE_GROUP_HEARTBEAT, 1, **values, subscribed_topic_names=names
            )
            if (answer["assignment"] or {}).get("topic_partitions"):
                return
            assert time.monotonic() < deadline, answer
            epoch = max(answer["member_epoch"], 0)
            time.sleep(0.05)

    def of_partition(
        self, api: ApiKey, version: int, group: str, *rows: dict[str, Any]
    ) -> dict[str, Any]:
        """A broker's request to a share coordinator."""
        topics = [{"topic_id": self.topic_id, "partitions": list(rows)}]
        return self.call(api, version, group_id=group, topics=topics)

    def write(self, group: str, batches: Any, start: int = -1) -> set[int]:
        row = {
            **{"partition": 0, "state_epoch": -1, "leader_epoch": -1, "start_offset": start},
            "delivery_complete_count": 0,
            "state_batches": [StateBatch(*each)._asdict() for each in batches],
        }
        return errors_in(self.of_partition(ApiKey.WRITE_SHARE_GROUP_STATE, 1, group, row))

    def acquired(self, group: str) -> list[tuple[int, int]]:
        """Records that a new member acquires and returns."""
        wire = Wire(self.broker.port, 60.0)
        try:
            found: list[tuple[int, int]] = []
            for epoch in range(3):
                answer = wire.call(
                    ApiKey.SHARE_FETCH,
                    2,
                    group_id=group,
                    member_id="fresh",
                    share_session_epoch=epoch,
                    **{"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20},
                    **{"max_records": 500, "batch_size": 500},
                    topics=[
                        {
                            "topic_id": self.topic_id,
                            "partitions": [{"partition_index": 0, "acknowledgement_batches": []}],
                        }
                    ],
                )
                assert not errors_in(answer) - {0}, answer
                found += [
                    (each["first_offset"], each["last_offset"])
                    for found_topic in answer["responses"]
                    for row in found_topic["partitions"]
                    for each in row["acquired_records"]
                ]
            return found
        finally:
            wire.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    directory = tmp_path_factory.mktemp("hostile")
    broker = MeteredKwire(directory, root=ROOT, python=sys.executable)
    broker.config["share.coordinator.state.topic.num.partitions"] = "1"
    with broker as started:
        assert isinstance(started, MeteredKwire)
        attacker = Hostile(started)
        yield attacker
        attacker.wire.close()
        assert "Traceback" not in broker.log_path.read_text()


def test_batches_that_end_before_they_begin_do_not_stop_the_broker(hostile: Hostile) -> None:
    assert hostile.write("g0", TURNED) == {0}
    assert hostile.acquired("g0")[0] == (0, 9)


def test_group_that_begins_anywhere_can_be_described(hostile: Hostile) -> None:
    for start in (-(2**63), 2**63 - 1):
        rows = [{"partition_index": 0, "start_offset": start}]
        topics = [{"topic_name": "t", "partitions": rows}]
        values = {"group_id": "anywhere", "topics": topics}
        assert errors_in(hostile.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, **values)) == {0}
        answer = hostile.call(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            1,
            groups=[{"group_id": "anywhere", "topics": None}],
        )
        assert errors_in(answer) == {0}
        assert answer["groups"][0]["topics"][0]["partitions"][0]["start_offset"] == start


def test_large_states_take_no_long_turn_and_are_answered_once(hostile: Hostile) -> None:
    broker = hostile.broker
    broker.clear_turn()
    assert hostile.write("g1", [(2 * number, 2 * number, 0, 1) for number in range(9_000)]) == {0}
    assert hostile.write("g1", [(2 * number, 2 * number, 0, 1) for number in range(50_000)]) == {42}
    row = {"partition": 0, "leader_epoch": -1}
    for api, version in (
        (ApiKey.READ_SHARE_GROUP_STATE, 0),
        (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1),
    ):
        answer = hostile.of_partition(api, version, "g1", *[row] * 2_000)
        assert [len(each["partitions"]) for each in answer["results"]] == [1]
    assert broker.longest_turn_s() < CPU_GOAL_S
    assert peak_bytes(broker.pid) < MEMORY_GOAL * MEGABYTE


def test_tampered_states_do_not_poison_the_next_start(hostile: Hostile) -> None:
    def record(group: str, value: ShareSnapshot | Update | None) -> tuple[bytes, bytes | None]:
        return encode_record(ShareRecord(ShareKey(group, hostile.topic_id, 0), value))

    states = "__share_group_state"
    assert hostile.produce(states, [(b"x", b"y")], b"anybody") == 17
    key, value = record("g2", ShareSnapshot(5, 1, 0, 3, 0, 1, 1))
    assert value is not None
    turned = tuple(StateBatch(*each) for each in TURNED)
    tampered: list[tuple[bytes | None, bytes | None]] = [
        (b"", b""), (b"\0", None), (None, b"x"), (b"\0\0\x7f\xff", b"\0\0"), (b"\0\7zz", b"\0\0"),
        (key, value[:-3]), (key, b"\0\5" + value[2:]), (key, value + b"more"), (key, b"\0"),
        record("g2", Update(5, 0, 0, 0, turned)),
        record("g3", ShareSnapshot(2**31 - 1, 0, 0, 5, 0, 1, 1)),
    ]  # fmt: skip
    for each in tampered:
        assert hostile.produce(states, [each]) == 0
    hostile.wire.close()
    hostile.broker.kill()
    hostile.broker.start(60.0)
    hostile.begin()
    for group, first in (("g2", 0), ("g3", 5), ("g4", 0)):
        found = hostile.acquired(group)
        assert found and found[0][0] == first, (group, found)
