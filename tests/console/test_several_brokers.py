"""The console of each broker of a cluster shows the facts of the others."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kwire.server.net.broker_channel import ChannelError
from kwire.testing import Cluster

pytestmark = pytest.mark.e2e

CONSOLE = {
    "kwire.http.listener": "127.0.0.1:0",
    "kwire.console.enable": "true",
    "kwire.console.write": "true",
}


def port(cluster: Cluster, broker: int) -> int:
    found = cluster._nodes[broker].broker
    assert found is not None and found.http is not None
    return int(found.http.port)


class Browser:
    """Asks the console of one broker, after unlocking it for writing if `write`."""

    def __init__(self, cluster: Cluster, broker: int, write: bool = False) -> None:
        self.port = port(cluster, broker)
        self.cookie = ""
        if write:
            console = cluster._nodes[broker].broker.console  # type: ignore[union-attr]
            answer = self._ask("POST", "/console/write", {"token": console.write_token})  # type: ignore[union-attr]
            self.cookie = str(answer.getheader("set-cookie")).partition(";")[0]

    def _ask(
        self, method: str, path: str, fields: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        host = f"localhost:{self.port}"
        headers = {"Host": host, "Connection": "close", "Origin": f"http://{host}"}
        if self.cookie:
            headers["Cookie"] = self.cookie
        connection.request(method, path, urlencode(fields or {}).encode(), headers)
        return connection.getresponse()

    def get(self, path: str) -> str:
        response = self._ask("GET", path)
        text = response.read().decode()
        assert response.status == 200, text
        return re.sub(r"\s+", " ", text)

    def post(self, form: str, fields: dict[str, str]) -> str:
        """Send a form of the console; returns where it leads."""
        path = f"/console/write/{form}"
        found = re.search(r'name="code" value="([^"]+)"', self.get(f"{path}?{urlencode(fields)}"))
        assert found
        response = self._ask("POST", path, fields | {"code": found[1]})
        text = response.read().decode()
        assert response.status == 303, text
        return str(response.getheader("location"))


def get(cluster: Cluster, broker: int, path: str) -> str:
    return Browser(cluster, broker).get(path)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two brokers, each of which leads partitions of `orders`."""
    with Cluster(2, CONSOLE) as cluster:
        cluster.topic("orders", partitions=4)
        for number in range(4):
            cluster.produce("orders", f"value-{number}", partition=number)
        yield cluster


def add_group_and_transaction(cluster: Cluster) -> Producer:
    """A group that has read nothing, and an open transaction; only one broker coordinates each."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing"})
    consumer.commit(
        offsets=[TopicPartition("orders", number, 0) for number in range(4)], asynchronous=False
    )
    consumer.close()
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payer"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(4):
        producer.produce("orders", b"open", partition=number)
    producer.flush(30)
    return producer


def other(broker: int) -> int:
    return 3 - broker


def test_pages_show_what_other_brokers_know(cluster: Cluster) -> None:
    producer = add_group_and_transaction(cluster)  # while it lives, the transaction stays open
    assert producer
    for broker in cluster.brokers:
        assert {cluster.leader("orders", number) for number in range(4)} == {1, 2}
        page = get(cluster, broker, "/console/topics/orders")
        assert page.count("1 record held back") == 4  # so both ends were requested from each leader
        messages = get(cluster, broker, "/console/topics/orders/messages")
        for number in range(4):
            assert f"value-{number}" in messages
        assert "undecided" in messages
        group = get(cluster, broker, "/console/group?id=billing")
        assert group.count('<span class="lag">2</span>') == 4
        listed = get(cluster, broker, "/console/groups")
        assert (
            'href="/console/group?id=billing"' in listed and '<span class="lag">8</span>' in listed
        )
        assert "billing" in get(cluster, broker, "/console/topics/orders/groups")
        transactions = get(cluster, broker, "/console/transactions")
        assert "payer" in transactions and "4 records" in transactions
        for number in range(4):
            producers = get(cluster, broker, f"/console/topics/orders/producers?partition={number}")
            assert "since offset 1" in producers
        assert "Topics" in (topics := get(cluster, broker, "/console/topics"))
        assert '<td class="n">8</td>' in topics  # records
        for number in range(4):
            explained = get(
                cluster, broker, f"/console/explain?topic=orders&partition={number}&offset=1"
            )
            assert "payer" in explained
        assert "does not answer" not in page


def test_pages_of_what_only_a_broker_itself_can_show_lead_to_the_others(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        there = f"http://127.0.0.1:{port(cluster, other(broker))}/console"
        assert f'href="{there}/connections">broker {other(broker)}</a>' in get(
            cluster, broker, "/console/connections"
        )
        assert f'href="{there}/log"' in get(cluster, broker, "/console/log")
        assert f'href="{there}/topics/orders/segments?partition=1"' in get(
            cluster, broker, "/console/topics/orders/segments?partition=1"
        )
        page = get(cluster, broker, "/console/")
        assert f'href="{there}/"' in page
        stored = re.findall(
            r"<td class=\"n\">([\d.,]+ K?i?B)</td><td class=\"n\">[\d.,]+ GiB</td>", page
        )
        assert len(stored) == 2, page


def test_forms_change_what_other_brokers_lead_and_coordinate(cluster: Cluster) -> None:
    producer = add_group_and_transaction(cluster)  # while it lives, the transaction stays open
    assert producer
    browser = Browser(cluster, other(cluster.controller), write=True)
    assert browser.post("topic", {"name": "new", "partitions": "2"}) == "/console/topics/new"
    assert cluster.leader("new", 0) != cluster.leader("new", 1)
    for number in range(2):
        fields = {"topic": "new", "partition": str(number), "value": f"written to {number}"}
        browser.post("produce", fields)
        assert cluster.consume("new", 1, partition=number)[0].value == fields["value"].encode()
    browser.post("topic-delete", {"topic": "new", "again": "new"})
    # Only one of the brokers coordinates these.
    for broker in cluster.brokers:
        browser = Browser(cluster, broker, write=True)
        at = str(broker - 1)
        browser.post("reset", {"group": "billing", "to": "offset", "at": at})
        assert cluster.committed("billing", "orders", 3) == int(at)
    browser.post("abort", {"id": "payer"})
    cluster.wait_for(lambda: len(cluster.consume("orders", read_committed=True)) == 4)
    for broker in cluster.brokers:
        assert "0 transactions are open" in get(cluster, broker, "/console/transactions")


def test_broker_that_does_not_answer_is_named_and_not_asked_again_soon(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = cluster._nodes[1].broker.rooms  # type: ignore[union-attr]
    assert rooms is not None and rooms.clients is not None
    asked = []

    async def send(broker_id: int, request: object, version: int) -> object:
        asked.append(broker_id)
        raise ChannelError("cannot connect")

    monkeypatch.setattr(rooms.clients.looking(), "send", send)
    ask = "/console/topics/orders/messages?q=value"
    for page in (get(cluster, 1, ask), get(cluster, 1, ask)):
        assert "<strong>Broker 2 does not answer.</strong>" in page
        for number in range(4):
            assert (f"value-{number}" in page) == (cluster.leader("orders", number) == 1)
    assert len(asked) < 4 and set(asked) == {2}
