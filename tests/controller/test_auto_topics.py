"""Topics created on first use, and the coordinators' internal topics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kwire.errors import ErrorCode
from kwire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from server.config import BrokerConfig
from server.controller.auto_topics import AutoTopics
from server.controller.controller import NOT_CONTROLLER
from server.controller.refusal import ControllerRefusal
from server.coordination.paths import NewTopic
from server.metadata.image import MetadataImage, TopicImage
from server.metadata.publisher import MetadataPublisher
from tests.support.replicas import registration, topic_image

TRANSACTIONS_ALONE = {"transaction_state_log_replication_factor": "1"}
EXISTS = ControllerRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, "")


class Controller:
    """Creates the requested topics, one request after another."""

    def __init__(self, publisher: MetadataPublisher) -> None:
        self.publisher = publisher
        self.made: list[NewTopic] = []
        self.refusals: dict[str, ControllerRefusal] = {}

    async def create_topics(
        self, topics: Sequence[NewTopic]
    ) -> list[TopicImage | ControllerRefusal]:
        await asyncio.sleep(0)
        results: list[TopicImage | ControllerRefusal] = []
        for topic in topics:
            refusal = self.refusals.get(topic.name)
            if topic.name in self.publisher.image.topics:
                refusal = EXISTS
            if refusal is None:
                self.made.append(topic)
                made = topic_image(topic.name, len(topic.partitions), id=topic.topic_id)
                self.publisher.publish(self.publisher.image.with_topics([made]))
                results.append(made)
            else:
                results.append(refusal)
        return results


class Bench:
    def __init__(self, brokers: int = 1, *, alone: bool = False, **config: str) -> None:
        self.publisher = MetadataPublisher()
        cluster = MetadataImage().with_brokers({n: registration(n) for n in range(brokers)})
        self.publisher.publish(cluster)
        self.controller = Controller(self.publisher)
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.config = BrokerConfig({"broker.id": "0", **settings})
        self.topics = AutoTopics(
            self.controller,  # type: ignore[arg-type]
            self.publisher,
            self.config,
            alone=alone,
        )

    def create(self, *names: str) -> dict[str, ErrorCode]:
        return asyncio.run(self.topics.auto_create(names))

    def made(self, name: str) -> NewTopic:
        (topic,) = [topic for topic in self.controller.made if topic.name == name]
        return topic


def test_topics_get_the_brokers_defaults() -> None:
    bench = Bench(brokers=2, num_partitions="3", default_replication_factor="2")
    assert bench.create("a", "b") == {}
    assert len(bench.made("a").partitions) == 3
    assert {len(row.replicas) for row in bench.made("b").partitions.values()} == {2}
    assert bench.made("a").configs == {}


def test_what_cannot_be_made_is_named_and_the_rest_is_made() -> None:
    bench = Bench()
    bench.controller.refusals["c"] = ControllerRefusal(ErrorCode.INVALID_CONFIG, "")
    assert bench.create("a.b", "a b", "a_b", "c") == {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,  # it would collide with the first
        "c": ErrorCode.INVALID_CONFIG,
    }
    assert [topic.name for topic in bench.controller.made] == ["a.b"]


def test_too_few_brokers_are_an_error() -> None:
    bench = Bench(default_replication_factor="2")
    assert bench.create("a") == {"a": ErrorCode.INVALID_REPLICATION_FACTOR}


def test_topic_that_is_there_is_no_error() -> None:
    bench = Bench()
    bench.create("a")
    assert bench.create("a") == {}
    assert len(bench.controller.made) == 1


def test_many_at_once_make_it_once() -> None:
    bench = Bench()

    async def run() -> None:
        results = await asyncio.gather(*(bench.topics.auto_create(["a", "b"]) for _ in range(20)))
        assert results == [{}] * 20

    asyncio.run(run())
    assert sorted(topic.name for topic in bench.controller.made) == ["a", "b"]


def test_broker_that_is_not_the_controller_asks_the_client_to_come_again() -> None:
    bench = Bench()
    bench.controller.refusals["a"] = NOT_CONTROLLER
    assert bench.create("a") == {"a": ErrorCode.LEADER_NOT_AVAILABLE}


def test_controller_elsewhere_is_asked_for_a_topic_once() -> None:
    bench = Bench(brokers=3, default_replication_factor="3", num_partitions="2")
    bench.controller.refusals |= {"a": NOT_CONTROLLER, "__consumer_offsets": NOT_CONTROLLER}
    asked: list[CreateTopicsRequest] = []

    async def run() -> None:
        answered = asyncio.Event()

        async def ask(request: object, version: int) -> CreateTopicsResponse:
            assert isinstance(request, CreateTopicsRequest)
            assert version == 7
            asked.append(request)
            await answered.wait()
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="a", error_code=36)])

        bench.topics = AutoTopics(
            bench.controller,  # type: ignore[arg-type]
            bench.publisher,
            bench.config,
            to_controller=ask,
        )
        for _ in range(3):
            errors = await bench.topics.auto_create(["a"])
            assert errors == {"a": ErrorCode.LEADER_NOT_AVAILABLE}
        await bench.topics.ensure_internal_topic("__consumer_offsets")
        await asyncio.sleep(0)
        answered.set()
        while bench.topics.asking:
            await asyncio.sleep(0)

    asyncio.run(run())
    topics = [topic for request in asked for topic in request.topics]
    assert [(t.name, t.num_partitions, t.replication_factor) for t in topics] == [
        ("a", 2, 3),
        ("__consumer_offsets", 50, 3),
    ]
    assert {"name": "cleanup.policy", "value": "compact"} in [
        {"name": config.name, "value": config.value} for config in topics[1].configs
    ]


@pytest.mark.parametrize(
    ("name", "partitions", "configs"),
    [
        (
            "__consumer_offsets",
            7,
            {
                "cleanup.policy": "compact",
                "segment.bytes": "104857600",
                "compression.type": "producer",
            },
        ),
        (
            "__transaction_state",
            9,
            {
                "cleanup.policy": "compact",
                "segment.bytes": "104857600",
                "compression.type": "uncompressed",
                "min.insync.replicas": "2",
                "unclean.leader.election.enable": "false",
            },
        ),
    ],
)
def test_coordinators_topics_have_settings_of_their_own(
    name: str, partitions: int, configs: dict[str, str]
) -> None:
    """Source: GroupCoordinator.groupMetadataTopicConfigs, TransactionStateManager."""
    bench = Bench(3, offsets_topic_num_partitions="7", transaction_state_log_num_partitions="9")
    assert asyncio.run(bench.topics.ensure_internal_topic(name)) is ErrorCode.NONE
    assert len(bench.made(name).partitions) == partitions
    assert bench.made(name).configs == configs


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("__consumer_offsets", "offsets.topic.replication.factor"),
        ("__transaction_state", "transaction.state.log.replication.factor"),
    ],
)
def test_coordinators_topic_waits_for_enough_brokers_and_the_log_says_so_once_a_minute(
    name: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Source: DefaultAutoTopicCreationManager; the factor is never lowered."""
    bench = Bench(brokers=2)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for passed_s, said in ((0, 1), (59, 1), (61, 2)):
            loop.time = lambda at=passed_s: at  # type: ignore[method-assign,misc]
            error = await bench.topics.ensure_internal_topic(name)
            assert error is ErrorCode.INVALID_REPLICATION_FACTOR
            assert len(caplog.messages) == said
        bench.publisher.publish(
            bench.publisher.image.with_brokers({n: registration(n) for n in range(3)})
        )
        assert await bench.topics.ensure_internal_topic(name) is ErrorCode.NONE

    asyncio.run(run())
    assert caplog.messages[0] == (
        f"cannot create {name} yet: {key}=3 and only 2 brokers are alive; start more, or set it lower"
    )
    assert {len(row.replicas) for row in bench.made(name).partitions.values()} == {3}


def test_number_of_replicas_is_the_one_that_was_set() -> None:
    bench = Bench(5, offsets_topic_replication_factor="2", **TRANSACTIONS_ALONE)
    assert asyncio.run(bench.topics.ensure_internal_topic("__consumer_offsets")) == 0
    assert asyncio.run(bench.topics.ensure_internal_topic("__transaction_state")) == 0
    rows = bench.made("__consumer_offsets").partitions.values()
    assert {len(row.replicas) for row in rows} == {2}
    rows = bench.made("__transaction_state").partitions.values()
    assert {len(row.replicas) for row in rows} == {1}
    # min.isr was not set: more in sync than there are replicas, as Apache Kafka does it.
    assert bench.made("__transaction_state").configs["min.insync.replicas"] == "2"


@pytest.mark.parametrize(("config", "minimum"), [({}, "1"), ({"min.isr": "2"}, "2")])
def test_broker_that_stays_alone_needs_one_replica_of_the_coordinators_topics(
    config: dict[str, str], minimum: str
) -> None:
    settings = {f"transaction.state.log.{name}": value for name, value in config.items()}
    bench = Bench(alone=True, **settings)
    assert asyncio.run(bench.topics.ensure_internal_topic("__consumer_offsets")) == 0
    assert asyncio.run(bench.topics.ensure_internal_topic("__transaction_state")) == 0
    assert bench.made("__transaction_state").configs["min.insync.replicas"] == minimum


def test_number_of_replicas_that_was_set_is_not_lowered_for_a_broker_that_stays_alone() -> None:
    bench = Bench(alone=True, offsets_topic_replication_factor="3")
    error = asyncio.run(bench.topics.ensure_internal_topic("__consumer_offsets"))
    assert error is ErrorCode.INVALID_REPLICATION_FACTOR
