"""Reading existing records (catch-up) from the page cache or the disk, and new records as they arrive (tail)."""

from __future__ import annotations

from typing import NamedTuple

from . import clients
from .cells import Cell
from .plan import Bench
from .producing import FIXED_LOAD
from .subjects import CpuTime, Subject
from .tools import Missing

PARTITIONS = 6
RECORD = 1000
#: The number of connections of the client that discards data; the sendfile limit is measured with the same number.
DISCARD_CONNECTIONS = 2


class Reading(NamedTuple):
    """One way to read a topic. Unit: fetch (for each partition) and batch in bytes."""

    client: str
    consumers: int = 1
    fetch: int = 1 << 20
    batch: int = 16_384
    cold: bool = False

    @property
    def name(self) -> str:
        """Its name in rows of results."""
        where = "disk" if self.cold else "cache"
        return (
            f"{self.client} x{self.consumers}, {self.batch // 1024} KiB batches, "
            f"fetch {self.fetch // 1024} KiB, {where}"
        )


DISCARD = Reading("discard")
JAVA = Reading("java")
SHORT = (JAVA, Reading("rdkafka"), DISCARD, Reading("discard", consumers=10))
LONG = (
    *SHORT,
    Reading("go"),
    Reading("go", consumers=10),
    Reading("java", batch=131_072),
    Reading("discard", batch=131_072),
    Reading("discard", batch=131_072, fetch=8 << 20),
    Reading("discard", fetch=1 << 16),
    Reading("discard", fetch=8 << 20),
)
COLD = (Reading("discard", cold=True), Reading("java", cold=True))


def read(subject: Subject, reading: Reading, topic: str, records: int) -> clients.Done:
    """Read the whole topic with every consumer."""
    if reading.client == "java":
        return clients.java_consume(subject, topic, records, RECORD, reading.fetch)
    if reading.client == "rdkafka":
        work = {
            "brokers": subject.address,
            "topic": topic,
            "records": records,
            "partitions": PARTITIONS,
            "fetch": reading.fetch,
        }
        return clients.rdkafka("consume", work)
    if reading.client == "go":
        answer = clients.go(
            "consume",
            brokers=subject.address,
            topic=topic,
            records=records,
            consumers=reading.consumers,
            fetch=reading.fetch,
        )
    else:
        answer = clients.go(
            "fetch",
            brokers=subject.address,
            topic=topic,
            partitions=PARTITIONS,
            consumers=reading.consumers,
            connections=DISCARD_CONNECTIONS if reading.consumers == 1 else 1,
            fetch=reading.fetch,
        )
    done = clients.Done(**answer)
    if done.records != records * reading.consumers:
        raise clients.ClientFailed(f"{reading.name}: read {done.records}, not {records}")
    return done


def fill(bench: Bench, subject: Subject, batch: int, records: int) -> str:
    """Return a topic with this many records in batches of a size, spread evenly over its partitions."""
    topic = subject.new_topic(PARTITIONS)
    payloads = clients.payload_file(bench.directory, RECORD)
    cell = Cell(client="rdkafka", batch=batch, partitions=PARTITIONS)
    clients.fill(subject, cell, topic, records, payloads)
    return topic


def readings_of(bench: Bench) -> tuple[Reading, ...]:
    """The ways to read of this form."""
    return (LONG if bench.form.all_cells else SHORT) + (COLD if bench.form.cold else ())


def catch_up(bench: Bench, readings: tuple[Reading, ...] | None = None) -> None:
    """Measure every way to read existing records, or the given ones."""
    records = int(bench.form.consume_gb * 1e9 / RECORD)
    if readings is None:
        readings = readings_of(bench)
    for batch in sorted({reading.batch for reading in readings}):
        topics = {s.name: fill(bench, s, batch, records) for _, s in bench.in_turn(1)}
        for number in range(bench.form.rounds):
            if number and bench.is_late(0.68, f"round {number + 1} of catching up"):
                break
            for reading in readings:
                if reading.batch == batch:
                    _read_in_turn(bench, reading, topics, number, records)
        for _, subject in bench.in_turn(1):
            subject.delete(topics[subject.name])


def _read_in_turn(
    bench: Bench, reading: Reading, topics: dict[str, str], number: int, records: int
) -> None:
    for _, subject in bench.in_turn(1):

        def one(subject: Subject = subject) -> dict[str, float]:
            topic = topics[subject.name]
            if reading.cold:
                subject.drop_from_page_cache(topic)
            figures: dict[str, float] = {}
            with (
                subject.watched_memory() as peak,
                clients.probed(subject, figures),
                CpuTime(subject) as cpu,
            ):
                done = read(subject, reading, topic, records)
            return {
                **cpu.per(done.records * RECORD / 1e9),
                "mb_s": done.records * RECORD / 1e6 / done.seconds,
                "wire_mb_s": done.bytes / 1e6 / done.seconds,
                "peak_mb": peak[0],
                **figures,
            }

        try:
            bench.measure("catch-up", reading.name, subject, number, one)
        except Missing as reason:
            bench.skip(f"reading with {reading.client}", reason)


def tail_name(consumers: int) -> str:
    """Its name in rows of results."""
    return f"{consumers} consumer{'s' if consumers > 1 else ''}"


def tail(bench: Bench) -> None:
    """Measure a fixed load alone, then with readers at its end; the difference is the cost of reading."""
    seconds = bench.form.tail_s
    records = int(FIXED_LOAD * seconds / RECORD)
    rounds = bench.form.rounds if bench.form.all_cells else 1
    try:
        for number, subject in bench.in_turn(rounds):
            alone: list[float] = []
            for consumers in (0, 1, 10):

                def one(subject: Subject = subject, consumers: int = consumers) -> dict[str, float]:
                    figures: dict[str, float] = {}
                    used = _tail_once(bench, subject, consumers, records, figures)
                    alone.append(used)  # noqa: B023 - called at once
                    if not consumers:
                        return {"cpu_s_per_gb": used / (records * RECORD / 1e9), **figures}
                    gigabytes = consumers * records * RECORD / 1e9
                    return {"cpu_s_per_gb": (used - alone[0]) / gigabytes, **figures}  # noqa: B023

                case = tail_name(consumers) if consumers else "no consumer"
                if bench.measure("tail", case, subject, number, one) is None:
                    break
    except Missing as reason:
        bench.skip("reading at the end", reason)


def _tail_once(
    bench: Bench, subject: Subject, consumers: int, records: int, figures: dict[str, float]
) -> float:
    """CPU seconds of the broker while this many records arrive and each consumer reads them."""
    topic = subject.new_topic(PARTITIONS)
    produce = clients.go_command(
        "produce",
        brokers=subject.address,
        topic=topic,
        records=records,
        rate=FIXED_LOAD / RECORD,
        payloads=clients.payload_file(bench.directory, RECORD),
        idempotent=True,
    )
    try:
        with clients.probed(subject, figures):
            before = subject.cpu()
            if not consumers:
                clients.run(produce)
                return subject.cpu() - before
            options = {"brokers": subject.address, "topic": topic, "partitions": PARTITIONS}
            fetch = clients.go_command(
                "fetch",
                **options,
                consumers=consumers,
                tail=records,
                seconds=bench.form.tail_s * 4 + 30,
            )
            with clients.background(fetch, ready=True) as process:
                clients.run(produce)
                read_back = clients.finished(process)
            if read_back["records"] != records * consumers:
                raise clients.ClientFailed(f"tail: read {read_back['records']} records")
            return subject.cpu() - before
    finally:
        subject.delete(topic)
