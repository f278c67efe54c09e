"""The two forms of the natively implemented functions (kwire/native.py, server/native), for tests that run in both or compare them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kwire import codec
from kwire import native as wire
from server import native
from server.native.source import sources_in

SOURCES = sources_in(Path(wire.__file__).parents[1])

#: Where each object is looked up, and that of the native form.
MODULES: dict[str, Any] = {
    name: module for module in (wire, native) for name in module.__annotations__
}
NATIVE = {name: getattr(module, name) for name, module in MODULES.items()}
PURE = dict.fromkeys(NATIVE)
#: The codecs that were compiled in each form.
CODECS: dict[str, dict[type, Any]] = {"native": {}, "pure": {}}


def built() -> bool:
    """Whether there are native modules; the test fails if one cannot be used, or was built from other sources."""
    wrong = native.wrong()
    if wrong and os.environ.get("KWIRE_PURE") != "1":
        pytest.fail(f"{wrong}: python setup.py build_ext -i")
    return None not in NATIVE.values()


def use(found: dict[str, Any]) -> None:
    for name, each in found.items():
        setattr(MODULES[name], name, each)


@contextmanager
def form(name: str) -> Iterator[None]:
    """Let everything within run in the form `native` or `pure`; the test is skipped where it is not built."""
    if name == "native" and not built():
        pytest.skip("the native modules are not built here")
    before = {each: getattr(module, each) for each, module in MODULES.items()}
    compiled = codec._codecs
    use(NATIVE if name == "native" else PURE)
    vars(codec)["_codecs"] = CODECS[name]
    try:
        yield
    finally:
        use(before)
        vars(codec)["_codecs"] = compiled
