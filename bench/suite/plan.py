"""The amount of work in each form of the benchmark, and the state that all measurements share while it runs."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.broker_process import REPOSITORY

from ..broker import note
from .results import Results
from .subjects import KAFKA_39, Subject
from .tools import TROUBLE


@dataclass(frozen=True)
class Form:
    """The amounts of the short, medium and long form, or of the tiny one (which only shows that everything runs).

    Shape: starts, the first minute and the partitions apply to every subject, rounds to most other work; short_work_s
    is for transactions, metadata and curves; each of members and curves is measured in turn; after budget_s, second
    rounds are omitted. alone_rounds are those of latency with one broker running.
    """

    name: str
    rounds: int
    produce_s: float
    all_cells: bool
    starts: int
    first_minute_s: float
    warm_up_gb: float
    consume_gb: float
    tail_s: float
    latency_s: float
    alone_rounds: int
    members: tuple[int, ...]
    idle: int
    partitions: int
    short_work_s: float
    limit_gb: float
    curves: tuple[int, ...]
    cold: bool
    budget_s: float


SHORT = Form(
    name="short",
    rounds=2,
    produce_s=2.0,
    all_cells=False,
    starts=1,
    first_minute_s=12.0,
    warm_up_gb=0.8,
    consume_gb=0.5,
    tail_s=3.5,
    latency_s=4.0,
    alone_rounds=0,
    members=(100, 1000),
    idle=10_000,
    partitions=1000,
    short_work_s=1.0,
    limit_gb=0.6,
    curves=(1, 100),
    cold=False,
    budget_s=580.0,
)

FORMS = {
    "tiny": Form(
        name="tiny",
        rounds=1,
        produce_s=0.3,
        all_cells=False,
        starts=1,
        first_minute_s=2.0,
        warm_up_gb=0.02,
        consume_gb=0.05,
        tail_s=1.0,
        latency_s=1.0,
        alone_rounds=1,
        members=(10,),
        idle=50,
        partitions=50,
        short_work_s=0.5,
        limit_gb=0.05,
        curves=(1, 2),
        cold=True,
        budget_s=3600.0,
    ),
    "short": SHORT,
    "medium": replace(
        SHORT,
        name="medium",
        starts=3,
        first_minute_s=30.0,
        tail_s=5.0,
        latency_s=5.0,
        partitions=10_000,
        curves=(1, 10, 100),
        cold=True,
        budget_s=1700.0,
    ),
    "long": Form(
        name="long",
        rounds=3,
        produce_s=8.0,
        all_cells=True,
        starts=5,
        first_minute_s=60.0,
        warm_up_gb=2.0,
        consume_gb=1.0,
        tail_s=10.0,
        latency_s=15.0,
        alone_rounds=5,
        members=(100, 1000),
        idle=10_000,
        partitions=10_000,
        short_work_s=4.0,
        limit_gb=2.0,
        curves=(1, 10, 100, 1000),
        cold=True,
        budget_s=1e6,
    ),
}


@dataclass
class Bench:
    """One run: the subjects, the results so far, and the directory of files."""

    form: Form
    subjects: list[Subject]
    results: Results
    directory: Path
    began: float

    def progress(self, text: str) -> None:
        """Show what is being measured, with the time since the start."""
        note(f"[{time.monotonic() - self.began:5.0f} s] {text}")

    def is_late(self, share: float, what: str) -> bool:
        """Whether more than this share of the time has passed; if so, notes what is omitted."""
        if time.monotonic() - self.began < share * self.form.budget_s:
            return False
        text = f"{what}: left out, as the machine was slow"
        if text not in self.results.notes:
            self.results.notes.append(text)
            self.progress(text)
        return True

    def stop_all(self) -> None:
        """Stop the brokers that all sections so far have used."""
        for subject in self.subjects:
            if subject.is_running:
                subject.stop()

    def in_turn(self, rounds: int | None = None) -> Iterator[tuple[int, Subject]]:
        """Every subject in every round: A B C, A B C, so that noise affects all alike."""
        for number in range(self.form.rounds if rounds is None else rounds):
            for subject in self.subjects:
                if subject.is_running:
                    yield number, subject

    def measure(
        self,
        kind: str,
        case: str,
        subject: Subject,
        number: int,
        work: Callable[[], dict[str, float]],
    ) -> dict[str, float] | None:
        """Do one measurement and keep its figures, or its failure, after which the others continue."""
        try:
            figures = work()
        except TROUBLE as problem:
            self.results.add_failure(kind, case, subject.name, number, str(problem)[-800:])
            self.progress(f"{kind}, {case}, {subject.name}: FAILED: {problem}")
            return None
        self.results.add(kind, case, subject.name, number, figures)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        self.progress(f"{kind}, {case}, {subject.name}: {shown}")
        return figures

    def reference(self) -> Subject:
        """The subject that determines the amount of work: Apache Kafka 3.9.2, or the first one if it is absent."""
        running = [subject for subject in self.subjects if subject.is_running]
        return next((one for one in running if one.name == KAFKA_39), running[0])

    def skip(self, what: str, reason: object) -> None:
        """Record that something could not be measured here."""
        text = f"{what}: not measured, {reason}"
        if text not in self.results.notes:
            self.results.notes.append(text)
            self.progress(text)


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "none"
    return (done.stdout + done.stderr).strip().splitlines()[0]


def describe_machine() -> dict[str, Any]:
    """Facts about the machine that readers need."""
    about = Path("/proc/cpuinfo").read_text().splitlines()
    model = [line.split(":", 1)[1].strip() for line in about if line.startswith("model name")]
    total_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "processor": model[0] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(total_kb / 2**20, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        "go": _first_line(["go", "version"]),
        "load_before": [round(one, 2) for one in os.getloadavg()],
        "kwire": _first_line(["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"]),
        "date": time.strftime("%Y-%m-%d"),
    }
