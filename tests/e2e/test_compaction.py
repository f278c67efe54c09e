"""A broker that compacts while it serves, and is killed and restarted during that time."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ..support.broker_process import KwireBroker
from ..support.polling import wait_until

pytestmark = [pytest.mark.e2e]

CONFIG = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "4000",
    "log.segment.delete.delay.ms": "0",
}


def stored_bytes(directory: Path) -> int:
    """The total size of the log's segments."""
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def cleaned_up_to(broker: KwireBroker, topic: str) -> int:
    """The offset in the cleaner's checkpoint; 0 without one."""
    path = broker.log_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith(f"{topic} ")), default=0)


def consumer(broker: KwireBroker, group: str) -> Consumer:
    """A consumer that reads from the beginning and commits only explicitly."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )


def test_group_offsets_survive_compaction_and_a_kill(tmp_path: Path) -> None:
    """The last commit of each group counts, and the log of commits does not grow with each."""
    broker = KwireBroker(tmp_path, config=CONFIG)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result()
        expected = {}
        members = {group: consumer(broker, group) for group in ("a", "b", "c")}
        for round_ in range(60):
            for group, member in members.items():
                offsets = [TopicPartition("t", p, round_ * 10 + p) for p in range(2)]
                member.commit(offsets=offsets, asynchronous=False)
                expected[group] = [each.offset for each in offsets]
        for member in members.values():
            member.close()
        directory = broker.log_dir / "__consumer_offsets-0"
        wait_until(lambda: cleaned_up_to(broker, "__consumer_offsets") > 300)
        wait_until(lambda: stored_bytes(directory) < 20_000)
        broker.kill()
        broker.start()
        for group, offsets in expected.items():
            again = consumer(broker, group)
            found = again.committed([TopicPartition("t", p) for p in range(2)], timeout=60)
            assert [each.offset for each in found] == offsets, group
            again.close()


def test_consumer_that_reads_while_segments_are_swapped_sees_each_key_in_order(
    tmp_path: Path,
) -> None:
    """Concurrent writing, compacting and reading: offsets increase, and the last values are correct."""
    broker = KwireBroker(tmp_path, config=CONFIG)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        settings = {"cleanup.policy": "compact", "segment.bytes": "20000"}
        admin.create_topics([NewTopic("t", 1, 1, config=settings)])["t"].result()
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "batch.num.messages": 20}
        )
        slow = consumer(broker, "slow")
        slow.assign([TopicPartition("t", 0, 0)])
        last: dict[bytes, bytes] = {}
        seen: list[int] = []
        for number in range(6000):
            key, value = b"%d" % (number % 300), b"%d" % number
            producer.produce("t", key=key, value=value * 10)
            last[key] = value * 10
            if number % 20 == 0:
                producer.flush()
                message = slow.poll(0.01)
                if message is not None and message.error() is None:
                    seen.append(message.offset())
        producer.flush()
        wait_until(lambda: cleaned_up_to(broker, "t") > 5000)
        table: dict[bytes, bytes] = {}
        fresh = consumer(broker, "fresh")
        fresh.assign([TopicPartition("t", 0, 0)])
        count = 0
        while True:
            message = fresh.poll(60)
            assert message is not None
            if message.error() is not None:
                break
            table[message.key()] = message.value()
            count += 1
        assert table == last
        assert count < 3000
        # It may have come to what was the end while records were being written.
        while not seen or seen[-1] < 5999:
            message = slow.poll(60)
            assert message is not None
            if message.error() is None:
                seen.append(message.offset())
        assert seen == sorted(set(seen)) and seen[-1] == 5999
        slow.close()
        fresh.close()
