"""Clients push their own metrics to a broker, which shows them at /metrics (KIP-714)."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from ..support.broker_process import BrokerProcess, KwireBroker, free_port
from ..support.kafka import KAFKA_4
from ..support.kafka_tools import ToolServer, ToolServers

pytestmark = pytest.mark.e2e
EVERYTHING = ("--alter", "--name", "everything", "--metrics", "*", "--interval", "200")

Values = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def http_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, http_port: int) -> Iterator[BrokerProcess]:
    """Give a broker with --http."""
    folder = tmp_path_factory.mktemp("watched")
    with KwireBroker(folder, config={"kwire.http.listener": f"127.0.0.1:{http_port}"}) as broker:
        yield broker


@pytest.fixture
def tools(tool_servers: ToolServers) -> ToolServer:
    """Give the tools of 4.3.0."""
    return tool_servers(KAFKA_4)


@pytest.fixture
def tool(watched: BrokerProcess, tools: ToolServer) -> Iterator[Callable[..., str]]:
    """Give a function that runs a tool; the subscription is removed afterwards."""

    def run(name: str, *arguments: str) -> str:
        result = tools.run(name, "--bootstrap-server", watched.bootstrap, *arguments)
        assert result.status == 0, (result.output, result.errors)
        return result.output

    yield run
    run("kafka-client-metrics", "--delete", "--name", "everything")


def pushed(port: int, client_id: str) -> Values:
    """The values of a client: name -> instance id -> the last series' value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text = response.read().decode()
    values: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("client_id") == client_id:
                instance = sample.labels["client_instance_id"]
                values.setdefault(sample.name, {})[instance] = sample.value
    return values


@pytest.mark.jvm
@pytest.mark.compat("java-tools 4.3.0", "tools")
def test_subscriptions_are_managed_with_kafkas_tools(tool: Callable[..., str]) -> None:
    tool("kafka-client-metrics", *EVERYTHING)
    assert tool("kafka-client-metrics", "--list").split() == ["everything"]
    assert "metrics=*" in tool("kafka-client-metrics", "--describe", "--name", "everything")
    entity = ("--entity-type", "client-metrics", "--entity-name", "everything")
    tool("kafka-configs", "--alter", *entity, "--add-config", "match=[client_id=nobody]")
    described = tool("kafka-configs", "--describe", *entity)
    assert "match=client_id=nobody sensitive=false" in described
    assert "interval.ms=200" in tool("kafka-configs", "--describe", *entity[:2])


@pytest.mark.jvm
@pytest.mark.compat("confluent-kafka", "client metrics")
def test_librdkafka_pushes_its_metrics(
    tool: Callable[..., str], watched: BrokerProcess, http_port: int, name: str
) -> None:
    tool("kafka-client-metrics", *EVERYTHING)
    producer = Producer({"bootstrap.servers": watched.bootstrap, "client.id": name})
    latency = "kafka_client_producer_node_request_latency_avg"
    deadline = time.monotonic() + 30
    found: Values = {}
    while not any(found.get(latency, {}).values()) and time.monotonic() < deadline:
        producer.produce(name, b"x")
        producer.flush(5)
        time.sleep(0.05)
        found = pushed(http_port, name)
    (instance,) = found[latency]
    assert len(instance) == 22
    assert 0 < found[latency][instance] < 60_000
    assert "kafka_client_producer_connection_creation_total" in found


@pytest.mark.jvm
@pytest.mark.compat("java-tools 4.3.0", "client metrics")
def test_java_client_pushes_its_metrics(
    tool: Callable[..., str], watched: BrokerProcess, http_port: int, name: str, tmp_path: Path
) -> None:
    tool("kafka-client-metrics", *EVERYTHING)
    config = tmp_path / "producer.properties"
    config.write_text(f"client.id={name}\n")
    tool(
        "kafka-producer-perf-test",
        *("--topic", name, "--num-records", "900", "--throughput", "300", "--record-size", "10"),
        *("--command-config", str(config)),
    )
    found = pushed(http_port, name)
    (sent,) = found["kafka_client_producer_record_send_total"].values()
    # As in Apache Kafka, records sent after its last push are not counted, nor the content of a push that came too
    # early.
    assert 0 < sent <= 900
    (latency,) = found["kafka_client_producer_request_latency_avg"].values()
    assert latency >= 0
