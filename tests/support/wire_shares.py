"""A member of a share group that sends its requests one by one, so that a test knows each request and answer.

It talks to several brokers: the group's coordinator and the leaders of its partitions, each with a separate share
session, and looks for others when one of them is gone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kwire.api import ApiKey
from kwire.records.batch import iter_batches

from .wire_client import WireClient

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

HEARTBEAT_S = 0.5
#: The errors of a broker and a member that no longer know each other: the member starts again.
FENCED = {25, 110}  # UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH


class Acquired(NamedTuple):
    """A record that a member has got."""

    partition: int
    offset: int
    count: int
    value: bytes


class Unanswered(Exception):
    """A broker is gone, or does not answer as a leader: the outcome of the request is unknown."""


class WireShareMember:
    """A member that reads one topic.

    Shape: `sessions` has the next epoch of the share session with each broker.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, timeout_s: float = 10.0) -> None:
        self.group, self.topic = group, topic
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.assigned: list[int] = []
        self.topic_id = bytes(16)
        self.leaders: dict[int, int] = {}
        self.sessions: dict[int, int] = {}
        self._in_session: dict[int, set[int]] = {}
        self._addresses = [each.rsplit(":", 1) for each in bootstrap.split(",")]
        self._nodes: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, WireClient] = {}
        self._coordinator = -1
        self._timeout_s = timeout_s
        self._beat_at = 0.0

    # Finding brokers

    def look(self) -> None:
        """Find the leaders and the coordinator. Errors: Unanswered."""
        for host, port in self._addresses:
            with suppress(OSError):
                client = WireClient(host, int(port), self._timeout_s)
                try:
                    if self._learn(client):
                        return
                finally:
                    client.close()
        raise Unanswered("no broker knows leaders and coordinator")

    def _learn(self, client: WireClient) -> bool:
        asked = {"topics": [{"name": self.topic}], "allow_auto_topic_creation": False}
        found = client.call(ApiKey.METADATA, 12, asked)
        keys = {"key_type": 0, "coordinator_keys": [self.group]}
        coordinator = client.call(ApiKey.FIND_COORDINATOR, 4, keys)
        if found is None or coordinator is None:
            return False
        topic, row = found["topics"][0], coordinator["coordinators"][0]
        if topic["error_code"] or row["error_code"]:
            return False
        self._nodes = {each["node_id"]: (each["host"], each["port"]) for each in found["brokers"]}
        self.topic_id = topic["topic_id"]
        self.leaders = {
            each["partition_index"]: each["leader_id"]
            for each in topic["partitions"]
            if each["leader_id"] in self._nodes
        }
        self._coordinator = row["node_id"]
        self._nodes[self._coordinator] = row["host"], row["port"]
        return True

    def call(self, node: int, api: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        """Send a request to a broker. Errors: Unanswered; the connection and its session are then gone."""
        try:
            client = self._connections.get(node)
            if client is None:
                if node not in self._nodes:
                    raise Unanswered(f"broker {node} is not known")
                client = WireClient(*self._nodes[node], self._timeout_s)
                self._connections[node] = client
            answer = client.call(api, version, dict(values))
        except OSError as error:
            self.drop(node)
            raise Unanswered(str(error)) from None
        if answer is None:
            self.drop(node)
            raise Unanswered("closed")
        return answer

    def drop(self, node: int) -> None:
        """Forget a connection, with which its share session ends."""
        self.sessions.pop(node, None)
        client = self._connections.pop(node, None)
        if client is not None:
            client.close()

    # Operations of members

    def heartbeat(self, *, leave: bool = False, at_once: bool = False) -> None:
        """Join or stay, if it is time. Errors: Unanswered."""
        now = time.monotonic()
        if now < self._beat_at and not leave and not at_once:
            return
        if not self.leaders or self._coordinator < 0:
            self.look()
        answer = self.call(
            self._coordinator,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            {
                "group_id": self.group,
                "member_id": self.member_id,
                "member_epoch": -1 if leave else self.epoch,
                "subscribed_topic_names": None if self.epoch or leave else [self.topic],
            },
        )
        self._beat_at = now + HEARTBEAT_S
        error = answer["error_code"]
        if error in FENCED:
            self.epoch, self.assigned, self._beat_at = 0, [], 0.0
        elif error:
            self._coordinator = -1
            raise Unanswered(f"heartbeat: {error}")
        else:
            self.epoch = max(answer["member_epoch"], 0)
            if answer["assignment"] is not None:
                self.assigned = sorted(
                    number
                    for row in answer["assignment"]["topic_partitions"]
                    for number in row["partitions"]
                )

    def nodes(self) -> list[int]:
        """The brokers that lead assigned partitions."""
        return sorted({self.leaders[each] for each in self.assigned if each in self.leaders})

    def fetch(self, node: int, max_wait_ms: int = 100, max_records: int = 100) -> list[Acquired]:
        """Acquire records from one broker. Errors: Unanswered; the acquired records are then released."""
        epoch = self.sessions.get(node, 0)
        mine = {each for each in self.assigned if self.leaders.get(each) == node}
        known = self._in_session.get(node, set()) if epoch else set()
        rows = [
            {"partition_index": each, "acknowledgement_batches": []}
            for each in sorted(mine - known)
        ]
        gone = [{"topic_id": self.topic_id, "partitions": sorted(known - mine)}]
        self._in_session[node] = mine
        answer = self.call(
            node,
            ApiKey.SHARE_FETCH,
            2,
            {
                **self._session(epoch),
                "max_wait_ms": max_wait_ms,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": max_records,
                "batch_size": max_records,
                "share_acquire_mode": 0,
                "topics": [{"topic_id": self.topic_id, "partitions": rows}] if rows else [],
                "forgotten_topics_data": gone if known - mine else [],
            },
        )
        self._went_well(node, epoch, answer)
        found = []
        for row in (row for topic in answer["responses"] for row in topic["partitions"]):
            if row["error_code"]:
                self.lost(node)
                raise Unanswered(f"partition {row['partition_index']}: {row['error_code']}")
            found += acquired_of(row)
        return found

    def acknowledge(
        self, node: int, types: Mapping[int, Sequence[tuple[int, int]]], *, renew: bool = False
    ) -> dict[int, int]:
        """Acknowledge (offset, type) of partitions, in order; return the error code of each. Errors: Unanswered."""
        epoch = self.sessions.get(node, 0)
        rows = [
            {
                "partition_index": number,
                "acknowledgement_batches": [
                    {"first_offset": offset, "last_offset": offset, "acknowledge_types": [kind]}
                    for offset, kind in sorted(each)
                ],
            }
            for number, each in types.items()
        ]
        topics = [{"topic_id": self.topic_id, "partitions": rows}]
        values = {**self._session(epoch), "is_renew_ack": renew, "topics": topics}
        answer = self.call(node, ApiKey.SHARE_ACKNOWLEDGE, 2, values)
        self._went_well(node, epoch, answer)
        return {
            row["partition_index"]: row["error_code"]
            for topic in answer["responses"]
            for row in topic["partitions"]
        }

    def _session(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": epoch,
            "is_renew_ack": False,
        }

    def _went_well(self, node: int, epoch: int, answer: Any) -> None:
        if answer["error_code"]:
            self.lost(node)
            raise Unanswered(f"session: {answer['error_code']}")
        self.sessions[node] = epoch + 1

    def lost(self, node: int) -> None:
        """Start over with a broker, and look for the leaders again."""
        self.drop(node)
        self.leaders = {}

    def lags(self) -> dict[int, int]:
        """The number of records of each partition that the group is not done with. Errors: Unanswered."""
        if self._coordinator < 0:
            self.look()
        asked = {"groups": [{"group_id": self.group, "topics": None}]}
        answer = self.call(self._coordinator, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked)
        (row,) = answer["groups"]
        if row["error_code"]:
            self._coordinator = -1
            raise Unanswered(f"offsets: {row['error_code']}")
        return {
            each["partition_index"]: each["lag"]
            for topic in row["topics"]
            for each in topic["partitions"]
        }

    def close(self) -> None:
        """Close all connections."""
        for node in list(self._connections):
            self.drop(node)


def acquired_of(row: Mapping[str, Any]) -> Iterable[Acquired]:
    """The records of a fetched partition that were acquired, in order."""
    counts = {
        offset: each["delivery_count"]
        for each in row["acquired_records"]
        for offset in range(each["first_offset"], each["last_offset"] + 1)
    }
    for batch in iter_batches(row["records"]) if row["records"] else ():
        for record in () if batch.header.is_control else batch.records():
            if record.offset in counts:
                yield Acquired(
                    row["partition_index"],
                    record.offset,
                    counts[record.offset],
                    bytes(record.value),
                )
