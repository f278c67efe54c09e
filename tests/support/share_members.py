"""Members of share groups: the Java client of Apache Kafka 4.3.0, each in a process that can be killed."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .broker_process import end_process
from .java_programs import java_program
from .kafka import KAFKA_4, QUICK_JVM


class Delivery(NamedTuple):
    """A record as a member has got it."""

    partition: int
    offset: int
    count: int
    value: str


class ShareMember:
    """A process of compat/java/ShareMember.java, and the lines that it has written."""

    def __init__(self, log: Path, bootstrap: str, group: str, topic: str, **settings: str) -> None:
        self.log = log
        properties = {"bootstrap.servers": bootstrap, "group.id": group}
        properties |= {name.replace("_", "."): value for name, value in settings.items()}
        flags = (*QUICK_JVM, "-Xmx256m")
        command = [*java_program("ShareMember", KAFKA_4, flags=flags), topic]
        command += [f"{name}={value}" for name, value in properties.items()]
        with log.open("ab") as output, log.with_suffix(".errors").open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=errors
            )

    def lines(self) -> list[str]:
        """The whole lines so far; the member may be writing another one."""
        return self.log.read_text().rpartition("\n")[0].splitlines()

    def got(self) -> list[Delivery]:
        """The records received so far."""
        return list(self._got())

    def _got(self) -> Iterator[Delivery]:
        for line in self.lines():
            if line.startswith("got "):
                _, partition, offset, count, value = line.split(" ", 4)
                yield Delivery(int(partition), int(offset), int(count), value)

    def done(self) -> set[tuple[int, int]]:
        """The records whose acknowledgement was committed, as (partition, offset), without those that were released."""
        found = set()
        for line in self.lines():
            if line.startswith("done "):
                partition, *offsets = map(int, line.split()[1:])
                found.update((partition, offset) for offset in offsets)
        return found

    def renewed(self) -> Counter[tuple[int, int]]:
        """How often the locks of records were renewed, by (partition, offset)."""
        found: Counter[tuple[int, int]] = Counter()
        for line in self.lines():
            if line.startswith("renewed "):
                partition, *offsets = map(int, line.split()[1:])
                found.update((partition, offset) for offset in offsets)
        return found

    def story(self, last: int = 30) -> str:
        """Whether it still runs, and the end of its output."""
        errors = self.log.with_suffix(".errors").read_text().splitlines()
        lines = [f"{self.log.name}: status {self.process.poll()}", *self.lines()[-last:]]
        return "\n".join([*lines, *errors[-last:]])

    def kill(self) -> None:
        """Kill it (SIGKILL); its records stay locked until their time is over."""
        self.process.kill()
        self.close()

    def finish(self, timeout_s: float = 120.0) -> int:
        """Let it leave its group, and return the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout_s)

    def close(self) -> None:
        """Kill the process in any state."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        end_process(self.process, 20.0)
