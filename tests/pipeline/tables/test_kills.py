"""The commits of tables while the process that makes them is killed: each record is in the tables once.

Without Spark: a process archives small batches and lets both tables follow, repeatedly, until it is killed at any
moment. KWIRE_LONG=1 kills it 40 times, KWIRE_KILLS=N N times; KWIRE_SEED=N chooses when.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kwire.pipeline.manifest import Archive
from kwire.pipeline.tables.place import TablePlace

from ...support.broker_process import REPOSITORY
from ..archive_model import archived, digest
from .table_model import (
    BOTH,
    add_batch,
    follow,
    in_table,
    options_of,
    ranges_follow,
    ranges_of,
)

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
KILLS = int(os.environ.get("KWIRE_KILLS", "40" if LONG else "2"))
SEED = int(os.environ.get("KWIRE_SEED", "0")) or random.randrange(1, 1 << 30)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(KILLS * 60 + 120)]


def work(path: Path) -> None:
    """Archive and follow until killed; a line for each batch."""
    while True:
        add_batch(path, 20, batch=Archive(path).number + 1 if (path / "_archive").exists() else 0)
        print("archived", flush=True)
        follow(path)


def test_tables_of_killed_processes_have_each_record_once(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    path = tmp_path / "archive"
    behind = dict.fromkeys(BOTH, 0)
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(path)], cwd=REPOSITORY, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        with process.stdout:
            # Past the start, which imports for longer than a commit takes.
            for _ in range(chance.randrange(1, 4)):
                assert process.stdout.readline() == b"archived\n"
            time.sleep(chance.uniform(0, 0.4))
            process.kill()
            process.wait()
        for format in BOTH:
            place = TablePlace(Archive(path), options_of())
            table = place.table(format, "orders")
            state = table.state() if table.open(create=False) else None
            behind[format] += state is None or state.commit != Archive(path).number
            place.close()
    follow(path)
    wanted = archived(path)
    for format in BOTH:
        assert digest(in_table(path, format)) == digest(wanted)
        said = ranges_of(path, format)
        assert ranges_follow(said)
        print(
            f"seed {SEED}: {KILLS} kills, {behind[format]} with the {format} table behind the archive, {len(wanted):,} records,"
            f" {len(said)} commits of the table, sha256 {digest(wanted)[:16]}"
        )


if __name__ == "__main__":
    work(Path(sys.argv[1]))
