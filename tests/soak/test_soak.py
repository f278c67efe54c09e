"""Brokers that are killed repeatedly under the load of many clients lose and duplicate nothing.

KWIRE_KILLS=N kills N times; KWIRE_SEED=N repeats the choices and waits of the run with that seed. Without Java, Apache
Kafka's own tools are not among the clients. Members of groups join with the classic protocol or with that of KIP-848, so
that the groups change their kind. Replicas are moved between the broker's log directories, and most kills happen during
moves. Members of a share group settle each record once.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ..support.broker_process import BrokerProcess
from ..support.kafka import KAFKA_3, fetched_jars
from .clients import ClientFailed
from .conftest import BROKER, broker_config, log_dirs
from .harness import JAVA, TOPICS, Plan, run

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.timeout(7200)
def test_killed_broker_loses_and_repeats_nothing(
    new_broker: Callable[..., BrokerProcess], tmp_path: Path, long_form: bool
) -> None:
    kills = int(os.environ.get("KWIRE_KILLS", "100" if long_form else "7"))
    seed = int(os.environ.get("KWIRE_SEED", random.randrange(1 << 32)))
    jars = fetched_jars(f"kafka-{KAFKA_3}")
    java = isinstance(jars, Path)
    if not java and os.environ.get("CI", "").lower() == "true":
        pytest.fail(str(jars))
    plan = Plan(
        *(kills, seed, tmp_path / "history"),
        java=java,
        both_protocols=BROKER == "kwire",
        shares=BROKER == "kwire",
        log_dirs=log_dirs(tmp_path),
    )
    broker = new_broker(broker_config(plan.log_dirs))
    try:
        outcome = run([broker], plan)
    except ClientFailed:
        said = broker.log_path.read_text(errors="replace").splitlines()
        print(*[line for line in said if "coordinator.group" in line][-100:], sep="\n")
        raise
    print(f"\n{outcome}")
    assert outcome.verdict.passed, str(outcome)
    assert outcome.verdict.counts["kills"] >= kills
    assert outcome.moves or not plan.log_dirs
    if plan.shares:
        for what in ("records shared", "share acknowledgements ok"):
            assert outcome.verdict.counts[what] > 5 * kills
    if plan.both_protocols:
        for protocol in ("classic", "consumer"):
            assert outcome.polled_by[protocol] > 5 * kills
    for topic in TOPICS:
        if java or topic != JAVA:
            assert outcome.verdict.counts[f"records acknowledged in {topic}"] > 5 * kills
