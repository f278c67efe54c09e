"""A broker to be attacked: it must answer everything, and never log a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kwire.api import ApiKey

from ..support.broker_process import KwireBroker
from ..support.wire_client import WireClient


class Target(KwireBroker):
    """A broker process, its log since the last check, and its clients."""

    seen = 0

    def client(self) -> WireClient:
        """A new connection."""
        return WireClient(self.host, self.port)

    def new_log(self) -> str:
        """The log since the last call."""
        with self.log_path.open("rb") as log:
            log.seek(self.seen)
            data = log.read()
        self.seen += len(data)
        return data.decode(errors="replace")

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; config keys have _ for each dot."""
        client = self.client()
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
        }
        answer = client.call(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 10_000})
        client.close()
        assert answer is not None and answer["topics"][0]["error_code"] == 0, answer


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A running broker with the topics t1, t2 and compacted, and one that no random name hits."""
    with Target(tmp_path_factory.mktemp("target")) as broker:
        assert isinstance(broker, Target)
        broker.create_topic("kept")
        broker.create_topic("t1", 2)
        broker.create_topic("t2", 2, compression_type="gzip")
        broker.create_topic("compacted", 1, cleanup_policy="compact")
        yield broker


def served(client: WireClient) -> list[tuple[ApiKey, int, int]]:
    """The APIs that the broker advertises: (API, lowest, highest version)."""
    answer: Any = client.call(ApiKey.API_VERSIONS, 0, {})
    return [
        (ApiKey(row["api_key"]), row["min_version"], row["max_version"])
        for row in answer["api_keys"]
    ]
