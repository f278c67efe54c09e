"""Plans of `kwire reassign`."""

from __future__ import annotations

import pytest

from server.cli.reassign import parse_log_dirs, parse_plan, plan_json, throttled_replicas


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
        ("[]", "not a plan"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "t"}]}', "partition 1 of the list"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "are empty"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "twice"),
    ],
)
def test_plan_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_plan(text)


def test_log_directories_of_a_plan_are_read() -> None:
    text = """{"version":1,"partitions":[
      {"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["/a","any"]},
      {"topic":"t","partition":1,"replicas":[2,1],"log_dirs":["/b","/a"]},
      {"topic":"t","partition":2,"replicas":[1]}]}"""
    assert parse_log_dirs(text) == {1: {("t", 0): "/a", ("t", 1): "/a"}, 2: {("t", 1): "/b"}}


@pytest.mark.parametrize(
    ("log_dirs", "said"),
    [
        ('["/a"]', "one for each replica"),
        ('"/a"', "one for each replica"),
        ('[1, "any"]', "one for each"),
        ('["a", "any"]', "not an absolute path"),
    ],
)
def test_log_directories_that_cannot_be_meant_are_refused(log_dirs: str, said: str) -> None:
    row = f'{{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":{log_dirs}}}'
    with pytest.raises(ValueError, match=said):
        parse_log_dirs(f'{{"partitions":[{row}]}}')


def test_sources_and_new_replicas_are_throttled() -> None:
    now = {("t", 0): [1, 2], ("t", 1): [2, 3], ("u", 0): [1]}
    plan = {("t", 0): [2, 3], ("t", 1): [2, 3], ("u", 0): [4]}
    assert throttled_replicas(now, plan) == {
        "t": ("0:1,0:2,1:2,1:3", "0:3"),
        "u": ("0:1", "0:4"),
    }


@pytest.mark.parametrize("text", ["[" * 100_000, '{"partitions": ' + "9" * 5_000 + "}"])
def test_plan_that_python_cannot_read_is_no_plan(text: str) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        parse_plan(text)
