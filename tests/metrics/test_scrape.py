"""The scrape of a broker with known work."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.messages.sasl_handshake import SaslHandshakeRequest
from server.metrics.exposition import names_of
from server.metrics.table import ROWS, log_dir_lag
from tests.http.test_health import get
from tests.metrics.scraped import RECORDS, Client, Series, broker_in, busy, chunks, parse, value

#: Series that only exist with something that this broker does not have: a watchdog, listeners with logins.
ABSENT = {
    "kwire_logins_total",
    *(
        f"kafka_server_{sockets}_{what}"
        for sockets in ("socket_server_metrics", "socketservermetrics")
        for what in (
            "successful_authentication_total",
            "failed_authentication_total",
            "successful_reauthentication_total",
            "failed_reauthentication_total",
            "expired_connections_killed_count",
        )
    ),
    "kwire_loop_longest_turn_seconds",
    "kwire_loop_long_turns_total",
    "kwire_loop_long_turns_by_request_total",
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return asyncio.run(busy(tmp_path_factory.mktemp("broker")))


@pytest.fixture(scope="module")
def series(text: str) -> list[Series]:
    return parse(text)


def test_every_row_of_the_table_is_served_with_its_labels(series: list[Series]) -> None:
    found: dict[str, set[str]] = {}
    for each in series:
        found.setdefault(each.name, set()).update(each.labels)
    told = names_of(ROWS)
    assert set(told) - set(found) <= ABSENT
    assert {name: set(told[name]) for name in found if name in told} == {
        name: labels for name, labels in found.items() if name in told
    }


def test_the_copy_that_is_furthest_behind_is_told() -> None:
    ends = {"a": 100, "b": 50}
    copies = [SimpleNamespace(tp=tp, log_end_offset=30) for tp in ("b", "a", "gone")]
    logs = {tp: SimpleNamespace(log_end_offset=end) for tp, end in ends.items()}
    manager = SimpleNamespace(get=logs.get, futures=lambda: copies)
    view: Any = SimpleNamespace(sources=SimpleNamespace(logs=manager))
    assert list(log_dir_lag(view)) == [(("ReplicaAlterLogDirs",), 70)]
    copies.clear()
    assert list(log_dir_lag(view)) == [(("ReplicaAlterLogDirs",), 0)]


def test_no_series_is_told_twice(series: list[Series]) -> None:
    counts = Counter((each.name, tuple(sorted(each.labels.items()))) for each in series)
    assert [each for each, count in counts.items() if count > 1] == []


def test_every_family_is_told_in_one_piece(text: str) -> None:
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("kafka_server_brokertopicmetrics_messagesin_total", {"topic": "orders"}, 10 * RECORDS),
        ("kafka_server_brokertopicmetrics_messagesinpersec", {"topic": "orders"}, 10 * RECORDS),
        ("kafka_server_brokertopicmetrics_messagesin_total", {}, 10 * RECORDS + 1),  # the commit
        ("kafka_server_brokertopicmetrics_totalproducerequests_total", {"topic": "orders"}, 10),
        ("kafka_server_brokertopicmetrics_totalfetchrequests_total", {"topic": "orders"}, 2),
        ("kafka_server_brokertopicmetrics_failedfetchrequests_total", {}, 0),
        ("kafka_network_requestmetrics_requests_total", {"request": "Produce", "version": "9"}, 11),
        ("kafka_network_requestmetrics_requests_total", {"request": "FetchConsumer", "version": "12"}, 2),
        ("kafka_network_requestmetrics_errorspersec", {"request": "Produce", "error": "NONE"}, 10),
        (
            "kafka_network_requestmetrics_errorspersec",
            {"request": "Produce", "error": "UNKNOWN_TOPIC_OR_PARTITION"},
            1,
        ),
        ("kafka_network_requestmetrics_errorspersec", {"request": "Fetch", "error": "OFFSET_OUT_OF_RANGE"}, 1),
        ("kafka_network_requestmetrics_errorspersec", {"request": "OffsetCommit", "error": "NONE"}, 1),
        ("kafka_network_requestmetrics_totaltimems_count", {"request": "Produce"}, 11),
        ("kafka_server_replicamanager_leadercount", {}, 4),
        ("kafka_server_replicamanager_partitioncount", {}, 4),
        ("kafka_server_replicamanager_underreplicatedpartitions", {}, 0),
        ("kafka_controller_kafkacontroller_activecontrollercount", {}, 1),
        ("kafka_controller_kafkacontroller_globaltopiccount", {}, 2),
        ("kafka_controller_kafkacontroller_globalpartitioncount", {}, 4),
        ("kafka_log_log_logendoffset", {"topic": "orders", "partition": "0"}, 10 * RECORDS),
        ("kafka_cluster_partition_atminisr", {"topic": "orders", "partition": "1"}, 1),
        ("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", {}, 1),
        ("kafka_server_kafkaserver_brokerstate", {}, 3),
        ("kafka_topic_partitions", {"topic": "orders"}, 2),
        ("kafka_topic_partition_leader", {"topic": "orders", "partition": "0"}, 1),
        ("kafka_consumergroup_lag_sum", {"consumergroup": "readers", "topic": "orders"}, 10 * RECORDS - 100),
        (
            "kafka_consumergroup_current_offset",
            {"consumergroup": "readers", "topic": "orders", "partition": "0"},
            100,
        ),
        ("kafka_brokers", {}, 1),
    ],
)  # fmt: skip
def test_value_is_what_was_done(
    series: list[Series], name: str, labels: dict[str, str], expected: float
) -> None:
    assert value(series, name, **labels) == expected


def test_bytes_in_and_out_are_those_of_the_log(series: list[Series]) -> None:
    size = value(series, "kafka_log_log_size", topic="orders", partition="0")
    assert value(series, "kafka_server_brokertopicmetrics_bytesin_total", topic="orders") == size
    assert value(series, "kafka_server_brokertopicmetrics_bytesout_total", topic="orders") == size


def test_topics_that_are_gone_stay_in_the_sums(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_in(tmp_path)
        await broker.start()
        try:
            assert broker.rooms is not None and broker.http is not None
            assert await broker.rooms.services.topics.auto_create(["orders"]) == {}
            client = await Client.connect(broker)
            await client.produce("orders")
            await client.fetch("orders")
            before = parse(await chunks(broker.http.port))
            assert await broker.rooms.controller.delete_topics(["orders"]) == [None]
            after = parse(await chunks(broker.http.port))
            await client.close()
        finally:
            await broker.stop()
        assert not [each for each in after if each.labels.get("topic") == "orders"]
        for what in ("bytesin", "bytesout", "messagesin", "totalproducerequests"):
            name = f"kafka_server_brokertopicmetrics_{what}_total"
            assert value(after, name) == value(before, name) > 0

    asyncio.run(main())


def test_partitions_beyond_the_limit_are_only_in_the_sums(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_in(
            tmp_path, **{"num.partitions": "9", "kwire.metrics.partition.limit": "4"}
        )
        await broker.start()
        try:
            assert broker.rooms is not None and broker.http is not None
            assert await broker.rooms.services.topics.auto_create(["orders"]) == {}
            series = parse(await chunks(broker.http.port))
        finally:
            await broker.stop()
        assert len([each for each in series if each.name == "kafka_log_log_size"]) == 4
        assert value(series, "kafka_server_replicamanager_partitioncount") == 9
        assert value(series, "kwire_metrics_partitions_left_out") == 5

    asyncio.run(main())


def test_broker_that_is_starting_has_no_metrics_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        broker = broker_in(tmp_path)
        found: list[int] = []

        async def open_logs(*_: object) -> None:
            assert broker.http is not None
            found.append((await get(broker.http.port, "/metrics"))[0])
            raise OSError("enough")

        monkeypatch.setattr("server.composition.serving.open_logs", open_logs)
        with pytest.raises(OSError, match="enough"):
            await broker.start()
        await broker.stop()
        assert found == [503]

    asyncio.run(main())


def test_scrapes_at_the_same_time_are_all_answered(tmp_path: Path) -> None:
    async def main() -> list[int]:
        broker = broker_in(tmp_path)
        await broker.start()
        try:
            assert broker.http is not None
            answers = await asyncio.gather(*(get(broker.http.port, "/metrics") for _ in range(20)))
        finally:
            await broker.stop()
        return [status for status, _ in answers]

    assert asyncio.run(main()) == [200] * 20


def test_logins_are_told_by_mechanism_and_result(tmp_path: Path) -> None:
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": "0",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="alice" password="secret" user_alice="secret";'
        ),
    }

    async def main() -> None:
        broker = broker_in(tmp_path, **config)
        await broker.start()
        try:
            assert broker.http is not None
            for password in (b"secret", b"secret", b"guess"):
                client = await Client.connect(broker)
                await client.ask(17, 1, SaslHandshakeRequest(mechanism="PLAIN"), flexible=False)
                request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + password)
                await client.ask(36, 1, request, flexible=False)
                await client.close()
            series = parse(await chunks(broker.http.port))
        finally:
            await broker.stop()
        told = {"listener": "SASL_PLAINTEXT", "networkProcessor": "0"}
        name = "kafka_server_socket_server_metrics_{}_authentication_total"
        assert value(series, name.format("successful"), **told) == 2
        assert value(series, name.format("failed"), **told) == 1
        told = {"listener": "SASL_PLAINTEXT", "mechanism": "PLAIN", "result": "failed"}
        assert value(series, "kwire_logins_total", **told) == 1

    asyncio.run(main())
