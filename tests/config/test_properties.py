"""Java's .properties format."""

from __future__ import annotations

import pytest

from server.config.properties import PropertiesError, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a: b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("  a  =  b  ", {"a": "b  "}),
        ("# no\n! neither\n\na=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b,\\\n    c,\\\n    d", {"a": "b,c,d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\u0041\\tx", {"a": "A\tx"}),
        ("a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("log.dirs=C\\:\\\\data", {"log.dirs": "C:\\data"}),
        ("a=b\\", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("a=x # not a comment", {"a": "x # not a comment"}),
    ],
)
def test_text_gives_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_broken_unicode_escape_names_its_line() -> None:
    with pytest.raises(PropertiesError, match=r"line 2: \\u12 is not"):
        parse_properties("a=1\nb=\\u12")
