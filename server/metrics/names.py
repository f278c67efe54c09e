"""Maps the names of Apache Kafka's MBeans to the names that dashboards use.

Two sets of rules for Prometheus' JMX exporter are in wide use: those of its own example, which Strimzi has adopted
(`Dialect.JMX`), and Confluent's (`Dialect.CONFLUENT`). They differ in the form of rates and percentages, and in the
names of some labels. A series that has the same name in both is served once.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class MBeanKind(Enum):
    """The content of an MBean, which determines the form of its series.

    GAUGE: a value. METER: the number of events; names end in PerSec. PERCENT: a fraction between 0 and 1; names end in
    Percent. HISTOGRAM: quantiles, and the number of values. FLAT: an MBean without a `name`, whose attributes are
    written with dashes.
    """

    GAUGE = "gauge"
    METER = "meter"
    PERCENT = "percent"
    HISTOGRAM = "histogram"
    FLAT = "flat"


class Name(NamedTuple):
    """The name of a series in one or both sets of rules, and whether its values only increase."""

    name: str
    labels: tuple[str, ...]
    counts: bool


def series_of(
    kind: MBeanKind, domain: str, type_: str, name: str, labels: tuple[str, ...]
) -> list[Name]:
    """The series of an MBean `domain:type=type_,name=name,label=...`, without repetitions."""
    stem = f"{domain.replace('.', '_')}_{type_}_".lower()
    lower = name.lower()
    if kind is MBeanKind.METER:
        short = lower.removesuffix("persec")
        found = [
            Name(f"{stem}{short}_total", labels, True),
            Name(f"{stem}{lower}", labels, True),
        ]
    elif kind is MBeanKind.PERCENT:
        short = lower.removesuffix("percent")
        found = [
            Name(f"{stem}{short}_percent", labels, False),
            Name(f"{stem}{lower}", labels, False),
        ]
    elif kind is MBeanKind.FLAT:
        plain = f"{domain.replace('.', '_')}_{type_.replace('-', '_')}_{lower.replace('-', '_')}"
        joined = f"{domain.replace('.', '_')}_{type_.replace('-', '')}_{lower.replace('-', '_')}"
        if type_ != "socket-server-metrics":
            joined = plain
        found = [
            Name(plain, labels, False),
            Name(joined, tuple(map(snake_case, labels)), False),
        ]
    else:
        found = [Name(f"{stem}{lower.replace('-', '_')}", labels, False)]
    return list(dict.fromkeys(found))


def snake_case(label: str) -> str:
    """`clientSoftwareName` as `client_software_name`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in label)
