"""`metrics.md` and `results/metrics.md`: the metrics of `kwire serve --http`, derived from the table of metrics."""

from __future__ import annotations

from server.metrics.exposition import names_of
from server.metrics.table import ROWS, SeriesRow
from tests.metrics.beside_kafka import compared, quantiles, reason
from tests.metrics.dashboards import DASHBOARDS, MISSING

INTRO = """# Metrics and health

To serve metrics for Prometheus and health checks over HTTP, start the broker with `kwire serve --http localhost:9644`, or set
`kwire.http.listener`. This is off by default.

| path | response |
| --- | --- |
| `/metrics` | the metrics below, and those of the process (`process_*`, `python_*`), in Prometheus' text format |
| `/livez` | 200 while the broker is running |
| `/readyz`, `/v1/status/ready` | 200 if the broker can serve clients. Otherwise 503, with a JSON object that gives the reason: logs are being loaded or recovered, the controller has not sent the cluster's state yet, listeners are not open, or the broker is stopping |

A port without a host listens only on this machine, and `:9644` on every interface. **There is no login**: everyone who can
connect can read the metrics, so restrict access to your Prometheus server. A starting broker opens the health checks first, and a
stopping broker closes them last. `/metrics` answers 503 until the broker is ready for the first time.

```yaml
scrape_configs:
  - job_name: kafka-broker
    static_configs:
      - targets: ["broker1:9644", "broker2:9644"]
        labels: {env: prod, namespace: kafka, strimzi_io_cluster: prod}
```

Scrape every broker. A partition's offsets come from its leader and a group's offsets from its coordinator, so sums over all
brokers are those of the cluster. Dashboards select by labels that the scrape config has to add: Confluent's by `job` and `env`,
Strimzi's by `namespace` and `strimzi_io_cluster`.

Clients must address the broker as `localhost`, by an IP address or, if the listener is open to other machines, by the machine's
name or an advertised name. For other names, such as a Kubernetes or Docker service, set `kwire.http.hosts`. This protects against
web pages that resolve their own name to this machine (DNS rebinding). Pages of other sites can link to the broker, but cannot
embed or fetch from it: such requests get 403.

## In a terminal

`kwire top localhost:9644` shows brokers, topics by throughput, groups by lag, requests by API, and clients by software. It
updates every two seconds (`--interval`); Ctrl-C ends it. Name every broker of a cluster. `--once` prints the figures once, and
`--output json` prints a JSON object. Rates are measured between two updates.

```console
$ kwire top --once --interval 3 localhost:9644
broker            state                leads  under replicated  offline  busy  longest turn    memory  messages/s     in/s    out/s
1 localhost:9644  running, controller      7                 0        0    1%        2.8 ms  43.5 MiB       2,022  1.0 MiB  503 KiB

topic               partitions      size  messages/s     in/s    out/s
orders                       1  28.0 MiB       1,010  503 KiB  503 KiB
payments                     1  28.0 MiB       1,010  503 KiB      0 B
__consumer_offsets           5  13.0 KiB         1.4    162 B      0 B

group    members  topics  lag  committed/s
billing        1       1  400        1,057
...
```

## Metrics of clients

Clients can push their own metrics to a broker that asks for them (KIP-714): librdkafka since 2.5, Java since 3.7, without any
setting. Apache Kafka passes them to a plug-in, and does not serve them without one. kwire shows them at `/metrics`, as
`kafka_client_...`. You need a broker with the embedded store, `pip install 'kwire[telemetry]'`, and a subscription:

```console
$ kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter --name latency \\
    --metrics org.apache.kafka.producer.,org.apache.kafka.consumer. --interval 30000 --match client_id=billing.*
$ curl -s localhost:9644/metrics | grep kafka_client_producer_request_latency_avg
kafka_client_producer_request_latency_avg{client_id="billing-1",client_instance_id="62bBFDBdRr-fYt6C07ZCPw"} 14.4
```

`--metrics` takes prefixes, or `*` for everything. A metric named `org.apache.kafka.producer.request.latency.avg` becomes
`kafka_client_producer_request_latency_avg`. Its labels are those that the client sets, plus `client_id` and `client_instance_id`.
Counters are sums since the broker first heard from the client. A client's series are removed after three intervals without a
push, but not before a minute. There are at most `kwire.client.metrics.limit` series. A push has at most `telemetry.max.bytes`,
compressed or not. As in Apache Kafka, every client that can connect can push, so these series are only as trustworthy as your
clients.

## Names

The names are those that Prometheus' JMX exporter gives to Apache Kafka's MBeans, with two sets of rules: its own example rules,
which Strimzi uses, and Confluent's. The broker serves both; if the two names are the same, there is one series. It also serves
kafka_exporter's metrics of topics and groups, so you do not need an exporter.

A test checks that every metric and label in the queries of published dashboards is served (`tests/metrics/test_dashboards.py`):
"""

DIFFERENCES = """
## What differs from Apache Kafka

- kwire has one event loop instead of network threads and request handlers. Both idle percentages are the share of the last half
  minute in which the loop used no CPU time; waiting for a disk counts as idle.
- All requests are counted, but not all Produce and Fetch requests are timed: one in 8 from 20 requests per second, one in 32 from
  200, and one in 128 from 1,000, weighted accordingly. Quantiles cover the last two and a half to five minutes and are accurate
  to a tenth of the value. Apache Kafka keeps a sample of five minutes.
- `RequestQueueTimeMs` starts with the iteration of the event loop in which the request was received; before that, the request is
  in the kernel.
- `TotalFetchRequestsPerSec` counts the partitions in responses. Apache Kafka also counts partitions without new records.
- Rates (`connection-creation-rate`) are measured between scrapes, over at least half a minute once the broker has run for that
  long.
- `kafka_consumergroup_lag` is served only if the group's coordinator has a replica of the partition. In a larger cluster, compute
  it: `kafka_topic_partition_current_offset - on(topic, partition) group_right kafka_consumergroup_current_offset`.

## Cost

With `--http`, a broker takes 3 MB more memory, and 9 MB more after the first scrape. Counting adds 2 to 3 % to the CPU time of a
request. A scrape of 10,000 partitions takes 0.17 s of CPU time, during which clients wait for 9 ms at most
([measurements](results/metrics.md)).

## Limits

- A scrape is generated in slices of a few milliseconds, with client requests in between, and sent as it is read, with at most 256
  KiB waiting to be read. Concurrent scrapes take turns, first by address.
- `kwire.metrics.partition.limit` limits how many replicas, topics, groups and committed offsets have individual series. Sums are
  always complete, and `kwire_metrics_partitions_left_out` is the number of replicas without series.
- There are at most 32 HTTP connections. A further one replaces one of the address that has most: the oldest that is waiting for a
  request, or else, for a client of another address, the oldest.
- A request must arrive within 10 seconds, and its headers can have 16 KiB. A client that reads nothing for 10 seconds is
  disconnected.
"""


RESULTS = """# Metrics: measurements

What [metrics](../metrics.md) cost, and their values beside those of Apache Kafka.

## Cost

Recorded on 2026-11-23, on Python 3.11.7 and two cores that other work shared (load average 8 to 12):

| | without `--http` | with it |
| --- | ---: | ---: |
| resident memory of an idle broker | 33.7 MB | 36.6 MB; 46.0 MB after the first scrape, which loads prometheus_client in a thread; 3 MB more after the first push of a client, which loads protobuf |
| CPU of a Produce request of one batch of 16 KB, kernel included | 30.9 us | 31.5 us; by pairs +2.5 % |
| CPU of a Fetch request that returns it | 39.2 us | 40.3 us; by pairs +2.9 % |
| instructions of the Produce request, without the kernel | 142,439 | 145,496; +2.1 % |

CPU times come from `python -m bench.metrics --rounds 7 --blocks 30`: seven pairs of processes, with and without `--http`, in
alternation, 1,500 requests each, without the slowest tenth. The table shows the medians, and the median of the pairs' ratios;
single pairs range from +0.4 to +4.0 % (Produce) and from +0.7 to +3.9 % (Fetch). Instructions come from `valgrind --tool=cachegrind --cache-sim=no`:
a process that has handled 1,280 requests of a client in another process, minus one that has handled none. A counted request makes
one more Python function call (`tests/test_hot_path.py`).

A scrape of 10,000 partitions with individual series (173,000 lines, 11.4 MB) took 0.17 s of CPU time, including its reader in the
same process. No iteration of the event loop took more than 9 ms, and the process grew by 7 MB over three scrapes.
"""

BESIDE = """
## Compared with Apache Kafka

`python -m bench.mbeans` sends the same requests to Apache Kafka 3.9.2 and to kwire: 109 Produce requests (6 of them invalid), 57
Fetches, commits, a group, three transactions. It reads Apache Kafka's MBeans with its JmxTool, and kwire's `/metrics`. For values
that only grow, it compares the growth during the load; for all others, the value afterwards. Of the {values} values, {equal} are
equal. An MBean that both have but that the load does not use appears with 0.
"""

TIMES = """
The times below are not a benchmark: both brokers ran for half a minute, on a machine with two cores that other work shared, and
Apache Kafka's JVM was still warming up. They only show that the same things are measured. Each cell has the median and 99th
percentile of Apache Kafka (in whole milliseconds), then those of kwire:
"""


def metrics_page() -> str:
    """The served metrics, their names, and their dashboards."""
    lines = [INTRO]
    lines += ["| dashboard | metrics | served | not served |", "| --- | ---: | ---: | --- |"]
    for dashboard in DASHBOARDS:
        missing = [metric for metric in dashboard.asks if metric in MISSING]
        shown = ", ".join(f"`{metric}`" for metric in missing) or "-"
        served = len(dashboard.asks) - len(missing)
        lines.append(f"| {dashboard.name} | {len(dashboard.asks)} | {served} | {shown} |")
    lines += ["", "These metrics are not served:", "", "| metric | reason |", "| --- | --- |"]
    lines += [f"| `{metric}` | {why} |" for metric, why in sorted(MISSING.items())]
    lines += [DIFFERENCES, "## All metrics", ""]
    count = len(names_of(ROWS))
    lines.append(
        f"There are {count} names. If a cell has several, they are the same series under different rules.\n"
    )
    lines += ["| MBean | series | labels | meaning |", "| --- | --- | --- | --- |"]
    lines += [_line(row) for row in ROWS]
    return "\n".join(lines)


def metrics_results_page() -> str:
    """What metrics cost, and their values beside Apache Kafka's."""
    return "\n".join([RESULTS, *beside_kafka()])


def beside_kafka() -> list[str]:
    """The values of Apache Kafka's MBeans next to kwire's, recorded under one load."""
    rows = compared()
    values, equal = sum(row.values for row in rows), sum(row.equal for row in rows)
    lines = [
        BESIDE.format(values=values, equal=equal),
        "| MBean | attribute | values | equal | sum in Kafka | sum in kwire | why |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        why = "" if row.equal == row.values else reason(row) or ""
        kafka = "-" if row.kafka is None else f"{row.kafka:.10g}"
        lines.append(
            f"| `{row.bean}` | {row.attribute} | {row.values} | {row.equal} | {kafka} |"
            f" {row.kwire:.10g} | {why} |"
        )
    lines += [TIMES, "| milliseconds | Produce | FetchConsumer |", "| --- | ---: | ---: |"]
    fetched = dict(quantiles("FetchConsumer"))
    for name, produced in quantiles("Produce"):
        cells = [
            f"{kafka:.3g}, {slow_kafka:.3g} / {kwire:.3g}, {slow_kwire:.3g}"
            for kafka, kwire, slow_kafka, slow_kwire in (produced, fetched[name])
        ]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    return [*lines, ""]


def _line(row: SeriesRow) -> str:
    bean = f"`{row.bean}`" if row.bean else ""
    names = "<br>".join(f"`{name}`" for name in names_of([row]))
    labels = ", ".join(dict.fromkeys(label for series in row.series for label in series.labels))
    return f"| {bean} | {names} | {labels} | {row.doc} |"
