"""A broker that is fuzzed through its socket makes no mistake, and leaves nothing behind; see tests/fuzz/live.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ..fuzz.live import campaign

LONG = os.environ.get("KWIRE_LONG") == "1"
REQUESTS = 200_000 if LONG else 500


@pytest.mark.e2e
@pytest.mark.parametrize(
    "store", ["embedded", pytest.param("zookeeper", marks=pytest.mark.zookeeper)]
)
def test_fuzzed_broker_makes_no_mistake_and_leaves_nothing_behind(
    tmp_path: Path, store: str
) -> None:
    found = campaign(
        tmp_path,
        seed=int(os.environ.get("KWIRE_SEED", "1")),
        requests=REQUESTS,
        workers=2 if LONG else 1,
        zookeeper=store == "zookeeper",
        of_brokers=False,
    )
    assert not found.kinds, "\n".join(found.said)
    assert found.counts["answered"] > REQUESTS / 2
