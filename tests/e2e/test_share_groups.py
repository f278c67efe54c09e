"""Share groups (KIP-932) with the Java client and the tools of Apache Kafka 4.3.0."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from kwire.api import ApiKey
from tests.support.broker_process import BrokerProcess, KwireBroker
from tests.support.kafka import KAFKA_4
from tests.support.kafka_tools import ToolServers
from tests.support.kwire_cluster import KwireCluster
from tests.support.share_members import ShareMember
from tests.support.wire_client import WireClient

from ..support.polling import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.timeout(600)]


def compat(feature: str) -> pytest.MarkDecorator:
    return pytest.mark.compat(f"java-clients {KAFKA_4}", f"share groups: {feature}")


GROUP_TYPE = 32
SETTINGS: Mapping[str, str] = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "2000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
#: Of groups whose members are killed, or whose locks end: soon. All others last so long that no member of a busy machine
#: is late.
LOCK_MS = 4000
BRIEF: Mapping[str, str] = {
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.session.timeout.ms": "4000",
}

Join = Callable[[str], ShareMember]


class Setting:
    """A topic and a share group that reads it, from its beginning if `port` is that of a broker with configs of groups."""

    def __init__(
        self, bootstrap: str, port: int | None, name: str, folder: Path, stack: ExitStack
    ) -> None:
        self.bootstrap, self.name, self.folder, self.stack = bootstrap, name, folder, stack
        self.members: list[ShareMember] = []
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(name, 2)]).values():
            made.result(30)
        self.port = port
        if port is not None:
            self.configure({"share.auto.offset.reset": "earliest"})

    def configure(self, configs: Mapping[str, str]) -> None:
        """Set configs of the group."""
        assert self.port is not None
        rows = [
            {"name": key, "config_operation": 0, "value": value} for key, value in configs.items()
        ]
        resource = {"resource_type": GROUP_TYPE, "resource_name": self.name, "configs": rows}
        with closing(WireClient("127.0.0.1", self.port)) as client:
            answer = client.call(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                1,
                {"resources": [resource], "validate_only": False},
            )
        assert answer is not None
        assert not answer["responses"][0]["error_code"], answer

    def produce(self, values: list[str]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": "5"})
        failed = []
        for number, value in enumerate(values):
            producer.produce(
                self.name,
                value.encode(),
                partition=number % 2,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        assert not failed

    def join(self, **settings: str) -> ShareMember:
        log = self.folder / f"{self.name}-{len(self.members)}.log"
        member = ShareMember(log, self.bootstrap, self.name, self.name, **settings)
        self.members.append(member)
        self.stack.callback(member.close)
        return member

    def done(self) -> set[tuple[int, int]]:
        return {each for member in self.members for each in member.done()}

    def wait_for_done(self, wanted: set[tuple[int, int]], timeout_s: float = 60.0) -> None:
        """Wait until the members know that exactly these records are done. Errors: AssertionError with the history."""

        def story() -> str:
            missing = (
                f"missing {sorted(wanted - self.done())}, too many {sorted(self.done() - wanted)}"
            )
            return "\n".join([missing, *(member.story() for member in self.members)])

        wait_until(lambda: self.done() == wanted, story, timeout_s)

    def counts(self) -> Counter[tuple[int, int]]:
        return Counter(
            (each.partition, each.offset) for member in self.members for each in member.got()
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with KwireBroker(tmp_path_factory.mktemp("share"), config=SETTINGS) as broker:
        yield broker


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def setting(
    request: pytest.FixtureRequest, broker: BrokerProcess, tmp_path: Path, stack: ExitStack
) -> Setting:
    name = request.node.name.removeprefix("test_")[:60]
    return Setting(broker.bootstrap, broker.port, name, tmp_path, stack)


def described(output: str, topic: str) -> dict[str, tuple[str, str]]:
    """The start offset and the lag of each partition of a topic, as kafka-share-groups shows them."""
    rows = [line.split() for line in output.splitlines()]
    return {row[2]: (row[3], row[4]) for row in rows if row[1:2] == [topic]}


def lags(broker: BrokerProcess, name: str) -> list[int]:
    """The number of records of each partition of a group's topic that are not done; empty if not the coordinator."""
    asked = {"groups": [{"group_id": name, "topics": None}]}
    with closing(WireClient("127.0.0.1", broker.port)) as client:
        answer = client.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked)
    assert answer is not None
    rows = (row for topic in answer["groups"][0]["topics"] for row in topic["partitions"])
    return [row["lag"] for row in rows]


def offsets(count: int) -> set[tuple[int, int]]:
    return {(number % 2, number // 2) for number in range(count)}


@compat("deliveries")
def test_two_members_get_each_record_once(setting: Setting) -> None:
    setting.produce([f"v{number}" for number in range(1000)])
    setting.join()
    setting.join()
    setting.wait_for_done(offsets(1000))
    assert set(setting.counts().values()) == {1}
    assert {each.count for member in setting.members for each in member.got()} == {1}
    for member in setting.members:
        assert member.finish() == 0
        assert member.lines()[-1] == "closed"


@compat("deliveries again, limits")
def test_released_records_come_again_and_rejected_ones_do_not(setting: Setting) -> None:
    """With the number of their delivery; after five, the limit, a record is archived."""
    values = ["v", "reject", "release 1 x", "release 3 x", "release 9 x", "v"]
    setting.produce(values)
    member = setting.join()
    wait_until(lambda: sum(setting.counts().values()) == 2 + 1 + 2 + 4 + 5, "all deliveries")
    setting.produce(["end", "end"])
    wait_until(lambda: {(0, 3), (1, 3)} <= setting.done(), "the end")
    assert [each.count for each in member.got() if each.value == "release 3 x"] == [1, 2, 3, 4]
    assert [each.count for each in member.got() if each.value == "release 9 x"] == [1, 2, 3, 4, 5]
    assert setting.done() == offsets(8) - {(0, 2)}


@compat("members killed")
def test_records_of_a_killed_member_come_again_when_their_lock_ends(setting: Setting) -> None:
    setting.configure(BRIEF)
    setting.produce(["hold", "v", "v", "v"])
    member = setting.join()
    wait_until(lambda: "holding" in member.lines(), "the member to hold a record")
    member.kill()
    setting.produce(["later", "later"])
    setting.join()
    setting.wait_for_done(offsets(6))
    held = {(each.partition, each.offset): each.count for each in setting.members[1].got()}
    assert set(held.values()) <= {1, 2}
    assert 2 in held.values()


def test_lock_that_is_renewed_past_its_end_keeps_the_record(
    setting: Setting, broker: BrokerProcess
) -> None:
    """Records are renewed (KIP-1222) for longer than a lock lasts, and accepted: no member gets them again, not even
    the owner.
    """
    setting.configure(BRIEF)
    owner = setting.join()
    setting.produce([f"renew {LOCK_MS + 500}", f"renew {LOCK_MS + 500}", "v", "v"])
    wait_until(lambda: len(owner.renewed()) == 2, "renewals", 120)
    others = setting.join()
    setting.produce(["later"] * 20)
    setting.wait_for_done(offsets(24), 120)
    held = offsets(2)
    assert {(each.partition, each.offset) for each in others.got()}.isdisjoint(held)
    for key in held:
        renewals = owner.renewed()[key]
        # The client hands a renewed record out again, as the delivery that it is.
        assert renewals >= 2
        assert [each.count for each in owner.got() if each[:2] == key] == [1] * (renewals + 1)
    assert set(setting.counts().values()) == {1, *(owner.renewed()[key] + 1 for key in held)}
    assert not [each for member in setting.members for each in member.lines() if "failed" in each]
    wait_until(lambda: lags(broker, setting.name) == [0, 0], "nothing left")


@compat("broker killed")
def test_killed_broker_forgets_no_acknowledgement_and_loses_no_record(
    setting: Setting, broker: BrokerProcess
) -> None:
    """Acknowledged records are not delivered again; the counts of the others continue."""
    values = [f"release {number % 3} {number}" for number in range(690)]
    setting.produce(values[:600])
    few = {"max_poll_records": "20", "share_acquire_mode": "record_limit"}
    setting.join(**few)
    setting.join(**few)

    def deliveries() -> int:
        return setting.counts().total()

    for kills, already in enumerate((100, 300, 500)):
        wait_until(lambda already=already: deliveries() > already, "records", 120)  # type: ignore[misc]
        broker.kill()
        before, count = setting.done(), deliveries()
        seen = [len(member.got()) for member in setting.members]
        broker.start()
        # More records, since the members may have been done with all of them before the kill.
        more = 600 + 30 * kills
        setting.produce(values[more : more + 30])
        wait_until(lambda count=count: deliveries() > count, "a restart", 120)  # type: ignore[misc]
        for member, number in zip(setting.members, seen, strict=True):
            again = {(each.partition, each.offset) for each in member.got()[number:]}
            assert not again & before
    # Members do not learn of acknowledgements that were stored just before a kill.
    wait_until(lambda: lags(broker, setting.name) == [0, 0], "all records", 120)
    assert set(setting.counts()) == offsets(len(values))
    most = {}
    for member in setting.members:
        for each in member.got():
            key = each.partition, each.offset
            most[key] = max(most.get(key, 0), each.count)
    counts = setting.counts()
    for key, count in most.items():
        number = 2 * key[1] + key[0]
        assert number % 3 < count <= 5
        # A delivery whose release was not stored when the broker was killed counts for the members only.
        assert count <= counts[key]


@pytest.mark.compat(f"java-tools {KAFKA_4}", "tools")
def test_console_share_consumer_and_share_groups_tool(
    setting: Setting, broker: BrokerProcess, tool_servers: ToolServers
) -> None:
    """kafka-console-share-consumer.sh and kafka-share-groups.sh of 4.3.0."""
    tools, name = tool_servers(KAFKA_4), setting.name

    def run(tool: str, *arguments: str) -> str:
        result = tools.run(tool, "--bootstrap-server", broker.bootstrap, *arguments)
        assert result.status == 0, result
        return result.output

    setting.produce([f"v{number}" for number in range(20)])
    shown = run(
        "kafka-console-share-consumer",
        *("--topic", name, "--group", name, "--max-messages", "20", "--timeout-ms", "30000"),
    )
    assert sorted(shown.split()) == sorted(f"v{number}" for number in range(20))
    assert name in run("kafka-share-groups", "--list").split()
    assert f"{name} Empty" in " ".join(run("kafka-share-groups", "--list", "--state").split())
    assert "Share" in run("kafka-groups", "--list")
    of_group = ("--group", name)

    def found() -> dict[str, tuple[str, str]]:
        """The start offset and the lag of each partition."""
        return described(run("kafka-share-groups", "--describe", *of_group), name)

    wait_until(lambda: [lag for _, lag in found().values()] == ["0", "0"], "acknowledgements", 30)
    assert "Empty" in run("kafka-share-groups", "--describe", *of_group, "--state")
    to_earliest = ("--reset-offsets", *of_group, "--topic", name, "--to-earliest", "--execute")
    run("kafka-share-groups", *to_earliest)
    assert found() == {"0": ("0", "10"), "1": ("0", "10")}
    member = setting.join()
    setting.wait_for_done(offsets(20))
    assert f"{name}:0,1" in run("kafka-share-groups", "--describe", *of_group, "--members")
    assert "Stable" in run("kafka-share-groups", "--describe", *of_group, "--state")
    assert member.finish() == 0
    run("kafka-share-groups", "--delete-offsets", *of_group, "--topic", name)
    assert found() == {}
    run("kafka-share-groups", "--delete", *of_group)
    assert name not in run("kafka-share-groups", "--list").split()


def note_leaders(bootstrap: str, leaders: list[set[int]]) -> None:
    """Add the current leaders of the partitions of `moving`."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics("moving", 30)
    for number, row in found.topics["moving"].partitions.items():
        leaders[number].add(row.leader)


def ends(bootstrap: str, topic: str) -> list[int]:
    """The number of records in each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(2)}
    return [each.result(30).offset for each in admin.list_offsets(asked).values()]


@compat("leaders killed, with ZooKeeper")
@pytest.mark.timeout(1200)
def test_leaders_move_between_brokers(tmp_path: Path, stack: ExitStack) -> None:
    """With ZooKeeper and three kwire brokers, each of which is killed once, and has led a partition.

    Each partition has had other leaders; records accepted before a kill are not delivered after it, and at the end the
    group is done with all records.
    """
    locks = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(LOCK_MS),
    }
    cluster = KwireCluster(tmp_path / "cluster", settings=locks)
    stack.callback(cluster.stop)
    cluster.start()
    setting = Setting(cluster.bootstrap, None, "moving", tmp_path, stack)
    setting.join()
    setting.join()

    def has_begun() -> bool:
        """Each share partition begins behind the last record that was there when it was first fetched."""
        setting.produce(["begin", "begin"])
        time.sleep(1)
        return {partition for partition, _ in setting.done()} == {0, 1}

    wait_until(has_begun, "both partitions", 120)
    values: set[str] = set()

    def accepted() -> set[str]:
        done = setting.done()
        got = (each for member in setting.members for each in member.got())
        return {each.value for each in got if (each.partition, each.offset) in done}

    def is_done() -> bool:
        """Acknowledgements just before a leader's death are stored, though the member does not learn it; the records do
        not come again.
        """
        if values <= accepted():
            return True
        got = {each.value for member in setting.members for each in member.got()}
        return values <= got and nothing_left()

    def nothing_left() -> bool:
        running = [each for each in cluster.brokers if each.process is not None]
        return [0, 0] in [lags(each, "moving") for each in running]

    def story(what: str) -> str:
        missing = sorted(values - accepted())
        return "\n".join(
            [f"{what} the kill, missing {missing}", *(m.story() for m in setting.members)]
        )

    leaders: list[set[int]] = [set(), set()]
    for number, broker in enumerate(cluster.brokers):
        for what in ("before", "after"):
            if what == "after":
                done = setting.done()
                seen = [len(member.got()) for member in setting.members]
                broker.kill()
            more = [f"{what} {number} {each}" for each in range(100)]
            setting.produce(more)
            values.update(more)
            wait_until(is_done, lambda what=what: story(what), 120)  # type: ignore[misc]
            note_leaders(cluster.bootstrap, leaders)
        for member, begin in zip(setting.members, seen, strict=True):
            assert not {each[:2] for each in member.got()[begin:]} & done
        broker.start()
        asked = (number + 1) % 3
        wait_until(
            lambda asked=asked: cluster.in_sync(asked, "moving") == [3, 3],  # type: ignore[misc]
            "all in sync",
            180,
        )
    assert all(len(each) >= 2 for each in leaders), leaders
    wait_until(nothing_left, "nothing left", 120)
    counts = setting.counts()
    for member in setting.members:
        for each in member.got():
            # Each counted delivery reached a member; no record was archived undelivered.
            assert 1 <= each.count <= counts[each[:2]]
    for number, end in enumerate(ends(cluster.bootstrap, "moving")):
        delivered = sorted(offset for partition, offset in counts if partition == number)
        assert delivered == list(range(delivered[0], end))
