"""Listings as people read them."""

from __future__ import annotations

from server.cli.output import cell


def test_names_that_clients_chose_do_not_reach_the_terminal_as_commands() -> None:
    assert cell("g\x1b[2J\nforged\x9b") == "g\\x1b[2J\\x0aforged\\x9b"
    assert cell(["ä", "\r"]) == "ä,\\x0d"
