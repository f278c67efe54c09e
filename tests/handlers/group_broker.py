"""The part of a broker that group handlers use; requests and answers cross the wire format."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterable
from typing import Any

from kwire.api import response_class
from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from server.coordinator.group.config import GroupConfig
from server.coordinator.group.coordinator import GroupCoordinator
from server.handlers.context import Features, Later, RequestContext
from server.handlers.registry import Handler
from server.metadata.endpoint import Endpoint
from server.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from server.metadata.topic_partition import TopicPartition
from server.net.connection_info import ConnectionInfo
from server.turns import Turns
from tests.coordinator.memory_log import MemoryLog
from tests.support.clock import ManualClock
from tests.support.services import services_of
from tests.support.share_persister import MemoryPersister
from tests.support.steps import finished


def topic_image(name: str, partitions: int, leader: int = 1) -> TopicImage:
    rows = {p: PartitionImage(p, leader, 0, (leader,), (leader,)) for p in range(partitions)}
    return TopicImage(name, name.encode().ljust(16, b"\0"), rows)


class Topics:
    """Creates internal topics on request, and counts the requests."""

    def __init__(self, broker: GroupBroker) -> None:
        self.broker = broker
        self.asked: list[str] = []

    async def ensure_internal_topic(self, name: str) -> None:
        self.asked.append(name)
        self.broker.image = self.broker.image.with_topics([topic_image(name, 5)])


class GroupBroker:
    """Broker 1 with a topic of two partitions; it coordinates all groups."""

    def __init__(self, **config: int) -> None:
        settings = {
            "initial_rebalance_delay_ms": 0,
            "offsets_topic_partitions": 5,
            "share_assignment_interval_ms": 0,
            **config,
        }
        self.clock = ManualClock()
        self.log = MemoryLog()
        self.persister = MemoryPersister()
        #: Where partitions end for consumers, or why it is not known.
        self.ends: dict[TopicPartition, int | ErrorCode] = {}
        self.coordinator = GroupCoordinator(
            GroupConfig(**settings),
            self.log,
            self.clock,
            metadata=lambda: self.image,
            persister=self.persister,
            latest_offsets=self.latest_offsets,
        )
        endpoints = (Endpoint("PLAINTEXT", "advertised", 1234), Endpoint("TLS", "other", 9093))
        self.image = (
            MetadataImage()
            .with_brokers({n: BrokerRegistration(n, endpoints) for n in (1, 2)})
            .with_topics([topic_image("topic", 2)])
        )
        self.topics = Topics(self)
        self.services = services_of(
            node_id=1,
            ceiling="3.9",
            clock=self.clock,
            advertises=False,
            metadata=lambda: self.image,
            group_coordinator=self.coordinator,
            topics=self.topics,
            turns=Turns(self.clock.monotonic_us),
            features=Features.of({"share.version": (0, 1)}),
        )
        self.connection = ConnectionInfo("1", client_host="10.0.0.7", local_host="10.0.0.1")

    async def latest_offsets(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | ErrorCode]:
        return {tp: self.ends.get(tp, 0) for tp in tps}

    async def start(self) -> GroupBroker:
        for partition in range(5):
            self.coordinator.lead(partition, 1)
        await self.coordinator.runtime.wait_until_loaded()
        return self

    def context(self, handler: Handler[Any], version: int) -> RequestContext:
        """A request's context."""
        now_ms = self.clock.now_ms()
        return RequestContext(handler, version, 1, "client", now_ms, self.connection, self.services)

    def call(self, handler: Handler[Any], request: Any, version: int) -> Any:
        """Send a request in a version; return the response as a client reads it, or an awaitable of it."""
        stored = decode(type(request), encode(request, version), version)
        answer = finished(handler(self.context(handler, version), stored))
        if isinstance(answer, Later):
            return self.later(handler, answer, version)
        return self.read(handler, answer, version)

    def read(self, handler: Handler[Any], answer: Any, version: int) -> Any:
        return decode(response_class(handler.api_key), encode(answer, version), version)

    async def later(self, handler: Handler[Any], later: Later[Any], version: int) -> Any:
        answer = await later.awaitable
        if later.finish is not None:
            answer = finished(later.finish(answer))
        return self.read(handler, answer, version)

    async def ask(self, handler: Handler[Any], request: Any, version: int) -> Any:
        """Like `call`, and wait for the response."""
        answer: Awaitable[Any] | Any = self.call(handler, request, version)
        return await answer if inspect.isawaitable(answer) else answer
