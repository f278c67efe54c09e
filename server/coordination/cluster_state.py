"""The store's content about the cluster, as values."""

from __future__ import annotations

from ..metadata.image import BrokerRegistration
from ..metadata.topic_partition import TopicPartition
from .paths import FinalizedFeatures, LeaderAndIsr, TopicAssignment


class ClusterState:
    """The store's content, read in one pass but not at one instant; therefore watches are left first.

    Shape: `configs` by (entity type, name); `config_change` is the latest notification's number.
    """

    def __init__(self) -> None:
        self.controller_id = -1
        self.brokers: dict[int, BrokerRegistration] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.configs: dict[tuple[str, str], dict[str, str]] = {}
        self.deletions: list[str] = []
        self.features: FinalizedFeatures | None = None
        self.config_change = -1
