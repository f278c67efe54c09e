"""Random ShareFetch and ShareAcknowledge requests to Apache Kafka 4.3.0 and to kwire; see random_shares.py."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ...support.broker_process import KwireBroker
from ...support.kafka import KAFKA_4, kafka_broker
from .peer import NODE_ID
from .random_shares import CONFIG, Runs, program

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

PROGRAMS = 40 if os.environ.get("KWIRE_LONG") else 3
STEPS = 60


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Give both brokers."""
    root = tmp_path_factory.mktemp("shares")
    # On a busy machine, heartbeats are late, and its controller fences it.
    patient = {"broker.session.timeout.ms": "30000", "node.id": str(NODE_ID)}
    kafka = kafka_broker(KAFKA_4, root / "kafka", config=CONFIG | patient)
    kwire = KwireBroker(root / "kwire", config=CONFIG | {"broker.id": str(NODE_ID)})
    with kafka, kwire:
        found = Runs((kafka, kwire))
        yield found
        found.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, PROGRAMS + 1))
def test_answers_and_stored_states_are_those_of_apache_kafka_4(runs: Runs, seed: int) -> None:
    """The first answer, or the state, that differs; the module shrinks the program if it is called by name."""
    assert not runs.run(program(seed, STEPS))
