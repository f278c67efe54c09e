"""The wheel, an environment with it, and folders in which users may call `kwire`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The sources of a wheel.
SOURCES = (
    *("bin", "kwire", "server", "pipeline", "testing"),
    *("pyproject.toml", "setup.py", "README.md", "LICENSE"),
)
#: What the installation of this tree has left.
MADE_BY_CYTHON = [
    ROOT / "build" / "native" / folder / "_native.c" for folder in ("kwire", "server/native")
]
#: Modules that many people have in the folder they work in. Importing one of ours by their name would find these.
USERS_OWN = (
    *("kwire", "server", "pipeline", "pyspark_kwire"),
    *("compat", "tests", "bench", "config", "handlers", "messages", "socket", "queue"),
)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first worker of this run to need it makes, and that all workers use."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = shared / name, shared / f"{name}.made"
    with (shared / f"{name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of an attempt that failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        # A copy, because a build leaves files next to the sources.
        source = tmp_path_factory.mktemp("source")
        copy_sources(source)
        # Optimizing takes most of the time, and no test measures what this wheel has.
        compiler = tmp_path_factory.mktemp("compiler") / "cc"
        compiler.write_text('#!/bin/sh\nexec cc "$@" -O0 -g0\n')
        compiler.chmod(0o755)
        words = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
        pip("wheel", *words, CC=str(compiler))

    (built,) = made_once(tmp_path_factory, "wheel", make).glob("kwire-*.whl")
    return built


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; kwire's dependencies come from this environment."""

    def make(folder: Path) -> None:
        venv.create(folder, with_pip=False)
        pip("--python", str(folder / "bin" / "python"), "install", "--no-deps", str(wheel))
        (ours,) = folder.glob("lib/python*/site-packages")
        theirs = next(path for path in sys.path if path.endswith("site-packages"))
        # Behind our own, and without the editable kwire that their .pth files would bring.
        (ours / "borrowed.pth").write_text(theirs + "\n")

    return made_once(tmp_path_factory, "environment", make)


@pytest.fixture
def users_folder(tmp_path: Path) -> Path:
    """A folder with packages and modules of the user's own."""
    for name in USERS_OWN:
        (tmp_path / name).mkdir()
        text = f"raise SystemExit('the user's {name} was imported')\n"
        (tmp_path / name / "__init__.py").write_text(text)
    return tmp_path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The part of a clone in the working directory there."""
    copy_sources(tmp_path)
    return tmp_path


def copy_sources(folder: Path) -> None:
    """Copy what a wheel is built from, and the C code that Cython made of the native module, if this tree has it.

    The copies keep their times, so Cython does its work again where a source is newer than the C code.
    """
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, folder)
    for made in filter(Path.exists, MADE_BY_CYTHON):
        to = folder / made.relative_to(ROOT)
        to.parent.mkdir(parents=True)
        shutil.copy2(made, to)


def pip(*arguments: str, **variables: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, env={**os.environ, **variables})
