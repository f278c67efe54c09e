"""The values that Apache Kafka 3.9.2 and kwire gave for the same load (`python -m bench.mbeans --record`), and why some differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

RECORDED = Path(__file__).parent / "beside_kafka.json"

NO_SUCH_BEAN = "Apache Kafka 3.9.2 does not have it; Confluent Server does"
ONLY_KRAFT = "Apache Kafka has it only with KRaft"
ON_FIRST_USE = "Apache Kafka creates the MBean of a topic at the first failure"
#: By the distinguishing part of the MBean, with its attribute.
REASONS = {
    "linux-disk-read-bytes": "the input and output of each process",
    "linux-disk-write-bytes": "the input and output of each process",
    "NetworkProcessorAvgIdlePercent": "Apache Kafka: one network thread in its first half minute; kwire: the whole event loop",
    "RequestHandlerAvgIdlePercent": "in Apache Kafka a rate, without this attribute; in kwire that of the event loop",
    "name=BytesInPerSec": "only records of internal topics differ; those of the load are equal",
    "FailedProduceRequestsPerSec": ON_FIRST_USE,
    "FailedFetchRequestsPerSec": ON_FIRST_USE,
    "name=RequestsPerSec": "Apache Kafka had to be asked again for a producer id while a transaction ended",
    "TimeMs": "the same repeated requests for a producer id",
    "[connection-count]": "Apache Kafka's controller has its own connection to the broker",
    "[connections]": "Apache Kafka's controller has its own connection to the broker",
    "connection-creation-rate": "Apache Kafka: over half a minute; kwire: since the previous scrape",
    "connection-close-rate": "Apache Kafka: over half a minute; kwire: since the previous scrape",
    "partition-load-time": "the time that each broker took",
    "transactional-id-count": NO_SUCH_BEAN,
    "active-transaction-total-time-max": NO_SUCH_BEAN,
    "partitions-total-size": NO_SUCH_BEAN,
    "client-metrics": ONLY_KRAFT,
}
PERCENTILES = ("50thPercentile", "99thPercentile")


class Compared(NamedTuple):
    """The values of an MBean with all its labels: their number, the number of equal ones, and their sums."""

    bean: str
    attribute: str
    values: int
    equal: int
    kafka: float | None
    kwire: float


def recorded() -> list[dict[str, object]]:
    """A row for each value."""
    return list(json.loads(RECORDED.read_text()))


def compared() -> list[Compared]:
    """A row for each MBean and attribute; quantiles cannot be summed, and are omitted."""
    found: dict[tuple[str, str], Compared] = {}
    for row in recorded():
        bean, attribute = pattern(str(row["bean"])), str(row["attribute"])
        if attribute in PERCENTILES:
            continue
        kafka, kwire = row["kafka"], row["kwire"]
        before = found.get((bean, attribute), Compared(bean, attribute, 0, 0, None, 0.0))
        assert isinstance(kafka, float | int | None) and isinstance(kwire, float | int)
        both = before.kafka if kafka is None else (before.kafka or 0) + kafka
        found[bean, attribute] = Compared(
            bean,
            attribute,
            before.values + 1,
            before.equal + (kafka == kwire),
            both,
            before.kwire + kwire,
        )
    return list(found.values())


def pattern(bean: str) -> str:
    """The name of an MBean without the values of its labels."""
    domain, _, keys = bean.partition(":")
    parts = [
        part if part.startswith(("type=", "name=")) else f"{part.partition('=')[0]}=*"
        for part in keys.split(",")
    ]
    return f"{domain}:{','.join(parts)}"


def reason(row: Compared) -> str | None:
    """Why the values of a row differ; None if that is not known."""
    full = f"{row.bean} [{row.attribute}]"
    return next((why for part, why in REASONS.items() if part in full), None)


def quantiles(request: str) -> list[tuple[str, list[float]]]:
    """Of each kind of time of a request: the median and the 99th percentile, Apache Kafka's and kwire's."""
    found: dict[str, list[float]] = {}
    for row in recorded():
        bean = str(row["bean"])
        if row["attribute"] in PERCENTILES and bean.endswith(f"request={request}"):
            name = bean.partition("name=")[2].partition(",")[0]
            for which in ("kafka", "kwire"):
                value = row[which]
                assert isinstance(value, float | int)
                found.setdefault(name, []).append(value)
    return list(found.items())
