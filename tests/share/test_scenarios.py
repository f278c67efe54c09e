"""scenarios.toml: the scenarios of Apache Kafka's tests, and the tests here that show them of kwire."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FOLDERS = {"test_share_fetch": HERE.parent / "handlers"}
SCENARIOS: dict[str, dict[str, Any]] = tomllib.loads((HERE / "scenarios.toml").read_text())


@cache
def names_of_tests(module: str) -> frozenset[str]:
    """The names of the tests in a module."""
    tree = ast.parse((FOLDERS.get(module, HERE) / f"{module}.py").read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


@pytest.mark.parametrize("source", SCENARIOS)
def test_every_scenario_names_a_test_that_is_there(source: str) -> None:
    for scenario, test in SCENARIOS[source]["covered"].items():
        module, _, name = test.partition(".")
        assert name in names_of_tests(module), f"{scenario}: there is no {test}"


@pytest.mark.parametrize("source", SCENARIOS)
def test_every_scenario_is_covered_or_left_out_once(source: str) -> None:
    listed = SCENARIOS[source]
    left_out = [name for names in listed.get("left_out", {}).values() for name in names]
    names = [*listed["covered"], *left_out]
    assert len(names) == len(set(names)) == listed["count"]
