"""Apache Kafka's command-line tools, run in one JVM for all tests of a release."""

from __future__ import annotations

import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .java_programs import java_program
from .kafka import QUICK_JVM, java_command

# The class behind each kafka-*.sh; if 4.3.0 moved it, the second one is for 4.3.0.
_TOOLS: dict[str, tuple[str, ...]] = {
    "kafka-topics": ("org.apache.kafka.tools.TopicCommand",),
    "kafka-console-producer": (
        "kafka.tools.ConsoleProducer",
        "org.apache.kafka.tools.ConsoleProducer",
    ),
    "kafka-console-consumer": ("org.apache.kafka.tools.consumer.ConsoleConsumer",),
    "kafka-producer-perf-test": ("org.apache.kafka.tools.ProducerPerformance",),
    "kafka-consumer-perf-test": ("org.apache.kafka.tools.ConsumerPerformance",),
    "kafka-verifiable-producer": ("org.apache.kafka.tools.VerifiableProducer",),
    "kafka-verifiable-consumer": ("org.apache.kafka.tools.VerifiableConsumer",),
    "kafka-consumer-groups": ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",),
    "kafka-configs": ("kafka.admin.ConfigCommand",),
    "kafka-groups": ("org.apache.kafka.tools.GroupsCommand",),
    "kafka-share-groups": ("org.apache.kafka.tools.consumer.group.ShareGroupCommand",),
    "kafka-console-share-consumer": ("org.apache.kafka.tools.consumer.ConsoleShareConsumer",),
    "kafka-features": ("org.apache.kafka.tools.FeatureCommand",),
    "kafka-client-metrics": ("org.apache.kafka.tools.ClientMetricsCommand",),
    "kafka-get-offsets": ("org.apache.kafka.tools.GetOffsetShell",),
    "kafka-delete-records": ("org.apache.kafka.tools.DeleteRecordsCommand",),
    "kafka-log-dirs": ("org.apache.kafka.tools.LogDirsCommand",),
    "kafka-reassign-partitions": ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand",),
    "kafka-leader-election": ("org.apache.kafka.tools.LeaderElectionCommand",),
    "kafka-transactions": ("org.apache.kafka.tools.TransactionsCommand",),
    "kafka-broker-api-versions": (
        "kafka.admin.BrokerApiVersionsCommand",
        "org.apache.kafka.tools.BrokerApiVersionsCommand",
    ),
    "kafka-delegation-tokens": ("org.apache.kafka.tools.DelegationTokenCommand",),
    "kafka-acls": ("kafka.admin.AclCommand", "org.apache.kafka.tools.AclCommand"),
    "kafka-dump-log": (
        "kafka.tools.DumpLogSegments",
        "org.apache.kafka.tools.DumpLogSegments",
    ),
}

# These report their last results in the JVM's own shutdown hooks.
_WITH_OWN_HOOKS = ("kafka-verifiable-producer", "kafka-verifiable-consumer")


class ToolResult(NamedTuple):
    """The exit status and the output of a tool."""

    status: int
    output: str
    errors: str


class ToolServer:
    """One JVM that runs tools one after another (compat/java/ToolServer.java)."""

    def __init__(self, version: str, log: Path) -> None:
        self.version = version
        command = java_program("ToolServer", version, flags=(*QUICK_JVM, "-Xmx256m"))
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    def run(self, tool: str, *arguments: str, text: str = "") -> ToolResult:
        """Run a tool by its script's name with the given standard input."""
        if tool in _WITH_OWN_HOOKS:
            return self._run_alone(tool, *arguments)
        assert self.process.stdin is not None
        parts = [part.encode() for part in (self._class_name(tool), *arguments)]
        request = struct.pack(">i", len(parts)) + b"".join(map(_sized, [*parts, text.encode()]))
        try:
            self.process.stdin.write(request)
            self.process.stdin.flush()
            status = struct.unpack(">i", self._read(4))[0]
            output, errors = (self._read(struct.unpack(">i", self._read(4))[0]) for _ in range(2))
        except BaseException:
            self.process.kill()  # the next tool would get this one's answer
            raise
        return ToolResult(status, output.decode(), errors.decode())

    def _class_name(self, tool: str) -> str:
        return _TOOLS[tool][0 if self.version.startswith("3.") else -1]

    def _run_alone(self, tool: str, *arguments: str) -> ToolResult:
        command = [*java_command(self.version), self._class_name(tool), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        return ToolResult(ended.returncode, ended.stdout, ended.stderr)

    def _read(self, size: int) -> bytes:
        assert self.process.stdout is not None
        data = self.process.stdout.read(size)
        if len(data) < size:
            raise RuntimeError(f"the JVM ended with status {self.process.wait()}")
        return data

    def close(self) -> None:
        """End the JVM; may be called again."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class ToolServers:
    """The JVMs of a test session: one for each release, started on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, ToolServer] = {}

    def __call__(self, version: str) -> ToolServer:
        """The tools of a release, in a new JVM if the last one has ended."""
        server = self._running.get(version)
        if server is None or server.process.poll() is not None:
            if server is not None:
                server.close()
            server = self._running[version] = ToolServer(version, self._folder / f"{version}.log")
        return server

    def close(self) -> None:
        """End them all."""
        for server in self._running.values():
            server.close()


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
