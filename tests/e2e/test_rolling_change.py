"""Groups under load whose members change from the classic protocol to the consumer protocol (KIP-848) and back, one after another.

Three groups read at once: one with dynamic members, one with static ones, one with a regular expression, to which a topic is added
on the way. KWIRE_LONG=1 changes 20 times, KWIRE_CHANGES=N N times; KWIRE_SEED=N chooses when members and the broker are killed.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.api import ApiKey

from ..support.broker_process import BrokerProcess, KwireBroker
from ..support.group_members import (
    JAVA,
    RDKAFKA,
    Host,
    Load,
    Member,
    Partition,
    Place,
    check_reading,
    command,
)
from ..support.kafka import KAFKA_4
from ..support.polling import wait_until
from ..support.wire_client import WireClient

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
CHANGES = int(os.environ.get("KWIRE_CHANGES", 20 if LONG else 2))
SEED = int(os.environ.get("KWIRE_SEED", 17))

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 120 * CHANGES),
]

MEMBERS = 3
FIRST, SECOND = "load-a", "load-b"
TOPICS = {FIRST: 6, SECOND: 3}
CLASSIC, CONSUMER = "classic", "consumer"
BEATS = ("group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms")
SESSIONS = ("group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms")
#: Killed processes' members are removed after this time; where all leave cleanly, none may be removed by mistake.
SHORT_MS, LONG_MS = "3000", "45000"

#: Those of the dynamic, the static and the members with a regular expression. Why librdkafka's "cooperative-sticky" is not here:
#: compat/confluent-kafka/FINDINGS.md.
_JAVA_ASSIGNORS = "org.apache.kafka.clients.consumer."
ASSIGNORS = {
    RDKAFKA: ("roundrobin", "range", "roundrobin"),
    JAVA: (
        f"{_JAVA_ASSIGNORS}CooperativeStickyAssignor",
        f"{_JAVA_ASSIGNORS}RangeAssignor",
        f"{_JAVA_ASSIGNORS}CooperativeStickyAssignor",
    ),
}


def clients(feature: str) -> pytest.MarkDecorator:
    """Run a test with both clients."""
    names = {RDKAFKA: RDKAFKA, JAVA: f"{JAVA} {KAFKA_4}"}
    needs = {RDKAFKA: [], JAVA: [pytest.mark.jvm]}
    return pytest.mark.parametrize(
        "client",
        [
            pytest.param(client, marks=[pytest.mark.compat(name, feature), *needs[client]])
            for client, name in names.items()
        ],
    )


class Group:
    """A group: its members, by their places, and all earlier members."""

    def __init__(self, scene: Scene, name: str, topics: str, assignor: str) -> None:
        self.scene, self.name, self.topics = scene, name, topics
        self.assignor = assignor
        self.protocols = [CLASSIC] * MEMBERS
        self.present: dict[int, Member] = {}
        self.everyone: list[Member] = []

    @property
    def is_static(self) -> bool:
        return self.name == "static"

    def start(self, place: int) -> None:
        """Start the member of a place, instead of one that was killed if there is one."""
        scene = self.scene
        settings = {
            "bootstrap.servers": scene.broker.bootstrap,
            "group.id": self.name,
            "group.protocol": self.protocols[place],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "reconnect.backoff.max.ms": "200",
            "metadata.max.age.ms": "1000",
        }
        if scene.client == RDKAFKA:
            settings["topic.metadata.refresh.interval.ms"] = "500"
        if self.is_static:
            settings["group.instance.id"] = f"i{place}"
        if self.protocols[place] == CLASSIC:
            settings["session.timeout.ms"] = scene.session_ms
            settings["heartbeat.interval.ms"] = "300"
            settings["partition.assignment.strategy"] = self.assignor
        name = f"{self.name}-{len(self.everyone)}"
        self.present[place] = scene.host_of(place).start(name, self.topics, settings)
        self.everyone.append(self.present[place])

    def ask_to_leave(self, place: int) -> Member:
        member = self.present.pop(place)
        # A classic member that stayed would keep the instance id from one of the other protocol until its session ended.
        for_good = self.is_static and self.protocols[place] == CLASSIC
        self.scene.host_of(place).leave(member, for_good=for_good)
        return member

    def is_shared(self) -> bool:
        """Whether each partition has one owner, and all members have the same number."""
        members = self.present.values()
        owned = sorted(each for member in members for each in list(member.owned))
        if len({len(member.owned) for member in members}) != 1:
            return False
        return owned in (self.scene.known(FIRST), self.scene.known(self.topics))

    def has_second_topic(self) -> bool:
        return any(
            topic == SECOND for each in self.present.values() for topic, _ in list(each.owned)
        )

    def has_read(self, wanted: Mapping[Place, str]) -> bool:
        """Whether all was read, and is committed."""
        read = {place for member in self.everyone for place, _ in list(member.read)}
        is_open = any(each for member in self.everyone for each in list(member.open.values()))
        return read >= wanted.keys() and not is_open

    def state(self) -> str:
        """The output of a failed test."""
        lines = [
            f"{each.name}: {sorted(each.owned)} {each.story[-20:]}"
            for each in self.present.values()
        ]
        return "\n".join([f"{self.name}, {self.protocols}, seed {SEED}", *lines])


class Scene:
    """A broker with load, and three groups whose members are in one process or two."""

    def __init__(
        self,
        client: str,
        broker: BrokerProcess,
        folder: Path,
        session_ms: str,
        processes: int,
    ) -> None:
        self.client, self.broker, self.folder = client, broker, folder
        self.program = command(client)
        self.session_ms = session_ms
        self.killed = Counter[str]()
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self.topics: list[str] = []
        self.add_topic(FIRST)
        self.load = Load(broker.bootstrap, self.known(FIRST))
        self.hosts = [self.host() for _ in range(processes)]
        self.groups = [
            Group(self, name, topics, assignor)
            for name, topics, assignor in zip(
                ("dynamic", "static", "regex"),
                (FIRST, FIRST, "^load-.*"),
                ASSIGNORS[client],
                strict=True,
            )
        ]

    def host(self) -> Host:
        return Host(self.program, self.folder / "errors.log")

    def host_of(self, place: int) -> Host:
        return self.hosts[place // 2 % len(self.hosts)]

    def add_topic(self, topic: str) -> None:
        self.admin.create_topics([NewTopic(topic, TOPICS[topic], 1)])[topic].result(30)
        self.topics.append(topic)

    def add_second_topic(self) -> None:
        """Add the topic that the regular expression finds, with load."""
        self.add_topic(SECOND)
        self.load.partitions = self.known("^")

    def wait_for_second_topic(self) -> None:
        regex = self.groups[2]
        wait_until(regex.has_second_topic, regex.state)
        self.settle()

    def known(self, topics: str) -> list[Partition]:
        """The partitions of a topic, or of all."""
        names = self.topics if topics.startswith("^") else [topics]
        return [(name, partition) for name in names for partition in range(TOPICS[name])]

    def leave(self, place: int) -> None:
        """Let the members of a place leave, and wait until they have."""
        left = [
            (group, group.ask_to_leave(place)) for group in self.groups if place in group.present
        ]
        for group, member in left:
            wait_until(lambda member=member: member.has_left, group.state)  # type: ignore[misc]
            if self.client == RDKAFKA and group.is_static and group.protocols[place] == CLASSIC:
                self.remove(group.name, f"i{place}")

    def remove(self, group: str, instance: str) -> None:
        """Remove a static member as an operator does: librdkafka's cannot leave for good."""
        asked = {"group_id": group, "members": [{"member_id": "", "group_instance_id": instance}]}
        with closing(WireClient("127.0.0.1", self.broker.port)) as client:
            wait_until(
                lambda: (client.call(ApiKey.LEAVE_GROUP, 5, asked) or {})["error_code"] == 0,
                lambda: f"cannot remove {instance} of {group}",
            )

    def start(self, place: int) -> None:
        for group in self.groups:
            group.start(place)

    def settle(self) -> None:
        """Wait until each group has shared its partitions, and all of its members know."""
        for group in self.groups:
            wait_until(lambda group=group: group.is_shared() and self.is_stable(group), group.state)  # type: ignore[misc]

    def is_stable(self, group: Group) -> bool:
        return self.listed().get(group.name, ("", ""))[1] == "Stable"

    def listed(self) -> dict[str, tuple[str, str]]:
        """The type and the state of each group."""
        with closing(WireClient("127.0.0.1", self.broker.port, timeout_s=60)) as client:
            answer = client.call(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
        assert answer is not None
        return {
            each["group_id"]: (each["group_type"], each["group_state"]) for each in answer["groups"]
        }

    def kill_members(self, number: int) -> None:
        """Kill one of the two processes, and start its members again."""
        self.killed["processes"] += 1
        self.hosts[number].kill()
        self.hosts[number] = self.host()
        for group in self.groups:
            for place in list(group.present):
                if place // 2 == number:
                    self.killed["members"] += 1
                    group.start(place)

    def kill_broker(self) -> None:
        self.killed["broker"] += 1
        self.broker.kill()
        self.broker.start()

    def change(self, protocol: str, kills: Mapping[int, Callable[[], None]] = {}) -> None:
        """Change the protocol of all members, one after another; `kills` are done before the steps with their numbers."""
        step = itertools.count()
        for place in range(MEMBERS):
            kills.get(next(step), nothing)()
            self.leave(place)
            for group in self.groups:
                group.protocols[place] = protocol
            kills.get(next(step), nothing)()
            self.start(place)
            kills.get(next(step), nothing)()
            self.settle()
        types = {name: kind for name, (kind, _) in self.listed().items()}
        assert types == dict.fromkeys((each.name for each in self.groups), protocol)

    def finish(self) -> int:
        """End the load, let all members read to the end and leave, and check the records; return the number of repeated
        ones.
        """
        self.wait_for_second_topic()
        regex = self.groups[2]
        acknowledged = self.load.end()
        again = 0
        for group in self.groups:
            wanted = {
                place: value
                for place, value in acknowledged.items()
                if place.topic == FIRST or group is regex
            }
            wait_until(lambda group=group, wanted=wanted: group.has_read(wanted), group.state)  # type: ignore[misc]
            again += check_reading(group.everyone, wanted)
        for place in range(MEMBERS):
            self.leave(place)
        self.check_committed(acknowledged)
        return again

    def check_committed(self, acknowledged: Mapping[Place, str]) -> None:
        """The committed offset of each group is the end of each partition."""
        ends = Counter((place.topic, place.partition) for place in acknowledged)
        for group in self.groups:
            asked = ConsumerGroupTopicPartitions(group.name)
            stored = self.admin.list_consumer_group_offsets([asked])[group.name].result(30)
            found = {(each.topic, each.partition): each.offset for each in stored.topic_partitions}
            assert found == {key: ends[key] for key in self.known(group.topics)}

    def close(self) -> None:
        self.load.ending.set()
        self.load.thread.join()
        for host in self.hosts:
            host.kill()


def nothing() -> None:
    """No kill."""


Begin = Callable[[str, str, int], Scene]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Give a function that makes a scene: the client, the time after which a silent member is removed, and the number
    of processes.
    """
    with ExitStack() as stack:

        def make(client: str, session_ms: str, processes: int) -> Scene:
            config = dict.fromkeys(BEATS, "300") | dict.fromkeys(SESSIONS, session_ms)
            config["group.initial.rebalance.delay.ms"] = "100"
            broker = stack.enter_context(KwireBroker(tmp_path / "broker", config=config))
            scene = Scene(client, broker, tmp_path, session_ms, processes)
            stack.callback(scene.close)
            for place in range(MEMBERS):
                scene.start(place)
            scene.settle()
            return scene

        yield make


@clients("groups: change of protocol, in order")
def test_each_record_is_read_once_where_members_leave_in_order(begin: Begin, client: str) -> None:
    scene = begin(client, LONG_MS, 1)
    scene.add_second_topic()
    # As in Apache Kafka, a member that has not reached the group's epoch when the last member of the consumer protocol
    # leaves is fenced.
    scene.wait_for_second_topic()
    for number in range(CHANGES):
        scene.change((CONSUMER, CLASSIC)[number % 2])
    again = scene.finish()
    print(f"{CHANGES} changes, {len(scene.load.acknowledged)} records, {again} again")
    everyone = [member for group in scene.groups for member in group.everyone]
    unsure = [(each.name, each.story) for each in everyone if each.unsure]
    assert not unsure, "\n".join(f"{name} {line}" for name, story in unsure for line in story)


@clients("groups: change of protocol, members and broker killed")
def test_nothing_is_left_out_where_members_and_the_broker_are_killed(
    begin: Begin, client: str
) -> None:
    """A record is read again only if a member had read it and could not know that its commit was stored."""
    scene = begin(client, SHORT_MS, 2)
    rng = random.Random(SEED)
    for number in range(CHANGES):
        if number == 0:
            scene.add_second_topic()
        members, broker = rng.sample(range(3 * MEMBERS), 2)
        process = rng.randrange(2)
        kills = {members: lambda process=process: scene.kill_members(process)}  # type: ignore[misc]
        scene.change((CONSUMER, CLASSIC)[number % 2], kills | {broker: scene.kill_broker})
    again = scene.finish()
    # Each of a change's steps occurs, so each kill was done. A process may have had no member just then.
    assert (scene.killed["processes"], scene.killed["broker"]) == (CHANGES, CHANGES)
    print(
        f"{CHANGES} changes, {dict(scene.killed)}, {len(scene.load.acknowledged)} records, {again} again"
    )
