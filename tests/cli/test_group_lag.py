"""The lag that `kwire groups describe` shows."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest

from server.cli.groups import show_partitions
from server.explain.facts import GroupFacts, GroupPartition

FACTS = GroupFacts(
    "readers",
    0,
    state="Empty",
    partitions=(
        GroupPartition("recreated", 0, 500, end=1),
        GroupPartition("transactional", 0, 2, end=3, markers=1),
        GroupPartition("transactional", 1, 2, end=4, markers=2),
        GroupPartition("plain", 0, 2, end=3),
    ),
)


def test_lag_is_shown_with_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    show_partitions(Namespace(output="json"), FACTS)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["lag"], row["note"]) for row in rows] == [
        (-499, "beyond the end of the log"),
        (1, "only a transaction marker"),
        (2, "only transaction markers"),
        (1, None),
    ]
    show_partitions(Namespace(output="table"), FACTS)
    out = capsys.readouterr().out
    assert "-499" in out
    assert "only a transaction marker" in out


def test_table_without_notes_has_no_column_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    show_partitions(Namespace(output="table"), GroupFacts("g", 0, partitions=FACTS.partitions[-1:]))
    assert "note" not in capsys.readouterr().out.lower()
