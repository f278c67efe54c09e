"""Expressions of clients: what they match, and that they cannot take long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.coordinator.pattern import InvalidPattern, Pattern

EXPRESSIONS = [
    "",
    "a",
    "my-.*",
    "my-[0-9]+",
    "(a|b)*c?",
    "a{2,3}b{1}",
    "a{2,}",
    "[^ab]+",
    r"\d+\.\w*",
    r"[\w.-]+",
    "^ab$",
    "a|^$|bc",
    "(?:ab)+?",
    "x*?y",
    "[]a]+",
    "[a-]",
    "a{,2}",
    r"\$\{\}",
    "(a*)*b",
    "()",
]
TEXTS = [
    "", "a", "b", "ab", "aab", "aaab", "abab", "c", "abc", "my-", "my-12", "my-x", "1.a", "12.",
    "xxy", "]a", "-", "a{,2}", "${}", "aaaa", "\n", "bc", "a-b.c",
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression_matches_what_it_matches_elsewhere(expression: str) -> None:
    expected = [text for text in TEXTS if re.fullmatch(expression.replace("$", r"\Z"), text)]
    if "{,2}" in expression:  # of which Python makes a repetition and RE2 does not
        expected = ["a{,2}"]
    if expression == r"\$\{\}":
        expected = ["${}"]
    pattern = Pattern(expression)
    assert [text for text in TEXTS if pattern.matches(text)] == expected


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "(a|b)", "(?:ab)", r"\w"])
pieces = st.tuples(atoms, st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}"])).map("".join)


@given(st.lists(pieces, max_size=5).map("".join), st.text("abc", max_size=8))
def test_any_expression_matches_what_it_matches_elsewhere(expression: str, text: str) -> None:
    assert Pattern(expression).matches(text) is (re.fullmatch(expression, text) is not None)


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "a)", "[", "[a", "*", "a**", "\\", r"\b", r"\p{L}", "(?i)a", "(?=a)", r"(a)\1"),
        *("a{3,2}", "a{1001}", "[b-a]", "[[:alpha:]]", "(((a{9}){99}){99}){99}", "(" * 200, "a|*"),
        "a{" + "9" * 5000 + "}",
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(expression)


def test_time_grows_with_the_text_only() -> None:
    """Python's own engine would need 2**60 steps for this."""
    pattern = Pattern("(a*)*(a|aa)+b")
    began = time.process_time()
    assert not pattern.matches("a" * 60)
    assert time.process_time() - began < 1
