"""The two forms of the natively implemented functions (kwire/native.py), for tests that run in both or compare them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kwire import codec, native
from server.native_source import what_is_wrong

SOURCE = Path(native.__file__).with_name("_native.pyx")
SOURCES = [SOURCE, *sorted(SOURCE.parent.glob("_native_*.pxi"))]

NAMES = tuple(native.__annotations__)
#: The objects of each form, by where they are looked up.
NATIVE = {name: getattr(native, name) for name in NAMES}
PURE = dict.fromkeys(NATIVE)
#: The codecs that were compiled in each form.
CODECS: dict[str, dict[type, Any]] = {"native": {}, "pure": {}}


def built() -> bool:
    """Whether there is a native module; the test fails if it cannot be used, or was built from other sources."""
    wrong = what_is_wrong(SOURCE.parent, native.source, native.error)
    if wrong and os.environ.get("KWIRE_PURE") != "1":
        pytest.fail(f"kwire._native: {wrong}: python setup.py build_ext -i")
    return NATIVE["walk_records"] is not None


@contextmanager
def form(name: str) -> Iterator[None]:
    """Let everything within run in the form `native` or `pure`; the test is skipped where it is not built."""
    if name == "native" and not built():
        pytest.skip("kwire._native is not built here")
    before = {each: getattr(native, each) for each in NATIVE}
    compiled = codec._codecs
    vars(native).update(NATIVE if name == "native" else PURE)
    vars(codec)["_codecs"] = CODECS[name]
    try:
        yield
    finally:
        vars(native).update(before)
        vars(codec)["_codecs"] = compiled
