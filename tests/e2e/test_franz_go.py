"""Members of groups by franz-go (compat/franz-go), with the consumer protocol and with the classic one, against kwire."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from ..support.broker_process import BrokerProcess, KwireBroker
from ..support.polling import wait_until
from ..support.wire_client import WireClient

compat = pytest.mark.compat
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("go") is None, reason="needs go"),
]

SOURCES = Path(__file__).resolve().parents[2] / "compat" / "franz-go"
BEATS = ("group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms")
SESSIONS = ("group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms")
CONFIG = {**dict.fromkeys(BEATS, "300"), "group.initial.rebalance.delay.ms": "100"}
PARTITIONS = 6
PATIENCE_S = 90.0

#: Topic, partition, offset, value.
Record = tuple[str, int, int, str]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the member."""
    made = tmp_path_factory.mktemp("franz-go") / "member"
    built = subprocess.run(
        ["go", "build", "-o", str(made), "."],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode and "dial tcp" in built.stderr:
        pytest.skip("franz-go cannot be fetched")
    assert built.returncode == 0, built.stderr
    return made


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """Give a separate broker; its parameter is the time in ms after which a silent member is removed."""
    session_ms = str(getattr(request, "param", 45_000))
    with KwireBroker(
        tmp_path / "broker", config=CONFIG | dict.fromkeys(SESSIONS, session_ms)
    ) as started:
        yield started


class Member:
    """A process of compat/franz-go: the records that it has read, and its partitions."""

    def __init__(self, program: Path, broker: BrokerProcess, topics: str, *options: str) -> None:
        words = [f"-brokers={broker.bootstrap}", "-group=g", f"-topics={topics}", *options]
        self.process = subprocess.Popen([str(program), *words], stdout=subprocess.PIPE, text=True)
        self.records: list[Record] = []
        self.owned: set[tuple[str, int]] = set()
        self.taken: list[str] = []
        self.has_left = False
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # else it was killed while it wrote
                    self._note(*line.split())

    def _note(self, what: str, *words: str) -> None:
        if what == "record":
            self.records.append((words[0], int(words[1]), int(words[2]), words[3]))
        elif what == "assigned":
            self.owned |= {(words[0], int(each)) for each in words[1:]}
        elif what in ("revoked", "lost"):
            self.owned -= {(words[0], int(each)) for each in words[1:]}
            self.taken.append(" ".join(words))
        elif what == "left":
            self.has_left = True

    def leave(self) -> None:
        """Let it commit and leave."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        assert self.has_left

    def kill(self) -> None:
        """End it immediately."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)


Start = Callable[..., Member]


@pytest.fixture
def start(program: Path, broker: BrokerProcess) -> Iterator[Start]:
    """Give a function that starts a member; all end with the test."""
    started: list[Member] = []

    def begin(topics: str, *options: str) -> Member:
        started.append(Member(program, broker, topics, *options))
        return started[-1]

    yield begin
    for member in started:
        if member.process.poll() is None:
            member.kill()


def create(broker: BrokerProcess, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def send(broker: BrokerProcess, topic: str, count: int) -> None:
    """Send the numbers of the offsets to partition 0."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0


class Load:
    """A producer that continues until it is stopped; each record has its own number."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self.topic = topic
        self.sent = 0
        self.ending = threading.Event()
        # A daemon, so that a test that fails before `end` does not keep the process alive.
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.ending.wait(0.02):
            for _ in range(5):
                self.producer.produce(self.topic, str(self.sent), partition=self.sent % PARTITIONS)
                self.sent += 1
            self.producer.poll(0)

    def end(self) -> set[str]:
        """Return all values."""
        self.ending.set()
        self.thread.join()
        assert self.producer.flush(PATIENCE_S) == 0
        return {str(number) for number in range(self.sent)}


def read_by(*members: Member) -> Counter[str]:
    """How often each value was read."""
    return Counter(record[3] for member in members for record in member.records)


def owners(*members: Member) -> list[int]:
    """The number of partitions of each member; empty while a partition seems to have two owners.

    The output of members is read from several pipes, so that the new owner may be known before the old one has said
    that it gave the partition up, or lost it.
    """
    owned = [list(member.owned) for member in members]
    together = [each for some in owned for each in some]
    if len(together) != len(set(together)):
        return []
    return sorted(map(len, owned))


def has_caught_up(broker: BrokerProcess) -> bool:
    """Whether each member has reached the epoch of the group, if it is one of the consumer protocol.

    When the last member of the new protocol leaves, the group becomes a classic one whose generation is that epoch, as in
    Apache Kafka, and refuses the commits of members that are behind (ClassicGroup.fromConsumerGroup).
    """
    host, port = broker.bootstrap.rsplit(":", 1)
    asked = {"group_ids": ["g"], "include_authorized_operations": False}
    with closing(WireClient(host, int(port))) as client:
        answer = client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, asked)
    assert answer is not None
    [group] = answer["groups"]
    if group["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND:  # a classic group
        return True
    assert group["error_code"] == 0, group
    return all(each["member_epoch"] == group["group_epoch"] for each in group["members"])


@compat("franz-go", "groups: rebalances under load")
def test_members_come_and_go_under_load_and_each_record_is_read_once(
    broker: BrokerProcess, start: Start
) -> None:
    create(broker, "t")
    load = Load(broker, "t")
    first, second = start("t"), start("t")
    wait_until(lambda: owners(first, second) == [3, 3], "two share")
    third = start("t")
    wait_until(lambda: owners(first, second, third) == [2, 2, 2], "three share")
    first.leave()
    wait_until(lambda: owners(second, third) == [3, 3], "two have the share of the first")
    values = load.end()
    members = first, second, third
    wait_until(lambda: len(read_by(*members)) == len(values), "all is read")
    assert read_by(*members) == Counter(values)


@compat("franz-go", "groups: regex subscription")
def test_a_regular_expression_follows_new_topics(broker: BrokerProcess, start: Start) -> None:
    create(broker, "a-1", 1)
    create(broker, "other-a-1", 1)
    member = start("^a-.*", "-regex")
    wait_until(lambda: member.owned, "the first topic")
    create(broker, "other", 1)
    create(broker, "a-2", 1)
    wait_until(lambda: len(member.owned) > 1, "the second topic")
    assert member.owned == {("a-1", 0), ("a-2", 0)}
    assert member.taken == []
    for topic in ("a-1", "a-2", "other"):
        send(broker, topic, 3)
    wait_until(lambda: len(member.records) >= 6, "the records of both")
    member.leave()
    expected = [(topic, 0, offset, str(offset)) for topic in ("a-1", "a-2") for offset in range(3)]
    assert sorted(member.records) == expected


@compat("franz-go", "groups: static membership")
@pytest.mark.parametrize("broker", [6_000], indirect=True)
def test_a_static_member_comes_back_when_its_session_has_ended(
    broker: BrokerProcess, start: Start
) -> None:
    """franz-go 1.22.2 leaves without its instance id, which Apache Kafka also refuses (compat/franz-go/FINDINGS.md)."""
    create(broker, "t")
    load = Load(broker, "t")
    first, second = start("t", "-instance=one"), start("t", "-instance=two")
    wait_until(lambda: owners(first, second) == [3, 3], "two share")
    second.leave()
    again = start("t", "-instance=two")
    wait_until(lambda: owners(first, again) == [3, 3], "two share again")
    values = load.end()
    members = first, second, again
    wait_until(lambda: len(read_by(*members)) == len(values), "all is read")
    assert read_by(*members) == Counter(values)
    assert again.records


@compat("franz-go", "groups: change of protocol, in order")
def test_a_group_changes_its_protocol_under_load_and_each_record_is_read_once(
    broker: BrokerProcess, start: Start
) -> None:
    """A rolling change of three members, to the consumer protocol and back."""
    create(broker, "t")
    load = Load(broker, "t")
    everyone = [start("t", "-classic") for _ in range(3)]
    present = list(everyone)
    wait_until(lambda: owners(*present) == [2, 2, 2], "three share")
    for options in ((), ("-classic",)):
        for _ in range(3):
            present.pop(0).leave()
            everyone.append(start("t", *options))
            present.append(everyone[-1])
            wait_until(
                lambda: owners(*present) == [2, 2, 2] and has_caught_up(broker),
                f"three share, {options}",
            )
    values = load.end()
    wait_until(lambda: len(read_by(*everyone)) == len(values), "all is read")
    assert read_by(*everyone) == Counter(values)


@compat("franz-go", "groups: members and broker killed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("broker", [6_000], indirect=True)
@pytest.mark.parametrize(
    "options",
    [(), ("-classic",), ("-instance",)],
    ids=["consumer", "classic", "static"],
)
def test_members_and_the_broker_are_killed_and_nothing_is_left_out(
    broker: BrokerProcess, start: Start, options: tuple[str, ...]
) -> None:
    """A record may be read twice only where a member had read it and could not commit."""

    def another() -> Member:
        words = [
            f"{each}=i{len(everyone) % 3}" if each == "-instance" else each for each in options
        ]
        everyone.append(start("t", *words))
        return everyone[-1]

    create(broker, "t")
    load = Load(broker, "t")
    everyone: list[Member] = []
    present = [another() for _ in range(3)]
    wait_until(lambda: owners(*present) == [2, 2, 2], "three share")
    for _ in range(3):
        present.pop(0).kill()
        present.append(another())
        time.sleep(1)
        broker.kill()
        broker.start()
    wait_until(lambda: owners(*present) == [2, 2, 2], "three share again")
    values = load.end()
    wait_until(lambda: set(read_by(*everyone)) >= values, "all is read")
    # 200 records at a time are read before they are committed, once for each kill and partition.
    twice = sum(count - 1 for count in read_by(*everyone).values())
    assert twice <= 6 * 2 * 200 * 3
