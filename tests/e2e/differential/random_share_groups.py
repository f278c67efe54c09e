"""Send the same random requests to a share group of two brokers, and compare responses and records; see random_groups.py.

usage: python -m tests.e2e.differential.random_share_groups [--seeds 1-100] [--steps 40]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import time
from typing import Any

from kwire.api import ApiKey
from kwire.messages.internal import keys
from server.coordinator.group.modern.order import BUCKETS
from server.coordinator.group.share.records import FORMS
from server.coordinator.group.share.simple import hash_of_key, sized

from .random_groups import NAMES, Member, Side, Step, compare, is_in_order

#: As random_groups.CONFIG, for share groups.
CONFIG = {
    "group.share.assignment.interval.ms": "0",
    "group.share.max.session.timeout.ms": "600000",
    "group.share.session.timeout.ms": "600000",
    "group.share.max.size": "10",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
MEMBERS = 12
#: With more, topics whose partitions have the same order would be unlikely.
PARTITIONS = {"t0": 3, "t1": 2, "t2": 1}
#: How long share coordinators may take.
PATIENCE_S = 3.0


def share_program(seed: int, steps: int) -> list[Step]:
    """Make the steps of one run."""
    rng = random.Random(seed)
    kinds = {
        "join": 6,
        "beat": 14,
        "leave": 2.5,
        "describe": 2,
        "list": 0.5,
        "classic describe": 0.3,
    }
    kinds |= {
        "offsets": 1.5,
        "alter": 1.2,
        "delete offsets": 1,
        "delete": 0.8,
        "consumer join": 0.3,
    }
    kinds |= {"classic join": 0.3, "commit": 0.2}
    members = rng.choice((2, 4, MEMBERS))
    made = []
    for _ in range(steps):
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        more: dict[str, Any] = {}
        if kind == "join" or (kind == "beat" and rng.random() < 0.25):
            more["names"] = rng.sample(NAMES, rng.choice((1, 1, 2, 2, 3)))
            if rng.random() < 0.1:
                more["rack_id"] = rng.choice(("r1", "r2"))
        if kind == "beat":
            more["epoch"] = rng.choice((0, 0, 0, 0, 0, 0, 0, -1, -2, 1))
        if kind in ("offsets", "alter", "delete offsets"):
            names = [*NAMES, "unknown"]
            more["topics"] = {
                name: rng.sample(range(5), rng.randrange(1, 5))
                for name in rng.sample(names, rng.randrange(1, 4))
            }
            if kind == "offsets":
                # Apache Kafka does not answer if a partition of a topic does not exist, and fails if none is named.
                more["topics"] = {
                    name: [each for each in some if each < PARTITIONS.get(name, 5)] or [0]
                    for name, some in more["topics"].items()
                }
            if kind == "alter":
                # Apache Kafka cannot delete a group if it has altered no partition of an existing topic.
                more["topics"] = {
                    name: some if min(some) < PARTITIONS.get(name, 5) else [*some, 0]
                    for name, some in more["topics"].items()
                }
            more["all"] = rng.random() < 0.5
        made.append(Step(kind, rng.randrange(members), more))
    return made


@functools.cache
def place(key: tuple[bytes, int], buckets: int) -> int:
    """Where a table of Java has a partition."""
    hashed = hash_of_key(key) & 0xFFFFFFFF
    return (hashed ^ (hashed >> 16)) & (buckets - 1)


class ShareSide(Side):
    """One broker with members of a share group."""

    key_types = frozenset(keys(FORMS.keys))
    partitions = PARTITIONS

    @staticmethod
    def fits(ids: list[bytes]) -> bool:
        """Java's tables must also return the partitions of the topics in this order."""
        rows = [
            [(topic_id, number) for number in range(count)]
            for topic_id, count in zip(ids, PARTITIONS.values(), strict=True)
        ]
        for read in ((0, 1, 2), (0, 2), (1, 2), (0, 1), (0,), (1,)):
            keys = [key for topic in read for key in rows[topic]]
            # A member's partitions, and a table made for these.
            for buckets in (BUCKETS, sized(len(keys))):
                places = [place(key, buckets) for key in keys]
                if not all(one < next for one, next in itertools.pairwise(places)):
                    return False
        return is_in_order(ids)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # Single letters do not share a bucket of Java's tables, in which they would keep the order of insertion.
        self.members = {("s", who): Member(chr(ord("a") + who)) for who in range(MEMBERS)}

    def play(self, step: Step) -> Any:
        answer = super().play(step)
        self.settle()
        return answer

    def settle(self) -> None:
        """Wait until the share coordinators have answered, so that records have the same order."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            states = [each for each in self.records() if each[0] == "StatePartitionsRecord"]
            last = states[-1][-1] if states else None
            if last is None or not any(some for _, _, some in last["initializing"]):
                return
            time.sleep(0.02)

    def heartbeat(self, who: int, more: dict[str, Any], epoch: int) -> Any:
        member = self.members["s", who]
        names = more.get("names")
        answer = self.peer.ask(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            {
                "group_id": self.group,
                "member_id": member.member_id,
                "member_epoch": epoch,
                "rack_id": more.get("rack_id"),
                "subscribed_topic_names": names and [self.full[name] for name in names],
            },
        )
        if answer["error_code"] == 0 and answer["member_epoch"] >= 0:
            member.epoch = answer["member_epoch"]
        return answer

    def join(self, who: int, more: dict[str, Any]) -> Any:
        return self.heartbeat(who, more, 0)

    def beat(self, who: int, more: dict[str, Any]) -> Any:
        return self.heartbeat(who, more, max(self.members["s", who].epoch + more["epoch"], 1))

    def leave(self, who: int, more: dict[str, Any]) -> Any:
        return self.heartbeat(who, more, -1)

    def describe(self, who: int, more: dict[str, Any]) -> Any:
        request = {"group_ids": [self.group], "include_authorized_operations": True}
        return self.peer.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, request)

    def classic_describe(self, who: int, more: dict[str, Any]) -> Any:
        request = {"groups": [self.group], "include_authorized_operations": True}
        return self.peer.ask(ApiKey.DESCRIBE_GROUPS, 6, request)

    def list(self, who: int, more: dict[str, Any]) -> Any:
        request = {"states_filter": [], "types_filter": ["share"]}
        rows = self.peer.ask(ApiKey.LIST_GROUPS, 5, request)["groups"]
        return [each for each in rows if each["group_id"] == self.group]

    def consumer_join(self, who: int, more: dict[str, Any]) -> Any:
        if not self.exists():
            return None
        request = {
            "group_id": self.group,
            "member_id": "c",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": [self.full["t0"]],
            "subscribed_topic_regex": None,
            "topic_partitions": [],
        }
        return self.peer.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)

    def classic_join(self, who: int, more: dict[str, Any]) -> Any:
        if not self.exists():
            return None
        request = {
            "group_id": self.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        return self.peer.ask(ApiKey.JOIN_GROUP, 9, request)

    def exists(self) -> bool:
        return self.describe(0, {})["groups"][0]["error_code"] == 0

    def commit(self, who: int, more: dict[str, Any]) -> Any:
        if not self.exists():
            return None
        row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        topic = {"name": self.full["t0"], "partitions": [row]}
        request = {
            "group_id": self.group,
            "member_id": "",
            "generation_id_or_member_epoch": -1,
            "topics": [topic],
        }
        return self.peer.ask(ApiKey.OFFSET_COMMIT, 9, request)

    # Offsets

    def topic_name(self, name: str) -> str:
        return self.full.get(name, name)

    def offsets(self, who: int, more: dict[str, Any]) -> Any:
        topics = [
            {"topic_name": self.topic_name(name), "partitions": numbers}
            for name, numbers in more["topics"].items()
        ]
        group = {"group_id": self.group, "topics": None if more["all"] else topics}
        return self.peer.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [group]})

    def alter(self, who: int, more: dict[str, Any]) -> Any:
        topics = [
            {
                "topic_name": self.topic_name(name),
                "partitions": [
                    {"partition_index": number, "start_offset": 10 + number} for number in numbers
                ],
            }
            for name, numbers in more["topics"].items()
        ]
        request = {"group_id": self.group, "topics": topics}
        return self.peer.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request)

    def delete_offsets(self, who: int, more: dict[str, Any]) -> Any:
        topics = [{"topic_name": self.topic_name(name)} for name in more["topics"]]
        request = {"group_id": self.group, "topics": topics}
        return self.peer.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, request)

    # Stored records

    def text(self, record: Any) -> Any:
        """A record without its group, times and hashes."""
        name, value = type(record).__name__, record.value
        if name == "StatePartitionsRecord":
            if value is None:
                return name, None
            return name, {
                "initializing": self._named(value.initializing),
                "initialized": self._named(value.initialized),
                "deleting": sorted(
                    (self.plain(each), self.plain(topic)) for each, topic in value.deleting.items()
                ),
            }
        if name == "ShareEpochRecord":
            return name, None if value is None else (value[0], "none" if value[1] == 0 else "some")
        if name == "ShareTargetEpochRecord":
            return name, None if value is None else value[0]
        return super().text(record)

    def _named(self, topics: Any) -> list[Any]:
        return sorted(
            (self.plain(topic_id), self.plain(name), sorted(partitions))
            for topic_id, (name, partitions) in topics.items()
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-20")
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    compare(given.seeds, CONFIG, ShareSide, lambda seed: share_program(seed, given.steps))


if __name__ == "__main__":
    main()
