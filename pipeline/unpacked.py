"""Lets Python processes of Spark's import PySpark from its folder, not from the archive that Spark puts on their path first.

From `pyspark.zip` it is compiled anew in each process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

ARCHIVE = ("python", "lib", "pyspark.zip")
JAR = "spark-core_*.jar"


def unpacked(entry: str) -> str:
    """The folder with the same PySpark as that archive; an entry without such a folder is returned unchanged."""
    path = Path(entry)
    if path.parts[-3:] == ARCHIVE:
        home = path.parents[2]
        if (home / "python" / "pyspark" / "daemon.py").exists():  # Spark as downloaded
            return str(home / "python")
        if home.name == "pyspark" and (home / "daemon.py").exists():  # PySpark as pip installs it
            return str(home.parent)
    return entry


def without_archives(entries: Sequence[str]) -> list[str]:
    """The path without PySpark's archive and Spark's jar, in the same order.

    PySpark installed by pip is in a folder with other packages. That folder keeps its place, after what PYTHONPATH names.
    """
    found = []
    for entry in entries:
        folder = unpacked(entry)
        if Path(entry).match(JAR) or (folder != entry and folder in entries):
            continue
        found.append(folder)
    return found


def leave_archives() -> None:
    """Make this process, which Spark has forked elsewhere, find PySpark in its folder from now on."""
    sys.path[:] = without_archives(sys.path)
    for entry in [*sys.path_importer_cache]:
        if "/".join(ARCHIVE) in entry or Path(entry).match(JAR):
            del sys.path_importer_cache[entry]
