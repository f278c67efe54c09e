"""Child processes of the command, started in a folder whose names shadow installed packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTECTED = "from server.__main__ import protect_children; protect_children()"
#: As a broker does for recovery and compaction.
SPAWN = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
with ProcessPoolExecutor(1, get_context("spawn")) as pool:
    print(pool.submit(int, "7").result())
"""
#: As `kwire cluster` does, and Spark, through Java.
MODULE = """
import subprocess
command = [sys.executable, "-m", sys.argv[1], "--version"]
print(subprocess.run(command, capture_output=True, text=True).stdout)
"""


@pytest.fixture
def users_folder(tmp_path: Path) -> Path:
    """A folder with packages named like ours, and a module named like one of the standard library."""
    folder = tmp_path / "work"
    for name in ("kwire", "server", "pipeline"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('a user package')\n")
    (folder / "socket.py").write_text("raise SystemExit('a user module')\n")
    return folder


def run(folder: Path, program: str, *words: str) -> str:
    """Run a program in the folder as the installed `kwire` runs: from a file elsewhere, which imports nothing there."""
    path = folder.parent / "program"
    lines = "\n    ".join(program.strip().splitlines())
    path.write_text(
        f"import sys\nsys.path.append({str(ROOT)!r})\nif __name__ == '__main__':\n    {lines}\n"
    )
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, str(path), *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def test_worker_process_imports_nothing_of_the_working_directory(users_folder: Path) -> None:
    assert run(users_folder, PROTECTED + SPAWN) == "7"


@pytest.mark.parametrize("module", ["server", "kwire.server"])
def test_module_that_a_child_runs_is_ours(users_folder: Path, module: str) -> None:
    assert run(users_folder, PROTECTED + MODULE, module).startswith("kwire ")


@pytest.mark.parametrize("program", [SPAWN, MODULE])
def test_child_takes_what_the_working_directory_has_without_protection(
    users_folder: Path, program: str
) -> None:
    """Shows that the other tests can fail."""
    assert run(users_folder, program, "server") == ""


def test_worker_process_does_not_run_the_command_again() -> None:
    """It imports the script of the process that started it, under another name. Source: multiprocessing.spawn."""
    program = (
        "import runpy, sys\n"
        "runpy.run_path(sys.argv[1], run_name='__mp_main__')\n"
        "print([name for name in sys.modules if name.startswith('kwire')])\n"
    )
    command = [sys.executable, "-c", program, str(ROOT / "bin" / "kwire"), "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
