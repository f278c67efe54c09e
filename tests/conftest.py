"""Settings for all tests: stages in order with their times, and how hard Hypothesis looks."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

#: Stage -> markers that put a test there; the first that fits counts, the rest is "unit".
STAGES = (
    ("spark", ("spark",)),
    ("java", ("jvm", "zookeeper")),
    ("clients", ("e2e",)),
    ("slow", ("slow",)),
)
ORDER = ("unit", "slow", "clients", "java", "spark")

IN_CI = os.environ.get("CI", "").lower() == "true"

# Where a change is judged, by the same examples each time; at a desk, by new ones.
settings.register_profile("quick", max_examples=50, deadline=None, derandomize=IN_CI)
settings.register_profile(
    "long", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

STAGE_SECONDS: dict[str, float] = {}
STAGE_TESTS: dict[str, int] = {}


def stage_of(item: pytest.Item) -> str:
    """The stage a test belongs to."""
    for stage, markers in STAGES:
        if any(item.get_closest_marker(marker) for marker in markers):
            return stage
    return "unit"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick stages first, and in them what takes longest; otherwise the random order stays."""
    # Workers take file after file: a long one that began last would run alone at the end.
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (ORDER.index(stage_of(item)), item.path not in long))


def pytest_collection_finish() -> None:
    """Leave what thousands of collected tests are made of out of each later round of the garbage collector."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Add up the time of each stage, fixtures included."""
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        stage = stage_of(item)
        STAGE_SECONDS[stage] = STAGE_SECONDS.get(stage, 0.0) + time.perf_counter() - started
        STAGE_TESTS[stage] = STAGE_TESTS.get(stage, 0) + 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its times over."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["stages"] = (STAGE_SECONDS, STAGE_TESTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add up what the workers took."""
    seconds, tests = getattr(node, "workeroutput", {}).get("stages", ({}, {}))
    for stage in seconds:
        STAGE_SECONDS[stage] = STAGE_SECONDS.get(stage, 0.0) + seconds[stage]
        STAGE_TESTS[stage] = STAGE_TESTS.get(stage, 0) + tests[stage]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each stage that ran; with workers, the sum of their times."""
    for stage in ORDER:
        if stage in STAGE_SECONDS:
            count, seconds = STAGE_TESTS[stage], STAGE_SECONDS[stage]
            terminalreporter.write_line(f"stage {stage}: {count} tests in {seconds:.1f} s")
