"""Prints the table of schedules and faults: python -m tests.log.faults [--schedules N] [--write].

With --write the table is put into docs/durability.md.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from kwire.records.compression import Codec

from .cuts import check_all
from .expected import Violation
from .plants import PLANTS, catch
from .workload import FAULTS, run

PAGE = Path(__file__).parents[3] / "docs" / "durability.md"
BEGIN = "<!-- table: python -m tests.log.faults --write -->\n"
END = "<!-- end of table -->\n"


def one(seed: int) -> tuple[str, bool, int, str]:
    """Run a schedule; return (fault, whether it occurred, operations, violation)."""
    logging.disable(logging.CRITICAL)
    fault = FAULTS[seed % len(FAULTS)]
    try:
        outcome = run(seed)
    except Violation as e:
        return fault, True, 0, str(e)
    return fault, outcome.struck, outcome.operations, ""


def cut(codec: int) -> int:
    """Check every truncation of a log with this codec. Errors: Violation."""
    logging.disable(logging.CRITICAL)
    return check_all(codec)


def caught(number: int) -> int | None:
    """The number of schedules needed to notice a planted bug."""
    logging.disable(logging.CRITICAL)
    answer = catch(PLANTS[number])
    return answer[0] if answer else None


def table(schedules: int) -> Iterator[str]:
    """The lines of the tables."""
    runs: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    with ProcessPoolExecutor(2) as processes:
        for fault, hit, count, wrong in processes.map(one, range(schedules), chunksize=50):
            runs[fault] += 1
            struck[fault] += hit
            operations[fault] += count
            if wrong:
                violations[fault] += 1
                print(wrong, file=sys.stderr)
        yield "| fault | schedules | struck in | operations | violations |\n"
        yield "| --- | ---: | ---: | ---: | ---: |\n"
        for fault in FAULTS:
            yield (
                f"| {fault} | {runs[fault]} | {struck[fault]} | {operations[fault]} "
                f"| {violations[fault]} |\n"
            )
        cuts = sum(processes.map(cut, list(Codec)))
        yield f"| cut at every byte, each codec | {cuts} | {cuts} |  | 0 |\n"
        yield "\n| planted bug | fault | caught after schedules |\n| --- | --- | ---: |\n"
        for plant, took in zip(PLANTS, processes.map(caught, range(len(PLANTS))), strict=True):
            yield f"| {plant.name} | {plant.fault} | {took or 'NOT CAUGHT'} |\n"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.log.faults")
    parser.add_argument("--schedules", type=int, default=3000)
    parser.add_argument("--write", action="store_true", help="put the table into " + PAGE.name)
    arguments = parser.parse_args()
    started = time.monotonic()
    lines = list(table(arguments.schedules))
    text = "".join(lines)
    print(text)
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    if arguments.write:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(before + BEGIN + "\n" + text + "\n" + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
