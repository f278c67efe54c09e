"""Compare one kwire process, several workers, and Apache Kafka 3.9.2. python -m bench.workers [--workers N] [--rounds N]

Measures the loads for which `kwire serve --workers` is meant: two producers at once, and ten consumers that each read a whole
topic from the page cache. It also measures a rebalance of one group, which workers do not speed up, because a group has one
coordinator. The clients run on the same cores. Prints a table of medians and ranges; CPU seconds are those of all processes of
a broker.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from kwire.api import ApiKey
from tests.support.broker_process import KwireBroker, free_port, metadata_answer

from .broker import note
from .suite import clients, consuming, coordinating, producing
from .suite.cells import Cell
from .suite.plan import FORMS, Bench, describe_machine
from .suite.results import Results
from .suite.subjects import KAFKA_39, KWIRE, SETTINGS, Subject

Answer = TypeVar("Answer")
CELL = Cell(client="go", connections=2, batch=16_384, partitions=6)
READING = consuming.Reading("go", consumers=10)
MEMBERS = 1000
#: (kind, case, figure, heading).
SHOWN = (
    ("produce", CELL.name, "mb_s", "two producers, 16 KiB, acks=all, MB/s"),
    ("produce", CELL.name, "cpu_s_per_gb", "two producers, CPU s/GB"),
    ("catch-up", READING.name, "mb_s", "ten consumers (franz-go), MB/s of all together"),
    ("catch-up", READING.name, "cpu_s_per_gb", "ten consumers, CPU s/GB"),
    ("rebalance", f"{MEMBERS:,} members", "rebalance_ms", f"rebalance of {MEMBERS:,} members, ms"),
)


class Workers(Subject):
    """`kwire serve --workers N`, whose partitions have their leaders in several processes."""

    def __init__(self, count: int, root: Path) -> None:
        super().__init__(KWIRE, root)
        self.name = f"kwire, {count} workers"
        self.count = count
        self.broker = KwireBroker(
            root,
            config=dict(SETTINGS),
            arguments=("--workers", str(count)),
            port=row_of_ports(count),
        )

    def start(self, timeout_s: float = 300.0) -> float:
        """Start all; return the seconds until the first Metadata response."""
        host, first = self.broker.host, self.broker.port
        begin = time.monotonic()
        self.broker.start(timeout_s)
        self.broker.host, self.broker.port = host, first  # the ready line lists all of them
        metadata_answer(host, first, timeout_s)
        self.is_running = True
        return time.monotonic() - begin

    def ask(self, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """Send one request; to the controller, if only that answers it."""
        if api not in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS):
            return super().ask(api, version, values)
        number = super().ask(ApiKey.METADATA, 1, {"topics": []})["controller_id"]
        return self._asked_of(number, lambda: super(Workers, self).ask(api, version, values))

    def _asked_of(self, number: int, ask: Callable[[], Answer]) -> Answer:
        self.broker.port += number
        try:
            return ask()
        finally:
            self.broker.port -= number

    def _end_rows(self, names: list[str], partitions: int) -> list[dict[str, Any]]:
        """Rows from each partition's leader, or the last answer without a leader."""
        rows: dict[int, dict[str, Any]] = {}
        for number in range(self.count):
            found = self._asked_of(
                number, lambda: super(Workers, self)._end_rows(names, partitions)
            )
            for index, row in enumerate(found):
                if rows.setdefault(index, row)["error_code"]:
                    rows[index] = row
        return list(rows.values())


def row_of_ports(count: int) -> int:
    """The first of several consecutive free ports."""
    while True:
        first = free_port()
        try:
            held = [socket.create_server(("127.0.0.1", first + number)) for number in range(count)]
        except OSError:
            continue
        for one in held:
            one.close()
        return first


def measure(bench: Bench) -> None:
    """All rounds, the subjects in turn."""
    payloads = clients.payload_file(bench.directory, CELL.record)
    producing.start_all(bench)
    producing.warm_up(bench)
    records = producing.size_of(bench, CELL, payloads)
    for number, subject in bench.in_turn():
        bench.measure(
            "produce",
            CELL.name,
            subject,
            number,
            lambda subject=subject: producing.produce_once(bench, subject, CELL, records, payloads),  # type: ignore[misc]
        )
    consuming.catch_up(bench, (READING,))
    coordinating.rebalance(bench)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="only check that everything runs")
    options = parser.parse_args()
    form = FORMS["tiny" if options.tiny else "short"]
    if not options.tiny:
        # All rounds of everything, each long enough for a warm Java client.
        form = replace(
            form,
            rounds=options.rounds,
            members=(MEMBERS,),
            all_cells=True,
            produce_s=6.0,
            budget_s=1e6,
        )
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="kwire-bench-") as directory:
        root = Path(directory)
        bench = Bench(form, [], Results(machine=machine), root, time.monotonic())
        bench.subjects += [
            Subject(KAFKA_39, root / "kafka"),
            Subject(KWIRE, root / "kwire"),
            Workers(options.workers, root / "workers"),
        ]
        try:
            measure(bench)
        finally:
            for subject in bench.subjects:
                subject.stop()
    show(bench)


def show(bench: Bench) -> None:
    """The table, in Markdown."""
    names = [subject.name for subject in bench.subjects]
    note(str(bench.results.machine))
    print("| | " + " | ".join(names) + " |\n|---|" + "--:|" * len(names))
    for kind, case, figure, heading in SHOWN:
        spreads = [bench.results.spread(kind, case, name, figure) for name in names]
        row = [
            f"{one.middle:.4g} ({one.low:.4g} to {one.high:.4g})" if one else "" for one in spreads
        ]
        print(f"| {heading} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
