"""Configs of topics, as a broker reports them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from .cluster import PATIENCE, Cluster, reason, silent
from .problems import Problem

#: Config name -> value.
Configs = Mapping[str, str]


def topic_configs(cluster: Cluster, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Topic -> its configs, defaults included. Raises Problem if the broker does not answer."""
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    if not asked:
        return {}
    admin = AdminClient(
        cluster.settings(log_level=0), logger=silent()
    )  # must be kept alive until the answers have arrived
    answers = admin.describe_configs(asked, request_timeout=PATIENCE)
    found = {}
    for resource, answer in answers.items():
        try:
            entries = answer.result()
        except KafkaException as error:
            raise Problem(f"cannot read the configs of {resource.name}: {reason(error)}") from error
        found[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
    return found


def is_compacted(configs: Configs) -> bool:
    """Whether compaction may remove records of a topic."""
    return "compact" in configs.get("cleanup.policy", "")
