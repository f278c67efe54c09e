"""The settings of one log: topic configs merged over broker configs, with Apache Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a log needs to know of its topic's configuration.

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
    """`standard` checks batch headers; `deep` also every record (kwire.produce.validation)."""

    @property
    def is_compacted(self) -> bool:
        """True where records without a key have no place."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleting(self) -> bool:
        """True where old segments go by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """Age at which a segment is sealed: only then can what is overdue in it be compacted."""
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def log_append_time(self) -> bool:
        """True where the broker's clock stamps the records."""
        return self.message_timestamp_type == "LogAppendTime"
