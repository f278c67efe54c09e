"""A standalone cluster of Spark on this machine, from the classes that PySpark brings: a master and workers.

Its Python has everything that kwire needs, but not kwire: a job has to bring it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import pyspark

from ..support.broker_process import end_process, free_port
from .conftest import SMALL

SPARK_HOME = Path(pyspark.__file__).parent
SITE_PACKAGES = SPARK_HOME.parent
REPOSITORY = Path(__file__).resolve().parents[2]
#: The maximum seconds for the start of a JVM, and for a job to reach its middle, on a slow and busy machine.
PATIENCE_S = 400.0
QUICK = SMALL["spark.driver.extraJavaOptions"]


class Standalone:
    """A master, and workers of one core each."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self._count = workers
        self._master = free_port()
        self._ui = free_port()
        self._stack = ExitStack()
        self.url = f"spark://127.0.0.1:{self._master}"
        self._workers: list[subprocess.Popen[bytes]] = []
        packages = folder / "packages"
        packages.mkdir(parents=True)
        for path in SITE_PACKAGES.iterdir():
            if "kwire" not in path.name and path.suffix != ".pth":
                (packages / path.name).symlink_to(path)
        # Not that of a virtual environment, which finds its own packages.
        python = getattr(sys, "_base_executable", sys.executable)
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("KWIRE_")},
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "200m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_LAUNCHER_OPTS": QUICK,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": python,
            "PYTHONPATH": str(packages),
            "PYTHONSAFEPATH": "1",
        }

    def __enter__(self) -> Standalone:
        words = ["--host", "127.0.0.1", "--port", str(self._master), "--webui-port", str(self._ui)]
        self._stack.callback(end_process, self._java("master", "master.Master", *words))
        # A worker that does not find its master tries again only after five to fifteen seconds.
        wait_for(self._master)
        for _ in range(self._count):
            self.start_worker()
        self.wait_for_workers(self._count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._workers:
            self.kill_worker()
        self._stack.close()

    def _java(self, name: str, class_name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [
                    str(SPARK_HOME / "bin/spark-class"),
                    f"org.apache.spark.deploy.{class_name}",
                    *words,
                ],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_worker(self) -> None:
        words = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "700m"]
        words += ["--work-dir", str(self.folder / "work"), self.url]
        self._workers.append(self._java("worker", "worker.Worker", *words))

    def kill_worker(self) -> None:
        """Kill the oldest worker and its executor immediately."""
        worker = self._workers.pop(0)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def wait_for_workers(self, count: int) -> None:
        """Wait until the master knows that many."""
        deadline = time.monotonic() + PATIENCE_S
        while self._alive() < count:
            assert time.monotonic() < deadline, (self.folder / "worker.log").read_text()[-3000:]
            time.sleep(0.2)

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ui}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return 0

    def submit(self, wheel: Path, jars: Path, *words: str) -> Submitted:
        """`spark-submit` of a job of `kwire pipeline`; kwire comes only from the wheel."""
        script = self.folder / "submit.py"
        script.write_bytes((REPOSITORY / "pipeline/submit.py").read_bytes())
        settings = {
            **SMALL,
            "spark.executor.memory": "500m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": QUICK,
        }
        options = [f"--conf={name}={text}" for name, text in settings.items()]
        connector = [str(jar) for jar in jars.glob("*.jar") if "scala-library" not in jar.name]
        command = [str(SPARK_HOME / "bin/spark-submit"), "--master", self.url, *options]
        command += ["--jars", ",".join(connector), "--py-files", str(wheel), str(script), *words]
        return Submitted(command, self.environment, self.folder / f"{words[0]}.log")


def wait_for(port: int) -> None:
    """Wait until a server listens at this port."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


class Submitted:
    """A job that runs."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=log.parent,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def said(self) -> str:
        """Its output so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
