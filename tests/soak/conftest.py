"""The broker under load: kwire or, to test the checks themselves, the one in KWIRE_E2E_BROKER."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..e2e.conftest import BROKER, long_form, new_broker

__all__ = ["BROKER", "broker_config", "log_dirs", "long_form", "new_broker"]


#: What groups of both newer protocols have.
SESSIONS = tuple(
    f"group.{kind}.{name}"
    for kind in ("consumer", "share")
    for name in ("session.timeout.ms", "min.session.timeout.ms")
)
HEARTBEATS = tuple(
    f"group.{kind}.{name}"
    for kind in ("consumer", "share")
    for name in ("heartbeat.interval.ms", "min.heartbeat.interval.ms")
)
LOCKS = ("group.share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms")


def log_dirs(folder: Path) -> tuple[str, ...]:
    """Return the log directories of kwire, between which replicas are moved."""
    return (f"{folder}/one", f"{folder}/two") if BROKER == "kwire" else ()


def broker_config(directories: Sequence[str] = ()) -> dict[str, str]:
    """Return settings under which logs roll and the internal topics are compacted all the time.

    Apache Kafka 4 refuses segments so small.
    """
    if BROKER != "kwire":
        return {}
    return {
        "log.segment.bytes": "262144",
        "offsets.topic.segment.bytes": "65536",
        "transaction.state.log.segment.bytes": "65536",
        "log.cleaner.backoff.ms": "100",
        "group.consumer.migration.policy": "bidirectional",
        "group.share.delivery.count.limit": "10",
        "share.coordinator.state.topic.segment.bytes": "65536",
        "share.coordinator.snapshot.update.records.per.snapshot": "20",
        "share.coordinator.state.topic.prune.interval.ms": "1000",
        **dict.fromkeys(SESSIONS, "3000"),
        # Records that a member could not settle are delivered again after this time.
        **dict.fromkeys(LOCKS, "5000"),
        **dict.fromkeys(HEARTBEATS, "300"),
        **({"log.dirs": ",".join(directories)} if directories else {}),
    }
