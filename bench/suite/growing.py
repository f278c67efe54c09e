"""The growth of costs: idle connections, partitions, producers, segments, groups."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

from . import clients
from .cells import Cell
from .plan import Bench
from .producing import FIRST_START, REST_S
from .subjects import SETTINGS, Subject
from .tools import Missing, go_program

TOPIC_PARTITIONS = 100
SEGMENT = 1 << 20
#: The total read, large enough for CPU time counted in ticks of 10 ms to be meaningful.
READ_BYTES = 200_000_000


def many_partitions(bench: Bench) -> None:
    """Measure on separate brokers, one after the other, so that their memory is only that of the partitions."""
    bench.stop_all()
    for subject in bench.subjects:
        fresh = Subject(subject.name, subject.root / "partitions", SETTINGS)
        try:

            def start(fresh: Subject = fresh) -> dict[str, float]:
                figures = {"seconds": fresh.start()}
                time.sleep(REST_S)
                return {**figures, "rest_mb": fresh.megabytes()}

            if bench.measure("start", FIRST_START, fresh, bench.form.starts, start) is None:
                continue
            _with_partitions(bench, fresh)
            if fresh.is_running:
                _idle(bench, fresh)
        except Missing as reason:
            bench.skip("idle connections and requests for metadata", reason)
        finally:
            fresh.stop()


def _with_partitions(bench: Bench, subject: Subject) -> None:
    count = bench.form.partitions
    per_topic = min(TOPIC_PARTITIONS, count)
    names = [f"many-{number}" for number in range(count // per_topic)]

    def one() -> dict[str, float]:
        before, began = subject.megabytes(), time.monotonic()
        for first in range(0, len(names), 10):
            subject.create(names[first : first + 10], per_topic)
        created = time.monotonic() - began
        time.sleep(5)
        memory = subject.megabytes()
        return {
            "create_s": created,
            "memory_mb": memory,
            "kb_each": (memory - before) * 1e3 / count,
        }

    case = f"{count:,} partitions"
    figures = bench.measure("partitions", case, subject, 0, one)
    if figures is None:
        return
    _metadata(bench, subject, names[0], per_topic, count)

    def again() -> dict[str, float]:
        stop_s = subject.stop(everything=False)
        began = time.monotonic()
        subject.start()
        subject.wait_served(names, per_topic)
        return {"stop_s": stop_s, "start_s": time.monotonic() - began}

    bench.measure("partitions", case, subject, 0, again)


def _metadata(bench: Bench, subject: Subject, one_topic: str, of_it: int, count: int) -> None:
    seconds = bench.form.short_work_s
    for case, topic, partitions in (
        (f"all topics, {count:,} partitions", "", count),
        (f"one topic, {of_it} partitions", one_topic, of_it),
    ):

        def one(topic: str = topic, partitions: int = partitions) -> dict[str, float]:
            figures: dict[str, float] = {}
            with clients.probed(subject, figures):
                answer = clients.go(
                    "metadata",
                    brokers=subject.address,
                    topic=topic,
                    partitions=partitions,
                    seconds=seconds,
                )
            return {"per_s": answer["requests"] / answer["seconds"], **figures}

        bench.measure("metadata", case, subject, 0, one)


def _idle(bench: Bench, subject: Subject) -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # One file of each partition is also open, and more while the broker starts.
    count = max(10, min(bench.form.idle, files - bench.form.partitions - 1000))

    def one() -> dict[str, float]:
        figures: dict[str, float] = {}
        time.sleep(1)
        before = subject.megabytes()
        command = clients.go_command("idle", brokers=subject.address, connections=count)
        with clients.background(command, ready=True) as process:
            with clients.probed(subject, figures):
                time.sleep(1)
            grown = subject.megabytes() - before
            clients.finished(process)
        return {"kb_each": grown * 1e3 / count, **figures}

    bench.measure("idle", f"{count:,} connections", subject, 0, one)


def curves(bench: Bench) -> None:
    """Measure each kind of growth once at each point of this form: the shape counts, not the single figure."""
    try:
        go_program()
    except Missing as reason:
        bench.skip("how cost grows", reason)
        return
    kinds: dict[str, Callable[[Bench, Subject, int], dict[str, float]]] = {
        "partitions": _by_partitions,
        "producers": _by_producers,
        "segments": _by_segments,
        "groups": _by_groups,
    }
    for name, work in kinds.items():
        if bench.is_late(0.84, f"how cost grows with {name}"):
            continue
        for points in bench.form.curves:
            for _, subject in bench.in_turn(1):
                bench.measure(
                    "curve",
                    f"{name}: {points:,}",
                    subject,
                    0,
                    lambda subject=subject, work=work, points=points: work(  # type: ignore[misc]
                        bench, subject, points
                    ),
                )


def _produced(bench: Bench, subject: Subject, partitions: int, producers: int) -> dict[str, float]:
    cell = Cell(client="go", partitions=partitions, connections=producers)
    records = int(bench.form.short_work_s * 100_000)
    topic = subject.new_topic(partitions)
    payloads = clients.payload_file(bench.directory, cell.record)
    try:
        before = subject.cpu()
        done = clients.produce(subject, cell, topic, records, payloads)
        used = subject.cpu() - before
    finally:
        subject.delete(topic)
    return {"cpu_s_per_gb": used / (done.bytes / 1e9), "mb_s": done.bytes / 1e6 / done.seconds}


def _by_partitions(bench: Bench, subject: Subject, points: int) -> dict[str, float]:
    return _produced(bench, subject, points, 1)


def _by_producers(bench: Bench, subject: Subject, points: int) -> dict[str, float]:
    return _produced(bench, subject, 6, points)


def _by_segments(bench: Bench, subject: Subject, points: int) -> dict[str, float]:
    topic = subject.new_topic(1, {"segment.bytes": str(SEGMENT)})
    cell = Cell(client="go", batch=131_072, partitions=1)
    records = points * SEGMENT // cell.record
    try:
        payloads = clients.payload_file(bench.directory, cell.record)
        clients.produce(subject, cell, topic, records, payloads)
        readers = max(1, min(100, READ_BYTES // (points * SEGMENT)))
        before = subject.cpu()
        answer = clients.go("fetch", brokers=subject.address, topic=topic, consumers=readers)
        used = subject.cpu() - before
    finally:
        subject.delete(topic)
    return {
        "cpu_s_per_gb": used / (answer["bytes"] / 1e9),
        "mb_s": answer["bytes"] / 1e6 / answer["seconds"],
    }


def _by_groups(bench: Bench, subject: Subject, points: int) -> dict[str, float]:
    topic = subject.new_topic(1)
    try:
        before = subject.megabytes()
        answer = clients.go(
            "commits",
            brokers=subject.address,
            topic=topic,
            groups=points,
            seconds=bench.form.short_work_s,
        )
        grown = subject.megabytes() - before
    finally:
        subject.delete(topic)
    return {"per_s": answer["requests"] / answer["seconds"], "grown_mb": grown}
