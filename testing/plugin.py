"""The pytest plugin: the fixtures `kafka`, `kafka_cluster`, `kafka_secure` and `kafka_process`, their options, and the report of a failed test.

It is loaded in every run of pytest where kwire is installed, so it imports nothing of kwire until a fixture is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .broker import Broker
    from .cluster import Cluster
    from .helpers import Helpers
    from .process import ProcessBroker
    from .remote import RemoteCluster
    from .secure import SecureBroker


class AsCompiled:
    """Finds kwire's modules as Python does.

    pytest would find them otherwise, because their package has a plugin: it rewrites the assert statements of all modules of
    such a package, and so compiles each again, in every run if it cannot store the result. A broker took two seconds more.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of kwire."""
        return PathFinder.find_spec(name, path, target) if name.startswith("kwire.") else None


sys.meta_path.insert(0, AsCompiled)

VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
KWIRE_ONLY = "kafka_kwire_only"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("kafka", "Kafka brokers for tests (kwire)")
    group.addoption(
        "--kafka-bootstrap",
        metavar="HOST:PORT",
        help="run the tests on this cluster instead of kwire's brokers; those that need kwire are skipped",
    )
    group.addoption(
        "--kafka-api",
        choices=("3.9", "4.3"),
        default="4.3",
        help="the Apache Kafka release whose APIs the broker of the fixture kafka serves (default: 4.3)",
    )
    parser.addini(
        "kafka_properties",
        type="linelist",
        default=[],
        help="settings of the brokers of the fixture kafka, as KEY=VALUE, one per line",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line(
        "markers",
        "kafka(**properties): broker settings for this test, such as {'log.retention.ms': 1000}",
    )
    config.addinivalue_line(
        "markers", "kafka_brokers(count): how many brokers the fixture kafka_cluster has"
    )
    config.addinivalue_line(
        "markers",
        f"{KWIRE_ONLY}: needs what only kwire has (clock, faults); skipped with --kafka-bootstrap",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that a real cluster cannot run."""
    if config.getoption("--kafka-bootstrap"):
        skip = pytest.mark.skip(reason="needs kwire, and --kafka-bootstrap names another cluster")
        for item in items:
            if item.get_closest_marker(KWIRE_ONLY):
                item.add_marker(skip)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker | RemoteCluster]:
    """A broker for this test alone, or the cluster of --kafka-bootstrap."""
    bootstrap = request.config.getoption("--kafka-bootstrap")
    if bootstrap:
        from .remote import RemoteCluster

        with RemoteCluster(bootstrap) as cluster, in_environment(cluster):
            yield cluster
        return
    from .broker import Broker

    api = request.config.getoption("--kafka-api")
    with Broker(properties_of(request), api=api) as broker, in_environment(broker):
        request.node.stash.setdefault(BROKERS, []).append(broker)
        yield broker


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers for this test, or as many as the marker kafka_brokers says, any of which can be killed."""
    if request.config.getoption("--kafka-bootstrap"):
        pytest.skip("kafka_cluster is kwire's own, and --kafka-bootstrap names another cluster")
    from .cluster import Cluster

    mark = request.node.get_closest_marker("kafka_brokers")
    count = mark.args[0] if mark is not None else 3
    with Cluster(count, properties_of(request)) as cluster, in_environment(cluster):
        request.node.stash.setdefault(BROKERS, []).append(cluster)
        yield cluster


@pytest.fixture
def kafka_process(request: pytest.FixtureRequest) -> Iterator[ProcessBroker]:
    """A broker in a separate process for this test, which can be killed and started again."""
    if request.config.getoption("--kafka-bootstrap"):
        pytest.skip("kafka_process is kwire's own, and --kafka-bootstrap names another cluster")
    from .process import ProcessBroker

    with ProcessBroker(properties_of(request)) as broker, in_environment(broker):
        request.node.stash.setdefault(BROKERS, []).append(broker)
        yield broker


@pytest.fixture
def kafka_secure(request: pytest.FixtureRequest) -> Iterator[SecureBroker]:
    """A broker with TLS, users and ACLs for this test alone."""
    if request.config.getoption("--kafka-bootstrap"):
        pytest.skip("kafka_secure is kwire's own, and --kafka-bootstrap names another cluster")
    from .secure import SecureBroker

    api = request.config.getoption("--kafka-api")
    with SecureBroker(properties_of(request), api=api) as broker, in_environment(broker):
        request.node.stash.setdefault(BROKERS, []).append(broker)
        yield broker


#: The brokers of a test, for its report.
BROKERS: pytest.StashKey[list[Any]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show in the report of a failed test what its brokers have seen and logged."""
    report = yield
    if report.failed:
        for broker in item.stash.get(BROKERS, ()):
            for title, lines in (
                ("kafka: rules in force", [f"{each}: {each.hits} hits" for each in broker.faults]),
                ("kafka: last requests", broker.last_requests),
                ("kafka: broker log", broker.log),
            ):
                if lines:
                    report.sections.append((title, "\n".join(lines)))
    return report


def properties_of(request: pytest.FixtureRequest) -> dict[str, str]:
    """The broker settings of a test: those of the ini file, then those of its markers, the nearest last."""
    properties: dict[str, str] = {}
    for line in request.config.getini("kafka_properties"):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"kafka_properties: not KEY=VALUE: {line!r}")
        properties[key.strip()] = value.strip()
    for mark in reversed(list(request.node.iter_markers("kafka"))):
        for given in (*mark.args, mark.kwargs):
            properties |= {key: str(value) for key, value in given.items()}
    return properties


@contextmanager
def in_environment(cluster: Helpers) -> Iterator[None]:
    """Set KAFKA_BOOTSTRAP_SERVERS for code that reads the environment."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = cluster.bootstrap_servers
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
