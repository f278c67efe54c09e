"""Values of settings that others send: their forms, and the time that reading them takes."""

from __future__ import annotations

import pytest

from server.config.tables import BROKER
from tests.support.cpu_time import cpu_time


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" a , b\t,\nc ", ["a", "b", "c"]),
        ("a,,b,", ["a", "", "b", ""]),
        ("a b", ["a b"]),
    ],
)
def test_list_is_split_at_its_commas(text: str, words: list[str]) -> None:
    assert BROKER["sasl.enabled.mechanisms"].convert(text) == words


def test_list_of_many_blanks_takes_time_in_proportion_to_its_length() -> None:
    with cpu_time() as taken, taken.piece():
        BROKER["sasl.enabled.mechanisms"].convert("a" + " " * 100_000 + "b")
    assert taken.seconds < 0.1
