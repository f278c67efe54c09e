"""Apache Kafka's own applications as processes: Streams, Connect's workers, MirrorMaker 2."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .broker_process import end_process
from .kafka import JAVA_ROOM, QUICK_JVM, java_command

WORD_COUNT = str(JAVA_ROOM / "WordCount.java")  # compiled as it starts
CONNECT_WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"


class KafkaApp:
    """One JVM with one application; it ends when its standard input does, or by signal."""

    def __init__(self, version: str, log: Path, main: str, *arguments: str) -> None:
        self.log = log
        flags = (*QUICK_JVM, "-Xmx256m")
        command = [*java_command(version, flags=flags, room="apps"), main, *arguments]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output
            )

    @property
    def output(self) -> str:
        """Return what the application wrote."""
        return self.log.read_text(errors="replace")

    @property
    def tail(self) -> str:
        """Return the end of what it wrote."""
        return "\n".join(line[:400] for line in self.output.splitlines()[-30:])

    @property
    def running(self) -> bool:
        """Tell whether the JVM runs."""
        return self.process.poll() is None

    def finish(self, timeout_s: float = 30.0) -> int:
        """End standard input, wait, and return the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """End the JVM at once (SIGKILL)."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """End the JVM, however far it is."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        end_process(self.process, 20.0)
