"""The content that is written to a data directory before it is moved, and that must be found after each move.

One broker writes one round; the records can be identified by their values. Every kind of log
that a move can harm has its own topic:

    codecs                     one partition a codec, many segments
    old-0, old-1               magic 0 and 1, one partition a codec (zstd came later)
    appendtime                 the broker's timestamps
    compacted, old-0-compacted, old-1-compacted
                               repeated keys, and tombstones
    deleted                    its beginning is removed by DeleteRecords
    transactions               partitions 0, 1: committed and aborted; 2, 3: left open
    made-N                     made in round N, changed immediately, deleted in the next round
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ...support.polling import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD_CODECS = CODECS[:4]
FORMATS = {"old-0": "0.9.0", "old-1": "0.10.0"}
COMPACTED = ("compacted", "old-0-compacted", "old-1-compacted")
INTERNAL = ("__consumer_offsets", "__transaction_state")
KEYS = 40
PER_ROUND = 45
"""Records of each partition of the topics that keep all."""

#: For both kinds of broker. Compaction runs only when a test requests it (no log is dirtier than 1).
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.min.cleanable.ratio": "1.0",
    "log.segment.delete.delay.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.segment.bytes": "3000",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.segment.bytes": "3000",
    "group.initial.rebalance.delay.ms": "0",
}

DEADLINE_S = 60.0


class Row(NamedTuple):
    """A record as returned to a reader."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Rows = dict[tuple[str, int], list[Row]]


def admin_of(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def create(address: str, topics: list[NewTopic]) -> None:
    admin = admin_of(address)
    for made in admin.create_topics(topics).values():
        made.result(20)


def create_old_topics(address: str) -> None:
    """The topics of magic 0 and 1; the broker must have an old inter.broker.protocol.version."""
    topics = []
    for name, version in FORMATS.items():
        config = {"message.format.version": version, "segment.bytes": "6000"}
        topics.append(NewTopic(name, len(OLD_CODECS), 1, config=config))
        compact = config | {"cleanup.policy": "compact", "delete.retention.ms": "100"}
        topics.append(NewTopic(f"{name}-compacted", len(OLD_CODECS), 1, config=compact))
    create(address, topics)


def forget_old_formats(address: str) -> None:
    """Write magic 2 from now on, in the same segments."""
    names = [*FORMATS, *(f"{name}-compacted" for name in FORMATS)]
    alter(address, names, "message.format.version", None)


def create_topics(address: str, segment_bytes: str = "segment.bytes") -> None:
    """The other topics. Shape: `segment_bytes` is the broker's name of the config that allows small segments."""
    small = {segment_bytes: "8000", "index.interval.bytes": "200"}
    compact = {"cleanup.policy": "compact", "delete.retention.ms": "100", segment_bytes: "4000"}
    topics = [
        NewTopic("codecs", len(CODECS), 1, config=small),
        NewTopic("appendtime", 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
        NewTopic("deleted", 1, 1, config={segment_bytes: "3000"}),
        NewTopic("transactions", 4, 1, config=small),
        NewTopic("compacted", 2, 1, config=compact),
    ]
    create(address, topics)


def alter(address: str, topics: Iterable[str], name: str, value: str | None) -> None:
    """Set a config of topics, or remove it."""
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[ConfigEntry(name, value, incremental_operation=kind)],
        )
        for topic in topics
    ]
    admin = admin_of(address)
    for done in admin.incremental_alter_configs(resources).values():
        done.result(20)


# -- reading -----------------------------------------------------------------------------------


def partitions_of(address: str) -> list[TopicPartition]:
    """All partitions of the cluster, internal ones too."""
    topics = admin_of(address).list_topics(timeout=20).topics
    return [
        TopicPartition(name, number)
        for name, topic in sorted(topics.items())
        for number in sorted(topic.partitions)
    ]


def wait_for_leaders(address: str, count: int) -> None:
    """Wait until the broker that has just started leads this number of partitions."""

    def leads() -> bool:
        topics = admin_of(address).list_topics(timeout=20).topics.values()
        leaders = [p.leader for topic in topics for p in topic.partitions.values()]
        return len(leaders) == count and min(leaders) >= 0

    wait_until(leads, f"not {count} partitions with a leader")


def read_everything(address: str, isolation: str) -> Rows:
    """Every record of every partition, from its start to where a reader of that kind may go."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
        }
    )
    wanted = partitions_of(address)
    for each in wanted:
        each.offset = OFFSET_BEGINNING
    rows: Rows = {(each.topic, each.partition): [] for each in wanted}
    left = set(rows)
    consumer.assign(wanted)
    deadline = time.monotonic() + DEADLINE_S
    try:
        while left:
            assert time.monotonic() < deadline, f"{left} not read to the end"
            for message in consumer.consume(500, 0.2):
                place = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    rows[place].append(
                        Row(
                            message.offset(),
                            message.timestamp(),
                            message.key(),
                            message.value(),
                            tuple(message.headers() or ()),
                        )
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
                else:
                    raise AssertionError(f"{place}: {error}")
    finally:
        consumer.close()
    return rows


def ends_of(address: str) -> dict[tuple[str, int], tuple[int, int]]:
    """First and next offset of every partition."""
    admin = admin_of(address)
    partitions = partitions_of(address)
    found = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        answers = admin.list_offsets(dict.fromkeys(partitions, spec))
        found.append({each: answer.result(20).offset for each, answer in answers.items()})
    return {(each.topic, each.partition): (found[0][each], found[1][each]) for each in partitions}


# -- writing -----------------------------------------------------------------------------------


def producer_of(address: str, codec: str = "none", **settings: object) -> Producer:
    """A producer that sends small batches and reports lost ones."""
    return Producer(
        {
            "bootstrap.servers": address,
            "compression.type": codec,
            "linger.ms": 2,
            "batch.num.messages": 15,
            "log_level": 0,
            **settings,
        }
    )


def flush(producer: Producer) -> None:
    assert producer.flush(DEADLINE_S) == 0


def delivered(error: KafkaError | None, message: Message) -> None:
    assert error is None, f"{message.topic()}: {error}"


class Senders:
    """One producer a codec, idempotent or not."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._made: dict[tuple[str, bool], Producer] = {}

    def of(self, codec: str, *, idempotent: bool = True) -> Producer:
        key = (codec, idempotent)
        if key not in self._made:
            self._made[key] = producer_of(
                self._address, codec, **{"enable.idempotence": idempotent}
            )
        return self._made[key]

    def flush(self) -> None:
        for producer in self._made.values():
            flush(producer)


class Content:
    """Everything written so far: the model for comparison with readers."""

    def __init__(self, seed: int) -> None:
        self.chooser = random.Random(seed)
        self.plain: dict[tuple[str, int], list[bytes]] = {}
        self.committed: dict[tuple[str, int], list[bytes]] = {}
        self.tables: dict[tuple[str, int], dict[bytes, bytes | None]] = {}
        self.rounds = 0
        self.made = ""

    def write(self, address: str, *, old_formats: bool) -> None:
        """Write one round of everything except transactions."""
        self.rounds += 1
        senders = Senders(address)
        for topic in ("codecs", *(FORMATS if old_formats else ())):
            for partition, codec in enumerate(CODECS if topic == "codecs" else OLD_CODECS):
                self._write_plain(senders.of(codec), topic, partition)
        self._write_plain(senders.of("gzip"), "appendtime", 0)
        self._write_plain(senders.of("none", idempotent=False), "deleted", 0)
        for topic in COMPACTED if old_formats else COMPACTED[:1]:
            for partition in range(2 if topic == "compacted" else len(OLD_CODECS)):
                codec = CODECS[(partition + self.rounds) % len(CODECS)]
                self._write_table(senders.of(codec), topic, partition)
        senders.flush()

    def write_old(self, address: str) -> None:
        """The same for the topics of old formats, while they have them."""
        self.rounds += 1
        senders = Senders(address)
        for topic in FORMATS:
            for partition, codec in enumerate(OLD_CODECS):
                sender = senders.of(codec, idempotent=False)
                self._write_plain(sender, topic, partition, headers=False)
                self._write_table(sender, f"{topic}-compacted", partition)
        senders.flush()

    def _write_plain(
        self, sender: Producer, topic: str, partition: int, *, headers: bool = True
    ) -> None:
        values = self.plain.setdefault((topic, partition), [])
        for number in range(PER_ROUND):
            value = b"%s %d %d " % (topic.encode(), self.rounds, number)
            value += self.chooser.randbytes(self.chooser.randrange(200))
            key = None if number % 3 == 0 else b"key %d" % number
            some = [("round", b"%d" % self.rounds), ("null", None)] if number % 4 == 0 else []
            values.append(value)
            sender.produce(
                topic, value, key, partition, on_delivery=delivered, headers=some if headers else []
            )

    def _write_table(self, sender: Producer, topic: str, partition: int) -> None:
        table = self.tables.setdefault((topic, partition), {})
        for number in range(150):
            key = b"key %d" % self.chooser.randrange(KEYS)
            value = None
            if self.chooser.random() > 0.2:
                value = b"%d %d " % (self.rounds, number) + b"x" * self.chooser.randrange(60)
            table[key] = value
            sender.produce(topic, value, key, partition, on_delivery=delivered)

    def change_topics(self, address: str) -> None:
        """Create a topic, change a setting, add a partition, and delete the previous one."""
        admin = admin_of(address)
        name = f"made-{self.rounds}"
        create(address, [NewTopic(name, 1, 1, config={"retention.ms": f"{10**9 + self.rounds}"})])
        wait_until(lambda: name in admin.list_topics(timeout=20).topics, f"{name} is not known")
        for grown in admin.create_partitions([NewPartitions(name, 2)]).values():
            grown.result(20)
        sender = producer_of(address)
        for partition in (0, 1):
            self._write_plain(sender, name, partition)
        flush(sender)
        old = [topic for topic, _ in self.plain if topic.startswith("made-") and topic != name]
        for gone in admin.delete_topics(sorted(set(old))).values() if old else ():
            gone.result(20)
        self.plain = {place: rows for place, rows in self.plain.items() if place[0] not in old}
        alter(address, [name], "segment.ms", "99999")
        self.made = name

    def check_topics(self, address: str) -> None:
        """Check that the other broker knows the topics unchanged."""
        made = [each.topic for each in partitions_of(address) if each.topic.startswith("made-")]
        assert made == [self.made] * 2
        admin = admin_of(address)
        resource = ConfigResource(ResourceType.TOPIC, self.made)
        found = admin.describe_configs([resource])[resource].result(20)
        for name, value in (("retention.ms", f"{10**9 + self.rounds}"), ("segment.ms", "99999")):
            assert (found[name].value, found[name].is_default) == (value, False)

    def delete_beginning(self, address: str, data: Path) -> int:
        """Remove the oldest records of `deleted`; returns where it begins now, on disk too."""
        written = len(self.plain["deleted", 0])
        start = written - 20
        admin = admin_of(address)
        asked = admin.delete_records([TopicPartition("deleted", 0, start)])
        for done in asked.values():
            assert done.result(20).low_watermark == start
        checkpoint = data / "log-start-offset-checkpoint"
        wait_until(
            lambda: f"deleted 0 {start}\n" in checkpoint.read_text(), "not in the checkpoint"
        )
        return start

    def write_transactions(self, address: str) -> None:
        """Committed and aborted ones, by a transactional id that is used again each round."""
        producer = producer_of(address, "lz4", **{"transactional.id": "mover"})
        producer.init_transactions(DEADLINE_S)
        for number in range(6):
            producer.begin_transaction()
            commit = number % 3 != 1
            for partition in (0, 1):
                for _ in range(8):
                    value = b"%d %d %d" % (self.rounds, number, self.chooser.randrange(1 << 30))
                    producer.produce("transactions", value, partition=partition)
                    if commit:
                        self.committed.setdefault(("transactions", partition), []).append(value)
            flush(producer)
            if commit:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.abort_transaction(DEADLINE_S)

    # -- checking ------------------------------------------------------------------------------

    def check(self, rows: Rows, committed: Rows) -> None:
        """Compare with the records of readers with both isolation levels."""
        for place, values in self.plain.items():
            found = [row.value for row in rows[place]]
            assert found == values[len(values) - len(found) :], place
            if place[0] != "deleted":
                assert len(found) == len(values), place
                assert [row.offset for row in rows[place]] == list(range(len(values)))
        for place, values in self.committed.items():
            assert [row.value for row in committed[place]] == values, place
        for place, table in self.tables.items():
            seen: dict[bytes | None, bytes | None] = {}
            for row in rows[place]:
                seen[row.key] = row.value
            alive = {key: value for key, value in table.items() if value is not None}
            assert {key: value for key, value in seen.items() if value is not None} == alive, place


# -- compaction --------------------------------------------------------------------------------


def compact(
    address: str, data: Path, topics: Iterable[str], internal: tuple[str, ...] = INTERNAL
) -> None:
    """Make the broker compact the topics as far as possible, and then stop."""
    topics = list(topics)
    alter(address, [*topics, *internal], "min.cleanable.dirty.ratio", "0.001")
    wanted = {
        (topic, each.partition): newest_segment(data, topic, each.partition)
        for topic in topics
        for each in partitions_of(address)
        if each.topic == topic
    }
    wait_until(
        lambda: all(cleaned_up_to(data).get(place, 0) >= end for place, end in wanted.items()),
        f"not compacted: {wanted}",
    )
    alter(address, topics, "min.cleanable.dirty.ratio", "1.0")


def newest_segment(data: Path, topic: str, partition: int) -> int:
    """Base offset of the active segment."""
    return max(int(path.stem) for path in (data / f"{topic}-{partition}").glob("*.log"))


def cleaned_up_to(data: Path) -> dict[tuple[str, int], int]:
    """cleaner-offset-checkpoint."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return {}
    found = (line.rsplit(" ", 2) for line in lines)
    return {(topic, int(partition)): int(offset) for topic, partition, offset in found}
