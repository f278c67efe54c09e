"""The programs in compat/java, compiled once: `java File.java` compiles the file at each start, which takes seconds of CPU time."""

from __future__ import annotations

import subprocess
import tempfile
from fcntl import LOCK_EX, flock
from pathlib import Path

from .class_archives import jars_in, key_of
from .kafka import JAVA_ROOM, QUICK_JVM, jars_or_skip, java_command


def java_program(
    name: str, version: str, *, flags: tuple[str, ...] = QUICK_JVM, room: str = "kafka"
) -> list[str]:
    """The command line of a program, with the class path of one Apache Kafka release; it is compiled if it has changed."""
    command = java_command(version, flags=flags, room=room)
    classes = compiled(JAVA_ROOM / f"{name}.java", jars_or_skip(f"{room}-{version}"))
    # Behind the jars, since an archive of classes counts only for class paths that begin with its own.
    command[-1] += f":{classes}"
    return [*command, name]


def compiled(source: Path, jars: Path) -> Path:
    """The folder with the classes of a source file, compiled with these jars."""
    start = f"{jars.name}-{source.stem}-"
    classes = jars.with_name(start + key_of(jars, source.read_text()))
    if classes.exists():
        return classes
    with jars.with_name(f"{start}lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not classes.exists():
            _compile(source, jars, classes)
    return classes


def _compile(source: Path, jars: Path, classes: Path) -> None:
    with tempfile.TemporaryDirectory(dir=jars.parent) as place:
        made = Path(place, "classes")
        # Where `javac` is not installed, its module often is.
        command = ["java", *QUICK_JVM, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        path = ":".join(map(str, jars_in(jars)))
        options = ["-nowarn", "-proc:none", "-cp", path, "-d", str(made)]
        done = subprocess.run(
            [*command, *options, str(source)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        made.rename(classes)
