"""The programs that the benchmark builds into bench/.cache when needed."""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.support.broker_process import BrokerFailed

BENCH = Path(__file__).parents[1]
CACHE = BENCH / ".cache"
GO_SOURCES = BENCH / "go"
C_SOURCE = Path(__file__).with_name("limits.c")


class Missing(Exception):
    """A tool that a measurement needs is not on this machine; the message says which."""


#: Errors that end one measurement or one section, but not the others.
TROUBLE: tuple[type[Exception], ...] = (
    BrokerFailed,
    RuntimeError,
    OSError,
    subprocess.SubprocessError,
)


def _stamp(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _built(name: str, sources: list[Path], tool: str, command: list[str], cwd: Path) -> Path:
    """Return the program, after building it unless its sources are unchanged."""
    target = CACHE / f"{name}-{_stamp(sources)}"
    if target.exists():
        return target
    if shutil.which(tool) is None:
        raise Missing(f"needs `{tool}`")
    CACHE.mkdir(exist_ok=True)
    partial = target.with_suffix(".partial")
    done = subprocess.run(
        [*command, "-o", str(partial), *([str(C_SOURCE)] if tool == "cc" else ["."])],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Missing(f"`{tool}` cannot build {name}: {done.stderr.strip()[-300:]}")
    for old in CACHE.glob(f"{name}-*"):
        if old != partial:
            old.unlink()
    return partial.rename(target)


@functools.cache
def go_program() -> Path:
    """The load generator in bench/go. Errors: Missing."""
    sources = [path for path in GO_SOURCES.iterdir() if path.suffix in (".go", ".mod", ".sum")]
    return _built("kwire-load", sources, "go", ["go", "build"], GO_SOURCES)


@functools.cache
def limits_program() -> Path:
    """limits.c. Errors: Missing."""
    return _built("limits", [C_SOURCE], "cc", ["cc", "-O2"], BENCH)
