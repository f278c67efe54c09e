"""A pytest plugin that gives each test of Arroyo its own broker, by the fixture of kwire.testing.

The tests read the address from DEFAULT_BROKERS. With Apache Kafka it is set for the whole run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def default_brokers(request: pytest.FixtureRequest, monkeypatch: Any) -> Iterator[None]:
    """Set DEFAULT_BROKERS."""
    if os.environ["KWIRE_SUITE_BROKER"] == "kwire":
        broker = request.getfixturevalue("kafka")
        monkeypatch.setenv("DEFAULT_BROKERS", broker.bootstrap_servers)
    yield
