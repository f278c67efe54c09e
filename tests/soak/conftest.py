"""The broker under load: kwire or, to test the checks themselves, the one in KWIRE_E2E_BROKER."""

from __future__ import annotations

from ..e2e.conftest import BROKER, long_form, new_broker

__all__ = ["BROKER", "broker_config", "long_form", "new_broker"]


SESSIONS = ("group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms")
HEARTBEATS = ("group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms")


def broker_config() -> dict[str, str]:
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
        **dict.fromkeys(SESSIONS, "3000"),
        **dict.fromkeys(HEARTBEATS, "300"),
    }
