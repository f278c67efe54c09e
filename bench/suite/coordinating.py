"""Latency at a fixed load, group rebalances, transactions: where time matters, not bytes."""

from __future__ import annotations

import time
from statistics import median

from . import clients
from .plan import Bench
from .subjects import Subject
from .tools import Missing

#: Records/s.
LOADS = (1000, 10_000, 50_000)
LATENCY_PARTITIONS = 6
PRODUCERS = (1, 10)


def latency(bench: Bench) -> None:
    """Measure end-to-end latency at every load."""
    seconds = bench.form.latency_s
    try:
        for number in range(bench.form.rounds):
            if number and bench.is_late(0.62, f"round {number + 1} of latency"):
                break
            for load in LOADS:
                for _, subject in bench.in_turn(1):

                    def one(subject: Subject = subject, load: int = load) -> dict[str, float]:
                        return _latency_once(subject, load, seconds)

                    bench.measure("latency", f"{load:,} records/s", subject, number, one)
    except Missing as reason:
        bench.skip("latency", reason)


def _latency_once(subject: Subject, load: int, seconds: float) -> dict[str, float]:
    topic = subject.new_topic(LATENCY_PARTITIONS)
    figures: dict[str, float] = {}
    try:
        with clients.probed(subject, figures):
            answer = clients.go(
                "latency", brokers=subject.address, topic=topic, rate=load, seconds=seconds
            )
        subject.wait_count(topic, LATENCY_PARTITIONS, answer["records"])
    finally:
        subject.delete(topic)
    return {**{f"{name}_us": us for name, us in answer["us"].items()}, **figures}


def latency_alone(bench: Bench) -> None:
    """Measure the latency of the least load while no other broker runs; each is warmed up by more of the same load."""
    if not bench.form.alone_rounds:
        return
    bench.stop_all()
    load, seconds = LOADS[0], bench.form.latency_s
    try:
        for number in range(bench.form.alone_rounds):
            for subject in bench.subjects:
                subject.start()
                try:
                    _latency_once(subject, LOADS[1], seconds)

                    def one(subject: Subject = subject) -> dict[str, float]:
                        return _latency_once(subject, load, seconds)

                    bench.measure("latency alone", f"{load:,} records/s", subject, number, one)
                finally:
                    subject.stop()
    except Missing as reason:
        bench.skip("latency with one broker running", reason)


def rebalance(bench: Bench) -> None:
    """Measure rebalances of groups of several sizes."""
    try:
        for number, subject in bench.in_turn():
            for members in bench.form.members:

                def one(subject: Subject = subject, members: int = members) -> dict[str, float]:
                    figures: dict[str, float] = {}
                    name = f"group-{time.monotonic_ns()}"
                    with clients.probed(subject, figures):
                        answer = clients.go(
                            "members", brokers=subject.address, group=name, members=members
                        )
                    return {
                        "rebalance_ms": median(answer["rebalance_seconds"]) * 1e3,
                        "form_ms": answer["form_seconds"] * 1e3,
                        **figures,
                    }

                bench.measure("rebalance", f"{members:,} members", subject, number, one)
    except Missing as reason:
        bench.skip("rebalances", reason)


def transactions(bench: Bench) -> None:
    """Measure producers that commit one record at a time."""
    try:
        for number, subject in bench.in_turn(bench.form.rounds if bench.form.all_cells else 1):
            for producers in PRODUCERS:

                def one(subject: Subject = subject, producers: int = producers) -> dict[str, float]:
                    topic = subject.new_topic(producers)
                    figures: dict[str, float] = {}
                    try:
                        with clients.probed(subject, figures):
                            answer = clients.go(
                                "transact",
                                brokers=subject.address,
                                topic=topic,
                                producers=producers,
                                seconds=bench.form.short_work_s,
                            )
                        # Each transaction is a record and the marker that commits it.
                        subject.wait_count(topic, producers, 2 * answer["all_transactions"])
                    finally:
                        subject.delete(topic)
                    return {"per_s": answer["transactions"] / answer["seconds"], **figures}

                case = f"{producers} producer{'s' if producers > 1 else ''}"
                bench.measure("transactions", case, subject, number, one)
    except Missing as reason:
        bench.skip("transactions", reason)
