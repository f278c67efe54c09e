"""The group coordinator's settings, named after Apache Kafka's keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...config import BrokerConfig

_ASSIGNOR_CLASS = re.compile(
    r"org\.apache\.kafka\.coordinator\.group\.assignor\.(Uniform|Range)Assignor"
)


def assignor_name(name: str) -> str:
    """The name of an assignor, given by Apache Kafka's class or by name."""
    found = _ASSIGNOR_CLASS.fullmatch(name)
    return name if found is None else found[1].lower()


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One value for each key that the group coordinator reads. Source: GroupCoordinatorConfig.

    Shape: the following are true for the behavior of Apache Kafka 4. `stores_topic_ids`: offsets are stored with topic
    ids. `verifies_first`: a transaction is verified before the group of its offsets is created. `keeps_unused`: a group
    whose last offset is deleted stays until the next check of retention. `leaves_together`: all members that leave in
    one request, including pending ones, are removed before the group rebalances. `shows_last_assignments`:
    DescribeGroups shows assignments while a group rebalances.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_topic_partitions: int = 50
    members_max_bytes: int = 128 * 1024 * 1024
    offsets_max_bytes: int = 512 * 1024 * 1024
    stores_topic_ids: bool = False
    verifies_first: bool = False
    keeps_unused: bool = False
    leaves_together: bool = False
    shows_last_assignments: bool = False
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_migration_policy: str = "bidirectional"
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_assignment_interval_ms: int = 1_000
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000

    @classmethod
    def of(cls, config: BrokerConfig, *, as_kafka_4: bool = False) -> GroupConfig:
        """Read the settings from a broker's configuration."""
        return cls(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            max_size=config.get_int("group.max.size"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=config.get_int(
                "offsets.retention.check.interval.ms"
            ),
            offsets_commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            offsets_topic_partitions=config.get_int("offsets.topic.num.partitions"),
            members_max_bytes=config.get_int("kwire.group.members.max.bytes"),
            offsets_max_bytes=config.get_int("kwire.group.offsets.max.bytes"),
            stores_topic_ids=as_kafka_4,
            verifies_first=as_kafka_4,
            keeps_unused=as_kafka_4,
            leaves_together=as_kafka_4,
            shows_last_assignments=as_kafka_4,
            consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
            consumer_assignment_interval_ms=config.get_int("group.consumer.assignment.interval.ms"),
            consumer_max_size=config.get_int("group.consumer.max.size"),
            consumer_assignors=tuple(
                assignor_name(name) for name in config.get_list("group.consumer.assignors")
            ),
            consumer_regex_refresh_interval_ms=config.get_int(
                "group.consumer.regex.refresh.interval.ms"
            ),
            # 3.9's default is "disabled"; 4.3's default applies wherever consumer groups are served.
            consumer_migration_policy=config.static.get(
                "group.consumer.migration.policy", "bidirectional"
            ).lower(),
            share_session_timeout_ms=config.get_int("group.share.session.timeout.ms"),
            share_heartbeat_interval_ms=config.get_int("group.share.heartbeat.interval.ms"),
            share_assignment_interval_ms=config.get_int("group.share.assignment.interval.ms"),
            share_max_size=config.get_int("group.share.max.size"),
            share_initialize_retry_interval_ms=config.get_int(
                "group.share.initialize.retry.interval.ms"
            ),
        )
