"""The native record walk compared with the one in Python: the same results for sound and damaged bodies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kwire import native
from kwire.records.record import write_record
from server.native.source import source_in, what_is_wrong
from tests.fuzz import fuzz_native
from tests.support.forms import NATIVE, form

ROOT = Path(__file__).parents[2]
INPUTS = 200_000 if os.environ.get("KWIRE_LONG") else 3_000


def test_damaged_bodies_are_told_from_sound_ones_as_in_python() -> None:
    with form("native"):
        sound = sum(fuzz_native.compare(*each) for each in fuzz_native.inputs(INPUTS, seed=1))
    assert INPUTS // 20 < sound < INPUTS * 9 // 10


def test_difference_between_the_forms_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NATIVE, "walk_records", lambda body, count: (0, 0, 0, True, True))
    with pytest.raises(AssertionError):
        fuzz_native.compare(write_record(0, 0, b"k", b"v"), 1)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(buffer: type) -> None:
    body = b"".join(write_record(n, 5 - n, b"k", None) for n in range(4))
    with form("native"):
        assert native.walk_records is not None
        assert native.walk_records(buffer(body), 4) == (2, 5, 0, True, False)
        assert native.walk_records(buffer(body), 3) is None


def test_native_module_is_switched_off_by_kwire_pure() -> None:
    program = "from server.event_loop import form_and_why; print(form_and_why())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "KWIRE_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    built = native.source or native.error.startswith("switched off")
    why = " (switched off by KWIRE_PURE=1)" if built else ""
    assert done.stdout == f"pure{why}\n"


def test_native_module_that_is_of_no_use_is_named(tmp_path: Path) -> None:
    def wrong(used: str, error: str) -> str:
        return what_is_wrong(tmp_path, folder, used, error)

    folder = tmp_path / "server" / "native"
    folder.mkdir(parents=True)
    (tmp_path / "kwire").mkdir()
    assert wrong("", "No module named 'kwire._native'") == ""
    other = folder / "_native.cpython-27-m68k.so"
    other.touch()
    assert wrong("", "No module named '_native'") == f"{other.name} is for another Python"
    assert wrong("", "undefined symbol") == "undefined symbol"
    assert wrong("12345678", "") == ""
    (folder / "_native.pyx").write_text("# rules")
    assert wrong("12345678", "") == "built from other sources"
    before = source_in(tmp_path)
    assert wrong(before, "") == ""
    for shared in ("kwire/_native_walk.pxi", "server/native/fetch.pxi"):
        (tmp_path / shared).write_text("# rules")
        assert wrong(before, "") == "built from other sources"
        before = source_in(tmp_path)
