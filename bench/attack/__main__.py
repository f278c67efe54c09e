"""What an honest client notices during each attack. python -m bench.attack [ROW ...] [--root CHECKOUT] [--kafka]

    python -m bench.attack --list
    python -m bench.attack describe-groups --root ../before --json before.json
    python -m bench.attack --kafka --json kafka.json
    python -m bench.attack --compare before.json after.json kafka.json

For each row, a broker is started as a process, with the data that the attack needs. An honest client in another process
continuously produces with acks=all, fetches and asks for metadata. Then one attack is made. The table shows

- CPU: the most CPU seconds that the broker's main thread used while one honest request waited;
- turn: the CPU seconds of the longest turn of its event loop;
- p50, p99, worst: milliseconds that the honest client's requests took, from the start of the attack until 1 s after its end,
  and how many of them failed;
- memory: resident MB of the broker before the attack, its peak, and the peak of its largest worker process.

Goals: CPU and turn below 0.25 s, peak below 300 MB, no errors. For Apache Kafka, which uses threads, only the honest client's
times are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .rows import ROWS, Row, Scene
from .stages import STAGES, plain
from .target import (
    MEGABYTE,
    ROOT,
    AttackedKafka,
    MemoryWatch,
    MeteredKwire,
    Target,
    copied,
    make_target,
)
from .wire import Wire

BEFORE_S = 1.0
AFTER_S = 1.0
CPU_GOAL_S = 0.25
MEMORY_GOAL = 300.0

Result = dict[str, Any]


def note(text: str) -> None:
    """Print progress to standard error, apart from the table."""
    print(text, file=sys.stderr, flush=True)


class Honest:
    """A bystander's process."""

    def __init__(self, target: Target, *arguments: str) -> None:
        words = (sys.executable, "-m", "bench.attack.bystander", str(target.port), str(target.pid))
        self.process = subprocess.Popen(
            [*words, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def stop(self) -> tuple[list[tuple[str, float, float, float]], list[str]]:
        """Its requests (name, when, wall and CPU seconds), and its failures."""
        out, _ = self.process.communicate("", timeout=300)
        said = json.loads(out)
        return said["times"], said["errors"]


def felt(honest: Honest, began: float) -> Result:
    """The experience of one honest client since the attack began."""
    times, errors = honest.stop()
    since = [row for row in times if row[1] + row[2] >= began]
    walls = sorted(row[2] for row in since)
    worst = max(since, key=lambda row: row[2], default=("", 0.0, 0.0, 0.0))
    return {
        "requests": len(since),
        "cpu_s": max((row[3] for row in since), default=0.0),
        "p50_ms": 1000 * percentile(walls, 0.5),
        "p99_ms": 1000 * percentile(walls, 0.99),
        "worst_ms": 1000 * worst[2],
        "worst_request": worst[0],
        "errors": errors,
    }


def percentile(ordered: Sequence[float], part: float) -> float:
    """A percentile of sorted values, 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def measure(row: Row, target: Target) -> Result:
    """One attack on a running broker."""
    if row.arrange is not None:
        wire = Wire(target.port)
        row.arrange(wire)
        wire.close()
    honest = [Honest(target)]
    if row.also is not None:
        honest.append(Honest(target, row.also[0], str(row.also[1])))
    time.sleep(BEFORE_S)  # the bystanders settle; their times so far do not count
    memory = MemoryWatch(target)
    if isinstance(target, MeteredKwire):
        target.clear_turn()
    began = time.monotonic()
    outcome = row.run(Scene(target.port))
    took = time.monotonic() - began
    time.sleep(AFTER_S)
    result: Result = {"row": row.name, "what": row.what, "outcome": outcome, "took_s": took}
    result |= felt(honest[0], began)
    if len(honest) > 1:
        result["also"] = felt(honest[1], began)
    before, peak, workers = memory.stop()
    result |= {"before_mb": before / MEGABYTE, "peak_mb": peak / MEGABYTE}
    result["worker_mb"] = workers / MEGABYTE
    if isinstance(target, MeteredKwire):
        result["turn_s"] = target.longest_turn_s()
        log = target.log_path.read_text(errors="replace")
        result["tracebacks"] = log.count("Traceback")
        result["slow_turns"] = [line for line in log.splitlines() if "turn of the" in line][:5]
    else:
        del result["cpu_s"]
    assert target.process is not None
    result["alive"] = target.process.poll() is None
    return result


@contextmanager
def staged(stage: str, directory: Path, options: argparse.Namespace) -> Iterator[Target]:
    """A running broker with the data of a stage."""
    root = None if options.kafka else Path(options.root).resolve()
    target = make_target(directory / stage, root, options.python)
    target.start(120.0)
    try:
        wire = Wire(target.port)
        plain(wire)
        if (make := STAGES[stage]) is not None:
            note(f"  making stage {stage}")
            make(wire)
        wire.close()
        yield target
    finally:
        target.stop()


def run(rows: Sequence[Row], options: argparse.Namespace) -> Iterator[Result]:
    """Measure rows; for kwire, each row has its own broker, with a copy of the stage's data."""
    with tempfile.TemporaryDirectory(prefix="kwire-attack-") as name:
        directory = Path(name)
        for stage in dict.fromkeys(row.stage for row in rows):
            chosen = [row for row in rows if row.stage == stage]
            with staged(stage, directory, options) as target:
                if isinstance(target, AttackedKafka):
                    for row in chosen:
                        yield said(measure(row, target))
                    continue
                target.stop()
                for number, row in enumerate(chosen):
                    one = copied(target, directory / f"{stage}-{number}")
                    one.start(120.0)
                    try:
                        yield said(measure(row, one))
                    finally:
                        with suppress(Exception):
                            one.kill()


def said(result: Result) -> Result:
    note(f"  {result['row']}: {cells(result)}")
    if result["errors"]:
        note(f"    {len(result['errors'])} errors, first: {result['errors'][0]}")
    return result


HEAD = "| attack | CPU s | turn s | p50 ms | p99 ms | worst ms | errors | MB before | MB peak | worker MB | outcome |"
RULE = "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"


def cells(result: Result) -> str:
    """One row of the table, without its first cell."""

    def number(key: str, form: str) -> str:
        return format(result[key], form) if key in result else ""

    parts = (
        number("cpu_s", ".3f"),
        number("turn_s", ".3f"),
        *(number(key, ".1f") for key in ("p50_ms", "p99_ms", "worst_ms")),
        f"{len(result['errors'])} of {result['requests']}",
        *(number(key, ".0f") for key in ("before_mb", "peak_mb", "worker_mb")),
        result["outcome"],
    )
    return " | ".join(parts) + " |"


def report(results: Sequence[Result]) -> None:
    """Print the whole table."""
    print(HEAD + "\n" + RULE)
    for result in results:
        print(f"| {result['what']} | {cells(result)}")
        if "also" in result:
            other = {**result["also"], "outcome": ""}
            print(f"| (the other client) | {cells(other)}")


def compare(paths: Sequence[str]) -> None:
    """Print the figures of several runs next to each other; a later file with the same name adds to an earlier one."""
    runs: dict[str, dict[str, Result]] = {}
    for path in paths:
        data = json.loads(Path(path).read_text())
        found = runs.setdefault(data["name"], {})
        found.update({result["row"]: result for result in data["results"]})
    metered = [name for name, found in runs.items() if any("cpu_s" in r for r in found.values())]
    side_by_side(
        {name: runs[name] for name in metered},
        ("CPU s", "MB peak", "worker MB"),
        lambda result: (
            f"{result['cpu_s']:.2f}",
            f"{result['peak_mb']:.0f}",
            f"{result['worker_mb']:.0f}" if result["worker_mb"] else "",
        ),
    )
    print()
    side_by_side(
        runs,
        ("p50 ms", "p99 ms", "worst ms", "errors"),
        lambda result: (
            f"{result['p50_ms']:.1f}",
            f"{result['p99_ms']:.0f}",
            f"{result['worst_ms']:,.0f}",
            f"{len(result['errors'])}" + ("" if result["alive"] else ", ended"),
        ),
    )


def side_by_side(
    runs: dict[str, dict[str, Result]],
    columns: Sequence[str],
    figures: Callable[[Result], tuple[str, ...]],
) -> None:
    """Print a table with the same columns for each run."""
    print("| attack | " + " | ".join(f"{name}: {c}" for name in runs for c in columns) + " |")
    print("|---|" + "--:|" * len(columns) * len(runs))
    for row in ROWS:
        parts: list[str] = []
        for found in runs.values():
            result = found.get(row.name)
            parts += figures(result) if result else ("",) * len(columns)
        print(f"| {row.what} | " + " | ".join(parts) + " |")
        if any("also" in found.get(row.name, ()) for found in runs.values()):
            parts = []
            for found in runs.values():
                result = found.get(row.name)
                whole = {**result, **result["also"]} if result else None
                parts += figures(whole) if whole else ("",) * len(columns)
            print("| (its other client) | " + " | ".join(parts) + " |")


def is_named(name: str, part: str) -> bool:
    """Whether a row is selected by its name, or by a part of its name if no row has that name."""
    return part == name or (part in name and all(row.name != part for row in ROWS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.attack")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="names of attacks, or parts of names; default: all"
    )
    parser.add_argument("--root", default=str(ROOT), help="the checkout of kwire to measure")
    parser.add_argument(
        "--python", help="the checkout's interpreter; default: that of its .venv, if there is one"
    )
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka 3.9.2 instead")
    parser.add_argument("--name", help="name of the broker in tables")
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--list", action="store_true", help="print the rows and exit")
    parser.add_argument(
        "--compare", nargs="+", metavar="FILE", help="compare files written with --json"
    )
    options = parser.parse_args()
    if options.compare:
        compare(options.compare)
        return
    rows = [
        row
        for row in ROWS
        if (not options.rows or any(is_named(row.name, part) for part in options.rows))
        and (row.in_kafka or not options.kafka)
    ]
    if options.list:
        for row in rows:
            print(f"{row.name:32} {row.what}")
        return
    results = []
    name = options.name or ("Apache Kafka 3.9.2" if options.kafka else "kwire")
    try:
        for result in run(rows, options):
            results.append(result)
            if options.json:
                Path(options.json).write_text(
                    json.dumps({"name": name, "results": results}, indent=1)
                )
    finally:
        print(
            f"{name}; Linux {platform.release()}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}\n"
        )
        report(results)


if __name__ == "__main__":
    main()
