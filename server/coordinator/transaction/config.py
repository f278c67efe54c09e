"""The transaction coordinator's settings, named after Apache Kafka's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...config import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """One value for each key that the transaction coordinator reads. Source: TransactionConfig.

    Shape: `transaction_version` is the finalized level of the feature transaction.version.
    """

    max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60_000
    timeout_check_interval_ms: int = 10_000
    expiration_check_interval_ms: int = 3_600_000
    state_topic_partitions: int = 50
    partition_verification: bool = True
    write_timeout_ms: int = 30_000
    marker_retry_ms: int = 100
    add_retry_ms: int = 20
    add_retry_max_ms: int = 100
    transaction_version: int = 0
    state_max_bytes: int = 256 * 1024 * 1024

    @property
    def value_version(self) -> int:
        """The version of values written to __transaction_state."""
        return 1 if self.transaction_version >= 1 else 0

    @classmethod
    def of(cls, config: BrokerConfig, transaction_version: int = 0) -> TransactionConfig:
        """Read the settings from a broker's configuration."""
        return cls(
            transaction_version=transaction_version,
            max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
            transactional_id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
            timeout_check_interval_ms=config.get_int(
                "transaction.abort.timed.out.transaction.cleanup.interval.ms"
            ),
            expiration_check_interval_ms=config.get_int(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
            state_topic_partitions=config.get_int("transaction.state.log.num.partitions"),
            partition_verification=config.get_bool("transaction.partition.verification.enable"),
            state_max_bytes=config.get_int("kwire.transaction.state.max.bytes"),
            write_timeout_ms=config.get_int("request.timeout.ms"),
        )
