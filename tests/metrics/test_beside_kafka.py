"""The recorded comparison with Apache Kafka's MBeans."""

from __future__ import annotations

from server.metrics.table import ROWS
from tests.metrics.beside_kafka import REASONS, compared, pattern, reason, recorded


def test_every_value_that_differs_has_a_reason() -> None:
    unexplained = [row for row in compared() if row.equal < row.values and reason(row) is None]
    assert unexplained == []


def test_every_reason_explains_something() -> None:
    differing = [f"{row.bean} [{row.attribute}]" for row in compared() if row.equal < row.values]
    unused = [part for part in REASONS if not any(part in each for each in differing)]
    assert unused in ([], ["connection-close-rate"])


def test_counts_of_requests_and_errors_were_compared() -> None:
    values = {row.bean: row.values for row in compared()}
    assert values["kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*,version=*"] > 10
    assert values["kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=*,error=*"] > 10


def test_recorded_mbeans_are_still_served() -> None:
    served = {row.bean.partition(" [")[0].partition(":")[0::2] for row in ROWS if row.bean}
    types = {(domain, keys.split(",")[0]) for domain, keys in served}
    for row in recorded():
        domain, _, keys = pattern(str(row["bean"])).partition(":")
        assert (domain, keys.split(",")[0]) in types
