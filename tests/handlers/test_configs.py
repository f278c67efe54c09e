"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, compared with Apache Kafka 3.9.2."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages import alter_configs as alter
from kwire.messages import incremental_alter_configs as incremental
from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from server.config import BrokerConfig
from server.coordination.cluster import ConfigChange
from server.handlers import configs
from server.handlers.ceilings import CEILING_3_9
from server.handlers.context import Later, RequestContext
from server.metadata.image import MetadataImage, TopicImage
from server.turns import Turns
from tests.support.clock import ManualClock
from tests.support.services import services_of
from tests.support.steps import finished

TOPIC, BROKER, LOGGER = 2, 4, 8
RECORDED = Path(__file__).parents[1] / "config" / "kafka_3_9_2.json.gz"
INVALID, REFUSED = int(ErrorCode.INVALID_CONFIG), int(ErrorCode.INVALID_REQUEST)

Entity = tuple[str, str]


class MemoryCluster:
    """Stored configs without a store."""

    def __init__(self) -> None:
        self.stored: dict[Entity, dict[str, str]] = {}

    async def configs(self, entities: Iterable[Entity]) -> dict[Entity, dict[str, str]]:
        return {entity: self.stored[entity] for entity in entities if entity in self.stored}


class MemoryController:
    """Changes stored configs; those of this broker take effect before it returns."""

    def __init__(self, config: BrokerConfig, cluster: MemoryCluster) -> None:
        self.config = config
        self.stored = cluster.stored

    async def alter_config(
        self,
        entity_type: str,
        name: str,
        change: ConfigChange,
    ) -> dict[str, str]:
        entity = (entity_type, name)
        made = change(self.stored.get(entity, {}))
        self.stored[entity] = dict(await made if isinstance(made, Awaitable) else made)
        if entity_type == "brokers":
            self.config.set_dynamic(
                broker=self.stored.get(("brokers", "0"), {}),
                default=self.stored.get(("brokers", "<default>"), {}),
            )
        return self.stored[entity]


class Threads:
    """An executor without threads. Shape: `calls` counts the calls that a thread would run."""

    def __init__(self) -> None:
        self.calls = 0

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        return function(*arguments)


class Bench:
    """A broker 0 with the topic "plain", as handlers see it."""

    def __init__(self, **settings: str) -> None:
        self.config = BrokerConfig({"broker.id": "0", **settings})
        self.cluster = MemoryCluster()
        self.threads = Threads()
        image = MetadataImage().with_topics([TopicImage("plain", bytes(16), {})])
        self.services = services_of(
            turns=Turns(ManualClock().monotonic_us),
            config=self.config,
            cluster=self.cluster,
            executor=self.threads,
            controller=MemoryController(self.config, self.cluster),
            node_id=0,
            metadata=lambda: image,
            ceiling=CEILING_3_9.name,
        )

    def call(self, handler: Any, request: Any, version: int) -> Any:
        ctx = RequestContext(
            handler,
            version,
            1,
            "test",
            0,
            None,
            self.services,  # type: ignore[arg-type]
        )
        answer = finished(handler(ctx, request))
        if not isinstance(answer, Later):
            return answer

        async def wait() -> Any:
            found = await answer.awaitable
            return found if answer.finish is None else finished(answer.finish(found))

        return asyncio.run(wait())

    def describe(self, resource_type: int, name: str, version: int = 4, **options: Any) -> Any:
        keys = options.pop("keys", None)
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=keys
        )
        request = DescribeConfigsRequest(resources=[resource], **options)
        return self.call(configs.describe_configs, request, version).results[0]

    def alter(self, resource_type: int, name: str, values: Any, validate_only: bool = False) -> Any:
        pairs = values.items() if isinstance(values, dict) else values
        resource = alter.AlterConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configs=[alter.AlterableConfig(name=key, value=value) for key, value in pairs],
        )
        request = alter.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        return outcomes(self.call(configs.alter_configs, request, 2))

    def incremental(
        self,
        resource_type: int,
        name: str,
        operations: Any,
        validate_only: bool = False,
        twice: bool = False,
    ) -> Any:
        resource = incremental.AlterConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configs=[
                incremental.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in operations
            ],
        )
        resources = [resource, resource] if twice else [resource]
        request = incremental.IncrementalAlterConfigsRequest(
            resources=resources, validate_only=validate_only
        )
        return outcomes(self.call(configs.incremental_alter_configs, request, 1))


def outcomes(response: Any) -> list[tuple[int, str | None]]:
    return [(int(row.error_code), row.error_message) for row in response.responses]


@pytest.fixture
def bench() -> Bench:
    return Bench()


#: kwire's answers where 3.9.2 fails on a bug (-1, a division by zero) or has a feature that kwire lacks.
OWN_ANSWERS: dict[str, list[tuple[int, str | None]]] = {
    "incr 2 plain [['retention.ms', 7, '5']]": [(REFUSED, "Unknown operations type 7")],
    "incr 2 plain [['nonsense', 2, 'x']]": [(INVALID, "Unknown config name: nonsense")],
    "incr 4 0 [['nonsense.key2', 2, 'v']]": [(INVALID, "Unknown config name: nonsense.key2")],
    "alter 4  {'log.cleaner.threads': '0'}": [
        (
            REFUSED,
            "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update"
            " validation failed for log.cleaner.threads=0, value should be at least 1 for configuration"
            " Invalid dynamic configuration",
        )
    ],
    "incr 8 5 [['root', 0, 'DEBUG']]": [
        (REFUSED, "Unexpected node id. Expected 0, but received 5")
    ],
    # kwire has other loggers.
    "incr 8 0 [['kafka.server.KafkaServer', 0, 'DEBUG']]": [
        (INVALID, "Logger kafka.server.KafkaServer does not exist!")
    ],
}


def test_changes_are_answered_as_kafka_answers_them(bench: Bench) -> None:
    """Every recorded change in order, since each depends on those before it."""
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))["cases"]
    assert len(recorded) > 80
    for what, arguments, options, answer in recorded:
        call = {"alter": bench.alter, "incr": bench.incremental}[what]
        case = " ".join([what, *map(str, arguments)])
        expected = OWN_ANSWERS.get(case, [tuple(row) for row in answer])
        assert call(*arguments, **options) == expected, case


def test_recorded_changes_leave_what_kafka_stored(bench: Bench) -> None:
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    for what, arguments, options, _ in recorded["cases"]:
        {"alter": bench.alter, "incr": bench.incremental}[what](*arguments, **options)
    assert bench.cluster.stored["brokers", "0"] == {
        "nonsense": "10",
        "log.retention.ms": "55555555",
        "leader.replication.throttled.rate": "1000",
        "log.cleanup.policy": "delete,compact",
        "nonsense.key": "v",
    }
    assert bench.cluster.stored["topics", "plain"] == {}
    assert bench.config["log.retention.ms"] == 55555555


@pytest.mark.parametrize(
    ("resource_type", "name", "error", "message"),
    [
        (BROKER, "9", 42, "Unexpected broker id, expected 0 or empty string, but received 9"),
        (BROKER, "abc", 42, "Broker id must be an integer, but it is: abc"),
        (LOGGER, "9", 42, "Unexpected broker id, expected 0 but received 9"),
        (LOGGER, "", 42, "Broker id must not be empty"),
        (TOPIC, "nosuch", 3, ""),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (16, "sub", 42, "Config type client-metrics is only supported on KRaft clusters"),
        (0, "x", 42, configs.MALFORMED),
        (3, "x", 42, configs.MALFORMED),
        (32, "g", 42, configs.MALFORMED),
    ],
)
def test_describing_what_is_not_there_is_refused_as_kafka_refuses(
    bench: Bench, resource_type: int, name: str, error: int, message: str
) -> None:
    result = bench.describe(resource_type, name)
    assert (result.error_code, result.error_message, result.configs) == (error, message, [])


def test_unknown_resource_type_spoils_the_whole_description(bench: Bench) -> None:
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name="plain"),
        DescribeConfigsResource(resource_type=99, resource_name="x"),
    ]
    request = DescribeConfigsRequest(resources=resources)
    results = bench.call(configs.describe_configs, request, 4).results
    assert [result.error_code for result in results] == [42, 42]


def test_topic_is_described_from_the_store(bench: Bench) -> None:
    bench.alter(TOPIC, "plain", {"retention.ms": "5000"})
    result = bench.describe(TOPIC, "plain", include_synonyms=True, keys=["retention.ms", "x"])
    (row,) = result.configs
    assert (row.name, row.value, row.config_source, row.config_type) == (
        "retention.ms",
        "5000",
        1,
        5,
    )
    assert [(s.name, s.value, s.source) for s in row.synonyms] == [("retention.ms", "5000", 1)]
    assert row.documentation is None


def test_documentation_and_synonyms_come_only_when_asked_for(bench: Bench) -> None:
    plain = bench.describe(BROKER, "0", keys=["log.segment.bytes"]).configs[0]
    full = bench.describe(
        BROKER, "0", keys=["log.segment.bytes"], include_synonyms=True, include_documentation=True
    ).configs[0]
    assert (plain.synonyms, plain.documentation) == ([], None)
    assert len(full.synonyms) == 1
    assert full.documentation.startswith("Size at which")


def test_version_0_calls_nothing_a_default(bench: Bench) -> None:
    """Apache Kafka no longer fills the field, since version 1 has the source instead."""
    rows = bench.describe(TOPIC, "plain", version=0).configs
    assert rows and not any(row.is_default for row in rows)


def test_responses_can_be_encoded_in_every_version(bench: Bench) -> None:
    from kwire.codec import encode

    for version in range(5):
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="0")
        request = DescribeConfigsRequest(resources=[resource])
        assert encode(bench.call(configs.describe_configs, request, version), version)


@pytest.mark.parametrize(
    ("name", "operations", "error"),
    [
        # As in Apache Kafka 3.9.2, append and subtract come before the topic is looked up,
        ("gone", [("retention.ms", 2, "5")], INVALID),
        ("gone", [("retention.ms", 0, "x")], int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        # and the error of a key comes before those of later keys.
        ("plain", [("retention.ms", 3, "5"), ("segment.bytes", 4, "9")], INVALID),
        ("plain", [("segment.bytes", 4, None), ("retention.ms", 3, "5")], REFUSED),
    ],
)
def test_first_trouble_of_a_topics_changes_is_told(
    bench: Bench, name: str, operations: Any, error: int
) -> None:
    assert bench.incremental(TOPIC, name, operations)[0][0] == error


@pytest.mark.parametrize("name", [".", "..", "a//b", "/x", "x/", "a\tb"])
def test_name_that_is_no_node_of_zookeeper_is_not_looked_up_there(bench: Bench, name: str) -> None:
    """The answer of Apache Kafka 3.9.2; the store would refuse the path."""
    assert bench.incremental(TOPIC, name, [("retention.ms", 0, "1")])[0][0] == INVALID
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert bench.alter(TOPIC, name, {"retention.ms": "1"})[0][0] == unknown


def test_validate_only_changes_nothing(bench: Bench) -> None:
    assert bench.alter(TOPIC, "plain", {"retention.ms": "5"}, validate_only=True) == [(0, None)]
    assert bench.incremental(BROKER, "0", [("log.roll.ms", 0, "5")], True) == [(0, None)]
    assert bench.cluster.stored == {}


def test_changes_of_a_broker_are_checked_in_a_thread_since_files_may_be_read(bench: Bench) -> None:
    assert bench.alter(TOPIC, "plain", {"retention.ms": "5"}) == [(0, None)]
    assert bench.threads.calls == 0
    assert bench.alter(BROKER, "0", {"log.roll.ms": "5"}) == [(0, None)]
    assert bench.threads.calls == 1
    assert bench.incremental(BROKER, "0", [("log.roll.ms", 0, "6")], True) == [(0, None)]
    assert bench.threads.calls == 2


PASSWORD = "listener.name.plaintext.ssl.key.password"


def test_password_is_refused_without_a_secret(bench: Bench) -> None:
    for outcome in (
        bench.alter(BROKER, "0", {PASSWORD: "hush"}),
        bench.incremental(BROKER, "0", [(PASSWORD, 0, "hush")], True),
    ):
        resource = "ConfigResource(type=BROKER, name='0')"
        assert outcome == [
            (
                INVALID,
                f"Invalid config value for resource {resource}: Password encoder secret not configured",
            )
        ]
    assert bench.cluster.stored == {}


def test_password_is_stored_encoded_and_not_described() -> None:
    bench = Bench(**{"password.encoder.secret": "s"})
    assert bench.incremental(BROKER, "0", [(PASSWORD, 0, "hush")]) == [(0, None)]
    stored = bench.cluster.stored["brokers", "0"][PASSWORD]
    assert "hush" not in stored
    # Another change keeps it.
    assert bench.incremental(BROKER, "0", [("log.roll.ms", 0, "5")]) == [(0, None)]
    assert bench.cluster.stored["brokers", "0"] == {PASSWORD: stored, "log.roll.ms": "5"}
    assert bench.config.listener("PLAINTEXT")["ssl.key.password"] == "hush"
    described = bench.describe(BROKER, "0", keys=[PASSWORD], include_synonyms=True)
    (row,) = described.configs
    assert (row.value, row.is_sensitive) == (None, True)
    assert all(synonym.value is None for synonym in row.synonyms)


def test_listeners_are_not_changed_at_run_time(bench: Bench) -> None:
    ((error, message),) = bench.alter(BROKER, "0", {"listeners": "PLAINTEXT://:9999"})
    assert error == REFUSED
    assert message == "kwire reads listeners only at start, from its file or command line"


def test_refused_resource_does_not_spoil_its_neighbour(bench: Bench) -> None:
    request = alter.AlterConfigsRequest(
        resources=[
            alter.AlterConfigsResource(resource_type=TOPIC, resource_name="nosuch"),
            alter.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="plain",
                configs=[alter.AlterableConfig(name="retention.ms", value="7")],
            ),
        ]
    )
    answer = outcomes(bench.call(configs.alter_configs, request, 2))
    assert [error for error, _ in answer] == [3, 0]
    assert bench.cluster.stored["topics", "plain"] == {"retention.ms": "7"}
