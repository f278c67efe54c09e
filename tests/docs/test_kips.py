"""The states of KIPs follow from the served API versions, and rows name nothing that does not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.kips import SECTIONS, Kip, unknown_versions
from kwire.api import ApiKey

ROWS = [row for rows in SECTIONS.values() for row in rows]
SERVED = {ApiKey.PRODUCE: range(14), ApiKey.FETCH: range(18)}


@pytest.mark.parametrize(
    ("apis", "missing", "state"),
    [
        ("Produce 13", "", "Supported"),
        ("Produce 13, Fetch 17", "", "Supported"),
        ("Produce 13", "something", "Partial"),
        ("Produce 13, Fetch 18", "", "Partial"),
        ("Fetch 18", "", "Wire only"),
        ("ConsumerGroupHeartbeat 0", "", "Wire only"),
        ("", "", "Supported"),
    ],
)
def test_state_follows_from_what_is_served(apis: str, missing: str, state: str) -> None:
    assert Kip("1", "x", apis, missing=missing).state(SERVED) == state


def test_versions_that_are_not_served_are_named() -> None:
    assert Kip("1", "x", "Produce 13, Fetch 18").cells(SERVED)[-1] == "missing: Fetch 18"


def test_every_version_that_a_row_names_is_one_of_kafkas() -> None:
    assert unknown_versions(ROWS) == []
    assert unknown_versions([Kip("1", "x", "Fetch 99")]) == ["KIP-1: FETCH 99"]


def test_every_row_has_something_to_tell_its_state_by() -> None:
    assert [row for row in ROWS if not (row.apis or row.test or row.stated)] == []


def test_every_test_that_a_row_names_exists() -> None:
    tests = Path(__file__).parents[1]
    assert [row.test for row in ROWS if row.test and not (tests / row.test).is_file()] == []
