"""kwire's answers to a client that lacks a permission, beside those of Apache Kafka 3.9.2.

One broker with an authorizer that allows what it is not told to deny. A request is sent without
each permission for which the broker asks, and each on which Apache Kafka's answer depends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from server.broker import Broker
from server.config import BrokerConfig
from server.handlers.authorization import AclOperation, ResourceType
from server.handlers.ceilings import ApiRange
from server.net.connection_info import ConnectionInfo
from tests.support.replicas import UnsyncedFiles
from tests.support.wire_client import WireClient

from .asking import Asking, Table, each_version, follows, title
from .cases import DENIALS, Permission, effect, name_of

pytestmark = pytest.mark.e2e

KAFKA: Table = json.loads((Path(__file__).parent / "kafka-3.9.2.json").read_text())

#: Cases with other effects than in Apache Kafka, in at least one version, and why.
DIFFERENT = {
    # kwire answers when the topic can be used; Apache Kafka first says that it has no leader yet, and so
    # a denial takes no partitions away there.
    "Metadata with automatic creation",
    # The id of the new topic is shown as since 4.0: this broker's ceiling is 4.3.
    "CreateTopics",
    # Apache Kafka fails to make the answer, and closes the connection.
    "DescribeUserScramCredentials",
}


class Denier:
    """Allows everything but `denied`, and notes what it is asked for."""

    def __init__(self) -> None:
        self.denied: tuple[Permission, ...] = ()
        self.asked: set[Permission] = set()

    def allows_any(
        self, connection: ConnectionInfo, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        self.asked.add((resource_type, operation))
        return (resource_type, operation) not in self.denied

    def allows(
        self,
        connection: ConnectionInfo,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        self.asked.add((resource_type, operation))
        return (resource_type, operation) not in self.denied


def kwires_table(broker: Broker) -> Table:
    """The effects of denials in kwire, for the versions that it serves."""
    rooms = broker.rooms
    assert rooms is not None
    denier = Denier()
    object.__setattr__(rooms.services, "authorizer", denier)
    port = broker.serving.listeners[0].port

    def connect() -> WireClient:
        return WireClient("127.0.0.1", port)

    @contextmanager
    def deny(case: str, denied: tuple[Permission, ...]) -> Iterator[None]:
        denier.denied = denied
        denier.asked = set()
        yield
        denier.denied = ()

    with closing(Asking(connect(), connect, deny)) as asking:
        return effects(asking, denier, rooms.services.api_ranges)


def effects(asking: Asking, denier: Denier, ranges: Mapping[int, ApiRange]) -> Table:
    table: Table = {}
    for case, version in each_version():
        served = ranges.get(case.api)
        if served is None or not served.min_version <= version <= served.max_version:
            continue
        key = title(case, version)
        row: dict[str, dict[str, Any]] = {}
        allowed = asking.ask(case, version, ())
        asked = denier.asked
        for denied in DENIALS:
            # What the broker does not ask for cannot change its answer.
            if set(denied) & asked or name_of(denied) in KAFKA[key]:
                found = effect(allowed, asking.ask(case, version, denied))
                asked |= denier.asked
                if found and not follows(row, denied, found):
                    row[name_of(denied)] = found
        table[key] = row
    return table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    async def run() -> Table:
        settings = {
            "broker.id": "0",
            "log.dirs": str(tmp_path_factory.mktemp("broker")),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",
        }
        broker = Broker(BrokerConfig(settings), file_layer=UnsyncedFiles())
        try:
            await broker.start()
            return await asyncio.to_thread(kwires_table, broker)
        finally:
            await broker.stop()

    return asyncio.run(run())


def disagreements(table: Table) -> dict[str, dict[str, Any]]:
    """Case -> denial -> its effect in kwire and in Apache Kafka, where they are not the same."""
    return {
        case: {
            name: (row.get(name), KAFKA[case].get(name))
            for name in sorted(row.keys() | KAFKA[case].keys())
            if row.get(name) != KAFKA[case].get(name)
        }
        for case, row in table.items()
        if row != KAFKA[case]
    }


def name_of_case(key: str) -> str:
    return key.rpartition(", version ")[0]


def test_effects_of_denials_are_those_of_apache_kafka(table: Table) -> None:
    differ = disagreements(table)
    assert {key: differ[key] for key in differ if name_of_case(key) not in DIFFERENT} == {}


def test_list_of_what_differs_is_no_longer_than_it_has_to_be(table: Table) -> None:
    assert DIFFERENT - {name_of_case(key) for key in disagreements(table)} == set()


def test_most_of_the_requests_are_served(table: Table) -> None:
    assert len(table) > 70
