"""The tests of compat/testing in Java, Go and Node, each with a broker that it commands by HTTP."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "compat" / "testing"


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip where a language is not there."""
    missing = [each for each in programs if shutil.which(each) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A search path with the command kwire."""
    kwire = tmp_path / "bin" / "kwire"
    kwire.parent.mkdir()
    kwire.write_text(f'#!/bin/sh\nexec {sys.executable} -m kwire.server "$@"\n')
    kwire.chmod(0o755)
    return f"{kwire.parent}:{os.environ['PATH']}"


def run(command: list[str], folder: Path, path: str, reach: str = "") -> str:
    """The output of a command that has to succeed.

    Shape: if its output has `reach`, the libraries cannot be fetched here, and the test is skipped.
    """
    environment = os.environ | {"PATH": path}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    said = ran.stdout + ran.stderr
    if ran.returncode and reach and reach in said:
        pytest.skip(f"the libraries cannot be fetched: {said.strip().splitlines()[-1]}")
    assert ran.returncode == 0, said
    return said


@pytest.mark.jvm
@needs("java", "javac", "mvn")
def test_junit_commands_the_broker(path: str, tmp_path: Path) -> None:
    said = run([str(ROOT / "java" / "run.sh"), str(tmp_path / "classes")], ROOT / "java", path)
    assert "[         3 tests successful      ]" in said


@pytest.mark.e2e
@needs("go")
def test_go_commands_the_broker(path: str) -> None:
    run(["go", "mod", "download"], ROOT / "go", path, reach="dial tcp")
    assert "--- PASS: TestOrders" in run(["go", "test", "-count=1", "-v", "."], ROOT / "go", path)


@pytest.mark.e2e
@needs("node", "npm")
def test_node_commands_the_broker(path: str, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    shutil.copytree(ROOT / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"]
    run(command, folder, path, reach="network")
    assert "# pass 3" in run(["npm", "test"], folder, path)
