"""What forks Spark's Python workers, in place of `pyspark.daemon`, so that a task costs less before it begins.

Before each task a worker forgets what it knows of the folders on its path. Of an archive it reads the whole table of
contents again, in Python since 3.10, and of `pyspark.zip` once for each package that was imported from there: 100 ms and
more. So PySpark is taken from its folder, and the jar that Spark puts on the path, without Python in it, is left out. After
each task a worker collects garbage; what was imported before it was forked need not be looked through. So what most workers
import is imported here.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

ARCHIVE = ("python", "lib", "pyspark.zip")
JAR = "spark-core_*.jar"


def unpacked(entry: str) -> str:
    """The folder with the PySpark of that archive; an entry of the path for which there is none stays as it is."""
    path = Path(entry)
    if path.parts[-3:] == ARCHIVE:
        home = path.parents[2]
        if (home / "python" / "pyspark" / "daemon.py").exists():  # Spark as it is downloaded
            return str(home / "python")
        if home.name == "pyspark" and (home / "daemon.py").exists():  # as pip installs it
            return str(home.parent)
    return entry


def without_archives(entries: Sequence[str]) -> list[str]:
    """The path without PySpark's archive and Spark's jar, in the same order.

    What pip installed lies in a folder with other packages. That keeps its place: what PYTHONPATH names goes before it.
    """
    found = []
    for entry in entries:
        folder = unpacked(entry)
        if Path(entry).match(JAR) or (folder != entry and folder in entries):
            continue
        found.append(folder)
    return found


def leave_archives() -> None:
    """Let this process of Spark's, which another has forked, find PySpark in its folder from now on."""
    sys.path[:] = without_archives(sys.path)
    for entry in [*sys.path_importer_cache]:
        if "/".join(ARCHIVE) in entry or Path(entry).match(JAR):
            del sys.path_importer_cache[entry]


def main() -> None:
    """Be `pyspark.daemon`."""
    leave_archives()
    for name in ("numpy", "pyarrow", "kwire.pipeline.segments.source"):
        importlib.import_module(name)
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
