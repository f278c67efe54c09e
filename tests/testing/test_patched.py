"""Tests that freeze the time, replace files, block sockets or replace threads: brokers work, or say what to set."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import kafka as kafka_python
import pytest

from kwire.testing import Broker, Cluster, ProcessBroker, SecureBroker
from kwire.testing.client import topics
from kwire.testing.real_time import wall_ns
from server import clock

from .clients import consumer, producer, read, send

freezegun = pytest.importorskip("freezegun")
time_machine = pytest.importorskip("time_machine")
pytest.importorskip("pyfakefs.fake_filesystem_unittest")
pytest_socket = pytest.importorskip("pytest_socket")
pytest.importorskip("gevent")

HOUR_MS = 3_600_000
TIMES = {
    "frozen in the future": lambda: freezegun.freeze_time("2081-01-01"),
    "ticking in the past": lambda: freezegun.freeze_time("2012-01-01", tick=True),
    "travelled": lambda: time_machine.travel("2081-01-01", tick=False),
}


def alone(script: str) -> str:
    """Run a script in a process of its own, which the replacements end with; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=list(TIMES))
def other_time(request: pytest.FixtureRequest) -> AbstractContextManager[object]:
    """The time of a test, not yet entered."""
    made: AbstractContextManager[object] = TIMES[request.param]()
    return made


@pytest.fixture
def real_ms() -> int:
    """The machine's time, before the test changes it. Unit: ms since the epoch."""
    return wall_ns() // 1_000_000


def test_brokers_time_is_the_machines(
    other_time: AbstractContextManager[object], real_ms: int
) -> None:
    with other_time, Broker() as broker:
        topic = broker.topic(configs={"retention.ms": HOUR_MS})
        [sent] = topic.produce("1")
        send(producer(broker.bootstrap_servers), topic, b"2")
        for time_ms in (broker.clock.now_ms(), sent.timestamp):
            assert 0 <= time_ms - real_ms < HOUR_MS
        with consumer(broker.bootstrap_servers, "g") as client:
            client.subscribe([topic])
            assert read(client, 2) == [b"1", b"2"]
        with pytest.raises(TimeoutError, match="2 of 3 records"):
            topic.consume(3, timeout="20ms")
        with pytest.raises(TimeoutError, match="still False"):
            broker.wait_for(lambda: False, timeout="20ms")
        broker.clock.advance("59min")
        assert len(topic.consume()) == 2
        broker.clock.advance("10min")
        assert topic.consume() == []


def test_time_that_is_changed_later_does_not_reach_the_broker(
    other_time: AbstractContextManager[object], real_ms: int
) -> None:
    with Broker() as broker:
        topic = broker.topic()
        with other_time:
            with broker.fork() as fork:
                assert 0 <= fork.clock.now_ms() - real_ms < HOUR_MS
                assert topics.names(fork.client) == [topic]
            topic.produce("1")
            broker.clock.advance("1h")
            assert 0 <= broker.clock.now_ms() - real_ms - HOUR_MS < HOUR_MS
        assert len(topic.consume(1)) == 1


def test_certificates_and_logins_are_valid_now(other_time: AbstractContextManager[object]) -> None:
    with other_time, SecureBroker() as broker:
        broker.user("alice", password="p")
        topic = broker.topic("orders")
        broker.allow("User:alice", "Write", topic="orders")
        settings = broker.client_config("alice")
        send(producer(settings.pop("bootstrap.servers"), **settings), "orders")
        assert len(topic.consume(1)) == 1


@pytest.mark.e2e
def test_broker_in_its_own_process_has_its_own_time() -> None:
    with freezegun.freeze_time("2081-01-01"), ProcessBroker() as broker:
        topic = broker.topic(configs={"retention.ms": HOUR_MS})
        topic.produce("1")
        broker.restart()
        with pytest.raises(TimeoutError, match="1 of 2 records"):
            topic.consume(2, timeout="20ms")


def test_certificates_are_made_in_frozen_time_and_after_it() -> None:
    printed = alone("""
import freezegun
from kwire.testing.certificates import Authority

with freezegun.freeze_time("2081-01-01"):
    Authority()
print(Authority().issue("CN=app").principal)
""")
    assert printed == "User:CN=app\n"


def test_kafka_python_works_in_frozen_time_if_freezegun_leaves_it_alone() -> None:
    with freezegun.freeze_time("2081-01-01", ignore=["kafka"]), Broker() as broker:
        topic = broker.topic()
        client = kafka_python.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        assert client.send(topic, b"1").get(10).offset == 0
        client.close()


def test_clock_first_imported_in_frozen_time_is_the_machines(
    monkeypatch: pytest.MonkeyPatch, real_ms: int
) -> None:
    monkeypatch.delitem(sys.modules, clock.__name__)
    with freezegun.freeze_time("2081-01-01"):
        from server.clock import SystemClock

        assert datetime.now(UTC).year == 2081
        assert 0 <= SystemClock().now_ms() - real_ms < HOUR_MS


# -- files


def test_broker_on_fake_files_is_refused() -> None:
    """Modules that are imported while pyfakefs is active would be loaded twice in this process."""
    printed = alone("""
from pyfakefs.fake_filesystem_unittest import Patcher
from kwire.testing import Broker, Cluster, ProcessBroker

with Patcher():
    for refused in (Broker(), Cluster(2), ProcessBroker()):
        try:
            refused.start()
        except RuntimeError as error:
            print(error)
with Broker() as broker:
    broker.topic().produce("1")
    print("stored")
""")
    *refusals, last = printed.splitlines()
    assert len(refusals) == 3
    for refusal in refusals:
        assert re.search(r"pyfakefs has .* kafka_process, and request it before fs", refusal)
    assert last == "stored"


def test_log_of_a_broker_says_what_files_were_replaced() -> None:
    error, *lines = alone("""
from pyfakefs.fake_filesystem_unittest import Patcher
from kwire.testing import Broker
from tests.testing.clients import producer, send

with Broker() as broker:
    with Patcher():
        try:
            send(producer(broker.bootstrap_servers, message_timeout_ms=500), "orders")
            print("stored")
        except Exception as error:
            print(error)
    print(*broker.log, sep="\\n")
""").splitlines()
    assert re.search(r"KAFKA_STORAGE_ERROR|TIMED_OUT", error)
    assert any("pyfakefs has replaced the file functions" in line for line in lines)


# -- sockets


@pytest.fixture(params=["all", "all but another host"])
def blocked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sockets, blocked by pytest-socket."""
    if request.param == "all":
        pytest_socket.disable_socket()
    else:
        pytest_socket.socket_allow_hosts(["192.0.2.1"])
    yield
    pytest_socket._remove_restrictions()


@pytest.mark.usefixtures("blocked")
def test_broker_without_sockets_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"pytest-socket blocks .* --allow-hosts=127\.0\.0\.1"):
        Broker().start()


def test_broker_works_if_its_host_is_allowed() -> None:
    pytest_socket.socket_allow_hosts(["127.0.0.1"])
    try:
        with Cluster(2) as cluster:
            assert len(cluster.topic().produce("1")) == 1
    finally:
        pytest_socket._remove_restrictions()


# -- threads

GREEN = """
from gevent import monkey
monkey.patch_all(thread={thread})
from kwire.testing import Broker, ProcessBroker
try:
    Broker().start()
except RuntimeError as error:
    print(error)
with ProcessBroker() as broker:
    topic = broker.topic()
    topic.produce("1")
    print(len(topic.consume()))
"""


@pytest.mark.e2e
@pytest.mark.parametrize("thread", [True, False])
def test_broker_on_green_threads_is_refused_and_one_in_a_process_works(thread: bool) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", GREEN.format(thread=thread)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    [refusal, count] = ran.stdout.splitlines()
    assert refusal.startswith("gevent has replaced")
    assert refusal.endswith("use the fixture kafka_process")
    assert count == "1"
