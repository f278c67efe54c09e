"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def unix_ms(text: str) -> int:
    """The Unix time of an ISO 8601 time, which is in UTC unless it has a zone of its own. Errors: ValueError.

    Apache Kafka's tools understand such times in the same way, whatever the zone of the machine.
    """
    when = datetime.fromisoformat(text)
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - EPOCH) // timedelta(
        milliseconds=1
    )
