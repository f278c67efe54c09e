"""The names of series, by both sets of rules of Prometheus' JMX exporter."""

from __future__ import annotations

import pytest

from server.metrics.names import MBeanKind, series_of, snake_case


@pytest.mark.parametrize(
    ("kind", "bean", "labels", "expected"),
    [
        (
            MBeanKind.METER,
            ("kafka.server", "BrokerTopicMetrics", "BytesInPerSec"),
            ("topic",),
            ["kafka_server_brokertopicmetrics_bytesin_total", "kafka_server_brokertopicmetrics_bytesinpersec"],
        ),
        (
            MBeanKind.PERCENT,
            ("kafka.network", "SocketServer", "NetworkProcessorAvgIdlePercent"),
            (),
            [
                "kafka_network_socketserver_networkprocessoravgidle_percent",
                "kafka_network_socketserver_networkprocessoravgidlepercent",
            ],
        ),
        (MBeanKind.GAUGE, ("kafka.log", "Log", "Size"), ("topic", "partition"), ["kafka_log_log_size"]),
        (
            MBeanKind.GAUGE,
            ("kafka.server", "KafkaServer", "linux-disk-read-bytes"),
            (),
            ["kafka_server_kafkaserver_linux_disk_read_bytes"],
        ),
        (
            MBeanKind.GAUGE,
            ("kafka.coordinator.group", "GroupMetadataManager", "NumGroups"),
            (),
            ["kafka_coordinator_group_groupmetadatamanager_numgroups"],
        ),
        (
            MBeanKind.FLAT,
            ("kafka.server", "transaction-coordinator-metrics", "partition-load-time-max"),
            (),
            ["kafka_server_transaction_coordinator_metrics_partition_load_time_max"],
        ),
    ],
)  # fmt: skip
def test_bean_has_these_series(
    kind: MBeanKind, bean: tuple[str, str, str], labels: tuple[str, ...], expected: list[str]
) -> None:
    found = series_of(kind, *bean, labels)
    assert [each.name for each in found] == expected
    assert {each.labels for each in found} == {labels}


def test_confluents_rules_write_labels_of_sockets_in_snake_case() -> None:
    found = series_of(
        MBeanKind.FLAT, "kafka.server", "socket-server-metrics", "connection-count", ("listener", "networkProcessor")
    )  # fmt: skip
    assert [(each.name, each.labels) for each in found] == [
        ("kafka_server_socket_server_metrics_connection_count", ("listener", "networkProcessor")),
        ("kafka_server_socketservermetrics_connection_count", ("listener", "network_processor")),
    ]


def test_snake_case() -> None:
    assert snake_case("clientSoftwareName") == "client_software_name"
