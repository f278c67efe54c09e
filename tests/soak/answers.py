"""Whose fault it is that a client has heard nothing of a commit: what the client says it waits for, and what brokers tell another."""

from __future__ import annotations

import json
import time

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from ..support.wire_client import WireClient

#: What brokers say while the coordinator moves.
PASSING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def waits_for_coordinator(statistics: str, seconds: float) -> bool:
    """Whether librdkafka has waited so long for an answer of the group's coordinator, according to its statistics."""
    brokers = json.loads(statistics)["brokers"].values() if statistics else ()
    return any(
        broker["name"].startswith("GroupCoordinator")
        and broker["waitresp_cnt"] > 0
        and broker["rxidle"] > seconds * 1_000_000
        for broker in brokers
    )


def answers_commits(bootstrap: str, group: str, within_s: float = 30.0) -> bool:
    """Whether the coordinator of a group answers a commit on a new connection.

    Shape: the commit is that of a member that the group does not have, so that it is refused and nothing is changed.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for address in bootstrap.split(","):
            try:
                error = _commit(address, group)
            except OSError:  # this broker is away, or silent
                continue
            if error is not None and error not in PASSING:
                return True
        time.sleep(0.2)
    return False


def _commit(address: str, group: str) -> ErrorCode | None:
    """Return what the coordinator that a broker names says to a commit. Errors: OSError."""
    host, port = address.rsplit(":", 1)
    asked = WireClient(host, int(port))
    try:
        found = asked.call(ApiKey.FIND_COORDINATOR, 2, {"key": group, "key_type": 0})
    finally:
        asked.close()
    if found is None or found["error_code"]:
        return None
    coordinator = WireClient(found["host"], found["port"])
    try:
        row = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        commit = {
            "group_id": group,
            "generation_id_or_member_epoch": 1,
            "member_id": "nobody",
            "topics": [{"name": "once", "partitions": [row]}],
        }
        answer = coordinator.call(ApiKey.OFFSET_COMMIT, 7, commit)
    finally:
        coordinator.close()
    return None if answer is None else ErrorCode(answer["topics"][0]["partitions"][0]["error_code"])
