"""The clients: each is a process that does a counted piece of work and reports it.

The reports are checked: a run counts only if the broker has every record afterwards, or the client has read every one.
"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.broker_process import REPOSITORY
from tests.support.kafka import KAFKA_3, fetched_jars, java_command

from .cells import Cell
from .subjects import Subject
from .tools import Missing, go_program

CLIENT_JVM = ("-Xmx512m",)
TIMEOUT_S = 300
READY_S = 120.0
#: Number of distinct values, so that a codec does not see the same one twice in its window; made of 26 letters.
PAYLOAD_BYTES = 2_000_000


class ClientFailed(RuntimeError):
    """A client ended with an error, or did not do its work; contains the end of its output."""


class Done(NamedTuple):
    """The work of a client, and its duration by the client's clock."""

    records: int
    bytes: int
    seconds: float


def payload_file(directory: Path, record: int) -> Path:
    """A file with record values of this size, one per line, always the same."""
    path = directory / f"payloads-{record}"
    if not path.exists():
        draw = random.Random(record)
        letters = bytes(range(65, 91))
        lines = [bytes(draw.choices(letters, k=record)) for _ in range(PAYLOAD_BYTES // record)]
        path.write_bytes(b"\n".join(lines))
    return path


def run(command: list[str], timeout_s: float = TIMEOUT_S) -> str:
    """Run a client to its end and return its output. Errors: ClientFailed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=REPOSITORY
        )
    except subprocess.TimeoutExpired:
        raise ClientFailed(f"{command[1]}: not done after {timeout_s:.0f} s") from None
    if done.returncode != 0:
        words = f"{done.stdout[-400:]} {done.stderr[-800:]}".strip()
        raise ClientFailed(f"{Path(command[0]).name}: {words}")
    return done.stdout


def go(name: str, **options: Any) -> dict[str, Any]:
    """Run a subcommand of the load generator. Errors: Missing, ClientFailed."""
    answer: dict[str, Any] = json.loads(run(go_command(name, **options)).splitlines()[-1])
    return answer


def go_command(name: str, **options: Any) -> list[str]:
    """The command line of a subcommand."""
    words = [str(go_program()), name]
    for option, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words.append(f"-{option.replace('_', '-')}={text}")
    return words


@contextmanager
def background(command: list[str], *, ready: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A client that runs in the background until its standard input closes; killed if it does not end.

    Shape: with ready, first waits for its line `ready`. `finished` closes its input and returns its answer.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        if ready:
            told, _, _ = select.select([process.stdout], [], [], READY_S)
            if not told:
                raise ClientFailed(f"{command[1]}: not ready after {READY_S:.0f} s")
            if process.stdout.readline().strip() != "ready":
                raise ClientFailed(f"{command[1]}: {process.stderr.read()[-500:]}")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


def finished(process: subprocess.Popen[str], timeout_s: float = 120.0) -> dict[str, Any]:
    """Close a background client's standard input and return its output. Errors: ClientFailed."""
    out, err = process.communicate(timeout=timeout_s)
    if process.returncode != 0:
        raise ClientFailed(err[-500:].strip())
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


@contextmanager
def probed(subject: Subject, figures: dict[str, float]) -> Iterator[None]:
    """Ping the broker every 5 ms during the block; adds the longest response time to the figures, in ms."""
    try:
        command = go_command("probe", brokers=subject.address)
    except Missing:
        yield
        return
    with background(command) as process:
        yield
        answer = finished(process)
        figures["ping_max_ms"] = answer["us"].get("max", 0.0) / 1e3
        figures["ping_p99_ms"] = answer["us"].get("p99", 0.0) / 1e3


def produce(subject: Subject, cell: Cell, topic: str, records: int, payloads: Path) -> Done:
    """Produce this many records and return when the broker has exactly that number. Errors: ClientFailed."""
    before = subject.record_count(topic, cell.partitions)
    done = {"java": _java_produce, "rdkafka": _rdkafka_produce, "go": _go_produce}[cell.client](
        subject, cell, topic, records, payloads
    )
    if done.records != records:
        raise ClientFailed(f"{cell.name}: {done.records} of {records} records were acknowledged")
    waited = subject.wait_count(topic, cell.partitions, before + records)
    # A few milliseconds are mostly the request itself; more is time for which acks=0 did not wait.
    return done._replace(seconds=done.seconds + (waited if waited > 0.05 else 0.0))


def java_tool(name: str) -> list[str]:
    """The beginning of the command line of one of Apache Kafka's tools. Errors: Missing."""
    jars = fetched_jars(f"kafka-{KAFKA_3}")
    if isinstance(jars, str):
        raise Missing(jars)
    return [*java_command(KAFKA_3, flags=CLIENT_JVM), f"org.apache.kafka.tools.{name}"]


def _java_produce(subject: Subject, cell: Cell, topic: str, records: int, payloads: Path) -> Done:
    out = run(
        [
            *java_tool("ProducerPerformance"),
            *("--topic", topic, "--num-records", str(records), "--payload-file", str(payloads)),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={subject.address}"),
            *(f"batch.size={cell.batch}", f"acks={cell.acks}", "linger.ms=5"),
            *(f"compression.type={cell.compression}", "buffer.memory=67108864"),
            f"enable.idempotence={str(cell.idempotent).lower()}",
        ]
    )
    # Format: 100000 records sent, 91234.5 records/sec (87.01 MB/sec), ...
    words = out.strip().splitlines()[-1].split()
    sent = int(words[0])
    return Done(sent, sent * cell.record, sent / float(words[3]))


def _rdkafka_produce(
    subject: Subject, cell: Cell, topic: str, records: int, payloads: Path
) -> Done:
    return rdkafka("produce", _rdkafka_work(subject, cell, topic, records, payloads))


def _rdkafka_work(
    subject: Subject, cell: Cell, topic: str, records: int, payloads: Path
) -> dict[str, Any]:
    return {
        "brokers": subject.address,
        "topic": topic,
        "records": records,
        "payloads": str(payloads),
        "batch": cell.batch,
        "acks": cell.acks,
        "compression": cell.compression,
        "idempotent": cell.idempotent,
        "connections": cell.connections,
    }


def fill(subject: Subject, cell: Cell, topic: str, records: int, payloads: Path) -> None:
    """Produce this many records with librdkafka, the same number to every partition.

    A client's own choice leaves some partitions with twice as many records as others, by chance. While it holds data of
    the others, the Java consumer fetches only the partitions that it has read to the end, and so waits
    `fetch.max.wait.ms` repeatedly.
    """
    work = _rdkafka_work(subject, cell, topic, records, payloads)
    rdkafka("produce", {**work, "partitions": cell.partitions})
    subject.wait_count(topic, cell.partitions, records)


def rdkafka(name: str, work: dict[str, Any]) -> Done:
    """Run librdkafka in a separate process."""
    out = run([sys.executable, "-m", "bench.suite.rdkafka", name, json.dumps(work)])
    return Done(**json.loads(out.splitlines()[-1]))


def _go_produce(subject: Subject, cell: Cell, topic: str, records: int, payloads: Path) -> Done:
    return Done(
        **go(
            "produce",
            brokers=subject.address,
            topic=topic,
            records=records,
            payloads=payloads,
            batch=cell.batch,
            acks=cell.acks,
            compression=cell.compression,
            idempotent=cell.idempotent,
            connections=cell.connections,
        )
    )


def java_consume(subject: Subject, topic: str, records: int, record: int, fetch: int) -> Done:
    """Run kafka-consumer-perf-test; the time it takes to join a group is not counted."""
    out = run(
        [
            *java_tool("ConsumerPerformance"),
            *("--bootstrap-server", subject.address, "--topic", topic),
            *("--messages", str(records), "--timeout", "30000", "--fetch-size", str(fetch)),
            *("--group", f"perf-{time.monotonic_ns()}"),
        ]
    )
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    fields = out.strip().splitlines()[-1].split(",")
    read = int(fields[4])
    if read < records:
        raise ClientFailed(f"kafka-consumer-perf-test read {read} of {records} records")
    return Done(read, read * record, float(fields[7]) / 1e3)
