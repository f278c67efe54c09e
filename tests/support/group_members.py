"""Members of consumer groups in processes that can be killed, and what a group as a whole has read.

Programs: compat/confluent-kafka/members.py and compat/java/GroupMembers.java. Lines of their input: "start MEMBER TOPIC NAME=VALUE..."
(TOPIC is a regular expression if it begins with ^), "leave MEMBER", "quit MEMBER" (a static member, too, is then gone for good). Lines
of their output, each behind the member's name: "assigned TOPIC PARTITION", "revoked ..." and "lost ..." alike, "record TOPIC PARTITION
OFFSET VALUE", "committed TOPIC PARTITION NEXT-OFFSET", "refused ERROR" (a commit, which is tried again), "failed ERROR" (the member is made
anew) and "left".
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from .broker_process import REPOSITORY
from .java_programs import java_program
from .kafka import KAFKA_4, QUICK_JVM

PATIENCE_S = 120.0

RDKAFKA = "confluent-kafka"
JAVA = "java-clients"

Partition = tuple[str, int]


class Place(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


def command(client: str) -> list[str]:
    """The program of a client."""
    if client == RDKAFKA:
        return [sys.executable, str(REPOSITORY / "compat" / "confluent-kafka" / "members.py")]
    return java_program("GroupMembers", KAFKA_4, flags=(*QUICK_JVM, "-Xmx256m"))


class Member:
    """One member from its start until it has left or was killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owned: set[Partition] = set()
        self.read: list[tuple[Place, str]] = []
        #: Read and not known to be committed.
        self.open: dict[Partition, list[int]] = {}
        #: Read, and then given up without a confirmed commit: others may read it again.
        self.unsure: list[Place] = []
        #: Records of partitions that it did not own, and steps over records.
        self.wrong: list[str] = []
        #: Its output other than records and commits, with times.
        self.story: list[str] = []
        self.has_left = False

    def note(self, what: str, *words: str) -> None:
        """Take a line of the program."""
        if what not in ("record", "committed"):
            self.story.append(" ".join((f"{time.monotonic():.3f}", what, *words)))
        if what == "refused":
            return
        if what == "failed":
            self.end()
        elif what == "left":
            self.end()
            self.has_left = True
        else:
            self._note_partition(what, (words[0], int(words[1])), *words[2:])

    def _note_partition(self, what: str, partition: Partition, *words: str) -> None:
        if what == "assigned":
            self.owned.add(partition)
        elif what in ("revoked", "lost"):
            self.owned.discard(partition)
            self._give_up(partition)
        elif what == "committed":
            behind = int(words[0])
            self.open[partition] = [each for each in self.open[partition] if each >= behind]
        else:
            place = Place(*partition, int(words[0]))
            uncommitted = self.open.setdefault(partition, [])
            if partition not in self.owned:
                self.wrong.append(f"{place} is not its own")
            if uncommitted and place.offset != uncommitted[-1] + 1:
                self.wrong.append(f"{place} after {uncommitted[-1]}")
            uncommitted.append(place.offset)
            self.read.append((place, words[1]))

    def _give_up(self, partition: Partition) -> None:
        offsets = self.open.pop(partition, [])
        if offsets:
            self.story.append(f"unsure of {partition} {offsets}")
        self.unsure += [Place(*partition, offset) for offset in offsets]

    def end(self) -> None:
        """It has no more partitions."""
        self.owned = set()
        for partition in list(self.open):
            self._give_up(partition)


class Host:
    """A process with several members."""

    def __init__(self, program: list[str], errors: Path) -> None:
        with errors.open("ab") as log:
            self.process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.members: dict[str, Member] = {}
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # else it was killed while it wrote
                    name, *words = line.split()
                    self.members[name].note(*words)

    def _say(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def start(self, name: str, topics: str, settings: dict[str, str]) -> Member:
        """Start a member."""
        member = self.members[name] = Member(name)
        self._say("start", name, topics, *(f"{key}={value}" for key, value in settings.items()))
        return member

    def leave(self, member: Member, *, for_good: bool = False) -> None:
        """Tell a member to leave."""
        self._say("quit" if for_good else "leave", member.name)

    def kill(self) -> None:
        """Kill the process (SIGKILL) with all of its members."""
        self.process.kill()
        self.process.wait()
        self.thread.join()
        assert self.process.stdin is not None
        self.process.stdin.close()
        for member in self.members.values():
            member.end()


class Load:
    """A producer that runs until it is ended, and the position of each of its records."""

    def __init__(self, bootstrap: str, topics: Iterable[Partition]) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self.partitions = list(topics)
        self.acknowledged: dict[Place, str] = {}
        self.failed: list[str] = []
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        place = Place(message.topic(), message.partition(), message.offset())
        assert place not in self.acknowledged
        self.acknowledged[place] = message.value().decode()

    def _run(self) -> None:
        number = 0
        while not self.ending.wait(0.02):
            for _ in range(4):
                topic, partition = self.partitions[number % len(self.partitions)]
                self.producer.produce(
                    topic, str(number), partition=partition, on_delivery=self._delivered
                )
                number += 1
            self.producer.poll(0)

    def end(self) -> dict[Place, str]:
        """Return the acknowledged records, which are all."""
        self.ending.set()
        self.thread.join()
        assert self.producer.flush(PATIENCE_S) == 0
        assert not self.failed
        return self.acknowledged


def check_reading(members: Iterable[Member], acknowledged: dict[Place, str]) -> int:
    """Assert that a group has read each acknowledged record, and repeated only records without a confirmed commit;
    return the repeats.

    Errors: AssertionError. A record may be read again for each member that had read it and was killed, or lost its
    partition, before its commit was confirmed.
    """
    members = list(members)
    assert not [each for member in members for each in member.wrong]
    read = Counter(place for member in members for place, _ in member.read)
    assert not acknowledged.keys() - read.keys(), "left out"
    values = {(place, value) for member in members for place, value in member.read}
    assert values == set(acknowledged.items())
    again = read - Counter(acknowledged.keys())
    unsure = Counter(place for member in members for place in member.unsure)
    assert again <= unsure, f"read again: {sorted((again - unsure).items())[:20]}"
    return again.total()
