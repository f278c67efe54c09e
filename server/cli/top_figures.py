"""The figures of `kwire top`, from two scrapes of each broker; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The prefixes of the lines that are used; a scrape has many more lines.
PREFIXES = tuple(
    f"{domain}_{rest}"
    for domain, rests in {
        "kafka": (
            "brokers ",
            "cluster_partition_underreplicated",
            "consumergroup_current_offset_sum",
            "consumergroup_lag_sum",
            "consumergroup_members",
            "controller_kafkacontroller_activecontrollercount",
            "controller_kafkacontroller_offlinepartitionscount",
            "log_log_size",
            "network_requestmetrics_errors_total",
            "network_requestmetrics_requests_total",
            "network_requestmetrics_totaltimems",
            "server_brokertopicmetrics_bytesin_total",
            "server_brokertopicmetrics_bytesout_total",
            "server_brokertopicmetrics_messagesin_total",
            "server_kafkaserver_brokerstate",
            "server_replicamanager_leadercount",
            "server_replicamanager_underreplicatedpartitions",
            "server_socket_server_metrics_connections{",
            "topic_partitions",
        ),
        "kwire": ("info", "loop_busy_seconds_total", "loop_longest_turn_seconds"),
        "process": ("resident_memory_bytes",),
    }.items()
    for rest in rests
)
STATES = {0: "not running", 1: "starting", 2: "recovery", 3: "running", 7: "stopping"}

Labels = Mapping[str, str]
Key = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Scrape:
    """A broker's answer. Shape: if `error` gives a reason for its absence, there are no values. Unit: `at_s` never goes
    back.
    """

    place: str
    at_s: float
    values: Mapping[Key, float] = field(default_factory=dict)
    error: str | None = None


def parse(text: str) -> dict[Key, float]:
    """The values in a scrape's text that are shown. Errors: ValueError if it is not a scrape."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in text.splitlines() if line.startswith(PREFIXES)]
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families("\n".join(lines) + "\n")
        for sample in family.samples
    }


class ScrapePair:
    """Two scrapes of one broker: current values, and their growth."""

    def __init__(self, before: Scrape | None, after: Scrape) -> None:
        self.place, self.error = after.place, after.error
        self._after = after.values
        self._before = {} if before is None else before.values
        self.seconds = 0.0 if before is None or not before.values else after.at_s - before.at_s

    def value(self, name: str, default: float | None = None) -> float | None:
        """The value of a series without labels."""
        return self._after.get((name, frozenset()), default)

    def values(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """The values of a series with labels."""
        for (found, labels), value in self._after.items():
            if found == name:
                yield dict(labels), value

    def rates(self, name: str) -> Iterator[tuple[dict[str, str], float | None]]:
        """The growth per second of a series with labels; None before the second scrape."""
        for (found, labels), value in self._after.items():
            if found == name:
                yield dict(labels), self._rate((found, labels), value)

    def rate(self, name: str) -> float | None:
        """The growth per second of a series without labels."""
        key = name, frozenset[tuple[str, str]]()
        return self._rate(key, self._after[key]) if key in self._after else None

    def _rate(self, key: Key, value: float) -> float | None:
        if self.seconds <= 0:
            return None
        # A counter starts again after a restart; a series that did not exist before started at 0.
        return max(0.0, value - self._before.get(key, 0.0)) / self.seconds


@dataclass(slots=True)
class Figures:
    """Tables as lists of rows, the most important first. Unit: rates are per second, sizes bytes, times ms."""

    brokers: list[dict[str, Any]]
    topics: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    requests: list[dict[str, Any]]
    connections: list[dict[str, Any]]


def figures(changes: Iterable[ScrapePair]) -> Figures:
    """The figures of all brokers together."""
    changes = list(changes)
    answering = [change for change in changes if change.error is None]
    return Figures(
        [broker(change) for change in changes],
        topics(answering),
        groups(answering),
        requests(answering),
        connections(answering),
    )


def broker(change: ScrapePair) -> dict[str, Any]:
    """One broker."""
    if change.error is not None:
        return {"broker": change.place, "state": change.error}
    info = next((labels for labels, _ in change.values("kwire_info")), {})
    state = int(change.value("kafka_server_kafkaserver_brokerstate", 0) or 0)
    busy = change.rate("kwire_loop_busy_seconds_total")
    turn = change.value("kwire_loop_longest_turn_seconds")
    is_controller = bool(change.value("kafka_controller_kafkacontroller_activecontrollercount", 0))
    return {
        "broker": f"{info.get('broker_id', '?')} {change.place}",
        "state": STATES.get(state, str(state)) + (", controller" if is_controller else ""),
        "leads": whole(change.value("kafka_server_replicamanager_leadercount")),
        "under replicated": whole(
            change.value("kafka_server_replicamanager_underreplicatedpartitions")
        ),
        "offline": whole(change.value("kafka_controller_kafkacontroller_offlinepartitionscount")),
        "busy": None if busy is None else round(busy, 4),
        "longest turn": None if turn is None else round(turn * 1000, 2),
        "memory": whole(change.value("process_resident_memory_bytes")),
        "messages": change.rate("kafka_server_brokertopicmetrics_messagesin_total"),
        "in": change.rate("kafka_server_brokertopicmetrics_bytesin_total"),
        "out": change.rate("kafka_server_brokertopicmetrics_bytesout_total"),
    }


def whole(value: float | None) -> int | None:
    return None if value is None else int(value)


class Sums:
    """Rows by name, whose columns are sums over brokers and over other labels."""

    def __init__(self, first: str, columns: Iterable[str]) -> None:
        self._first, self._columns = first, tuple(columns)
        self._rows: dict[str, dict[str, Any]] = {}

    def add(self, name: str, column: str, value: float | None) -> None:
        """Add to a column; None adds nothing."""
        row = self._rows.get(name)
        if row is None:
            row = {self._first: name, **dict.fromkeys(self._columns)}
            self._rows[name] = row
        if value is not None:
            row[column] = (row[column] or 0) + value

    def highest(self, name: str, column: str, value: float) -> None:
        """Keep the highest value of a column."""
        self.add(name, column, None)
        row = self._rows[name]
        if row[column] is None or value > row[column]:
            row[column] = value

    def sorted(self, by: Callable[[dict[str, Any]], float]) -> list[dict[str, Any]]:
        """The rows, the largest first; equal ones by name."""
        return sorted(self._rows.values(), key=lambda row: (-by(row), row[self._first]))


def topics(changes: Iterable[ScrapePair]) -> list[dict[str, Any]]:
    """Topics, by their incoming and outgoing bytes."""
    sums = Sums("topic", ("partitions", "size", "messages", "in", "out"))
    prefix = "kafka_server_brokertopicmetrics"
    for change in changes:
        for labels, value in change.values("kafka_topic_partitions"):
            sums.add(labels["topic"], "partitions", int(value))
        for labels, value in change.values("kafka_log_log_size"):
            sums.add(labels["topic"], "size", int(value))
        for column, name in (("messages", "messagesin"), ("in", "bytesin"), ("out", "bytesout")):
            for labels, rate in change.rates(f"{prefix}_{name}_total"):
                if "topic" in labels:
                    sums.add(labels["topic"], column, rate)
    return sums.sorted(by=lambda row: (row["in"] or 0) + (row["out"] or 0))


def groups(changes: Iterable[ScrapePair]) -> list[dict[str, Any]]:
    """Groups, by lag."""
    sums = Sums("group", ("members", "topics", "lag", "commits"))
    for change in changes:
        for labels, value in change.values("kafka_consumergroup_members"):
            sums.add(labels["consumergroup"], "members", int(value))
        for labels, value in change.values("kafka_consumergroup_lag_sum"):
            sums.add(labels["consumergroup"], "lag", int(value))
        for labels, rate in change.rates("kafka_consumergroup_current_offset_sum"):
            sums.add(labels["consumergroup"], "commits", rate)
            sums.add(labels["consumergroup"], "topics", 1)
    return sums.sorted(by=lambda row: row["lag"] or 0)


def requests(changes: Iterable[ScrapePair]) -> list[dict[str, Any]]:
    """APIs, by their rate. Quantiles are the highest of all brokers."""
    sums = Sums("request", ("rate", "errors", "median", "p99"))
    prefix = "kafka_network_requestmetrics"
    quantiles = {"0.50": "median", "0.99": "p99"}
    for change in changes:
        for labels, rate in change.rates(f"{prefix}_requests_total"):
            sums.add(labels["request"], "rate", rate)
            sums.add(labels["request"], "errors", None if rate is None else 0.0)
        for labels, rate in change.rates(f"{prefix}_errors_total"):
            if labels["error"] != "NONE":
                sums.add(labels["request"], "errors", rate)
        for labels, value in change.values(f"{prefix}_totaltimems"):
            column = quantiles.get(labels["quantile"])
            if column is not None:
                sums.highest(labels["request"], column, value)
    rows = sums.sorted(by=lambda row: row["rate"] or 0)
    # The two kinds of Fetch have their own rows.
    return [row for row in rows if row["request"] != "Fetch"]


def connections(changes: Iterable[ScrapePair]) -> list[dict[str, Any]]:
    """Clients by software and version."""
    sums = Sums("client software", ("connections",))
    for change in changes:
        for labels, value in change.values("kafka_server_socket_server_metrics_connections"):
            name = labels["clientSoftwareName"], labels["clientSoftwareVersion"]
            sums.add(
                "unknown" if name == ("unknown",) * 2 else " ".join(name), "connections", int(value)
            )
    return sums.sorted(by=lambda row: row["connections"])
