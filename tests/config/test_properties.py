"""Java's .properties format."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.config.properties import PropertiesError, parse_properties, read_properties


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


@pytest.mark.parametrize(
    "written", [b"a=1\nb=\xc3\xa9", b"\xef\xbb\xbfa=1\nb=\xc3\xa9", b"a=1\nb=\xe9"]
)
def test_file_is_utf_8_with_or_without_a_mark_or_else_what_java_reads(
    tmp_path: Path, written: bytes
) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(written)
    assert read_properties(str(path)) == {"a": "1", "b": "é"}


@pytest.mark.parametrize("written", [b"a=1\nb=x\0y", b"a=1\nb=x\\u0000y", b"a=1\nb\0=x"])
def test_nul_is_refused_with_its_file_and_line(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(written)
    with pytest.raises(PropertiesError, match=r"server\.properties: .*line 2 contains NUL"):
        read_properties(str(path))
