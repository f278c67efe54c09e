"""Apache Kafka's own applications as processes: Streams, Connect's workers, MirrorMaker 2."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .broker_process import end_process
from .java_programs import java_program
from .kafka import QUICK_JVM, java_command

WORD_COUNT = "WordCount"  # in compat/java
CONNECT_WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"


class KafkaApp:
    """One JVM with one application; it ends with its standard input, or by a signal."""

    def __init__(self, version: str, log: Path, main: str, *arguments: str) -> None:
        self.log = log
        flags = (*QUICK_JVM, "-Xmx256m")
        if main == WORD_COUNT:
            command = java_program(main, version, flags=flags, room="apps")
        else:
            command = [*java_command(version, flags=flags, room="apps"), main]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, *arguments], stdin=subprocess.PIPE, stdout=output, stderr=output
            )

    @property
    def output(self) -> str:
        """Return the output of the application."""
        return self.log.read_text(errors="replace")

    @property
    def tail(self) -> str:
        """Return the end of its output."""
        return "\n".join(line[:400] for line in self.output.splitlines()[-30:])

    @property
    def running(self) -> bool:
        """Whether the JVM is running."""
        return self.process.poll() is None

    def finish(self, timeout_s: float = 180.0) -> int:
        """Close its standard input, wait, and return the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """Kill the JVM (SIGKILL)."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """End the JVM, whatever its state."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        end_process(self.process, 20.0)
