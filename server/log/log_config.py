"""The settings of one log: topic configs merged over broker configs, with Apache Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from .. import native

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..config.definitions import Value

INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The part of a topic's configuration that a log needs.

    Unit: as the names say; retention -1 means no limit. Source: LogConfig, TopicConfig (3.9).
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = INT64_MAX
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    max_transaction_timeout_ms: int = 15 * 60 * 1000
    validation: str = "standard"
    """`standard` checks batch headers; `deep` also every record."""

    @classmethod
    def of(cls, config: BrokerConfig, topic: Mapping[str, Value]) -> LogConfig:
        """The settings of a topic's logs. Shape: `topic` are the topic's settings, of `BrokerConfig.topic_config`."""
        before_ms, after_ms = _timestamp_bounds(topic)

        def number(name: str) -> int:
            return cast(int, topic[name])

        return cls(
            segment_bytes=number("segment.bytes"),
            segment_ms=number("segment.ms"),
            segment_jitter_ms=number("segment.jitter.ms"),
            segment_index_bytes=number("segment.index.bytes"),
            index_interval_bytes=number("index.interval.bytes"),
            retention_ms=number("retention.ms"),
            retention_bytes=number("retention.bytes"),
            cleanup_policy=frozenset(cast(list[str], topic["cleanup.policy"])),
            max_message_bytes=number("max.message.bytes"),
            compression_type=cast(str, topic["compression.type"]),
            compression_gzip_level=number("compression.gzip.level"),
            compression_lz4_level=number("compression.lz4.level"),
            compression_zstd_level=number("compression.zstd.level"),
            message_timestamp_type=cast(str, topic["message.timestamp.type"]),
            message_timestamp_before_max_ms=before_ms,
            message_timestamp_after_max_ms=after_ms,
            flush_messages=number("flush.messages"),
            flush_ms=number("flush.ms"),
            file_delete_delay_ms=number("file.delete.delay.ms"),
            delete_retention_ms=number("delete.retention.ms"),
            min_compaction_lag_ms=number("min.compaction.lag.ms"),
            max_compaction_lag_ms=number("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio=cast(float, topic["min.cleanable.dirty.ratio"]),
            producer_id_expiration_ms=config.get_int("producer.id.expiration.ms"),
            max_transaction_timeout_ms=config.get_int("transaction.max.timeout.ms"),
            validation=validation_of(config.get_str("kwire.produce.validation")),
        )

    @property
    def is_compacted(self) -> bool:
        """Whether the topic is compacted, so that records without a key are refused."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleting(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """Age at which a segment is sealed, since only sealed segments can be compacted in time."""
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def log_append_time(self) -> bool:
        """Whether the broker's clock stamps the records."""
        return self.message_timestamp_type == "LogAppendTime"


def validation_of(setting: str) -> str:
    """The effective value of kwire.produce.validation: reading records is cheap only in the native form."""
    if setting == "auto":
        return "standard" if native.form() == "pure" else "deep"
    return setting


def _timestamp_bounds(topic: Mapping[str, object]) -> tuple[int, int]:
    """Before and after; the older single key counts where the newer two were left alone (KIP-937)."""
    either = cast(int, topic["message.timestamp.difference.max.ms"])
    before = cast(int, topic["message.timestamp.before.max.ms"])
    after = cast(int, topic["message.timestamp.after.max.ms"])
    return (either if before == INT64_MAX else before, either if after == INT64_MAX else after)
