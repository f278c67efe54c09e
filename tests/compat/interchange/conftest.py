"""Apache Kafka's tools in this folder are those of 3.9.2."""

from __future__ import annotations

import pytest

from ...support.kafka import KAFKA_3
from ...support.kafka_tools import ToolServer, ToolServers


@pytest.fixture
def tools(tool_servers: ToolServers) -> ToolServer:
    """Apache Kafka's own tools."""
    return tool_servers(KAFKA_3)
