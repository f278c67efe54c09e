"""A whole broker for the tests of this folder, and the results for the compatibility matrix.

The broker under test is kwire; KWIRE_E2E_BROKER=kafka-3.9.2 (or kafka-4.3.0) runs the same tests on Apache Kafka, which
shows that a test checks Kafka's behavior and not kwire's own. KWIRE_LONG=1 runs the long form: more records, more
kills. KWIRE_COMPAT_CLIENT=CLIENT runs only that client's tests, and KWIRE_COMPAT_RESULTS=FOLDER keeps results for
compat/matrix.py.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ..support.broker_process import REPOSITORY, BrokerProcess, KwireBroker
from ..support.kafka import kafka_broker
from ..support.secured import Secured

BROKER = os.environ.get("KWIRE_E2E_BROKER", "kwire")
_topic_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that assigns a test to a cell of the matrix."""
    config.addinivalue_line("markers", "compat(client, feature): a cell of compat/MATRIX.md")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of all clients except the requested one."""
    wanted = os.environ.get("KWIRE_COMPAT_CLIENT")
    if not wanted:
        return
    kept, left = [], []
    for item in items:
        clients = {marker.args[0].split(" ")[0] for marker in item.iter_markers("compat")}
        (kept if wanted in clients else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def build_broker(
    directory: Path, config: Mapping[str, str] | None = None, **options: Any
) -> BrokerProcess:
    """Return the broker under test, not yet started."""
    if BROKER == "kwire":
        return KwireBroker(directory, config=config, **options)
    return kafka_broker(BROKER.removeprefix("kafka-"), directory, config=config, **options)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide a running broker that all tests share; each test uses its own topics and groups."""
    started = build_broker(tmp_path_factory.mktemp("broker"))
    with started:
        yield started


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Provide a kwire broker with TLS, logins and ACLs."""
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        made.start()
        yield made
    finally:
        made.process.stop()


@pytest.fixture
def new_broker(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., BrokerProcess]]:
    """Give a function that starts a separate broker for the test; all end with the test."""
    started: list[BrokerProcess] = []

    def start(config: Mapping[str, str] | None = None, **options: Any) -> BrokerProcess:
        process = build_broker(tmp_path_factory.mktemp("own"), config, **options)
        started.append(process)
        process.start()
        return process

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Give a topic and group name that no other test uses."""
    stem = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:60]
    return f"{stem}-{os.getpid()}-{next(_topic_numbers)}"


@pytest.fixture(scope="session")
def long_form() -> bool:
    """Whether the long form was requested."""
    return os.environ.get("KWIRE_LONG", "") not in ("", "0")


def client_version(client: str) -> str:
    """Return the version under test of a client named in the matrix."""
    if client == "kcat":
        shown = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False)
        found = re.search(r"Version (\S+)", shown.stdout)
        return found[1] if found else "absent"
    if " " in client:  # "java-tools 3.9.2"
        return client.split(" ", 1)[1]
    if client == "franz-go":
        found = re.search(
            r"twmb/franz-go v(\S+)", (REPOSITORY / "compat/franz-go/go.mod").read_text()
        )
        return found[1] if found else "absent"
    if client == "spark":
        return "4.0.0"
    return importlib.metadata.version(client)


_results: dict[str, dict[str, dict[str, str]]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the outcome of a test with the marker `compat`."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        for marker in item.iter_markers("compat"):
            client, feature = marker.args
            features = _results.setdefault(client, {})
            outcomes = features.setdefault(feature, {})
            outcomes[item.nodeid] = report.outcome
    return report


def pytest_sessionfinish() -> None:
    """Merge the outcomes into one file per client and version, if a folder is set."""
    folder = os.environ.get("KWIRE_COMPAT_RESULTS")
    if not folder:
        return
    for client, features in _results.items():
        version = client_version(client)
        stem = f"{client.split(' ')[0]}-{version}"
        path = Path(folder) / BROKER / f"{stem}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = json.loads(path.read_text()) if path.exists() else {}
        merged: dict[str, dict[str, str]] = stored.get("features", {})
        for feature, outcomes in features.items():
            merged.setdefault(feature, {}).update(outcomes)
        result = {"client": client.split(" ")[0], "version": version, "features": merged}
        path.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
