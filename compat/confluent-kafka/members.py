"""Members of consumer groups, by confluent-kafka, each in its own thread.

tests/support/group_members.py describes the lines. A record is written, then committed before its partition is given
up. A member that fails permanently (for example because its instance id is still in use) is created again, as a
supervisor would do.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

PATIENCE_S = 10.0
BATCH = 200

_lock = threading.Lock()


def say(*words: object) -> None:
    with _lock:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


class Member(threading.Thread):
    def __init__(self, name: str, topics: str, settings: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.name, self.topics, self.settings = name, topics, settings
        self.leaving = threading.Event()
        #: Written but uncommitted records: (topic, partition) -> the next offset.
        self.open: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        while not self.leaving.is_set():
            self.open.clear()
            consumer = Consumer({**self.settings, "log_level": 0})
            consumer.subscribe(
                [self.topics],
                on_assign=lambda _, some: self.tell("assigned", some),
                on_revoke=self.give_up,
                on_lost=self.lose,
            )
            try:
                self.read(consumer)
            except KafkaException as error:
                self.open.clear()
                say(self.name, "failed", error.args[0].name(), *error.args[0].str().split())
                time.sleep(0.2)
            consumer.close()
        say(self.name, "left")

    def read(self, consumer: Consumer) -> None:
        """Read until it should leave. Errors: KafkaException if the consumer can no longer be used."""
        read = 0
        while self.open or not self.leaving.is_set():
            message = consumer.poll(0 if self.open else 0.1)
            if message is not None and message.error() is None:
                self.open[message.topic(), message.partition()] = message.offset() + 1
                place = message.topic(), message.partition(), message.offset()
                say(self.name, "record", *place, message.value().decode())
                read += 1
            elif message is not None and message.error().code() == KafkaError._FATAL:
                raise KafkaException(message.error())
            if self.open and (message is None or read >= BATCH):
                read = 0
                self.commit(consumer, list(self.open))

    def commit(self, consumer: Consumer, keys: Iterable[tuple[str, int]]) -> bool:
        """Commit once, and report the stored offsets."""
        wanted = [TopicPartition(*key, self.open[key]) for key in keys if key in self.open]
        if not wanted:
            return True
        try:
            found = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            say(self.name, "refused", error.args[0].name())
            return False
        for each in found:
            if each.error is not None:
                say(self.name, "refused", each.error.name())
            else:
                say(self.name, "committed", each.topic, each.partition, each.offset)
                self.open.pop((each.topic, each.partition), None)
        return all(each.error is None for each in found)

    def commit_all(self, consumer: Consumer, keys: list[tuple[str, int]]) -> None:
        """Commit until it is stored, or patience ends."""
        give_up = time.monotonic() + PATIENCE_S
        while not self.commit(consumer, keys) and time.monotonic() < give_up:
            time.sleep(0.05)

    def tell(self, what: str, some: list[TopicPartition]) -> None:
        for each in some:
            say(self.name, what, each.topic, each.partition)

    def give_up(self, consumer: Consumer, some: list[TopicPartition]) -> None:
        self.commit_all(consumer, [(each.topic, each.partition) for each in some])
        self.forget("revoked", some)

    def lose(self, _: Consumer, some: list[TopicPartition]) -> None:
        self.forget("lost", some)

    def forget(self, what: str, some: list[TopicPartition]) -> None:
        for each in some:
            self.open.pop((each.topic, each.partition), None)
        self.tell(what, some)


def main() -> None:
    members: dict[str, Member] = {}
    for line in sys.stdin:
        what, name, *words = line.split()
        if what == "start":
            settings = dict(word.split("=", 1) for word in words[1:])
            members[name] = Member(name, words[0], settings)
            members[name].start()
        else:
            members[name].leaving.set()


if __name__ == "__main__":
    main()
