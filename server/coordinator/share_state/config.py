"""The share coordinator's settings, named as Apache Kafka's keys are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...config import BrokerConfig


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """One field for each key that the share coordinator reads. Source: ShareCoordinatorConfig."""

    state_topic_partitions: int = 50
    snapshot_update_records_per_snapshot: int = 500
    write_timeout_ms: int = 5_000
    prune_interval_ms: int = 300_000
    cold_partition_snapshot_interval_ms: int = 300_000
    states_max_bytes: int = 512 * 1024 * 1024

    @classmethod
    def of(cls, config: BrokerConfig) -> ShareCoordinatorConfig:
        """Read the settings from a broker's configuration."""
        return cls(
            state_topic_partitions=config.get_int("share.coordinator.state.topic.num.partitions"),
            snapshot_update_records_per_snapshot=config.get_int(
                "share.coordinator.snapshot.update.records.per.snapshot"
            ),
            write_timeout_ms=config.get_int("share.coordinator.write.timeout.ms"),
            prune_interval_ms=config.get_int("share.coordinator.state.topic.prune.interval.ms"),
            cold_partition_snapshot_interval_ms=config.get_int(
                "share.coordinator.cold.partition.snapshot.interval.ms"
            ),
            states_max_bytes=config.get_int("kwire.group.offsets.max.bytes"),
        )
