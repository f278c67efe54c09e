"""Archives of classes, from which the JVMs of tests start in little more than half of the CPU time.

`python -m tests.support.class_archives` makes them.

A JVM that is given an archive (class data sharing) neither looks for the archived classes in jars nor reads and checks them. An
archive counts only for the JVM, and the jars at the paths, from which it was made; any other JVM starts as if there were none.
What is in it does not matter for what a program does. It holds what a broker, or ZooKeeper, has loaded when it ends; the broker's
serves the tools, too.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import sys
import tempfile
from fcntl import LOCK_EX, flock
from pathlib import Path

from .broker_process import BrokerFailed

BROKER = "broker"
ZOOKEEPER = "zookeeper"


def jars_in(folder: Path) -> list[Path]:
    """The jars of a folder in the order in which they are in class paths."""
    return sorted(folder.glob("*.jar"))


def key_of(folder: Path, more: str = "") -> str:
    """Changes with the JVM, the jars of a folder, and a text."""
    java = Path(shutil.which("java") or "java").resolve()
    parts = [str(java), str(folder.resolve())]
    found = [path for path in (java, *jars_in(folder)) if path.exists()]
    parts += [f"{path.name} {path.stat().st_mtime_ns}" for path in found]
    return hashlib.sha256("\n".join([*parts, more]).encode()).hexdigest()[:12]


def archive_of(folder: Path, kind: str) -> Path:
    """Where the archive for a folder of jars is, or would be."""
    return folder.with_name(f"{folder.name}-{kind}-{key_of(folder)}.jsa")


def flags_for(folder: Path, kind: str) -> tuple[str, ...]:
    """The flags with which a JVM uses the archive for these jars; none if there is no archive."""
    return flags_with(archive_of(folder, kind))


def flags_with(archive: Path) -> tuple[str, ...]:
    """The flags with which a JVM uses an archive; none if there is no such file."""
    if not archive.exists():
        return ()
    # Where it was mapped when it was made, so that no address in it has to be changed. And an archive that does not count is
    # no reason to write a line, since tests compare what programs write.
    return (f"-XX:SharedArchiveFile={archive}", "-XX:ArchiveRelocationMode=0", *SILENT)


SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def make_archives(folder: Path) -> None:
    """Run a broker and note the classes that it loads, unless that was done."""
    with folder.with_name(f"{folder.name}.archives.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        kinds = (BROKER, ZOOKEEPER) if folder.name == "kafka-3.9.2" else (BROKER,)
        archives = {kind: archive_of(folder, kind) for kind in kinds}
        if all(archive.exists() for archive in archives.values()):
            return
        for old in folder.parent.glob(f"{folder.name}-*.jsa*"):
            old.unlink()
        made = {kind: archive.with_suffix(".new") for kind, archive in archives.items()}
        with tempfile.TemporaryDirectory() as place:
            _use(folder.name.partition("-")[2], Path(place), made)
        for kind, path in made.items():
            path.rename(archives[kind])


def _use(version: str, place: Path, made: dict[str, Path]) -> None:
    """Let a broker do a little of everything."""
    from confluent_kafka import Consumer, Producer

    from .kafka import QUICK_JVM, Kafka39Broker, kafka_broker

    def flags(kind: str) -> tuple[str, ...]:
        return (*QUICK_JVM, *SILENT, f"-XX:ArchiveClassesAtExit={made[kind]}")

    config = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
    broker = kafka_broker(version, place / "broker", config=config, jvm=flags(BROKER))
    if isinstance(broker, Kafka39Broker):
        broker.zookeeper.jvm = flags(ZOOKEEPER)
    with broker:
        quiet = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        producer = Producer(quiet)
        producer.produce("words", b"one")
        if producer.flush(60):
            raise BrokerFailed("nothing was produced")
        del producer
        consumer = Consumer({**quiet, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["words"])
        consumer.poll(60)
        consumer.close()
        _end(broker.process)
        if isinstance(broker, Kafka39Broker):
            _end(broker.zookeeper.process)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """Let a JVM end by itself; its archive is then complete."""
    assert process is not None
    process.terminate()
    if process.wait(300) == -signal.SIGKILL:
        raise BrokerFailed("it was killed")


def main() -> None:
    """Make the archives that are missing, for the jars that are there."""
    from confluent_kafka import KafkaException

    from .kafka import JAVA_ROOM
    from .spark_start import make_archive

    for name in ("kafka-3.9.2", "kafka-4.3.0"):
        folder = JAVA_ROOM / "target" / name
        if jars_in(folder):
            try:
                make_archives(folder)
            except (OSError, BrokerFailed, KafkaException, subprocess.SubprocessError) as error:
                print(f"{name}: tests do without an archive of classes: {error}", file=sys.stderr)
    try:
        make_archive()
    except OSError as error:
        print(f"Spark: tests do without an archive of classes: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
