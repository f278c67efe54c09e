"""Send the same random requests of members of a share group to two brokers, and compare responses and stored states.

The state of the group's partitions is initialized directly, and its members do not join: the leader of a partition does not
check membership. Locks last longer than a program.

At two points, the timing of Apache Kafka differs from kwire's, so the test waits. First, a fetch in Apache Kafka answers before
the next fetch can read the partition, and on a busy machine the second fetch can time out before that. Records that kwire has
delivered and Apache Kafka has not are fetched from Apache Kafka again, but never from kwire. Second, the records of a member
are released some time after it has left. A step of that kind ends when both brokers have stored the same.

Two bugs of Apache Kafka 4.3.0, which its log shows, end a program early (docs/omissions.md). If no records are in flight, it
fails at an acknowledgement that begins below the start offset. And after records that a member had were deleted, it can
continue to read below the start of the log, so that no member receives records any more.

usage: python -m tests.e2e.differential.random_shares [--seeds 1-100] [--steps 60] [--trace FOLDER]
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.records.batch import BatchBuilder, iter_batches

from ...support.broker_process import BrokerProcess, KwireBroker
from ...support.kafka import KAFKA_4, kafka_broker
from ...support.wire_client import WireClient
from .peer import NODE_ID, Peer

CONFIG = {
    "group.share.partition.max.record.locks": "100",
    "group.share.record.lock.duration.ms": "1800000",
    "group.share.max.record.lock.duration.ms": "3600000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": "5",
    # The records have old timestamps; each broker would remove them at a different time.
    "log.retention.ms": "-1",
}
MEMBERS = 3
#: The maximum time that a broker takes to load a partition, or to release the records of a departed member, on a busy
#: machine.
SETTLED_S = 0.3
PATIENCE_S = 8.0
#: How often records that kwire has delivered are fetched from Apache Kafka.
FETCHES = 20
#: Apache Kafka's log when it fails at an acknowledgement, and when it reads below the start of the log.
FAILED = '"floorOffset" is null'
BELOW_START = "is not greater than the start offset"

Values = dict[str, Any]


class Step(NamedTuple):
    """The next action: of member number `who`, on partition `where`, with numbers that choose the rest."""

    kind: str
    who: int
    where: int
    luck: float
    more: Values


def program(seed: int, steps: int) -> list[Step]:
    """Make the steps of one run, on one partition or, without limits for all of them together, on two.

    With such a limit, the order in which partitions are served would depend on Apache Kafka's cache of a log.
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
    """A member's knowledge. Shape: `held` are (first, last) of each partition, as delivered."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.epoch = 0
        self.held: dict[int, list[tuple[int, int]]] = {where: [] for where in range(partitions)}
        self.client: WireClient | None = None


class Side:
    """One broker, and the knowledge of its members."""

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
        """Send a step's request; return the answer."""
        return getattr(self, f"_{step.kind}")(step)

    def again(self, step: Step, answer: Any) -> Any:
        """Fetch again, and return the answer with the new records."""
        more = self.fetch(step.who, step.where, step.more)
        if more is None or more["error_code"]:
            return more
        rows = {row["partition_index"]: row for row in rows_of(answer)}
        for row in rows_of(more):
            told = rows.get(row["partition_index"], {})
            names = ("acknowledge_error_code", "acknowledge_error_message")
            rows[row["partition_index"]] = row | {
                name: told[name] for name in names if name in told
            }
        topic = {"topic_id": self.topic_id, "partitions": list(rows.values())}
        return answer | {"responses": [topic]}

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
        # Records that are released together with a fetch may or may not be stored before it.
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
        return answer

    def _leave(self, step: Step) -> Any:
        member = self.members[step.who]
        others = sum(each.epoch > 0 for each in self.members if each is not member)
        if member.client is None or not others:
            return None  # if all members are gone, the state is loaded again
        member.client.close()
        member.client = None
        member.epoch = 0
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
        """Acknowledge the oldest delivery that the member knows, in one of several ways."""
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
            # Apache Kafka answers before the next fetch may read the partition.
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
        """The coordinator's state of the group."""
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


def rows_of(answer: Any) -> list[Values]:
    """The rows of a fetch's partitions."""
    return [row for topic in answer["responses"] for row in topic["partitions"]]


def delivered(answer: Any) -> set[int]:
    """The partitions from which the answer to a fetch delivers records."""
    if answer is None or answer["error_code"]:
        return set()
    return {row["partition_index"] for row in rows_of(answer) if row.get("acquired_records")}


def refuses_all(answer: Any) -> bool:
    """Whether an answer refuses the acknowledgements of each partition."""
    rows = rows_of(answer)
    codes = [row["error_code"] or row.get("acknowledge_error_code") for row in rows]
    return bool(rows) and set(codes) == {ErrorCode.INVALID_RECORD_STATE}


class Runs:
    """Plays programs on two brokers, Apache Kafka and kwire, each with its own group.

    Shape: `trace` has the steps of the last program with both answers; `fetched_again` counts fetches from Apache
    Kafka, `ended_early` the programs that a bug in Apache Kafka ended.
    """

    def __init__(self, brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
        self.brokers = brokers
        self.trace: list[Values] = []
        self.fetched_again = 0
        self.ended_early: Counter[str] = Counter()
        self._number = 0
        self._threads = ThreadPoolExecutor(len(brokers))

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
        self.trace = []
        partitions = 1 + max((step.where for step in steps), default=0)
        name = f"random{self._number}"
        sides = list(self._threads.map(lambda broker: Side(broker, name, partitions), self.brokers))
        try:
            for number, step in enumerate(steps):
                kafka, kwire = self._answers(sides, step)
                if kafka != kwire and (reason := self._mistake(name, kafka, kwire)):
                    self.ended_early[reason] += 1
                    break
                if kafka != kwire:
                    done = "\n".join(
                        f"  {each.kind} {each.who} of {each.where}" for each in steps[: number + 1]
                    )
                    shown = {key: value for key, value in step.more.items() if key != "types"}
                    return f"after\n{done}\n{shown}\nkafka {kafka}\nkwire {kwire}"
            kafka, kwire = self._settled(sides)
            return "" if kafka == kwire else f"stored: kafka {kafka}\nkwire {kwire}"
        finally:
            for side in sides:
                side.end_run()

    def _mistake(self, group: str, kafka: Any, kwire: Any) -> str:
        """The bug in Apache Kafka that caused this difference, according to its latest log, or an empty string."""
        log = self.brokers[0].log_path
        if delivered(kwire) - delivered(kafka):
            shown = log.read_text(errors="replace").splitlines()[-FETCHES:]
            own = [line for line in shown if BELOW_START in line and f" {group}-" in line]
            return BELOW_START if len(own) > FETCHES // 2 else ""
        if kafka["error_code"] != ErrorCode.UNKNOWN_SERVER_ERROR or not refuses_all(kwire):
            return ""
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            shown = log.read_text(errors="replace").splitlines()
            for line, following in itertools.pairwise(shown):
                if f"groupId='{group}'" in line and FAILED in following:
                    return FAILED
            time.sleep(0.05)
        return ""

    def _answers(self, sides: Sequence[Side], step: Step) -> list[Any]:
        """Play a step on both; wait for actions that Apache Kafka finishes after its answer."""
        began = time.monotonic()
        took = []

        def play(side: Side) -> Any:
            answer = side.play(step)
            took.append((side.broker.kind, round(time.monotonic() - began, 3)))
            return answer

        kafka, kwire = self._threads.map(play, sides)
        again = 0
        if step.kind in ("fetch", "both"):
            while delivered(kwire) - delivered(kafka) and again < FETCHES:
                again += 1
                kafka = sides[0].again(step, kafka)
        self.fetched_again += again
        answers = [side.plain(one) for side, one in zip(sides, (kafka, kwire), strict=True)]
        row = {"step": step._asdict(), "took_s": took, "again": again, "answers": answers}
        if step.kind in ("close", "leave"):
            row["stored"] = self._settled(sides)
        self.trace.append(row)
        return answers

    def _settled(self, sides: Sequence[Side]) -> list[Any]:
        """Wait until both have stored the same state, and return it."""
        time.sleep(SETTLED_S)
        give_up = time.monotonic() + PATIENCE_S
        while True:
            kafka, kwire = (side.stored() for side in sides)
            if kafka == kwire or time.monotonic() > give_up:
                return [kafka, kwire]
            time.sleep(0.05)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def main() -> None:
    """Play programs until all are done; print differences, shrunk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-20")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--trace", type=Path, help="folder for the steps of programs that differ")
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
                steps = program(seed, options.steps)
                found = runs.run(steps, shrink=options.shrink)
                different += bool(found)
                print(f"seed {seed}: {found or 'equal'}", flush=True)
                if found and options.trace:
                    rows = "\n".join(json.dumps(row, default=repr) for row in runs.trace)
                    (options.trace / f"{seed}.jsonl").write_text(rows)
                    print(f"seed {seed} once more: {runs.run(steps) or 'equal'}", flush=True)
            print(f"{different} differ; fetched from Apache Kafka again: {runs.fetched_again}")
            print(f"ended early: {dict(runs.ended_early)}")
            runs.close()


if __name__ == "__main__":
    main()
