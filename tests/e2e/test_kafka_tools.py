"""Apache Kafka's own command-line tools, of 3.9.2 and of 4.3.0, unmodified, against a whole broker."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ..support.broker_process import BrokerProcess
from ..support.kafka import KAFKA_3, KAFKA_4
from ..support.kafka_tools import ToolServer, ToolServers

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

Tool = Callable[..., str]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(version, marks=pytest.mark.compat(f"java-tools {version}", "tools"))
        for version in (KAFKA_3, KAFKA_4)
    ],
)
def tools(request: pytest.FixtureRequest, tool_servers: ToolServers) -> ToolServer:
    """Give one release's tools."""
    return tool_servers(request.param)


@pytest.fixture
def tool(tools: ToolServer, broker: BrokerProcess) -> Tool:
    """Give a function that runs a tool on the broker and returns its output if it succeeded."""
    return tool_of(tools, broker)


@pytest.fixture
def tool_of_4(tool_servers: ToolServers, broker: BrokerProcess) -> Tool:
    """Give the same for features of 4.3.0's tools."""
    return tool_of(tool_servers(KAFKA_4), broker)


def tool_of(tools: ToolServer, broker: BrokerProcess) -> Tool:
    def run(name: str, *arguments: str, text: str = "", status: int = 0) -> str:
        result = tools.run(name, "--bootstrap-server", broker.bootstrap, *arguments, text=text)
        assert result.status == status, (result.output, result.errors)
        return result.output if status == 0 else result.output + result.errors

    return run


@pytest.fixture
def topic(tool: Tool, name: str) -> str:
    """Give a topic of two partitions."""
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "2")
    return name


def words(output: str, start: str) -> list[list[str]]:
    """Return the words of each line that begins with start."""
    return [line.split() for line in output.splitlines() if line.startswith(start)]


def produce(tool: Tool, topic: str, lines: list[str]) -> None:
    """Write `key:value` lines with the console producer."""
    properties = ("--property", "parse.key=true", "--property", "key.separator=:")
    tool("kafka-console-producer", "--topic", topic, *properties, text="\n".join(lines) + "\n")


def consume(tool: Tool, topic: str, count: int, *arguments: str) -> list[str]:
    """Read count `key:value` lines with the console consumer."""
    output = tool(
        *("kafka-console-consumer", "--topic", topic, "--max-messages", str(count)),
        *("--property", "print.key=true", "--property", "key.separator=:"),
        *("--timeout-ms", "60000", *arguments),
    )
    return sorted(line for line in output.splitlines() if ":" in line and "--" not in line)


def test_topic_is_created_described_grown_listed_and_deleted(tool: Tool, name: str) -> None:
    """kafka-topics, and its refusals."""
    config = ("--config", "retention.ms=86400000", "--config", "cleanup.policy=compact,delete")
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "2", *config)
    described = tool("kafka-topics", "--describe", "--topic", name)
    assert "PartitionCount: 2" in described and "ReplicationFactor: 1" in described
    assert "retention.ms=86400000" in described
    assert len(re.findall(r"Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 2
    again = tool("kafka-topics", "--create", "--topic", name, status=1)
    assert f"Topic '{name}' already exists" in again
    tool("kafka-topics", "--create", "--topic", name, "--if-not-exists")
    tool("kafka-topics", "--alter", "--topic", name, "--partitions", "4")
    assert "PartitionCount: 4" in tool("kafka-topics", "--describe", "--topic", name)
    fewer = tool("kafka-topics", "--alter", "--topic", name, "--partitions", "3", status=1)
    assert "InvalidPartitionsException" in fewer
    two = tool(
        "kafka-topics", "--create", "--topic", name + "2", "--replication-factor", "2", status=1
    )
    assert "InvalidReplicationFactorException" in two
    assert name in tool("kafka-topics", "--list").split()
    tool("kafka-topics", "--delete", "--topic", name)
    assert name not in tool("kafka-topics", "--list").split()
    gone = tool("kafka-topics", "--describe", "--topic", name, status=1)
    assert "does not exist as expected" in gone


def test_unavailable_and_under_replicated_lists_are_empty(tool: Tool, topic: str) -> None:
    """The filters of kafka-topics --describe."""
    for choice in (
        "--unavailable-partitions",
        "--under-replicated-partitions",
        "--at-min-isr-partitions",
    ):
        shown = tool("kafka-topics", "--describe", "--topic", topic, choice)
        assert (topic in shown) == (choice == "--at-min-isr-partitions")


def test_console_consumer_reads_what_the_console_producer_wrote(tool: Tool, topic: str) -> None:
    """From the beginning, from one partition's offset, and in a group that reads on."""
    lines = [f"k{number}:value {number}" for number in range(50)]
    produce(tool, topic, lines)
    assert consume(tool, topic, 50, "--from-beginning") == sorted(lines)
    group = ("--group", topic, "--consumer-property", "auto.offset.reset=earliest")
    first = consume(tool, topic, 50, *group)
    produce(tool, topic, ["new:record"])
    assert (first, consume(tool, topic, 1, *group)) == (sorted(lines), ["new:record"])
    ends = words(tool("kafka-get-offsets", "--topic-partitions", f"{topic}:0"), topic)
    end = int(ends[0][0].rsplit(":", 1)[1])
    tail = consume(tool, topic, 3, "--partition", "0", "--offset", str(end - 3))
    assert len(tail) == 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_writes_every_codec(tool: Tool, topic: str, codec: str) -> None:
    """Compressed records are read unchanged."""
    text = "".join(f"{codec}: {number}\n" for number in range(200))
    tool("kafka-console-producer", "--topic", topic, "--compression-codec", codec, text=text)
    read = tool(
        *("kafka-console-consumer", "--topic", topic, "--from-beginning"),
        *("--max-messages", "200", "--timeout-ms", "60000"),
    )
    assert sorted(read.split("\n")[-201:]) == sorted(text.split("\n"))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_perf_tests_send_and_receive_all(
    tools: ToolServer, tool: Tool, broker: BrokerProcess, topic: str, acks: str
) -> None:
    """kafka-producer-perf-test and kafka-consumer-perf-test."""
    sent = tools.run(
        *("kafka-producer-perf-test", "--topic", topic, "--num-records", "20000"),
        *("--record-size", "200", "--throughput", "-1", "--producer-props"),
        *(f"bootstrap.servers={broker.bootstrap}", f"acks={acks}"),
        *(["enable.idempotence=false"] if acks != "all" else []),
    )
    assert sent.status == 0 and "20000 records sent" in sent.output, sent
    received = tool(
        *("kafka-consumer-perf-test", "--topic", topic, "--messages", "20000"),
        *("--timeout", "20000"),
    )
    assert int(received.splitlines()[-1].split(",")[4]) >= 20000


def test_verifiable_tools_agree_on_every_record(tool: Tool, topic: str) -> None:
    """The consumer acknowledges exactly the records that were acknowledged to the producer."""
    sent = tool("kafka-verifiable-producer", "--topic", topic, "--max-messages", "500")
    events = [json.loads(line) for line in sent.splitlines() if line.startswith("{")]
    good = [event for event in events if event["name"] == "producer_send_success"]
    assert len(good) == 500
    received = tool(
        *("kafka-verifiable-consumer", "--topic", topic, "--group-id", topic),
        *("--max-messages", "500", "--session-timeout", "6000"),
    )
    events = [json.loads(line) for line in received.splitlines() if line.startswith("{")]
    counted = sum(event["count"] for event in events if event["name"] == "records_consumed")
    assert counted == 500
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits and all(event["success"] for event in commits)


def test_get_offsets_shows_each_end(tool: Tool, topic: str) -> None:
    """Latest, earliest, of the highest timestamp, by time; partitions and patterns."""
    produce(tool, topic, [f"k{number}:v" for number in range(40)])

    def offsets(*arguments: str) -> list[int]:
        shown = words(tool("kafka-get-offsets", *arguments), topic)
        return [int(word.rsplit(":", 1)[1] or -9) for (word,) in shown]

    by_topic = ("--topic", topic)
    latest = offsets(*by_topic)
    assert (len(latest), sum(latest)) == (2, 40)
    assert offsets(*by_topic, "--time", "earliest") == [0, 0]
    assert offsets(*by_topic, "--time", "-2") == [0, 0]
    assert all(0 <= offset < 40 for offset in offsets(*by_topic, "--time", "max-timestamp"))
    assert offsets(*by_topic, "--time", "1000000") == [0, 0]
    assert offsets("--topic-partitions", f"{topic}:1") == latest[1:]


def test_deleted_records_are_gone(tool: Tool, topic: str, tmp_path: Path) -> None:
    """kafka-delete-records by file; beyond the end it is refused."""
    produce(tool, topic, [f"k{number}:v" for number in range(40)])

    def delete(offset: int) -> str:
        plan = tmp_path / "delete.json"
        row = {"topic": topic, "partition": 0, "offset": offset}
        plan.write_text(json.dumps({"partitions": [row], "version": 1}))
        return tool("kafka-delete-records", "--offset-json-file", str(plan))

    assert "low_watermark: 3" in delete(3)
    shown = tool("kafka-get-offsets", "--topic-partitions", f"{topic}:0", "--time", "earliest")
    assert f"{topic}:0:3" in shown
    assert "OffsetOutOfRangeException" in delete(4000)


def test_topic_configs_are_altered_described_and_removed(tool: Tool, topic: str) -> None:
    """kafka-configs for topics, and a value that cannot be."""
    entity = ("--entity-type", "topics", "--entity-name", topic)
    add = "max.message.bytes=5000,cleanup.policy=[compact,delete]"
    tool("kafka-configs", *entity, "--alter", "--add-config", add)
    shown = tool("kafka-configs", *entity, "--describe")
    assert "max.message.bytes=5000 sensitive=false" in shown
    assert "cleanup.policy=compact,delete" in shown
    every = tool("kafka-configs", *entity, "--describe", "--all")
    assert "DEFAULT_CONFIG:segment.bytes" in every or "log.segment.bytes=1073741824" in every
    tool("kafka-configs", *entity, "--alter", "--delete-config", "max.message.bytes")
    assert "max.message.bytes" not in tool("kafka-configs", *entity, "--describe")
    refused = tool(
        "kafka-configs", *entity, "--alter", "--add-config", "retention.ms=soon", status=1
    )
    assert "retention.ms" in refused


CLIENT = ("--entity-type", "clients")
QUOTAS = [
    (("--entity-type", "users", "--entity-name", "quota user*"), "user-principal 'quota user*'"),
    (("--entity-type", "clients", "--entity-default"), "the default client-id"),
    (
        ("--entity-type", "users", "--entity-default", *CLIENT, "--entity-name", "app"),
        "client-id 'app'",
    ),
]


def test_quotas_are_altered_described_and_removed(tool: Tool) -> None:
    """kafka-configs for users, clients, both, and addresses."""
    for entity, named in QUOTAS:
        add = "producer_byte_rate=1000000000,request_percentage=9000.5"
        tool("kafka-configs", *entity, "--alter", "--add-config", add)
        shown = tool("kafka-configs", *entity, "--describe")
        assert named in shown
        assert "producer_byte_rate=1.0E9" in shown and "request_percentage=9000.5" in shown
        both = "producer_byte_rate,request_percentage"
        tool("kafka-configs", *entity, "--alter", "--delete-config", both)
        assert "producer_byte_rate" not in tool("kafka-configs", *entity, "--describe")
    address = ("--entity-type", "ips", "--entity-name", "127.9.9.9")
    tool("kafka-configs", *address, "--alter", "--add-config", "connection_creation_rate=7")
    assert "connection_creation_rate=7.0" in tool("kafka-configs", *address, "--describe")
    tool("kafka-configs", *address, "--alter", "--delete-config", "connection_creation_rate")
    assert "connection_creation_rate" not in tool("kafka-configs", *address, "--describe")


def test_broker_configs_are_altered_described_and_removed(
    tool: Tool, broker: BrokerProcess
) -> None:
    """kafka-configs for one broker and for the default of all."""
    add = ("--alter", "--add-config", "log.cleaner.threads=2")
    remove = ("--alter", "--delete-config", "log.cleaner.threads")
    for entity in (("--entity-default",), ("--entity-name", broker_id(tool, broker))):
        target = ("--entity-type", "brokers", *entity)
        tool("kafka-configs", *target, *add)
        assert "log.cleaner.threads=2" in tool("kafka-configs", *target, "--describe")
        tool("kafka-configs", *target, *remove)
        assert "log.cleaner.threads=2" not in tool("kafka-configs", *target, "--describe")
    named = ("--entity-type", "brokers", "--entity-name", broker_id(tool, broker))
    every = tool("kafka-configs", *named, "--describe", "--all")
    assert "STATIC_BROKER_CONFIG:offsets.topic.num.partitions=5" in every
    read_only = tool("kafka-configs", *named, "--alter", "--add-config", "log.dir=/x", status=1)
    assert "log.dir" in read_only


def broker_id(tool: Tool, broker: BrokerProcess) -> str:
    """Return the id of the broker as kafka-broker-api-versions shows it."""
    shown = tool("kafka-broker-api-versions")
    found = re.search(rf"{re.escape(broker.bootstrap)} \(id: (\d+) ", shown)
    assert found, shown
    return found[1]


def test_api_versions_name_no_api_unknown_to_the_release(tool: Tool, tools: ToolServer) -> None:
    """Every API that this broker needs is usable by the release's clients."""
    shown = tool("kafka-broker-api-versions")
    if tools.version == KAFKA_4:  # 3.9.2 does not have the features of 4.3.0
        assert "UNKNOWN" not in shown
    for api in ("Produce", "Fetch", "Metadata", "JoinGroup", "CreateTopics", "DescribeConfigs"):
        assert re.search(rf"\t{api}\(\d+\): .*\[usable: \d+\]", shown), (api, shown)


def test_log_dirs_show_the_size_of_each_partition(tool: Tool, topic: str) -> None:
    """kafka-log-dirs."""
    produce(tool, topic, [f"k{number}:{'x' * 100}" for number in range(100)])
    shown = tool("kafka-log-dirs", "--describe", "--topic-list", topic)
    answer = json.loads(shown.splitlines()[-1])
    rows = answer["brokers"][0]["logDirs"][0]["partitions"]
    assert {row["partition"] for row in rows} == {f"{topic}-0", f"{topic}-1"}
    assert sum(row["size"] for row in rows) > 10_000


def test_dump_log_reads_the_brokers_segment_and_indexes(
    tools: ToolServer, tool: Tool, broker: BrokerProcess, topic: str
) -> None:
    """Every batch valid, every record there, the indexes consistent."""
    produce(tool, topic, [f"k{number}:payload {number}" for number in range(100)])
    count = 0
    for partition in (0, 1):
        folder = broker.log_dir / f"{topic}-{partition}"
        log = folder / "00000000000000000000.log"
        dumped = tools.run("kafka-dump-log", "--files", str(log), "--print-data-log")
        assert dumped.status == 0, dumped
        assert "isvalid: false" not in dumped.output
        count += len(re.findall(r"key: k\d+ payload: payload \d+", dumped.output))
        for suffix in (".index", ".timeindex"):
            index = str(log.with_suffix(suffix))
            checked = tools.run("kafka-dump-log", "--files", index, "--index-sanity-check")
            assert checked.status == 0, checked
    assert count == 100


# Consumer groups


def committed(tool: Tool, group: str) -> dict[int, int]:
    """Return the committed offset of each partition as --describe shows it."""
    shown = tool("kafka-consumer-groups", "--describe", "--group", group)
    return {int(row[2]): int(row[3]) for row in words(shown, group) if row[3] != "-"}


@pytest.fixture
def read_group(tool: Tool, topic: str) -> str:
    """Give a group that read 60 records of both partitions and is empty now."""
    produce(tool, topic, [f"k{number}:v" for number in range(60)])
    consume(tool, topic, 60, "--group", topic, "--from-beginning")
    return topic


def test_group_is_listed_described_and_deleted(tool: Tool, read_group: str) -> None:
    """By offsets, members and state."""
    assert read_group in tool("kafka-consumer-groups", "--list").split()
    listed = tool("kafka-consumer-groups", "--list", "--state")
    assert [row[-1] for row in words(listed, read_group)] == ["Empty"]
    assert sum(committed(tool, read_group).values()) == 60
    of_group = ("--group", read_group)
    state = tool("kafka-consumer-groups", "--describe", *of_group, "--state")
    assert words(state, read_group)[0][-2:] == ["Empty", "0"]
    tool("kafka-consumer-groups", "--describe", *of_group, "--members", "--verbose")
    removed = tool(
        "kafka-consumer-groups", "--delete-offsets", *of_group, "--topic", f"{read_group}:0"
    )
    assert "Successful" in removed
    assert list(committed(tool, read_group)) == [1]
    assert "successful" in tool("kafka-consumer-groups", "--delete", *of_group)
    assert read_group not in tool("kafka-consumer-groups", "--list").split()
    assert "GroupIdNotFoundException" in tool("kafka-consumer-groups", "--delete", *of_group)


def test_offsets_are_reset_in_every_mode(tool: Tool, read_group: str, tmp_path: Path) -> None:
    """--dry-run changes nothing; each mode sets the offsets that its name says."""
    ends = committed(tool, read_group)
    now = datetime.datetime.now(datetime.UTC)
    before, after = (now + datetime.timedelta(hours=hours) for hours in (-1, 1))

    def reset(*mode: str, run: str = "--execute") -> dict[int, int]:
        base = ("--group", read_group, "--topic", read_group, "--reset-offsets")
        tool("kafka-consumer-groups", *base, *mode, run)
        return committed(tool, read_group)

    starts = dict.fromkeys(ends, 0)
    assert reset("--to-earliest", run="--dry-run") == ends
    assert reset("--to-earliest") == starts
    assert reset("--to-latest") == ends
    assert reset("--to-offset", "5") == {0: 5, 1: 5}
    assert reset("--shift-by", "-2") == {0: 3, 1: 3}
    assert reset("--shift-by", "1000") == ends
    assert reset("--to-datetime", before.strftime("%Y-%m-%dT%H:%M:%S.000")) == starts
    assert reset("--to-datetime", after.strftime("%Y-%m-%dT%H:%M:%S.000")) == ends
    assert reset("--by-duration", "PT1H") == starts
    assert reset("--to-current") == starts
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{read_group},0,7\n{read_group},1,9\n")
    assert reset("--from-file", str(plan)) == {0: 7, 1: 9}
    exported = tool(
        *("kafka-consumer-groups", "--group", read_group, "--topic", read_group),
        *("--reset-offsets", "--to-current", "--export", "--dry-run"),
    )
    assert f'"{read_group}",0,7' in exported or f"{read_group},0,7" in exported


@pytest.mark.compat(f"java-tools {KAFKA_4}", "tools")
def test_configs_of_groups_are_set_described_and_removed(tool_of_4: Tool, name: str) -> None:
    """kafka-configs --entity-type groups."""
    tool = tool_of_4
    entity = ("--entity-type", "groups", "--entity-name", name)
    session, isolation = "consumer.session.timeout.ms=50000", "share.isolation.level=read_committed"
    tool("kafka-configs", *entity, "--alter", "--add-config", f"{session},{isolation}")
    described = tool("kafka-configs", *entity, "--describe")
    assert session in described and isolation in described
    all_of_them = tool("kafka-configs", *entity, "--describe", "--all")
    assert "consumer.heartbeat.interval.ms=5000 sensitive=false" in all_of_them
    assert name in tool("kafka-configs", "--entity-type", "groups", "--describe")
    low = ("--alter", "--add-config", "consumer.session.timeout.ms=1")
    refused = tool("kafka-configs", *entity, *low, status=1)
    assert "greater than or equal to group.consumer.min.session.timeout.ms" in refused
    words = "consumer.session.timeout.ms,share.isolation.level"
    tool("kafka-configs", *entity, "--alter", "--delete-config", words)
    assert session not in tool("kafka-configs", *entity, "--describe")


@pytest.mark.compat(f"java-tools {KAFKA_4}", "tools")
def test_level_of_a_feature_is_lowered_and_raised_and_survives_a_restart(
    tool_servers: ToolServers, new_broker: Callable[..., BrokerProcess]
) -> None:
    """kafka-features; the levels are in the store."""
    broker = new_broker()
    run = tool_of(tool_servers(KAFKA_4), broker)

    def level() -> str:
        shown = run("kafka-features", "describe")
        return re.findall(r"transaction.version\s.*FinalizedVersionLevel: (\d)", shown)[0]

    assert level() == "2"
    feature = ("--feature", "transaction.version=1")
    refused = run("kafka-features", "upgrade", *feature, status=1)
    assert "without setting the upgrade type to either safe or unsafe downgrade" in refused
    run("kafka-features", "downgrade", *feature, "--dry-run")
    assert level() == "2"
    run("kafka-features", "downgrade", *feature)
    assert level() == "1"
    broker.restart()
    assert level() == "1"
    run("kafka-features", "upgrade", "--feature", "transaction.version=2")
    assert level() == "2"


@pytest.mark.compat(f"java-tools {KAFKA_4}", "tools")
def test_group_of_the_consumer_protocol_reads_and_is_listed_and_described(
    tool_of_4: Tool, name: str
) -> None:
    """The Java client with group.protocol=consumer; kafka-consumer-groups and kafka-groups with its type."""
    tool = tool_of_4
    tool("kafka-topics", "--create", "--topic", name, "--partitions", "2")
    produce(tool, name, [f"k{number}:v" for number in range(60)])
    protocol = ("--consumer-property", "group.protocol=consumer")
    assert len(consume(tool, name, 60, "--group", name, "--from-beginning", *protocol)) == 60
    listed = tool("kafka-consumer-groups", "--list", "--type", "consumer", "--state")
    assert [row[1:] for row in words(listed, name)] == [["Consumer", "Empty"]]
    assert [row[1:] for row in words(tool("kafka-groups", "--list"), name)] == [
        ["Consumer", "consumer"]
    ]
    assert sum(committed(tool, name).values()) == 60
    of_group = ("--group", name)
    (state,) = words(tool("kafka-consumer-groups", "--describe", *of_group, "--state"), name)
    assert state[-2:] == ["Empty", "0"] and "uniform" in state
    assert "successful" in tool("kafka-consumer-groups", "--delete", *of_group)
    assert name not in tool("kafka-consumer-groups", "--list").split()
