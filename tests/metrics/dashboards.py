"""The metrics that published Grafana dashboards use in their queries, with their labels.

Extracted by hand from the dashboards' JSON, which is not stored here. Each line is one metric, with every label that
any query of the dashboard selects by, groups by or shows. Labels that a scrape config adds (job, env, instance,
namespace, pod, ...) are omitted; `SCRAPE_LABELS` lists those that were found.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Added by Prometheus' scrape config and Kubernetes' service discovery for all targets.
SCRAPE_LABELS = [
    "job",
    "env",
    "instance",
    "hostname",
    "namespace",
    "strimzi_io_cluster",
    "strimzi_io_name",
    "kubernetes_pod_name",
    "pod",
    "container",
]


class Dashboard(NamedTuple):
    """One dashboard. Shape: `asks` maps metric -> labels."""

    name: str
    source: str
    asks: dict[str, frozenset[str]]


def asks(text: str) -> dict[str, frozenset[str]]:
    """Read lines of the form `metric{label,label}`."""
    found = {}
    for metric, labels in re.findall(r"^\s*(\w+)(?:\{([\w,]+)\})?$", text, re.MULTILINE):
        found[metric] = frozenset(filter(None, labels.split(",")))
    return found


DASHBOARDS = (
    Dashboard(
        "strimzi-kafka",
        "strimzi/strimzi-kafka-operator, examples/metrics/grafana-dashboards/strimzi-kafka.json at 036c855 (Apache-2.0)",
        asks(
            """
            kafka_server_replicamanager_leadercount
            kafka_controller_kafkacontroller_activecontrollercount
            kafka_controller_controllerstats_uncleanleaderelections_total
            kafka_server_replicamanager_partitioncount
            kafka_server_replicamanager_underreplicatedpartitions
            kafka_cluster_partition_atminisr
            kafka_cluster_partition_underminisr
            kafka_controller_kafkacontroller_offlinepartitionscount
            container_memory_usage_bytes
            container_cpu_usage_seconds_total
            kubelet_volume_stats_available_bytes{persistentvolumeclaim}
            process_open_fds
            jvm_memory_bytes_used
            jvm_gc_collection_seconds_sum
            jvm_gc_collection_seconds_count
            jvm_threads_current
            kafka_server_brokertopicmetrics_bytesin_total{topic}
            kafka_server_brokertopicmetrics_bytesout_total{topic}
            kafka_server_brokertopicmetrics_messagesin_total{topic}
            kafka_server_brokertopicmetrics_totalproducerequests_total{topic}
            kafka_server_brokertopicmetrics_failedproducerequests_total{topic}
            kafka_server_brokertopicmetrics_totalfetchrequests_total{topic}
            kafka_server_brokertopicmetrics_failedfetchrequests_total{topic}
            kafka_network_socketserver_networkprocessoravgidle_percent
            kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
            kafka_server_kafkaserver_linux_disk_write_bytes
            kafka_server_kafkaserver_linux_disk_read_bytes
            kafka_server_socket_server_metrics_connection_count{listener}
            kafka_log_log_size{topic,partition}
            """
        ),
    ),
    Dashboard(
        "strimzi-kafka-exporter (Grafana 7589)",
        "strimzi/strimzi-kafka-operator, examples/metrics/grafana-dashboards/strimzi-kafka-exporter.json at 5aa6bf0 (Apache-2.0)",
        asks(
            """
            kafka_topic_partitions{topic}
            kafka_topic_partition_replicas{topic}
            kafka_topic_partition_in_sync_replica{topic}
            kafka_topic_partition_under_replicated_partition{topic}
            kafka_cluster_partition_atminisr{topic}
            kafka_cluster_partition_underminisr{topic}
            kafka_topic_partition_leader_is_preferred{topic}
            kafka_topic_partition_current_offset{topic,partition}
            kafka_consumergroup_current_offset{consumergroup,topic,partition}
            kafka_consumergroup_lag{consumergroup,topic,partition}
            kafka_topic_partition_oldest_offset{topic,partition}
            kafka_exporter_build_info
            """
        ),
    ),
    Dashboard(
        "Kafka Exporter Overview (Grafana 721)",
        "danielqsj/kafka_exporter, kafka_exporter_overview.json at 0f5fc55 (Apache-2.0)",
        asks(
            """
            kafka_topic_partition_current_offset{topic}
            kafka_consumergroup_lag{consumergroup,topic}
            kafka_topic_partitions{topic}
            """
        ),
    ),
    Dashboard(
        "Confluent kafka-cluster",
        "confluentinc/jmx-monitoring-stacks, jmxexporter-prometheus-grafana/assets/grafana/provisioning/dashboards/kafka-cluster.json at 0402c67 (Apache-2.0)",
        asks(
            """
            kafka_controller_kafkacontroller_activecontrollercount
            kafka_server_replicamanager_leadercount
            kafka_server_replicamanager_partitioncount
            kafka_controller_kafkacontroller_preferredreplicaimbalancecount
            kafka_server_brokertopicmetrics_bytesinpersec{topic}
            kafka_server_brokertopicmetrics_bytesoutpersec{topic}
            kafka_server_brokertopicmetrics_messagesinpersec{topic}
            kafka_server_replicamanager_underreplicatedpartitions
            kafka_cluster_partition_underminisr
            kafka_controller_kafkacontroller_offlinepartitionscount
            kafka_controller_controllerstats_uncleanleaderelectionspersec
            kafka_network_requestmetrics_requestspersec{request}
            kafka_network_requestmetrics_errorspersec{error}
            process_cpu_seconds_total
            jvm_memory_bytes_used{area}
            jvm_memory_bytes_max{area}
            jvm_gc_collection_seconds_sum{gc}
            kafka_server_kafkaserver_linux_disk_read_bytes
            kafka_server_kafkaserver_linux_disk_write_bytes
            kafka_network_socketserver_networkprocessoravgidlepercent
            kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total
            kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms{quantile}
            kafka_server_sessionexpirelistener_zookeepersyncconnectspersec
            kafka_server_sessionexpirelistener_zookeeperexpirespersec
            kafka_server_sessionexpirelistener_zookeeperdisconnectspersec
            kafka_server_sessionexpirelistener_zookeeperauthfailurespersec
            kafka_server_replicamanager_isrshrinkspersec
            kafka_server_replicamanager_isrexpandspersec
            kafka_log_log_size{topic}
            kafka_network_requestmetrics_requestqueuetimems{request,quantile}
            kafka_network_requestmetrics_localtimems{request,quantile}
            kafka_network_requestmetrics_remotetimems{request,quantile}
            kafka_network_requestmetrics_responsequeuetimems{request,quantile}
            kafka_network_requestmetrics_responsesendtimems{request,quantile}
            kafka_server_socketservermetrics_connection_count{listener}
            kafka_server_socketservermetrics_connection_creation_rate{listener}
            kafka_server_socketservermetrics_connection_close_rate{listener}
            kafka_network_acceptor_acceptorblockedpercent{listener}
            kafka_server_socketservermetrics_connections{client_software_name,client_software_version}
            kafka_coordinator_group_groupmetadatamanager_numgroups
            kafka_coordinator_group_groupmetadatamanager_numgroupsstable
            kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance
            kafka_coordinator_group_groupmetadatamanager_numgroupsdead
            kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance
            kafka_coordinator_group_groupmetadatamanager_numgroupsempty
            kafka_server_brokertopicmetrics_producemessageconversionspersec{topic}
            kafka_server_brokertopicmetrics_fetchmessageconversionspersec{topic}
            """
        ),
    ),
    Dashboard(
        "Confluent kafka-topics",
        "confluentinc/jmx-monitoring-stacks, jmxexporter-prometheus-grafana/assets/grafana/provisioning/dashboards/kafka-topics.json at 1acb449 (Apache-2.0)",
        asks(
            """
            kafka_controller_kafkacontroller_globaltopiccount
            kafka_controller_kafkacontroller_globalpartitioncount
            kafka_server_brokertopicmetrics_messagesinpersec{topic}
            kafka_server_brokertopicmetrics_bytesinpersec{topic}
            kafka_server_brokertopicmetrics_bytesoutpersec{topic}
            kafka_server_brokertopicmetrics_totalproducerequestspersec{topic}
            kafka_server_brokertopicmetrics_totalfetchrequestspersec{topic}
            kafka_log_log_size{topic}
            kafka_log_log_logstartoffset{topic,partition}
            kafka_log_log_logendoffset{topic,partition}
            """
        ),
    ),
    Dashboard(
        "Confluent kafka-transaction-coordinator",
        "confluentinc/jmx-monitoring-stacks, jmxexporter-prometheus-grafana/assets/grafana/provisioning/dashboards/kafka-transaction-coordinator.json at 390f869 (Apache-2.0)",
        asks(
            """
            kafka_server_transaction_coordinator_metrics_transaction_timeout_count
            kafka_server_transaction_coordinator_metrics_transaction_state_error_count
            kafka_server_transaction_coordinator_metrics_transactional_id_count
            kafka_server_transaction_coordinator_metrics_transaction_timeout_rate
            kafka_server_transaction_coordinator_metrics_active_transaction_total_time_max
            kafka_server_transaction_coordinator_metrics_prepare_commit_to_complete_commit_latency
            kafka_server_transaction_coordinator_metrics_partitions_total_size
            kafka_server_transaction_coordinator_metrics_partition_load_time_max
            kafka_server_transaction_coordinator_metrics_partition_load_time_avg
            kafka_connect_app_info
            kafka_server_kafkaserver_brokerstate
            """
        ),
    ),
)

NO_JVM = "kwire does not run on a JVM; process_* and python_gc_* show the same for its process"
KUBERNETES = "comes from Kubernetes, not from the broker"
CONFLUENT_SERVER = "Confluent Server has it, Apache Kafka does not"
#: Series that cannot be served, or are not, with the reasons.
MISSING = {
    "jvm_memory_bytes_used": NO_JVM,
    "jvm_memory_bytes_max": NO_JVM,
    "jvm_gc_collection_seconds_sum": NO_JVM,
    "jvm_gc_collection_seconds_count": NO_JVM,
    "jvm_threads_current": NO_JVM,
    "container_memory_usage_bytes": KUBERNETES,
    "container_cpu_usage_seconds_total": KUBERNETES,
    "kubelet_volume_stats_available_bytes": KUBERNETES,
    "kafka_connect_app_info": "comes from Kafka Connect, and only fills the dashboard's variable `env`",
    "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms": "requests to the store are made in groups, without waiting for one another, and are not timed",
    "kafka_network_acceptor_acceptorblockedpercent": "there is no acceptor thread that could be blocked",
    "kafka_server_brokertopicmetrics_producemessageconversionspersec": "the worker process that converts records does not report how many it converted",
    "kafka_server_brokertopicmetrics_fetchmessageconversionspersec": "the worker process that converts records does not report how many it converted",
    "kafka_server_transaction_coordinator_metrics_transaction_timeout_count": CONFLUENT_SERVER,
    "kafka_server_transaction_coordinator_metrics_transaction_timeout_rate": CONFLUENT_SERVER,
    "kafka_server_transaction_coordinator_metrics_transaction_state_error_count": CONFLUENT_SERVER,
    "kafka_server_transaction_coordinator_metrics_prepare_commit_to_complete_commit_latency": CONFLUENT_SERVER,
}
