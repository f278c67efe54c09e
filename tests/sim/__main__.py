"""`python -m tests.sim`: runs seeds, shows which faults were injected, and replays a failed seed."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .campaign import outcomes, processes, table
from .planted import MISTAKES, planted
from .world import run

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"
END = "<!-- end -->"


def show_mistakes(steps: int, most: int, pool: ProcessPoolExecutor) -> tuple[int, str]:
    """Run each planted mistake until it is noticed; returns how many were missed, and a table."""
    missed = 0
    rows = ["| mistake | noticed in | as |", "| --- | --- | --- |"]
    for name in MISTAKES:
        caught = None
        for outcome in outcomes(range(most), steps, name, pool):
            if outcome.violation is not None:
                caught = outcome
                break
        if caught is None:
            missed += 1
            rows.append(f"| {name} | none of {most} seeds | |")
        else:
            rows.append(f"| {name} | seed {caught.seed} | {caught.violation} |")
        print(rows[-1], flush=True)
    return missed, "\n".join(rows)


def put_into_page(command: str, rows: str) -> None:
    """Put a table into the page, at the place marked with the command."""
    begin = f"<!-- table: {command} -->\n"
    before, found, rest = PAGE.read_text().partition(begin)
    if not found:
        raise SystemExit(f"{PAGE} has no line {begin.strip()}")
    after = rest[rest.index(END) :]
    PAGE.write_text(f"{before}{begin}\n{rows}\n\n{after}")


def main() -> int:
    """See the module."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Decides the order in which sets of strings are iterated.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]])
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="number of seeds (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="replay this seed and show the brokers' logs")
    parser.add_argument("--steps", type=int, default=20, help="faults in each run (default 20)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--members", type=int, default=0, help="members of a consumer group (KIP-848)"
    )
    parser.add_argument("--sharers", type=int, default=0, help="members of a share group")
    parser.add_argument(
        "--mistake", choices=sorted(MISTAKES), help="plant this mistake in the code"
    )
    parser.add_argument(
        "--mistakes", action="store_true", help="show that each planted mistake is noticed"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/simulation.md"
    )
    parser.add_argument("--until-caught", action="store_true", help="stop at a violation")
    options = parser.parse_args()
    if options.seed is not None:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
        with planted(options.mistake):
            outcome = run(options.seed, options.steps, options.members, options.sharers)
        print(outcome)
        return int(outcome.violation is not None)
    with processes(options.jobs) as pool:
        return run_many(options, pool)


def run_many(options: argparse.Namespace, pool: ProcessPoolExecutor) -> int:
    """Run what the options say in processes; returns the exit status."""
    if options.mistakes:
        missed, rows = show_mistakes(options.steps, options.seeds, pool)
        if options.write:
            put_into_page("python -m tests.sim --mistakes --write", rows)
        return missed
    begun = time.monotonic()
    found = []
    seeds = range(options.first, options.first + options.seeds)
    groups = {"members": options.members, "sharers": options.sharers}
    for outcome in outcomes(seeds, options.steps, options.mistake, pool, **groups):
        found.append(outcome)
        if outcome.violation is not None:
            print(
                f"seed {outcome.seed}: {outcome.violation}\n"
                f"  again: python -m tests.sim --seed {outcome.seed} --steps {options.steps}"
                f" --members {options.members} --sharers {options.sharers}",
                flush=True,
            )
            if options.until_caught:
                return 1
        if len(found) % 50 == 0:
            print(
                f"{len(found)} seeds, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True
            )
    print(table(found))
    if options.write:
        command = f"python -m tests.sim --seeds {options.seeds} --write"
        put_into_page(command, f"| | |\n| --- | ---: |\n{table(found)}")
    return int(any(outcome.violation is not None for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
