"""Behind address translation: the broker's message without --advertise, and success with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ..support.broker_process import KwireBroker, free_port
from ..support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.e2e


class WildcardBroker(KwireBroker):
    """Listens on all interfaces, as in a container; clients connect to loopback."""

    def command(self) -> list[str]:
        """Return the command line with a wildcard bind."""
        command = super().command()
        command[command.index("--listen") + 1] = f"0.0.0.0:{self.port}"
        return command

    def _wait(self, deadline: float) -> None:
        super()._wait(deadline)
        self.host = "127.0.0.1"


def addresses(bootstrap: str) -> list[str]:
    """Return host:port of each broker that Metadata names."""
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).brokers
    return [f"{broker.host}:{broker.port}" for broker in brokers.values()]


def test_without_advertise_the_log_says_what_to_do_and_metadata_names_the_local_address(
    tmp_path: Path,
) -> None:
    """The client that connected through the proxy is sent to the broker's own port."""
    with (
        WildcardBroker(tmp_path / "broker") as broker,
        TcpProxy("127.0.0.1", broker.port) as proxy,
    ):
        assert addresses(proxy.address) == [f"127.0.0.1:{broker.port}"]
        log = broker.log_path.read_text()
        assert "--advertise" in log


def test_with_advertise_all_traffic_goes_through_the_proxy(tmp_path: Path) -> None:
    """A client that knows only the proxy's port creates a topic, produces and consumes."""
    port, proxy_port = free_port(), free_port()
    with (
        WildcardBroker(
            tmp_path / "broker", port=port, arguments=("--advertise", f"127.0.0.1:{proxy_port}")
        ) as broker,
        TcpProxy("127.0.0.1", port, port=proxy_port) as proxy,
    ):
        assert addresses(proxy.address) == [proxy.address]
        assert addresses(f"127.0.0.1:{port}") == [proxy.address]
        assert "--advertise" not in broker.log_path.read_text()
        before = proxy.connections
        admin = AdminClient({"bootstrap.servers": proxy.address})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(15)
        producer = Producer({"bootstrap.servers": proxy.address})
        for number in range(100):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(15) == 0
        consumer = Consumer({"bootstrap.servers": proxy.address, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        rows = consumer.consume(100, timeout=15)
        assert [row.value() for row in rows] == [b"%d" % number for number in range(100)]
        consumer.close()
        assert proxy.connections > before
