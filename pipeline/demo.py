"""`make pipeline-demo`: sends all kinds of records through broker, archive and replay, and proves that none was lost.

    produce ──▶ topic orders ──archive──▶ Parquet ──replay──▶ topic orders-again
                     └────audit────┘ as tables, too                │
                     └──────────────────────audit──────────────────┘

The demo starts and stops its own kwire. It knows every record that was produced, and compares them at the end with what a
read_committed consumer reads from the second topic.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .audit.job import audit
from .audit.report import Report, print_report
from .cluster import Cluster
from .main import main as run_job
from .main import make_parser
from .manifest import Archive
from .problems import Problem, explain
from .tables.changes import RANGES
from .tables.options import FORMATS
from .tables.place import TablePlace

SOURCE, TARGET = "orders", "orders-again"
PARTITIONS = 4
#: Used in this order, each for a part of the records; the last ones in transactions.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTIONAL = CODECS[3:]
#: The most records in a transaction.
TRANSACTION = 2_000
#: One in this many transactions is aborted.
ABORTED = 5
SIZES = (0, 12, 40, 40, 90, 90, 200, 700)
HOUR_MS = 3_600_000
START_S = 60.0

#: Headers as confluent-kafka accepts and returns them.
Headers = dict[str, str | bytes | None] | list[tuple[str, str | bytes | None]]


@dataclass
class Checksum:
    """The number of records in each partition, and a checksum over their full content in order."""

    counts: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    sums: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    def add(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers | None,
    ) -> None:
        """Add one record."""
        self.counts[partition] += 1
        text = repr((key, value, timestamp, headers or None)).encode()
        self.sums[partition] = zlib.crc32(text, self.sums[partition])


@dataclass
class Stages:
    """The stages of the demo, each with its records and seconds."""

    rows: list[tuple[str, int, float]] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str, records: int) -> Iterator[None]:
        """Time the block as one stage."""
        print(f"\n== {name}", flush=True)
        began = time.monotonic()
        yield
        self.rows.append((name, records, time.monotonic() - began))


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run a kwire with its data in `folder`; yields its address. Raises Problem if it does not start."""
    command = [sys.executable, "-m", "kwire.server", "serve", "--listen", "127.0.0.1:0"]
    single = "offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1"
    overrides = [word for pair in single for word in ("-o", pair)]
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--data-dir", str(folder / "data"), *overrides],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if words[:2] != ["kwire", "ready"]:
            raise Problem(f"the broker did not start: see {folder / 'broker.log'}")
        yield words[2]
    finally:
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _create(cluster: Cluster) -> None:
    admin = AdminClient(cluster.settings())
    wanted = [NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]
    for answer in admin.create_topics(wanted).values():
        answer.result(START_S)


def produce(bootstrap: str, count: int) -> tuple[Checksum, int]:
    """Produce `count` committed records and some aborted ones; returns the committed content and the number aborted."""
    content, aborted = Checksum(), 0
    size = max(1, min(TRANSACTION, count // 100))
    number, start = 0, int(time.time() * 1000) - 3 * HOUR_MS
    step = 3 * HOUR_MS / max(1, count)
    for turn, codec in enumerate(CODECS):
        end = count * (turn + 1) // len(CODECS)
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 20,
        }
        if codec in TRANSACTIONAL:
            settings["transactional.id"] = f"demo-{codec}"
        producer = Producer(settings)
        if codec in TRANSACTIONAL:
            producer.init_transactions(START_S)
            done = 0
            while number < end:
                after = min(number + size, end)
                done += 1
                producer.begin_transaction()
                if done % ABORTED == 0:
                    _send(producer, range(number, after), start, step, None)
                    producer.flush(START_S)
                    producer.abort_transaction(START_S)
                    aborted += after - number
                else:
                    _send(producer, range(number, after), start, step, content)
                    producer.commit_transaction(START_S)
                    number = after
        else:
            _send(producer, range(number, end), start, step, content)
            number = end
        if producer.flush(START_S):
            raise Problem(f"the broker at {bootstrap} did not accept all records")
    return content, aborted


def _send(
    producer: Producer, numbers: range, start: int, step: float, content: Checksum | None
) -> None:
    """Send the records with these numbers; the content of a record follows from its number."""
    send = producer.produce
    filler = b"a line of an order, as long as it has to be; " * 20
    for number in numbers:
        partition = number % PARTITIONS
        key = None if number % 7 == 0 else b"customer-%d" % (number % 1000)
        size = SIZES[(number // PARTITIONS) % len(SIZES)]
        value = None if number % 41 == 0 else (b"%d %s" % (number, filler))[:size]
        # The timestamps span three hours and are slightly out of order.
        timestamp = start + int(number * step) - number % 13 * 1000
        headers: Headers | None = None
        if number % 3 == 0:
            headers = [("trace", b"%x" % number), ("empty", None)]
        while True:
            try:
                send(SOURCE, value, key, partition, None, None, timestamp, headers)
                break
            except BufferError:
                producer.poll(0.1)
        if content is not None:
            content.add(partition, key, value, timestamp, headers)
        if not number % 1000:
            producer.poll(0)


def read_back(cluster: Cluster, topic: str) -> Checksum:
    """The content of a topic that a read_committed consumer sees."""
    content = Checksum()
    settings: dict[str, str | bool] = {
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = cluster.consumer(**settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    left = set(range(PARTITIONS))
    while left:
        message = consumer.poll(START_S)
        if message is None:
            raise Problem(f"{topic} cannot be read to its end")
        partition = message.partition() or 0
        if message.error():
            left.discard(partition)
        else:
            _, timestamp = message.timestamp()
            content.add(partition, message.key(), message.value(), timestamp, message.headers())
    consumer.close()
    return content


def _job(*words: str) -> None:
    if run_job(words) != 0:
        raise Problem(f"{words[0]} failed")


def _audit(*words: str) -> Report:
    options = make_parser("audit").parse_args(["audit", *words])
    report = audit(options)
    print_report(report, sys.stdout)
    return report


def show_table(archive: Path, name: str) -> None:
    """Print the commits of a table, with the offsets that each says of itself."""
    place = TablePlace(
        Archive(archive), make_parser("archive").parse_args(["archive", f"--path={archive}"])
    )
    table = place.table(name, SOURCE)
    table.open(create=False)
    print(f"\n{name} table {table.name}")
    for snapshot in table.snapshots():
        if RANGES in snapshot.properties:
            print(
                f"  {snapshot.number}: {snapshot.operation}, offsets {snapshot.properties[RANGES]}"
            )
    place.close()


def run(options: Namespace, folder: Path) -> int:
    """Run the whole demo in a folder; returns the exit status."""
    stages, archive = Stages(), folder / "archive"
    count: int = options.records
    formats = [name for name, format in FORMATS.items() if find_spec(format.package)]
    tables = [f"--table={name}" for name in formats]
    with broker(folder) as bootstrap, Cluster(bootstrap) as cluster:
        _create(cluster)
        with stages.stage("produce", count):
            content, aborted = produce(bootstrap, count)
        print(f"{count:,} records, and {aborted:,} in aborted transactions")
        at = ("--bootstrap-server", bootstrap)
        with stages.stage("archive", count):
            place = "--path", str(archive), *tables
            _job("archive", *at, "--topics", SOURCE, *place, "--once")
        for name in formats:
            show_table(archive, name)
        places = 2 + len(formats)
        with stages.stage("audit of topic, archive, tables", places * count):
            first = _audit(*at, "--topics", SOURCE, "--archive", str(archive), *tables)
        with stages.stage("replay", count):
            source = "--archive", str(archive), *tables[:1]
            _job("replay", *at, *source, "--to", TARGET, "--keep-partitions")
        with stages.stage("audit of both topics", 2 * count):
            second = _audit(*at, "--topics", f"{SOURCE},{TARGET}", "--map", f"{SOURCE}={TARGET}")
        with stages.stage("read back", count):
            found = read_back(cluster, TARGET)
    same = found == content
    rows = {(facts.topic, facts.partition): facts for facts in second.partitions}
    archived = {
        facts.partition: facts.rows for facts in first.partitions if facts.place == str(archive)
    }
    equal = all(one.equal for report in (first, second) for one in report.comparisons)
    compared = bool(first.comparisons and second.comparisons)
    gaps = sum(facts.unexplained_count for report in (first, second) for facts in report.partitions)
    print(f"\n  {'partition':<10}{'produced':>12}{'archived':>12}{'replayed':>12}  content")
    for number in range(PARTITIONS):
        again = rows[TARGET, number]
        print(
            f"  {number:<10}{content.counts[number]:>12,}{archived.get(number, 0):>12,}{again.rows:>12,}"
            f"  {again.ordered}"
        )
    print(f"\n  {'stage':<28}{'records':>12}{'seconds':>10}{'records/s':>12}")
    for name, records, seconds in stages.rows:
        print(f"  {name:<28}{records:>12,}{seconds:>10.1f}{records / seconds:>12,.0f}")
    wrong = [
        text
        for ok, text in (
            (not first.is_wrong and not second.is_wrong, "an audit found faults"),
            (compared and equal, "places that should be equal are not"),
            (gaps == 0, f"{gaps:,} offsets are missing"),
            (same, "the second topic's records are not those produced"),
        )
        if not ok
    ]
    print(
        f"\n{'; '.join(wrong) if wrong else 'every record is there once, in order and unchanged'}"
    )
    return 1 if wrong else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns 0 if every record came through."""
    parser = ArgumentParser(prog="kwire.pipeline.demo", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--records", type=int, default=2_000_000, help="number of records (default: %(default)s)"
    )
    parser.add_argument(
        "--keep",
        metavar="DIR",
        type=Path,
        help="folder in which to keep the broker's data and the archive",
    )
    options = parser.parse_args(argv)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="kwire-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return run(options, folder)
    except Problem as problem:
        print(f"kwire pipeline demo: {problem}", file=sys.stderr)
        return 1
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        print(f"kwire pipeline demo: {message}", file=sys.stderr)
        return 1
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
