"""Apache Kafka's own verifiable producer and consumer, whose events are recorded as a history."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from ..support.broker_process import end_process
from ..support.kafka import KAFKA_3, QUICK_JVM, java_command, write_properties
from .checker.history import READ_COMMITTED
from .clients import Client, ClientFailed, Phase, Place

_RECONNECT = {"reconnect.backoff.ms": "20", "reconnect.backoff.max.ms": "200"}


class JavaTool(Client):
    """A tool in its own JVM that prints events as JSON, one per line."""

    tool: str

    def __init__(self, place: Place, phase: Phase, name: str, topic: str) -> None:
        super().__init__(place, phase, name)
        self.topic = topic
        self.process: subprocess.Popen[str] | None = None

    def launch(self, *arguments: str, config: dict[str, str]) -> None:
        """Start the tool, which finds the configuration in a file."""
        kind = self.tool.removeprefix("Verifiable").lower()
        path = self.place.directory / f"{self.name}.properties"
        write_properties(path, _RECONNECT | config)
        command = [
            *java_command(KAFKA_3, flags=(*QUICK_JVM, "-Xmx96m")),
            *(f"org.apache.kafka.tools.{self.tool}", "--topic", self.topic),
            *("--bootstrap-server", self.place.bootstrap, f"--{kind}.config", str(path)),
            *arguments,
        ]
        with (self.place.directory / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        if (
            self.phase.drained.is_set()
        ):  # the run ended while this was starting, before end() could see it
            self.end()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the tool until its end."""
        assert self.process is not None and self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    yield json.loads(line)
        self.process.wait()

    def end(self) -> None:
        """Ask the tool to end."""
        if self.process is not None:
            end_process(self.process)


class JavaSender(JavaTool):
    """The verifiable producer, idempotent; it numbers its values behind a prefix."""

    tool = "VerifiableProducer"

    def work(self) -> None:
        """Run the tool until told to end, and record what was acknowledged."""
        self.launch(
            *("--throughput", str(int(self.place.rate)), "--value-prefix", str(os.getpid())),
            config={
                "enable.idempotence": "true",
                "retries": str(2**31 - 1),
                "delivery.timeout.ms": "120000",
                "request.timeout.ms": "5000",
                "linger.ms": "2",
            },
        )
        acknowledged: list[list[Any]] = []
        for event in self.events():
            if event["name"] == "producer_send_success":
                tp = f"{event['topic']}-{event['partition']}"
                acknowledged.append(["send", tp, event["value"], event["offset"]])
                self.active = time.monotonic()
                if len(acknowledged) == 50:
                    self._note(acknowledged)
            elif event["name"] == "producer_send_error":
                raise ClientFailed(f"{self.name}: {event}")
        self._note(acknowledged)

    def _note(self, acknowledged: list[list[Any]]) -> None:
        self.recorder.note("ok", "send", acknowledged)
        self.phase.note_acknowledged(acknowledged)
        acknowledged.clear()


class JavaMember(JavaTool):
    """The verifiable consumer, which commits after each poll; it is killed from time to time."""

    tool = "VerifiableConsumer"

    def __init__(self, place: Place, phase: Phase, name: str, topic: str, group: str) -> None:
        super().__init__(place, phase, name, topic)
        self.group = group
        self.topics = (topic,)
        self._records: list[list[Any]] = []
        #: Partition -> the offset after the last record, while the tool has not said that it is committed.
        self._committing: dict[str, int] = {}

    def work(self) -> None:
        """Run the tool, restart it after it is killed, and record what it reads and commits."""
        while not self.phase.drained.is_set():
            config = {"isolation.level": READ_COMMITTED}
            if self.place.both_protocols and self.choice.random() < 0.5:
                protocol = ("--group-protocol", "consumer")
            else:
                protocol = ("--session-timeout", "3000")
                config["heartbeat.interval.ms"] = "500"
            self.launch(
                *("--group-id", self.group, "--reset-policy", "earliest", "--verbose"),
                *protocol,
                config=config,
            )
            self._records.clear()
            for event in self.events():
                self._note(event)
            if self._committing:  # it may have been killed between the commit and the word of it
                self._note_commit("info", self._committing)

    def _note_commit(self, outcome: str, offsets: dict[str, int]) -> None:
        rows = [["at", tp, offset] for tp, offset in offsets.items()]
        self.recorder.note(outcome, "commit", rows, group=self.group)
        self._committing = {}

    def _note(self, event: dict[str, Any]) -> None:
        match event["name"]:
            case "record_data":
                tp = f"{event['topic']}-{event['partition']}"
                if not self._records or self._records[-1][1] != tp:
                    self._records.append(["poll", tp, []])
                self._records[-1][2].append([event["offset"], event["value"]])
            case "records_consumed":
                self._note_poll()
            case "offsets_committed":
                offsets = {
                    f"{row['topic']}-{row['partition']}": row["offset"] for row in event["offsets"]
                }
                self._note_commit("ok" if event["success"] else "info", offsets)
            case "partitions_assigned" | "partitions_revoked" as name:
                partitions = [
                    ["at", f"{row['topic']}-{row['partition']}", -1] for row in event["partitions"]
                ]
                op = "assign" if name == "partitions_assigned" else "revoke"
                self.recorder.note("ok", op, partitions)

    def _note_poll(self) -> None:
        if self._records:
            self.active = time.monotonic()
            self.recorder.note(
                *("ok", "poll", self._records),
                group=self.group,
                isolation=READ_COMMITTED,
            )
            self.got(self._records)
            self._committing = {tp: records[-1][0] + 1 for _, tp, records in self._records}
            self._records.clear()

    def kill(self) -> None:
        """Kill the JVM, like a broker; another member takes over when the session ends."""
        if self.process is not None:
            self.process.kill()
