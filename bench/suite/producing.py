"""Starting, the first minute, and producing: throughput, broker CPU and memory by cell."""

from __future__ import annotations

import time
from pathlib import Path

from . import clients
from .cells import DEFAULT_CELLS, Cell, load
from .plan import Bench
from .subjects import CpuTime, Subject
from .tools import TROUBLE, Missing

#: Bytes/s of a fixed load: a tenth of what any broker can accept, so that all keep up.
FIXED_LOAD = 20e6
FIRST_START = "a new directory"
#: From the first answer until memory is measured.
REST_S = 3.0
#: The first estimate when a cell is sized. Unit: bytes/s by record size.
GUESS = {100: 15e6, 1000: 80e6, 10_000: 150e6}


def start_all(bench: Bench) -> None:
    """Start each broker several times, alone; after the last start it stays for the first minute and all later work."""
    last = bench.form.starts - 1
    for number in range(bench.form.starts):
        for subject in bench.subjects:

            def one(subject: Subject = subject) -> dict[str, float]:
                figures = {"seconds": subject.start()}
                time.sleep(REST_S)
                return {**figures, "rest_mb": subject.megabytes(), "start_cpu_s": subject.cpu()}

            case = FIRST_START if number == 0 else "a clean directory"
            done = bench.measure("start", case, subject, number, one)
            if done is not None and number == last:
                first_minute(bench, subject, done["start_cpu_s"])
            elif subject.is_running:
                subject.stop()


def first_minute(bench: Bench, subject: Subject, start_cpu_s: float) -> None:
    """Measure a fixed load from the first answer on."""
    seconds, cell = bench.form.first_minute_s, Cell(client="go")
    records = int(FIXED_LOAD * seconds / cell.record)

    def one() -> dict[str, float]:
        topic = subject.new_topic(cell.partitions)
        before = subject.cpu()
        clients.go(
            "produce",
            brokers=subject.address,
            topic=topic,
            records=records,
            rate=records / seconds,
            payloads=clients.payload_file(bench.directory, cell.record),
            batch=cell.batch,
            idempotent=True,
        )
        subject.wait_count(topic, cell.partitions, records)
        used = subject.cpu() - before
        subject.delete(topic)
        gigabytes = records * cell.record / 1e9
        return {
            "cpu_s_per_gb": used / gigabytes,
            "with_start_cpu_s_per_gb": (used + start_cpu_s) / gigabytes,
        }

    try:
        bench.measure("first minute", f"{seconds:.0f} s at 20 MB/s", subject, 0, one)
    except Missing as reason:
        bench.skip("the first minute", reason)


def warm_up(bench: Bench) -> None:
    """Do the same work on each broker, so that later measurements run compiled code."""
    cell = DEFAULT_CELLS[0]
    payloads = clients.payload_file(bench.directory, cell.record)
    records = int(bench.form.warm_up_gb * 1e9 / cell.record)
    for _, subject in bench.in_turn(1):
        bench.progress(f"warming up {subject.name}")
        topic = subject.new_topic(cell.partitions)
        clients.produce(subject, cell, topic, records, payloads)
        clients.java_consume(subject, topic, records, cell.record, 1 << 20)
        subject.delete(topic)


def retained(partitions: int) -> dict[str, str]:
    """Topic settings that keep about half a GB, so that data waiting for the disk does not slow down a long run."""
    segment = max(16 << 20, (256 << 20) // partitions)
    return {"segment.bytes": str(segment), "retention.bytes": str(segment)}


def produce_once(
    bench: Bench, subject: Subject, cell: Cell, records: int, payloads: Path
) -> dict[str, float]:
    """One run of one cell on a separate topic."""
    settings = retained(cell.partitions) if bench.form.all_cells else {}
    topic = subject.new_topic(cell.partitions, settings)
    try:
        figures: dict[str, float] = {}
        with (
            subject.watched_memory() as peak,
            clients.probed(subject, figures),
            CpuTime(subject) as cpu,
        ):
            done = clients.produce(subject, cell, topic, records, payloads)
        return {
            "mb_s": done.bytes / 1e6 / done.seconds,
            **cpu.per(done.bytes / 1e9),
            "seconds": done.seconds,
            "peak_mb": peak[0],
            **figures,
        }
    finally:
        subject.delete(topic)


def size_of(bench: Bench, cell: Cell, payloads: Path) -> int:
    """The number of records for a run of the wanted length, found by trying it on the reference."""
    # A JVM's first second is spent on compiling.
    wanted = bench.form.produce_s + (1.0 if cell.client == "java" else 0.0)
    subject = bench.reference()
    records = max(200, int(min(wanted, 2.0) * GUESS[cell.record] / cell.record))
    for _ in range(4):
        topic = subject.new_topic(cell.partitions)
        try:
            took = clients.produce(subject, cell, topic, records, payloads).seconds
        finally:
            subject.delete(topic)
        enough = took >= min(5.0, wanted * 0.6)
        records = max(200, int(records * min(20.0, wanted / max(took, 1e-3))))
        if enough:
            break
    return records


def cells_of(bench: Bench) -> list[Cell]:
    """The cells of this form."""
    return [cell for cell in load() if bench.form.all_cells or cell.kind in ("default", "short")]


def all_cells(bench: Bench) -> None:
    """Measure every cell in every round; in the short form only default cells have more than one round."""
    cells = cells_of(bench)
    sizes: dict[str, int] = {}
    for number in range(bench.form.rounds):
        for cell in cells:
            if number and bench.is_late(0.58, f"round {number + 1} of {cell.name}"):
                continue
            if number and cell.kind == "short" and not bench.form.all_cells:
                continue
            payloads = clients.payload_file(bench.directory, cell.record)
            try:
                if cell.name not in sizes:
                    sizes[cell.name] = size_of(bench, cell, payloads)
            except Missing as reason:
                bench.skip(f"producing with {cell.client}", reason)
                continue
            except TROUBLE as problem:
                bench.progress(f"{cell.name}: cannot be sized: {problem}")
                continue
            for _, subject in bench.in_turn(1):
                bench.measure(
                    "produce",
                    cell.name,
                    subject,
                    number,
                    lambda subject=subject, cell=cell, payloads=payloads: produce_once(  # type: ignore[misc]
                        bench, subject, cell, sizes[cell.name], payloads
                    ),
                )
