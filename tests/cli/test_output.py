"""Listings as people read them."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace

import pytest

from server.cli.brokers import refusals
from server.cli.explain import show
from server.cli.output import cell, show_rows
from server.explain.answers import Answer


def test_names_that_clients_chose_do_not_reach_the_terminal_as_commands() -> None:
    assert cell("g\x1b[2J\nforged\x9b") == "g\\x1b[2J\\x0aforged\\x9b"
    assert cell(["ä", "\r"]) == "ä,\\x0d"


def test_lines_with_names_that_clients_chose_do_not_reach_the_terminal_as_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = "g\x1b]0;owned\x07"
    show_rows(Namespace(output="table"), ["n"], [[1]], f"{hostile}  Stable")
    row = SimpleNamespace(error_code=30, error_message=f"not {hostile}", name=hostile)
    assert refusals([row]) == 1
    answer = Answer(
        "group", "group_stable", f"Group {hostile} is stable.", advice=f"kwire {hostile}"
    )
    show([answer], Namespace(output="table", what=[]))
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert "g\\x1b]0;owned\\x07" in text
        assert "\x1b" not in text and "\x07" not in text
