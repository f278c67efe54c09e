"""Send the same random requests of members of a consumer group to two brokers, and compare responses and records.

The members choose their own ids (KIP-1082), of which no two share a bucket of Java's hash tables. Topics are chosen so that
Apache Kafka's assignors process them in the same order on both brokers. Every response, and every record in
__consumer_offsets, must therefore be the same. Two requests after which Apache Kafka takes partitions away and kwire does not
are not sent (docs/omissions.md): one in which a member of the group takes an instance id, and one in which a member joins
without topics before the next target assignment.

usage: python -m tests.e2e.differential.random_groups [--seeds 1-100] [--steps 40] [--regexes]
"""

from __future__ import annotations

import argparse
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kwire.api import ApiKey
from kwire.codec import decode, encode
from kwire.messages.internal import keys
from kwire.messages.internal.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from kwire.messages.internal.group_metadata import GroupMetadataValue
from kwire.records.batch import iter_batches
from server.coordinator.common.partitioner import partition_for
from server.coordinator.group.consumer.records import FORMS
from server.coordinator.group.modern.order import topics_in_order
from server.coordinator.group.stored import decode_record, encode_record

from ...support.broker_process import SINGLE_BROKER_CONFIG, BrokerProcess, KwireBroker
from ...support.kafka import KAFKA_4, kafka_broker
from ...support.wire_client import plain as plain_fields
from .groups import find
from .peer import NODE_ID, Peer

#: Targets are made with the request that needs them, and no member is too late, so the time between requests does not
#: matter.
CONFIG = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.size": "8",
}
PARTITIONS = {"t0": 5, "t1": 3, "t2": 1}
NAMES = tuple(PARTITIONS)
MEMBERS = 6
REGEX_S = 0.3


class Step(NamedTuple):
    """One request of member number `who`; `more` are the fields that differ from the defaults."""

    kind: str
    who: int
    more: dict[str, Any]


def program(seed: int, steps: int, *, regexes: bool = False) -> list[Step]:
    """Make the steps of one run; with `regexes`, resolution takes time, so results may appear to differ on a busy
    machine.
    """
    rng = random.Random(seed)

    def wishes() -> dict[str, Any]:
        names = rng.sample(NAMES, rng.choice((1, 1, 2, 2, 3, 0)))
        found: dict[str, Any] = {"names": names}
        if rng.random() < 0.2:
            found["server_assignor"] = rng.choice(("uniform", "range", "other"))
        if rng.random() < 0.1:
            found["rack_id"] = rng.choice(("r1", "r2"))
        return found

    made = []
    kinds = {"join": 5, "beat": 14, "leave": 2, "away": 1, "describe": 1}
    kinds |= {"commit": 2, "fetch": 1, "delete": 0.3, "regex": 0.5 * regexes}
    kinds |= {"classic join": 2, "classic sync": 3, "classic beat": 3, "classic leave": 1}
    for _ in range(steps):
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        who = rng.randrange(MEMBERS)
        more: dict[str, Any] = {}
        if kind in ("join", "classic join"):
            more = wishes()
            if rng.random() < 0.2:
                more["instance_id"] = f"i{rng.randrange(2)}"
        elif kind == "regex":
            more["regex"] = rng.choice(("{t0}|{t1}", ".{t1}|{t1}.*", "{t2}", "none", "", "t("))
        elif kind in ("commit", "fetch"):
            more["epoch"] = rng.choice((0, 0, 0, -1, 1, None))
            more["name"] = rng.choice(NAMES)
        elif kind == "beat":
            more["owned"] = rng.choice(("all", "all", "all", "none", "old", "nothing"))
            more["epoch"] = rng.choice((0, 0, 0, 0, 0, 0, 0, -1, 1))
            if rng.random() < 0.2:
                more |= wishes()
        made.append(Step(kind, who, more))
    return made


class Member:
    """A client's knowledge of itself."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.instance_id: str | None = None
        self.epoch = 0
        self.names: list[str] = []
        self.assigned: list[dict[str, Any]] = []
        self.before: list[dict[str, Any]] = []


def make_topics(broker: BrokerProcess, side: type[Side]) -> dict[str, str]:
    """Make topics whose ids are in an order that another broker's can have; return their names."""
    peer = Peer(broker, "topic")
    ids: dict[str, list[tuple[bytes, str]]] = {plain: [] for plain in NAMES}
    for attempt in range(300):
        for plain in NAMES:
            name = peer.create_topic(f"{plain}-{attempt:02}", side.partitions[plain])
            ids[plain].append((peer.topic_id(name), name))
        # Only combinations with one of the newest; the others were already checked.
        for newest in ids:
            choices = [some[-1:] if plain == newest else some for plain, some in ids.items()]
            for some in itertools.product(*choices):
                if side.fits([topic_id for topic_id, _ in some]):
                    peer.close()
                    return {plain: name for plain, (_, name) in zip(NAMES, some, strict=True)}
    raise AssertionError("no topics in order")


def is_in_order(ids: list[bytes]) -> bool:
    """Whether all assignors process the topics in this order, regardless of the order of insertion."""
    subsets = [ids, ids[:2], ids[1:], [ids[0], ids[2]]]
    signed = [int.from_bytes(each[:8], "big", signed=True) for each in ids]
    return signed == sorted(signed) and all(
        topics_in_order(met, presized=presized) == some
        for some in subsets
        for met in (some, some[::-1])
        for presized in (False, True)
    )


class Side:
    """One broker, and the knowledge of its members; ids of topics are replaced by their names."""

    #: The keys of the records that are compared.
    key_types: frozenset[int] = frozenset(keys(FORMS.keys))
    partitions: Mapping[str, int] = PARTITIONS

    @staticmethod
    def fits(ids: list[bytes]) -> bool:
        """Whether topics with these ids can be compared."""
        return is_in_order(ids)

    def __init__(self, broker: BrokerProcess, group: str, full: Mapping[str, str]) -> None:
        self.peer = Peer(broker, group)
        self.group = group
        find(self.peer, self.group)
        self.full = full
        self.topics = {plain: self.peer.topic_id(name) for plain, name in full.items()}
        self.names = {topic_id: name for name, topic_id in self.topics.items()}
        self.members = {
            (kind, who): Member(f"{letter}{who}")
            for kind, letter in (("new", "n"), ("classic", "h"))
            for who in range(MEMBERS)
        }

    def play(self, step: Step) -> Any:
        """Send a step's request; return the answer in comparable form."""
        answer = getattr(self, step.kind.replace(" ", "_"))(step.who, step.more)
        return self.plain(answer)

    def plain(self, value: Any) -> Any:
        if isinstance(value, bytes):
            for topic_id, name in self.names.items():
                value = value.replace(topic_id, name.encode().ljust(16))
            for plain, full in self.full.items():
                value = value.replace(full.encode(), plain.encode())
            return value
        if isinstance(value, str):
            for plain, full in self.full.items():
                value = value.replace(full, plain)
            return value
        if isinstance(value, Mapping):
            return {
                self.plain(key): self.plain(one)
                for key, one in value.items()
                # The text describes the error in an expression, in each library's own words.
                if key != "client_host" and (key != "error_message" or value["error_code"] != 128)
            }
        if isinstance(value, frozenset | set):
            return sorted(self.plain(one) for one in value)
        if isinstance(value, tuple):
            return tuple(self.plain(one) for one in value)
        if isinstance(value, list):
            found = [self.plain(one) for one in value]
            if found and isinstance(found[0], dict):
                found.sort(key=repr)
            elif found and isinstance(found[0], int | str):
                found.sort()  # sets in Java
            return found
        return value

    # Members of the consumer protocol

    def _heartbeat(self, member: Member, **fields: Any) -> dict[str, Any]:
        answer = self.peer.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            {
                "group_id": self.group,
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "subscribed_topic_regex": None,
                **fields,
            },
        )
        if answer["error_code"] == 0 and answer["member_epoch"] == -1:
            member.epoch = 0  # it has left
        if answer["error_code"] == 0 and answer["member_epoch"] >= 0:
            member.epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                member.before = member.assigned
                member.assigned = answer["assignment"]["topic_partitions"]
        return answer

    def _wishes(self, more: dict[str, Any]) -> dict[str, Any]:
        wishes = {key: more[key] for key in ("server_assignor", "rack_id") if key in more}
        if "names" in more:
            wishes["subscribed_topic_names"] = [self.full[name] for name in more["names"]]
        return wishes

    def join(self, who: int, more: dict[str, Any]) -> dict[str, Any]:
        member = self.members["new", who]
        names, assigned = self.epochs()
        if not more["names"] and names > assigned:
            return {}
        if "instance_id" in more and not member.epoch:
            member.instance_id = more["instance_id"]
        wishes = {"rebalance_timeout_ms": 300_000, "topic_partitions": []}
        return self._heartbeat(member, member_epoch=0, **wishes, **self._wishes(more))

    def beat(self, who: int, more: dict[str, Any]) -> dict[str, Any]:
        member = self.members["new", who]
        owned = {
            "all": member.assigned,
            "old": member.before,
            "none": None,
            "nothing": [],
        }[more["owned"]]
        epoch = max(member.epoch + more["epoch"], 1)
        return self._heartbeat(
            member, member_epoch=epoch, topic_partitions=owned, **self._wishes(more)
        )

    def leave(self, who: int, more: dict[str, Any]) -> dict[str, Any]:
        return self._heartbeat(self.members["new", who], member_epoch=-1)

    def away(self, who: int, more: dict[str, Any]) -> dict[str, Any]:
        return self._heartbeat(self.members["new", who], member_epoch=-2)

    def regex(self, who: int, more: dict[str, Any]) -> Any:
        """A member sends an expression, which is resolved a moment later, at most every ten seconds."""
        member = self.members["new", who]
        regex = more["regex"]
        for plain, full in self.full.items():
            regex = regex.replace(f"{{{plain}}}", full)
        wishes = {"subscribed_topic_regex": regex, "subscribed_topic_names": []}
        answer = self._heartbeat(member, member_epoch=max(member.epoch, 1), **wishes)
        time.sleep(REGEX_S)
        return answer

    def _committer(self, who: int, more: dict[str, Any]) -> tuple[str, int]:
        member = self.members["new", who]
        if more["epoch"] is None:
            return "", -1
        return member.member_id, max(member.epoch + more["epoch"], 0)

    def commit(self, who: int, more: dict[str, Any]) -> Any:
        member_id, epoch = self._committer(who, more)
        parts = [
            {"partition_index": number, "committed_offset": 5, "committed_metadata": ""}
            for number in range(PARTITIONS[more["name"]])
        ]
        request = {
            "group_id": self.group,
            "member_id": member_id,
            "generation_id_or_member_epoch": epoch,
            "topics": [{"name": self.full[more["name"]], "partitions": parts}],
        }
        return self.peer.ask(ApiKey.OFFSET_COMMIT, 9, request)

    def fetch(self, who: int, more: dict[str, Any]) -> Any:
        member_id, epoch = self._committer(who, more)
        topic = {"name": self.full[more["name"]], "partition_indexes": [0, 1, 2, 3]}
        row = {"group_id": self.group, "topics": [topic]}
        row |= {"member_id": member_id or None, "member_epoch": epoch}
        return self.peer.ask(ApiKey.OFFSET_FETCH, 9, {"groups": [row]})

    def delete(self, who: int, more: dict[str, Any]) -> Any:
        return self.peer.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [self.group]})

    def describe(self, who: int, more: dict[str, Any]) -> dict[str, Any]:
        request = {"group_ids": [self.group], "include_authorized_operations": True}
        return self.peer.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request)

    def epochs(self) -> tuple[int, int]:
        """The group's epoch and that of its target."""
        row = self.describe(0, {})["groups"][0]
        return row["group_epoch"], row["assignment_epoch"]

    def has_consumers(self) -> bool:
        """Whether there is a member of the consumer protocol, so that the group is not classic."""
        rows = self.describe(0, {})["groups"][0]["members"]
        return any(row["member_type"] == 1 for row in rows)

    # Members of the classic protocol

    def _subscription(self, member: Member) -> bytes:
        names = {topic_id: self.full[name] for topic_id, name in self.names.items()}
        message = ConsumerProtocolSubscription(
            topics=[self.full[name] for name in member.names],
            owned_partitions=[
                TopicPartition(topic=names[row["topic_id"]], partitions=row["partitions"])
                for row in member.assigned
            ],
        )
        return b"\0\1" + encode(message, 1)

    def classic_join(self, who: int, more: dict[str, Any]) -> Any:
        names, assigned = self.epochs()
        if not self.has_consumers() or (not more["names"] and names > assigned):
            return None
        member = self.members["classic", who]
        member.names = more["names"]
        answer = self.peer.ask(
            ApiKey.JOIN_GROUP,
            9,
            {
                "group_id": self.group,
                "session_timeout_ms": 300_000,
                "rebalance_timeout_ms": 300_000,
                "member_id": member.member_id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": self._subscription(member)}],
            },
        )
        if answer["error_code"] == 0:
            member.epoch = answer["generation_id"]
        return answer

    def classic_sync(self, who: int, more: dict[str, Any]) -> Any:
        member = self.members["classic", who]
        request = {
            "group_id": self.group,
            "generation_id": member.epoch,
            "member_id": member.member_id,
        }
        return self.peer.ask(ApiKey.SYNC_GROUP, 3, request)

    def classic_beat(self, who: int, more: dict[str, Any]) -> Any:
        member = self.members["classic", who]
        request = {
            "group_id": self.group,
            "generation_id": member.epoch,
            "member_id": member.member_id,
        }
        return self.peer.ask(ApiKey.HEARTBEAT, 4, request)

    def classic_leave(self, who: int, more: dict[str, Any]) -> Any:
        member_id = self.members["classic", who].member_id
        members = [{"member_id": member_id, "group_instance_id": None}]
        return self.peer.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": self.group, "members": members})

    # Stored records

    def records(self) -> list[Any]:
        """The records of the group; those that kwire would write in other bytes are an error."""
        topic = "__consumer_offsets"
        number = partition_for(
            self.group, int(SINGLE_BROKER_CONFIG["offsets.topic.num.partitions"])
        )
        row = {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 26}
        answer = self.peer.ask(
            ApiKey.FETCH,
            11,
            {
                "replica_id": -1,
                "max_wait_ms": 0,
                "min_bytes": 0,
                "max_bytes": 1 << 26,
                "topics": [{"topic": topic, "partitions": [row]}],
            },
        )
        (found,) = answer["responses"][0]["partitions"]
        texts = []
        for batch in iter_batches(found["records"]):
            for each in batch.records():
                key, value = bytes(each.key), each.value and bytes(each.value)
                if int.from_bytes(key[:2], "big") not in (*self.key_types, 0, 1, 2):
                    continue
                try:
                    record = decode_record(key, value)
                except Exception as error:
                    raise AssertionError(f"{self.peer.broker.kind}: {key!r} {value!r}") from error
                if record.group_id != self.group:
                    continue
                assert decode_record(*encode_record(record)) == record
                text = self.text(record)
                # Apache Kafka also writes the tombstone of a classic group that was never stored.
                if text != ("GroupRecord", None) or any(each[0] == "GroupRecord" for each in texts):
                    texts.append(text)
        # The members of one step are in the order of a Java table.
        return [
            each
            for _, run in itertools.groupby(texts, lambda text: (text[0], text[-1] is None))
            for each in sorted(run, key=repr)
        ]

    def text(self, record: Any) -> Any:
        """A record without its group, times and hashes."""
        name, value = type(record).__name__, record.value
        if name == "GroupRecord":
            if value is not None:
                value = decode(GroupMetadataValue, value, value[1], 2)
                value.current_state_timestamp = 0
                if value.leader in {each.member_id for each in value.members}:
                    value.leader = "any"  # the first in a table of Java
            return name, self.plain(plain_fields(value, 3)) if value is not None else None
        if name == "OffsetRecord":
            tp = record.tp
            return name, self.plain(tp.topic), tp.partition, value and value.offset
        if name == "RegexRecord":
            return (
                name,
                self.plain(record[1]),
                value and sorted(self.plain(each) for each in value.topics),
            )
        if name == "EpochRecord":
            return name, None if value is None else (value[0], "none" if value[1] == 0 else "some")
        if name == "TargetEpochRecord":
            return name, None if value is None else value[0]
        shown = {
            field: getattr(value, field)
            for field in getattr(value, "__slots__", ()) or getattr(value, "__dict__", ())
        }
        if value is not None and not shown:
            shown = value
        return name, record[1], self.plain(shown) if value is not None else None


def differences(sides: Sequence[Side], steps: Sequence[Step]) -> list[str]:
    """Play steps on both; return where they differ, the first answer or all records."""
    for number, step in enumerate(steps):
        found = [side.play(step) for side in sides]
        if found[0] != found[1]:
            return [f"step {number} {step}:\n  {found[0]}\n  {found[1]}"]
    stored = [side.records() for side in sides]
    if stored[0] == stored[1]:
        return []
    found = [
        f"record {number}:\n  {one}\n  {two}"
        for number, (one, two) in enumerate(zip(*stored, strict=False))
        if one != two
    ]
    return [*found[:3], f"{len(stored[0])} and {len(stored[1])} records"]


class Runs:
    """Runs of programs on two brokers, each with its own group."""

    def __init__(self, brokers: Sequence[BrokerProcess], side: type[Side] = Side) -> None:
        self.sides = [(broker, make_topics(broker, side)) for broker in brokers]
        self.side = side
        self.count = 0

    def run(self, steps: Sequence[Step]) -> list[str]:
        """Return where the brokers differ."""
        self.count += 1
        sides = [self.side(broker, f"group-{self.count}", topics) for broker, topics in self.sides]
        try:
            return differences(sides, steps)
        finally:
            for side in sides:
                side.peer.close()

    def shrunk(self, steps: list[Step]) -> list[Step]:
        """Remove steps that are not needed for the difference."""
        width = len(steps) // 2
        while width:
            start = 0
            while start < len(steps):
                fewer = steps[:start] + steps[start + width :]
                if fewer and self.run(fewer):
                    steps = fewer
                else:
                    start += width
            width //= 2
        return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-20")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--regexes", action="store_true")
    given = parser.parse_args()

    def program_of(seed: int) -> list[Step]:
        return program(seed, given.steps, regexes=given.regexes)

    compare(given.seeds, CONFIG, Side, program_of)


def compare(
    seeds: str, config: Mapping[str, str], side: type[Side], program_of: Callable[[int], list[Step]]
) -> None:
    """Run the programs of some seeds, such as 1-20, and print where the brokers differ."""
    first, _, last = seeds.partition("-")
    with tempfile.TemporaryDirectory() as folder:
        patient = {"broker.session.timeout.ms": "30000", "node.id": str(NODE_ID)}
        kafka = kafka_broker(KAFKA_4, Path(folder) / "kafka", config={**config, **patient})
        kwire = KwireBroker(Path(folder) / "kwire", config={**config, "broker.id": str(NODE_ID)})
        with kafka, kwire:
            runs = Runs((kafka, kwire), side)
            bad = 0
            for seed in range(int(first), int(last or first) + 1):
                steps = program_of(seed)
                found = runs.run(steps)
                if found:
                    bad += 1
                    few = runs.shrunk(steps)
                    print(f"seed {seed}: {len(few)} steps")
                    for step in few:
                        print("   ", step)
                    print("\n".join(runs.run(few)), flush=True)
                    if bad > 4:
                        break
                else:
                    print(f"seed {seed}: the same", flush=True)
            print(f"{bad} differ")


if __name__ == "__main__":
    main()
