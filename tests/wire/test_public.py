"""The names that kwire exports, and the cost of importing it."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import kwire


def test_public_names_are_those_listed() -> None:
    found = {
        name
        for name in dir(kwire)
        if not name.startswith("_")
        and not isinstance(getattr(kwire, name), ModuleType)
        and name != "annotations"
    }
    assert found == set(kwire.__all__)
    assert set(kwire.__all__) <= set(run("import kwire; print(*dir(kwire))").split())


def test_every_public_name_is_documented() -> None:
    for name in kwire.__all__:
        value = getattr(kwire, name)
        assert isinstance(value, bytes) or value.__doc__, name


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_importing_kwire_imports_no_message_and_nothing_heavy() -> None:
    modules = run("import sys, kwire; print(*sys.modules)").split()
    loaded = [name for name in modules if name.startswith("kwire.messages.")]
    assert loaded == []
    heavy = {"asyncio", "dataclasses", "inspect", "socket", "ssl", "uuid", "zstandard", "lz4"}
    assert heavy.isdisjoint(modules)


def test_asking_for_an_api_imports_that_api_alone() -> None:
    modules = run(
        "import sys; from kwire import *; request_class(ApiKey.FETCH); print(*sys.modules)"
    ).split()
    loaded = {name for name in modules if name.startswith("kwire.messages.")}
    assert loaded == {"kwire.messages.headers", "kwire.messages.fetch"}
