"""Expressions of clients: their matches, and the limit on the time of matching."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.coordinator.common.pattern import InvalidPattern, Pattern, matching
from tests.support.cpu_time import cpu_time

TEXTS = ["", "a", "b", "ab", "aab", "my-", "my-12", "my-é", "a\nb", "A", "1.a", "${}", "\N{HORSE}"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", [""]),
        ("my-.*", ["my-", "my-12", "my-é"]),
        ("my-[0-9]+", ["my-12"]),
        ("my-.", ["my-é"]),  # a character, not a byte
        ("a.b", ["aab"]),  # no end of a line
        ("(?s)a.b", ["aab", "a\nb"]),
        ("(?i)a", ["a", "A"]),
        (r"\d\.\w", ["1.a"]),
        (r"\Q${}\E", ["${}"]),
        ("[[:alpha:]]", ["a", "b", "A"]),
        (r"\p{So}", ["\N{HORSE}"]),
        ("^a?b$", ["b", "ab"]),
    ],
)
def test_expression_of_re2_matches_whole_texts(expression: str, expected: list[str]) -> None:
    pattern = Pattern(expression)
    assert [text for text in TEXTS if pattern.matches(text)] == expected
    assert matching(expression, TEXTS) == [text in expected for text in TEXTS]


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "(a|b)", "(?:ab)", r"\w"])
pieces = st.tuples(atoms, st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}"])).map("".join)


@given(st.lists(pieces, max_size=5).map("".join), st.text("abc", max_size=8))
def test_any_expression_matches_what_it_matches_elsewhere(expression: str, text: str) -> None:
    assert Pattern(expression).matches(text) is (re.fullmatch(expression, text) is not None)


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "a)", "[", "[a", "*", "\\", "(?=a)", r"(a)\1", r"\p{Nothing}", "a{3,2}"),
        *("a{1001}", "[b-a]", "(((a{9}){99}){99}){99}", "(" * 2000),
        r"[\pL\pN]{500}",  # valid, but too large
        "\ud800",
    ],
)
def test_what_is_no_expression_is_refused(expression: str, capfd: pytest.CaptureFixture) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(expression)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("expression", ["(a*)*(a|aa)+b", "(.*a?){1000}b", "((a?){30}){30}" * 10])
def test_time_grows_with_the_text_only(expression: str) -> None:
    """Python's own engine would need more steps for this than there are atoms."""
    with cpu_time() as taken:
        assert not Pattern(expression).matches("a" * 9000 + "c")
    assert taken.seconds < 1
