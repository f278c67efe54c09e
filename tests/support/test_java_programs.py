"""A program in Java is compiled when its source or the jars have changed, and only then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import java_programs


def test_program_is_compiled_once_for_each_source_and_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def compile_it(source: Path, jars: Path, classes: Path) -> None:
        classes.mkdir()
        made.append(classes)

    monkeypatch.setattr(java_programs, "_compile", compile_it)
    source, jars = tmp_path / "Hello.java", tmp_path / "kafka-1"
    source.write_text("class Hello {}")
    jars.mkdir()
    (jars / "a.jar").touch()

    first = java_programs.compiled(source, jars)
    assert java_programs.compiled(source, jars) == first
    source.write_text("final class Hello {}")
    second = java_programs.compiled(source, jars)
    os.utime(jars / "a.jar", (1, 1))
    third = java_programs.compiled(source, jars)
    assert made == [first, second, third]
    assert len(set(made)) == 3
