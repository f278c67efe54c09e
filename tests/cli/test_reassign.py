"""Plans of `kwire reassign`."""

from __future__ import annotations

import pytest

from server.cli.reassign import parse_plan, plan_json, throttled_replicas


def test_plan_is_read_back() -> None:
    plan = {("t", 1): [2, 3], ("t", 0): [1, 2]}
    assert parse_plan(plan_json(plan)) == plan


def test_plan_of_kafkas_tool_is_read() -> None:
    text = """{"version":1,"partitions":[
      {"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}"""
    assert parse_plan(text) == {("t", 0): [1, 2]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "no plan"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "t"}]}', "partition 1 of the list"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "are empty"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "twice"),
    ],
)
def test_plan_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_plan(text)


def test_sources_and_new_replicas_are_throttled() -> None:
    now = {("t", 0): [1, 2], ("t", 1): [2, 3], ("u", 0): [1]}
    plan = {("t", 0): [2, 3], ("t", 1): [2, 3], ("u", 0): [4]}
    assert throttled_replicas(now, plan) == {
        "t": ("0:1,0:2,1:2,1:3", "0:3"),
        "u": ("0:1", "0:4"),
    }
