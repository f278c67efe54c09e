"""One JVM for all that is asked of Apache Kafka's tools here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...support.kafka import KAFKA_3
from ...support.kafka_tools import ToolServer


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    """Apache Kafka's own tools."""
    server = ToolServer(KAFKA_3, tmp_path_factory.mktemp("tools") / "log")
    yield server
    server.close()
