"""python -m tests.soak DIRECTORY: run with kills and keep the history or, without --kills, check a kept history."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from ..e2e.conftest import build_broker
from ..support.kwire_cluster import KwireCluster
from .checker import check
from .conftest import broker_config, log_dirs
from .harness import EXPECTATIONS, Plan, history, run


def main() -> int:
    """Run or check as the arguments say; the status is 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("directory", type=Path, help="holds history/ and the broker's files")
    parser.add_argument(
        "--kills", type=int, default=0, help="number of kills; 0 only checks a kept history"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument(
        "--rate", type=float, default=60.0, help="records per second for each producer"
    )
    parser.add_argument("--between", type=float, nargs=2, default=(0.5, 3.0), metavar="SECONDS")
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--shares", action="store_true", help="use a share group as the only group")
    parser.add_argument(
        "--brokers", type=int, default=1, help="number of brokers; with several, leaders move"
    )
    options = parser.parse_args()
    kept = options.directory / "history"
    if not options.kills:
        verdict = check(history(kept), EXPECTATIONS)
        print(verdict)
        return 0 if verdict.passed else 1
    plan = Plan(
        kills=options.kills,
        seed=options.seed,
        directory=kept,
        between_s=tuple(options.between),
        rate=options.rate,
        java=not options.no_java and not options.shares,
        transactions=not options.shares,
        groups=not options.shares,
        replication_factor=min(options.brokers, 3),
        both_protocols=options.brokers == 1,
        shares=True,
        log_dirs=log_dirs(options.directory) if options.brokers == 1 else (),
        say=lambda text: print(text, flush=True),
    )
    if options.brokers > 1:
        cluster = KwireCluster(options.directory / "cluster", options.brokers, broker_config())
        try:
            outcome = run(cluster.start().brokers, plan)
        finally:
            cluster.stop()
        print(outcome)
        return 0 if outcome.verdict.passed else 1
    with build_broker(options.directory / "broker", broker_config(plan.log_dirs)) as broker:
        outcome = run([broker], plan)
    print(outcome)
    return 0 if outcome.verdict.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
