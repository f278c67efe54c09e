"""Replicas that are moved between a broker's log directories while it is under load and killed."""

from __future__ import annotations

import random
import time
from typing import Any, Protocol

from kwire.api import ApiKey

from ..support.wire_client import WireClient

#: The number of replicas that are moved at a time.
MOVED = 3
PATIENCE_S = 120.0


class Reachable(Protocol):
    """A broker that runs."""

    @property
    def bootstrap(self) -> str:
        """Host and port."""


def _ask(broker: Reachable, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
    """Errors: OSError, also if the broker is just being killed."""
    host, _, port = broker.bootstrap.rpartition(":")
    client = WireClient(host, int(port))
    try:
        answer = client.call(api, version, values)
    finally:
        client.close()
    if answer is None:
        raise ConnectionError("closed")
    return answer


def places(broker: Reachable) -> dict[tuple[str, int], list[tuple[str, bool]]]:
    """The directories of each replica, and whether the one there is a copy that is being made."""
    found: dict[tuple[str, int], list[tuple[str, bool]]] = {}
    for result in _ask(broker, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})["results"]:
        for topic in result["topics"]:
            for row in topic["partitions"]:
                place = result["log_dir"], row["is_future_key"]
                found.setdefault((topic["name"], row["partition_index"]), []).append(place)
    return found


def move_some(broker: Reachable, choice: random.Random, directories: tuple[str, ...]) -> int:
    """Begin to move some replicas, internal topics' too; return how many the broker took. Errors: OSError."""
    replicas = sorted(places(broker))
    rows: dict[str, list[dict[str, Any]]] = {each: [] for each in directories}
    for topic, number in choice.sample(replicas, min(MOVED, len(replicas))):
        rows[choice.choice(directories)].append({"name": topic, "partitions": [number]})
    dirs = [{"path": path, "topics": topics} for path, topics in rows.items() if topics]
    answer = _ask(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": dirs})
    return sum(row["error_code"] == 0 for topic in answer["results"] for row in topic["partitions"])


def wait_for_moves(broker: Reachable) -> None:
    """Wait until each replica is in one directory. Errors: AssertionError."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        several = {tp: found for tp, found in places(broker).items() if len(found) > 1}
        if not several:
            return
        assert time.monotonic() < deadline, f"moves do not end: {several}"
        time.sleep(0.2)
