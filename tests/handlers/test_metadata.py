"""Metadata and DescribeCluster: topics, addresses, creation on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.describe_cluster import DescribeClusterRequest
from kwire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire.types import ZERO_UUID
from server.handlers.context import Encoded
from server.handlers.metadata import (
    FIRST_IMAGE_S,
    KEPT_ANSWERS,
    KEPT_BYTES,
    describe_cluster,
    metadata,
)
from server.metadata.departed import DepartedBrokers
from server.metadata.endpoint import Endpoint
from server.metadata.image import BrokerRegistration, MetadataImage
from tests.support.cpu_time import cpu_time
from tests.support.replicas import Replicas, registration, topic_id, topic_image
from tests.support.services import with_rooms

LATEST = 12
NO_OPERATIONS = -(1 << 31)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Topics:
    """Creates topics on first use, or refuses them."""

    def __init__(self, room: Replicas) -> None:
        self.room = room
        self.asked: list[list[str]] = []
        self.errors: dict[str, ErrorCode] = {}

    async def auto_create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        self.asked.append(list(names))
        for name in names:
            if name not in self.errors:
                self.room.create(name)
        return self.errors


@pytest.fixture
def topics(room: Replicas) -> Topics:
    room.services = with_rooms(room.services, topics=Topics(room))
    return room.services.topics


def request(*names: str | None, **options: Any) -> MetadataRequest:
    asked = [MetadataRequestTopic(name=name) for name in names]
    options = {"allow_auto_topic_creation": False, **options}
    return MetadataRequest(topics=options.pop("topics", asked), **options)


def ask(room: Replicas, message: MetadataRequest, version: int = LATEST) -> Any:
    """Send a request; it must be answered immediately."""
    answer = room.call(metadata, message, version)
    if isinstance(answer, Encoded):
        return decode(MetadataResponse, answer.body, version)
    encode(answer, version)
    return answer


def errors(answer: Any) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


# Topics


@pytest.mark.parametrize("version", range(LATEST + 1))
def test_every_version_describes_topics(room: Replicas, version: int) -> None:
    room.create("a", 2, epoch=3, replicas=(0, 5), isr=(0,))
    room.create("b")
    answer = ask(room, request("a"), version)
    (topic,) = answer.topics
    assert (topic.name, topic.error_code, topic.is_internal) == ("a", 0, False)
    assert topic.topic_id == topic_id("a")
    assert [
        (
            row.partition_index,
            row.error_code,
            row.leader_id,
            row.leader_epoch,
            row.replica_nodes,
            row.isr_nodes,
            row.offline_replicas,
        )
        for row in topic.partitions
    ] == [(number, 0, 0, 3, [0, 5], [0], [5]) for number in (0, 1)]
    assert (answer.cluster_id, answer.controller_id) == ("cluster", 0)
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
        (0, "broker0", 9092)
    ]


class Starting:
    """A controller that has not sent this broker an image yet; `image` arrives when it is waited for."""

    knows_cluster = False

    def __init__(self, room: Replicas, image: MetadataImage) -> None:
        self.room = room
        self.image = image
        self.waits: list[float] = []

    async def known(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        self.room.publisher._image = self.image
        return bool(self.image.brokers)


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("names", [["a"], None])
def test_broker_that_has_just_started_waits_for_the_first_image(
    room: Replicas, names: list[str] | None, arrives: bool
) -> None:
    room.create("a")
    nothing = MetadataImage()
    controller = Starting(room, room.publisher.image if arrives else nothing)
    room.publisher._image = nothing
    room.services = with_rooms(room.services, controller=controller)
    message = request(topics=names and [MetadataRequestTopic(name=name) for name in names])
    answer = asyncio.run(room.ask(metadata, message, LATEST))
    if isinstance(answer, Encoded):
        answer = decode(MetadataResponse, answer.body, LATEST)
    assert controller.waits == [FIRST_IMAGE_S]
    assert len(answer.brokers) == int(arrives)
    if arrives:
        assert errors(answer) == {"a": 0}
    else:
        assert errors(answer) == ({} if names is None else {"a": UNKNOWN})


@pytest.mark.parametrize(
    ("version", "names", "found"),
    [(0, [], ["a", "b"]), (1, [], []), (1, None, ["a", "b"]), (LATEST, None, ["a", "b"])],
)
def test_no_topics_are_all_or_none(
    room: Replicas, version: int, names: list[str] | None, found: list[str]
) -> None:
    room.create("a")
    room.create("b")
    message = request(topics=names)
    assert [topic.name for topic in ask(room, message, version).topics] == found


def test_topic_that_does_not_exist_is_unknown_and_a_bad_name_is_bad(room: Replicas) -> None:
    answer = ask(room, request("nope", "a b", "", "x" * 250, ".."))
    bad = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert errors(answer) == {"nope": UNKNOWN, "a b": bad, "": bad, "x" * 250: bad, "..": bad}


def test_topic_named_twice_is_described_once(room: Replicas) -> None:
    room.create("a")
    assert len(ask(room, request("a", "a", "nope", "nope")).topics) == 2


def test_internal_topics_say_so(room: Replicas) -> None:
    room.create("__consumer_offsets")
    answer = ask(room, request("__consumer_offsets", "__transaction_state"))
    assert [topic.is_internal for topic in answer.topics] == [True, True]


def test_topic_may_be_asked_for_by_its_id_from_version_12_on(room: Replicas) -> None:
    room.create("a")
    by_id = [
        MetadataRequestTopic(name=None, topic_id=topic_id("a")),
        MetadataRequestTopic(name=None, topic_id=b"?" * 16),
    ]
    known, unknown = ask(room, request(topics=by_id)).topics
    assert (known.name, known.error_code) == ("a", 0)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    beside_names = [*by_id, MetadataRequestTopic(name="a"), MetadataRequestTopic(name=None)]
    assert len(ask(room, request(topics=beside_names)).topics) == 2


@pytest.mark.parametrize("version", [10, 11])
def test_request_by_id_fails_as_a_whole_before_version_12(room: Replicas, version: int) -> None:
    """As in Apache Kafka 3.9.2: a row for each topic, no broker, no cluster id."""
    room.create("a")
    topics = [MetadataRequestTopic(name=None, topic_id=topic_id("a"))] * 2
    asked = request(topics=[*topics, MetadataRequestTopic(name="a")])
    answer = ask(room, asked, version)
    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("", ErrorCode.INVALID_REQUEST),
        ("", ErrorCode.INVALID_REQUEST),
        ("a", ErrorCode.INVALID_REQUEST),
    ]
    assert answer.topics[0].topic_id == topic_id("a")
    assert (answer.brokers, answer.cluster_id, answer.controller_id) == ([], None, -1)


@pytest.mark.parametrize(("version", "name"), [(10, ""), (LATEST, None)])
def test_topic_without_name_and_id_is_refused(
    room: Replicas, version: int, name: str | None
) -> None:
    (row,) = ask(room, request(None), version).topics
    assert (row.name, row.error_code) == (name, ErrorCode.INVALID_REQUEST)


def test_operations_are_told_to_who_asks(room: Replicas) -> None:
    """3576 and 8096 are the answers of Apache Kafka 3.9.2 without an authorizer."""
    room.create("a")
    quiet = ask(room, request("a"), 10)
    assert quiet.cluster_authorized_operations == NO_OPERATIONS
    assert quiet.topics[0].topic_authorized_operations == NO_OPERATIONS
    asked = request(
        "a",
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    told = ask(room, asked, 10)
    assert told.cluster_authorized_operations == 8096
    assert told.topics[0].topic_authorized_operations == 3576
    missing = ask(room, request("nope", include_topic_authorized_operations=True), 10)
    assert missing.topics[0].topic_authorized_operations == 3576


def test_partition_whose_leader_is_not_alive_has_none(room: Replicas) -> None:
    room.create("a", leader=5, replicas=(5, 0), isr=(5,))
    (row,) = ask(room, request("a")).topics[0].partitions
    assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([5, 0], [5], [5])


def test_partition_that_never_had_a_leader_is_not_shown(room: Replicas) -> None:
    """As in a ZooKeeper broker of 3.9.2, whose controller does not send it."""
    image = room.publisher.image
    room.publisher.publish(
        image.with_topics([topic_image("a", 1, leader=-1, replicas=(5,), isr=())])
    )
    (named,) = ask(room, request("a")).topics
    assert named.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [MetadataRequestTopic(name=None, topic_id=topic_id("a"))]
    (row,) = ask(room, MetadataRequest(topics=topics)).topics
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert ask(room, request(topics=None)).topics == []


def test_ten_thousand_partitions_are_answered_quickly(room: Replicas) -> None:
    """The loop is blocked during this time; measured at 20 ms of CPU time."""
    wide = topic_image("wide", 10_000, leader=1, replicas=(1,))
    image = room.publisher.image.with_brokers({0: registration(0), 1: registration(1)})
    room.publisher.publish(image.with_topics([wide]))
    with cpu_time() as taken:
        answer = ask(room, request("wide"))
    assert taken.seconds < 0.1
    assert len(answer.topics[0].partitions) == 10_000


# All topics, encoded once


def encoded(room: Replicas, version: int = LATEST, **options: bool) -> bytes:
    answer = room.call(metadata, request(topics=None, **options), version)
    assert isinstance(answer, Encoded)
    return answer.body


def test_all_topics_are_encoded_once_for_an_image(room: Replicas) -> None:
    room.create("a", 3)
    first = encoded(room)
    assert encoded(room) is first
    assert encoded(room, 9) != first


def test_changed_topic_is_in_the_next_answer_for_all(room: Replicas) -> None:
    room.create("a", leader=0, replicas=(0, 1), isr=(0, 1))
    before = ask(room, request(topics=None)).topics[0].partitions[0]
    image = room.publisher.image.with_brokers({0: registration(0), 1: registration(1)})
    room.publisher.publish(image)
    after = ask(room, request(topics=None)).topics[0].partitions[0]
    assert (before.offline_replicas, after.offline_replicas) == ([1], [])
    room.create("b")
    assert [topic.name for topic in ask(room, request(topics=None)).topics] == ["a", "b"]


def test_all_topics_are_answered_as_the_client_asks_and_where_it_is(room: Replicas) -> None:
    room.create("a")
    quiet = ask(room, request(topics=None), 10)
    told = ask(room, request(topics=None, include_topic_authorized_operations=True), 10)
    cluster = ask(room, request(topics=None, include_cluster_authorized_operations=True), 10)
    assert quiet.topics[0].topic_authorized_operations == NO_OPERATIONS
    assert told.topics[0].topic_authorized_operations == 3576
    assert told.cluster_authorized_operations == NO_OPERATIONS
    assert cluster.cluster_authorized_operations == 8096
    room.services = with_rooms(room.services, advertises=False)
    assert brokers(ask(room, request(topics=None))) == {0: ("10.0.0.7", 9092, None)}
    room.services = with_rooms(room.services, advertises=True)
    assert brokers(ask(room, request(topics=None))) == {0: ("broker0", 9092, None)}


def test_answers_for_all_topics_are_kept_within_bounds(room: Replicas) -> None:
    for version in range(LATEST + 1):
        encoded(room, version)
    kept = room.publisher.image.answers
    assert len(kept) == KEPT_ANSWERS
    kept.clear()
    kept["other"] = bytes(KEPT_BYTES)
    newest = encoded(room)
    assert list(kept.values()) == [newest]


# Addresses


def brokers(answer: Any) -> dict[int, tuple[str, int, str | None]]:
    return {each.node_id: (each.host, each.port, each.rack) for each in answer.brokers}


def test_client_is_told_where_it_reached_this_broker_unless_it_advertises(room: Replicas) -> None:
    image = room.publisher.image
    both = {0: registration(0, "r0"), 1: registration(1, "r1")}
    room.publisher.publish(image.with_brokers(both))
    other = ("broker1", 9093, "r1")
    assert brokers(ask(room, request())) == {0: ("broker0", 9092, "r0"), 1: other}
    room.services = with_rooms(room.services, advertises=False)
    assert brokers(ask(room, request())) == {0: ("10.0.0.7", 9092, "r0"), 1: other}
    described = room.call(describe_cluster, DescribeClusterRequest(), 1)
    assert [(each.host, each.port) for each in described.brokers] == [
        ("10.0.0.7", 9092),
        ("broker1", 9093),
    ]


def test_client_of_a_listener_with_tls_is_told_its_name_since_the_certificate_has_it(
    room: Replicas,
) -> None:
    image = room.publisher.image
    room.publisher.publish(image.with_brokers({0: registration(0)}))
    room.services = with_rooms(room.services, advertises=False)
    room.connection.security_protocol = "SASL_SSL"
    assert brokers(ask(room, request())) == {0: ("broker0", 9092, None)}


def test_broker_without_the_clients_listener_is_left_out(room: Replicas) -> None:
    elsewhere = BrokerRegistration(1, (Endpoint("INTERNAL", "hidden", 1),))
    room.publisher.publish(
        room.publisher.image.with_brokers({0: registration(0), 1: elsewhere}).with_topics(
            [topic_image("a", leader=1, replicas=(1,))]
        )
    )
    answer = ask(room, request("a"))
    assert set(brokers(answer)) == {0}
    (row,) = answer.topics[0].partitions
    assert (row.error_code, row.leader_id) == (ErrorCode.LISTENER_NOT_FOUND, -1)


def test_broker_that_has_just_left_is_listed_until_its_session_would_have_ended(
    room: Replicas,
) -> None:
    now = [5_000]
    departed = DepartedBrokers(18_000, lambda: now[0])
    room.publisher.subscribe(departed.on_image)
    room.services = with_rooms(room.services, departed=departed)
    image = room.publisher.image.with_brokers({0: registration(0), 1: registration(1, "r")})
    room.publisher.publish(image)
    room.publisher.publish(image.with_brokers({0: registration(0)}))
    others = {0: ("broker0", 9092, None), 1: ("broker1", 9093, "r")}
    for names in (("a",), ()):
        now[0] = 5_000 + 17_999
        assert brokers(ask(room, request(*names))) == others
        described = room.call(describe_cluster, DescribeClusterRequest(), 1)
        assert [each.broker_id for each in described.brokers] == [0]
    now[0] += 1
    assert set(brokers(ask(room, request()))) == {0}
    # Back at another address, it has only that one.
    room.publisher.publish(image)
    room.publisher.publish(image.with_brokers({0: registration(0)}))
    moved = BrokerRegistration(1, (Endpoint("PLAINTEXT", "moved", 1),))
    room.publisher.publish(image.with_brokers({0: registration(0), 1: moved}))
    assert brokers(ask(room, request()))[1] == ("moved", 1, None)


# Creation on first use


def create(room: Replicas, message: MetadataRequest, version: int = LATEST) -> Any:
    answer = asyncio.run(room.ask(metadata, message, version))
    encode(answer, version)
    return answer


@pytest.mark.parametrize("version", [0, 3, 4, LATEST])
def test_missing_topic_is_created_and_can_be_used_when_it_is_answered(
    room: Replicas, topics: Topics, version: int
) -> None:
    """Apache Kafka first answers LEADER_NOT_AVAILABLE, and clients ask again."""
    answer = create(room, request("new", "new", allow_auto_topic_creation=True), version)
    assert errors(answer) == {"new": 0}
    assert topics.asked == [["new"]]
    assert room.replicas.get("new", 0) is not None


def test_topics_that_cannot_be_created_say_why(room: Replicas, topics: Topics) -> None:
    topics.errors = {"b": ErrorCode.INVALID_REPLICATION_FACTOR}
    answer = create(room, request("a", "b", "a b", allow_auto_topic_creation=True))
    assert errors(answer) == {
        "a": 0,
        "b": ErrorCode.INVALID_REPLICATION_FACTOR,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert topics.asked == [["a", "b"]]


def test_nothing_is_created_when_client_or_broker_forbid_it(room: Replicas, topics: Topics) -> None:
    assert errors(ask(room, request("new"))) == {"new": UNKNOWN}
    asked = request("a b", allow_auto_topic_creation=True)
    assert errors(ask(room, asked)) == {"a b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    room.config.values["auto.create.topics.enable"] = False
    assert errors(ask(room, request("new", allow_auto_topic_creation=True))) == {"new": UNKNOWN}
    assert topics.asked == []


def test_topic_asked_for_by_id_is_never_created(room: Replicas, topics: Topics) -> None:
    by_id = [MetadataRequestTopic(name="new", topic_id=b"?" * 16)]
    answer = ask(room, request(topics=by_id, allow_auto_topic_creation=True))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert topics.asked == []
    assert by_id[0].topic_id != ZERO_UUID


def test_known_topics_do_not_wait_for_anybody(room: Replicas, topics: Topics) -> None:
    room.create("a")
    answer = room.call(metadata, request("a", allow_auto_topic_creation=True), LATEST)
    assert errors(answer) == {"a": 0}
    assert topics.asked == []


# DescribeCluster


@pytest.mark.parametrize("version", [0, 1])
def test_cluster_is_described(room: Replicas, version: int) -> None:
    answer = room.call(
        describe_cluster,
        DescribeClusterRequest(include_cluster_authorized_operations=True),
        version,
    )
    encode(answer, version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster", 0)
    assert answer.cluster_authorized_operations == 8096
    assert [each.broker_id for each in answer.brokers] == [0]
    quiet = room.call(describe_cluster, DescribeClusterRequest(), version)
    assert quiet.cluster_authorized_operations == NO_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_controllers_are_not_described(room: Replicas, endpoint: int, error: ErrorCode) -> None:
    answer = room.call(describe_cluster, DescribeClusterRequest(endpoint_type=endpoint), 1)
    assert (answer.error_code, answer.brokers) == (error, [])
    assert answer.error_message
