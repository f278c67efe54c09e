"""How results are turned into cells, lists and complaints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compat import matrix
from compat.matrix import Result


@pytest.mark.parametrize(
    ("outcomes", "cell"),
    [
        (None, ""),
        ({}, ""),
        ({"a": "passed", "b": "passed"}, "yes"),
        ({"a": "passed", "b": "failed"}, "**no**"),
        ({"a": "skipped", "b": "failed"}, "**no**"),
        ({"a": "passed", "b": "skipped"}, ""),
    ],
)
def test_cell_is_yes_only_if_all_passed(outcomes: matrix.Outcomes | None, cell: str) -> None:
    assert matrix.mark(outcomes) == cell


def test_newest_version_comes_first(tmp_path: Path) -> None:
    for version in ("2.8.0", "2.16.1", "2.3.0"):
        content = {"client": "kcat", "version": version, "features": {"f": {"a": "passed"}}}
        (tmp_path / f"kcat-{version}.json").write_text(json.dumps(content))
    assert [result.version for result in matrix.load(tmp_path)] == ["2.16.1", "2.8.0", "2.3.0"]


def test_run_in_which_all_was_skipped_does_not_count(tmp_path: Path) -> None:
    content = {"client": "spark", "version": "4.0.0", "features": {"f": {"a": "skipped"}}}
    (tmp_path / "spark-4.0.0.json").write_text(json.dumps(content))
    assert matrix.load(tmp_path) == []


def test_tests_of_tools_are_rows_by_tool(tmp_path: Path) -> None:
    test = "tests/e2e/test_kafka_tools.py::test_log_dirs_show_it[3.9.2]"
    content = {"client": "java-tools", "version": "3.9.2", "features": {"tools": {test: "passed"}}}
    (tmp_path / "java-tools-3.9.2.json").write_text(json.dumps(content))
    assert matrix.load(tmp_path)[0].features == {"kafka-log-dirs": {test: "passed"}}


def test_client_without_results_keeps_its_table() -> None:
    kcat = Result("kcat", "1.7.1", {"errors": {"a": "passed"}})
    spark = Result("spark", "4.0.0", {"sink": {"b": "passed"}})
    both = matrix.render([kcat, spark], "")
    assert matrix.render([kcat], both) == both
    assert matrix.render([], both) == both
    changed = matrix.render([Result("kcat", "1.7.1", {"errors": {"a": "failed"}})], both)
    assert changed == both.replace("| errors | yes |", "| errors | **no** |")


def test_versions_are_columns() -> None:
    new = Result("kcat", "2.0.0", {"errors": {"a": "passed"}, "exchange": {"b": "passed"}})
    old = Result("kcat", "1.0.0", {"exchange": {"b": "failed"}})
    assert list(matrix.table([new, old])) == [
        "| feature | 2.0.0 | 1.0.0 |",
        "| --- | --- | --- |",
        "| errors | yes | |",
        "| exchange | yes | **no** |",
    ]


@pytest.mark.parametrize(
    ("allowed", "outcomes", "now", "wrong"),
    [
        ({"a"}, {"a": "passed", "b": "passed"}, {"a", "b"}, []),
        ({"a"}, {"a": "skipped"}, {"a"}, []),
        ({"a"}, {"a": "failed"}, {"a"}, ["a is in tests.allow and failed"]),
        ({"a"}, {"b": "passed"}, {"a", "b"}, ["a is in tests.allow and was not run"]),
        (set(), {"x::c": "failed"}, set(), ["x::c failed, and FINDINGS.md does not say why"]),
        (set(), {"x::known[1]": "failed"}, set(), []),
        (set(), {"a": "skipped"}, set(), []),
    ],
)
def test_list_grows_and_what_fails_is_named(
    allowed: set[str], outcomes: matrix.Outcomes, now: set[str], wrong: list[str]
) -> None:
    assert matrix.review(allowed, "`known` fails since ...", outcomes) == (now, wrong)


def test_worst_outcome_of_all_versions_counts() -> None:
    results = [
        Result("kcat", "2.0.0", {"f": {"a": "failed", "b": "passed"}}),
        Result("kcat", "1.0.0", {"f": {"a": "passed", "b": "passed"}}),
        Result("spark", "1.0.0", {"f": {"c": "passed"}}),
    ]
    assert matrix.outcomes_of("kcat", results) == {"a": "failed", "b": "passed"}
