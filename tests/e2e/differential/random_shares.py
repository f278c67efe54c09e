"""The same random requests of members of a share group to two brokers, answers and stored states compared.

The state of the group's partitions is initialized directly, and its members do not join: the leader of a partition does
not ask who is a member. Locks last longer than a program.

usage: python -m tests.e2e.differential.random_shares [--seeds 1-100] [--steps 60]
"""

from __future__ import annotations

import argparse
import base64
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder, iter_batches

from ...support.broker_process import BrokerProcess, KwireBroker
from ...support.kafka import KAFKA_4, kafka_broker
from ...support.wire_client import WireClient
from .peer import NODE_ID, Peer

CONFIG = {
    "group.share.partition.max.record.locks": "100",
    "group.share.record.lock.duration.ms": "60000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": "5",
}
MEMBERS = 3
#: How long a broker takes to load a partition, or to release what a member had that has left.
SETTLED_S = 0.3

Values = dict[str, Any]


class Step(NamedTuple):
    """What is done next: by member number `who`, of partition `where`, with numbers that choose the rest."""

    kind: str
    who: int
    where: int
    luck: float
    more: Values


def program(seed: int, steps: int) -> list[Step]:
    """Make the steps of one run, on one partition or, without limits for all of them together, on two.

    With such a limit it would depend on what Apache Kafka remembers of a log which partition is served first.
    """
    rng = random.Random(seed)
    partitions = rng.choice((1, 2))
    kinds = {"produce": 4, "fetch": 8, "acknowledge": 8, "both": 3, "renew": 1, "close": 0.4}
    kinds |= {"leave": 0.3, "delete": 0.3, "epoch": 0.3}
    made = [Step("produce", 0, where, 0.5, {"counts": [3, 4]}) for where in range(partitions)]
    for _ in range(steps):
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        more: Values = {
            "max_records": rng.choice((1, 3, 10, 10, 500, 500)) if partitions == 1 else 500,
            "batch_size": rng.choice((1, 4, 500, 500)),
            "share_acquire_mode": rng.choice((0, 0, 1)),
            "counts": [rng.choice((1, 1, 2, 5, 12)) for _ in range(rng.choice((1, 2, 4)))],
            "shape": rng.choice(
                ("whole", "whole", "whole", "part", "part", "each", "each", "far", "other")
            ),
            "type": rng.choice((0, 1, 1, 1, 2, 2, 2, 2, 3)),
            "types": [rng.choice((0, 1, 1, 2, 2, 3)) for _ in range(600)],
        }
        made.append(
            Step(kind, rng.randrange(MEMBERS), rng.randrange(partitions), rng.random(), more)
        )
    return made


class Member:
    """What a member knows. Shape: `held` are (first, last) of each partition, as they were delivered."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.epoch = 0
        self.held: dict[int, list[tuple[int, int]]] = {where: [] for where in range(partitions)}
        self.client: WireClient | None = None


class Side:
    """One broker, and what its members know."""

    def __init__(self, broker: BrokerProcess, group: str, partitions: int) -> None:
        self.broker = broker
        self.peer = Peer(broker, group)
        self.group = group
        self.partitions = partitions
        self.topic = self.peer.create_topic("shares", partitions)
        self.topic_id = self.peer.topic_id(self.topic)
        self.members = [Member(f"member-{who}", partitions) for who in range(MEMBERS)]
        self.end = dict.fromkeys(range(partitions), 0)
        self._initialize()

    def _initialize(self) -> None:
        """Have the coordinator keep the group's state, and the leader load it."""
        uuid = base64.urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        keys = {"key_type": 2, "coordinator_keys": [f"{self.group}:{uuid}:0"]}
        self.peer.ask(ApiKey.FIND_COORDINATOR, 6, keys)  # makes the topic with the states
        rows = [
            {"partition": where, "state_epoch": 1, "start_offset": 0}
            for where in range(self.partitions)
        ]
        self.peer.until(
            lambda answer: all(
                row["error_code"] == 0 for topic in answer["results"] for row in topic["partitions"]
            ),
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            0,
            {"group_id": self.group, "topics": [{"topic_id": self.topic_id, "partitions": rows}]},
        )
        self.fetch(0, 0, {"max_records": 1}, keep=False)
        time.sleep(SETTLED_S)

    def client(self, member: Member) -> WireClient:
        if member.client is None:
            member.client = WireClient(self.broker.host, self.broker.port)
        return member.client

    def play(self, step: Step) -> Any:
        """Send a step's request; return the answer in comparable form."""
        return self.plain(getattr(self, f"_{step.kind}")(step))

    def plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            found = {
                key: self.plain(one) for key, one in value.items() if key != "throttle_time_ms"
            }
            if "records" in found and value["records"] is not None:
                found["records"] = [
                    (each.header.base_offset, each.header.last_offset)
                    for each in iter_batches(value["records"])
                ]
            return found
        if isinstance(value, list):
            rows = [self.plain(one) for one in value]
            return sorted(rows, key=repr) if rows and isinstance(rows[0], dict) else rows
        return "TOPIC" if value == self.topic_id else value

    # Steps

    def _produce(self, step: Step) -> Any:
        for count in step.more["counts"]:
            builder = BatchBuilder(2, 0)
            for number in range(count):
                builder.append(1_700_000_000_000, None, b"v%d" % number)
            self.peer.produce(self.topic, builder.build(), step.where)
            self.end[step.where] += count
        return None

    def _fetch(self, step: Step) -> Any:
        return self.fetch(step.who, step.where, step.more)

    def _both(self, step: Step) -> Any:
        # What is released together with a fetch may or may not be stored before that.
        acks = self.acks(step, without=2)
        return self.fetch(step.who, step.where, step.more, acks=acks)

    def _renew(self, step: Step) -> Any:
        nothing = {
            "max_records": 0,
            "max_bytes": 0,
            "min_bytes": 0,
            "max_wait_ms": 0,
            "is_renew_ack": True,
        }
        renewed = step._replace(more=step.more | {"type": 4, "types": [4, 1, 4] * 200})
        return self.fetch(step.who, step.where, step.more | nothing, acks=self.acks(renewed))

    def _epoch(self, step: Step) -> Any:
        return self.fetch(step.who, step.where, step.more, epoch=7_000)

    def _acknowledge(self, step: Step) -> Any:
        member = self.members[step.who]
        answer = self.client(member).call(
            ApiKey.SHARE_ACKNOWLEDGE,
            2,
            {
                "group_id": self.group,
                "member_id": member.name,
                "share_session_epoch": member.epoch,
                "is_renew_ack": False,
                "topics": [
                    {
                        "topic_id": self.topic_id,
                        "partitions": [
                            {
                                "partition_index": step.where,
                                "acknowledgement_batches": self.acks(step),
                            }
                        ],
                    }
                ],
            },
        )
        if answer is not None and not answer["error_code"]:
            member.epoch += 1
        return answer

    def _close(self, step: Step) -> Any:
        answer = self.fetch(step.who, step.where, step.more, epoch=-1)
        self.members[step.who].epoch = 0
        self.members[step.who].held = {where: [] for where in range(self.partitions)}
        time.sleep(SETTLED_S)
        return answer

    def _leave(self, step: Step) -> Any:
        member = self.members[step.who]
        others = sum(each.epoch > 0 for each in self.members if each is not member)
        if member.client is None or not others:
            return None  # if all are gone, the state is loaded anew
        member.client.close()
        member.client = None
        member.epoch = 0
        time.sleep(SETTLED_S)
        return None

    def _delete(self, step: Step) -> Any:
        before = int(self.end[step.where] * step.luck)
        answer = self.peer.ask(
            ApiKey.DELETE_RECORDS,
            2,
            {
                "timeout_ms": 10_000,
                "topics": [
                    {
                        "name": self.topic,
                        "partitions": [{"partition_index": step.where, "offset": before}],
                    }
                ],
            },
        )
        return answer["topics"][0]["partitions"]

    # Requests

    def acks(self, step: Step, without: int = -1) -> list[Values]:
        """Acknowledge the oldest delivery that the member knows of, in one of several ways."""
        member = self.members[step.who]
        shape, kind = step.more["shape"], step.more["type"]
        kind = 1 if kind == without else kind
        if shape == "other":
            member = self.members[(step.who + 1) % MEMBERS]
        held = member.held[step.where]
        if not held:
            return [{"first_offset": 0, "last_offset": 3, "acknowledge_types": [kind]}]
        first, last = held.pop(int(step.luck * len(held)))
        if shape == "part" and last > first:
            middle = first + int(step.luck * (last - first))
            held.append((middle + 1, last))
            last = middle
        if shape == "far":
            last += 1 + int(step.luck * 10)
        types = [kind]
        if shape == "each":
            types = [
                1 if each == without else each for each in step.more["types"][: last - first + 1]
            ]
        return [{"first_offset": first, "last_offset": last, "acknowledge_types": types}]

    def fetch(
        self,
        who: int,
        where: int,
        more: Values,
        *,
        acks: Sequence[Values] = (),
        epoch: int | None = None,
        keep: bool = True,
    ) -> Any:
        member = self.members[who]
        is_new = member.epoch == 0
        rows = [
            {
                "partition_index": number,
                "acknowledgement_batches": list(acks) if number == where else [],
            }
            for number in range(self.partitions)
            if is_new or (acks and number == where)
        ]
        values = {
            "group_id": self.group,
            "member_id": member.name,
            "share_session_epoch": member.epoch if epoch is None else epoch,
            # Apache Kafka answers before it lets the next fetch read the partition.
            "max_wait_ms": 200,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [{"topic_id": self.topic_id, "partitions": rows}] if rows else [],
            "forgotten_topics_data": [],
        }
        values |= {key: value for key, value in more.items() if key in values}
        answer = self.client(member).call(ApiKey.SHARE_FETCH, 2, values)
        if answer is None or answer["error_code"] or epoch is not None:
            return answer
        member.epoch += 1
        for topic in answer["responses"]:
            for row in topic["partitions"]:
                for each in row["acquired_records"] if keep else ():
                    found = each["first_offset"], each["last_offset"]
                    member.held[row["partition_index"]].append(found)
        return answer

    def stored(self) -> Any:
        """What the coordinator has of the group."""
        rows = [{"partition": where, "leader_epoch": 0} for where in range(self.partitions)]
        answer = self.peer.ask(
            ApiKey.READ_SHARE_GROUP_STATE,
            0,
            {"group_id": self.group, "topics": [{"topic_id": self.topic_id, "partitions": rows}]},
        )
        return self.plain(answer)

    def end_run(self) -> None:
        for member in self.members:
            if member.client is not None:
                member.client.close()
        self.peer.close()


class Runs:
    """Plays programs on two brokers, each with a group of its own."""

    def __init__(self, brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
        self.brokers = brokers
        self._number = 0

    def run(self, steps: Sequence[Step], *, shrink: bool = False) -> str:
        """The first difference, or nothing."""
        found = self._play(steps)
        while found and shrink:
            for size in (16, 8, 4, 2, 1):
                for begin in range(0, len(steps), size):
                    fewer = [*steps[:begin], *steps[begin + size :]]
                    less = self._play(fewer)
                    if less:
                        steps, found = fewer, less
                        break
                else:
                    continue
                break
            else:
                break
        return found

    def _play(self, steps: Sequence[Step]) -> str:
        self._number += 1
        partitions = 1 + max((step.where for step in steps), default=0)
        sides = [Side(broker, f"random{self._number}", partitions) for broker in self.brokers]
        try:
            for number, step in enumerate(steps):
                kafka, kwire = (side.play(step) for side in sides)
                if kafka != kwire:
                    done = "\n".join(
                        f"  {each.kind} {each.who} of {each.where}" for each in steps[: number + 1]
                    )
                    shown = {key: value for key, value in step.more.items() if key != "types"}
                    return f"after\n{done}\n{shown}\nkafka {kafka}\nkwire {kwire}"
            time.sleep(SETTLED_S)
            kafka, kwire = (side.stored() for side in sides)
            return "" if kafka == kwire else f"stored: kafka {kafka}\nkwire {kwire}"
        finally:
            for side in sides:
                side.end_run()


def main() -> None:
    """Play programs until all are done; print what differs, shrunk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-20")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    with tempfile.TemporaryDirectory() as folder:
        kafka = kafka_broker(
            KAFKA_4,
            Path(folder) / "kafka",
            config=CONFIG | {"broker.session.timeout.ms": "30000", "node.id": str(NODE_ID)},
        )
        kwire = KwireBroker(Path(folder) / "kwire", config=CONFIG | {"broker.id": str(NODE_ID)})
        with kafka, kwire:
            runs = Runs((kafka, kwire))
            different = 0
            for seed in range(int(first), int(last or first) + 1):
                found = runs.run(program(seed, options.steps), shrink=options.shrink)
                different += bool(found)
                print(f"seed {seed}: {found or 'equal'}", flush=True)
            print(f"{different} differ")


if __name__ == "__main__":
    main()
