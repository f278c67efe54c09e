"""`metrics.md`: what `kwire serve --http` serves, derived from the table of metrics."""

from __future__ import annotations

from server.metrics.exposition import names_of
from server.metrics.table import ROWS, Row
from tests.metrics.beside_kafka import compared, quantiles, reason
from tests.metrics.dashboards import DASHBOARDS, MISSING

INTRO = """# Metrics and health

`kwire serve --http localhost:9644` (or `kwire.http.listener`) serves these by HTTP. Without it nothing is served, and nothing
is loaded for it. A port alone is one of this machine; `:9644` is every interface, and then everybody who can connect reads
what is served: there is no login, so let only your Prometheus server through.

| path | |
| --- | --- |
| `/metrics` | the metrics below, and those of the process (`process_*`, `python_*`), in Prometheus' text format |
| `/livez` | 200 as long as the broker answers at all |
| `/readyz`, `/v1/status/ready` | 200 if clients can be served; otherwise 503 with a JSON object that says why: logs that are being read or recovered, no word from the controller yet, listeners that are not open, or a broker that is stopping |

Health is the first thing that a starting broker opens and the last that a stopping one closes. `/metrics` answers 503 until the
broker is ready for the first time.

```yaml
scrape_configs:
  - job_name: kafka-broker
    static_configs:
      - targets: ["broker1:9644", "broker2:9644"]
        labels: {env: prod, namespace: kafka, strimzi_io_cluster: prod}
```

Scrape every broker: each tells what it knows best, a partition's offsets by its leader, a group's by its coordinator, so that
sums over brokers are the cluster's. Dashboards select by labels that a scrape config has to add: Confluent's by `job` and
`env`, Strimzi's by `namespace` and `strimzi_io_cluster`.

A client has to call the broker by `localhost`, by an address, or, if the listener is open to others, by the machine's or an
advertised name. For any other name, such as a service of Kubernetes or Docker, set `kwire.http.hosts`. This protects from pages
in a browser that resolve their own name to this machine (DNS rebinding). Pages of other sites may link here, but have nothing
measured or searched by images and the like: such requests get 403.

## In a terminal

`kwire top localhost:9644` shows brokers, topics by throughput, groups by lag, requests by API, and clients by software, and looks
again every two seconds (`--interval`); Ctrl-C ends it. Name every broker of a cluster. `--once` prints one look, and
`--output json` an object for a program; rates are measured between two looks.

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

Clients push metrics of their own to a broker that asks for them (KIP-714): librdkafka since 2.5, Java since 3.7. They need no
setting. Apache Kafka passes what comes to a plug-in, and without one serves none of it. kwire shows it at `/metrics`, as
`kafka_client_...`. It takes a broker with the embedded store, `pip install 'kwire[telemetry]'`, and a subscription:

```console
$ kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter --name latency \
    --metrics org.apache.kafka.producer.,org.apache.kafka.consumer. --interval 30000 --match client_id=billing.*
$ curl -s localhost:9644/metrics | grep kafka_client_producer_request_latency_avg
kafka_client_producer_request_latency_avg{client_id="billing-1",client_instance_id="62bBFDBdRr-fYt6C07ZCPw"} 14.4
```

`--metrics` are prefixes, or `*` for everything. A name of a metric such as `org.apache.kafka.producer.request.latency.avg` becomes
`kafka_client_producer_request_latency_avg`; its labels are those that the client gives, with `client_id` and
`client_instance_id`. Counters are sums since the broker first heard of the client. A client's series go when it has been silent
for three intervals, and not before a minute. There are at most `kwire.client.metrics.limit` of them; a push has at most
`telemetry.max.bytes`, compressed or not. Whoever can connect can push, as in Apache Kafka, so these series are no more
trustworthy than your clients.

## Names

The names are those that Prometheus' JMX exporter gives Apache Kafka's MBeans, by its own example rules, which Strimzi uses,
and by Confluent's. Both are served at once; where they agree there is one series. kafka_exporter's metrics of topics and groups
are here too, so no exporter is needed.

Published dashboards were read, and a test looks for each metric and label of their queries
(`tests/metrics/test_dashboards.py`):
"""

DIFFERENCES = """
## What differs from Apache Kafka

- There is one event loop instead of network threads and request handlers. Both idle percentages are the part of the last half
  minute in which it used no CPU time; time that it waited for a disk counts as idle.
- All requests are counted. Of Produce and Fetch, one in 8 is timed from 20 requests a second on, one in 32 from 200 on,
  and one in 128 from 1,000 on; it counts as so many. Quantiles are of the last two and a half to five minutes, and within a tenth of the value. Apache Kafka keeps a sample of the values of five minutes.
- `RequestQueueTimeMs` begins with the turn of the loop in which a request was received; before that it is in the kernel.
- `TotalFetchRequestsPerSec` counts the partitions in responses. Apache Kafka also counts those in which nothing was new.
- Rates (`connection-creation-rate`) are measured between scrapes, over at least half a minute once there is so much.
- `kafka_consumergroup_lag` is told where the group's coordinator has a replica of the partition. In a larger cluster, compute it:
  `kafka_topic_partition_current_offset - on(topic, partition) group_right kafka_consumergroup_current_offset`.

## What it costs

Measured on Python 3.11.7 with two cores that other work shared (load average 8 to 12).

| | without `--http` | with it |
| --- | ---: | ---: |
| resident memory of a broker at rest | 33.7 MB | 36.6 MB; 46.0 MB after the first scrape, which loads prometheus_client in a thread; 3 MB more after the first push of a client, which loads protobuf |
| CPU of a Produce request of one batch of 16 KB, kernel included | 30.9 us | 31.5 us; by pairs +2.5 % |
| CPU of a Fetch request that returns it | 39.2 us | 40.3 us; by pairs +2.9 % |
| instructions of the Produce request, without the kernel | 142,439 | 145,496; +2.1 % |

CPU is by `python -m bench.metrics --rounds 7 --blocks 30`: seven pairs of processes, with and without, in turn, 1,500 requests each,
without the slowest tenth. It gives the medians, and the median of the pairs' ratios; single pairs are from +0.4 to +4.0 %
(Produce) and from +0.7 to +3.9 % (Fetch). Instructions are by `valgrind --tool=cachegrind --cache-sim=no`: a process that has handled
1,280 requests of a client in another process, less one that has handled none. A counted request calls one Python function more
(`tests/test_hot_path.py`). A scrape of 10,000 partitions, all with series of their own (173,000 lines, 11.4 MB), took 0.17 s of CPU with
its reader in the same process; no turn of the loop took more than 9 ms, and the process grew by 7 MB over three scrapes.

## Limits

A scrape is made in slices of a few milliseconds, with requests of clients in between, and sent as it is read: at most four at
a time, each with at most 256 KiB that wait to be read. `kwire.metrics.partition.limit` says how many replicas, topics, groups and
committed offsets have series of their own; sums are always complete, and `kwire_metrics_partitions_left_out` says how many
replicas have none. HTTP connections are at most 32: a further one takes the place of the oldest that waits for a
request. A request has 10 seconds to arrive and 16 KiB for its head; a client that reads nothing for 10 seconds is
disconnected.
"""


BESIDE = """
## Beside Apache Kafka

`python -m bench.mbeans` sends the same requests to Apache Kafka 3.9.2 and to kwire: 109 Produce requests (6 of them bad), 57
Fetches, commits, a group, three transactions. It asks Apache Kafka for its MBeans with its own JmxTool, and kwire for `/metrics`.
Of what only grows, the growth under the load is compared, of all else the value afterwards. Of the {values} values, {equal} are
equal. An MBean that both have but that the load does not use is there with 0.
"""

TIMES = """
Times are no figures to compare: both brokers ran for half a minute, on a machine with two cores that other work shared, and
Apache Kafka's Java was just warming up. They show that the same things are measured. Median and 99th percentile, Apache Kafka's
(in whole milliseconds) and kwire's:
"""


def metrics_page() -> str:
    """What is served, by which names, and for which dashboards."""
    lines = [INTRO]
    lines += ["| dashboard | metrics | served | not served |", "| --- | ---: | ---: | --- |"]
    for dashboard in DASHBOARDS:
        missing = [metric for metric in dashboard.asks if metric in MISSING]
        shown = ", ".join(f"`{metric}`" for metric in missing) or "-"
        served = len(dashboard.asks) - len(missing)
        lines.append(f"| {dashboard.name} | {len(dashboard.asks)} | {served} | {shown} |")
    lines += ["", "Not served, and why:", "", "| metric | |", "| --- | --- |"]
    lines += [f"| `{metric}` | {why} |" for metric, why in sorted(MISSING.items())]
    lines += [DIFFERENCES, *beside_kafka(), "## All metrics", ""]
    count = len(names_of(ROWS))
    lines.append(
        f"{count} names. Where a cell has several, they are the same series by different rules.\n"
    )
    lines += ["| MBean | series | labels | |", "| --- | --- | --- | --- |"]
    lines += [_line(row) for row in ROWS]
    return "\n".join(lines)


def beside_kafka() -> list[str]:
    """The values of Apache Kafka's MBeans beside kwire's, recorded under one load."""
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


def _line(row: Row) -> str:
    bean = f"`{row.bean}`" if row.bean else ""
    names = "<br>".join(f"`{name}`" for name in names_of([row]))
    labels = ", ".join(dict.fromkeys(label for series in row.series for label in series.labels))
    return f"| {bean} | {names} | {labels} | {row.doc} |"
