"""The forms of `kwire consume`, and the JSON that `kwire produce` reads back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.records.record import Record
from server.cli.record_format import (
    FormatError,
    JsonRecord,
    PrintForm,
    Source,
    formatter,
    from_json,
    kafka_formatter,
)

SOURCE = Source("t", 1, 0)


def record(**changes: Any) -> Record:
    return Record(2, 3, b"k", b"\xff", [("h", b"x"), ("h", None)])._replace(**changes)


def printed(form: PrintForm, shown: Record) -> bytes:
    """The output for a record; the shorter path for values must produce the same."""
    text = form.one(shown, SOURCE)
    if form.around is not None:
        before, after, null = form.around
        assert text == before + (null if shown.value is None else shown.value) + after
    return text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("value", b"\xff\n"),
        ("key-value", b"k\t\xff\n"),
        (r"%t[%p]@%o %T %k(%K)=%s(%S) %h 100%%\n", b"t[1]@2 3 k(1)=\xff(1) h=x,h=NULL 100%\n"),
        (r"%R%s\x00\t\\", b"\0\0\0\1\xff\0\t\\"),
        (r"<%s>%%\n", b"<\xff>%\n"),
    ],
)
def test_record_is_printed_in_each_form(form: str, text: bytes) -> None:
    assert printed(formatter(form), record()) == text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("value", b"\n"),
        ("key-value", b"\t\n"),
        ("%k%s|%K %S", b"|-1 -1"),
        ("%R", b"\xff\xff\xff\xff"),
    ],
)
def test_tombstone_without_key_is_printed_in_each_form(form: str, text: bytes) -> None:
    assert printed(formatter(form), record(key=None, value=None)) == text


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("jsn", "'jsn' is neither value, key-value, json nor"),
        ("%q", "%q is not one of %s %S"),
        ("%s%", "% is not one of"),
        (r"%s\q", r"\\q is not one of"),
        (r"%s\xg", r"\\x is not one of"),
    ],
)
def test_form_that_cannot_be_meant_is_refused(form: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        formatter(form)


def test_bytes_that_are_no_text_are_not_mistaken_for_text() -> None:
    one, other = record(value=b"\xff"), record(value=rb"\xff")
    assert json.loads(printed(formatter("json"), one))["value_base64"] == "/w=="
    assert json.loads(printed(formatter("json"), other))["value"] == r"\xff"


def test_headers_with_the_same_key_are_all_printed() -> None:
    assert json.loads(printed(formatter("json"), record()))["headers"] == [
        {"key": "h", "value": "x"},
        {"key": "h", "value": None},
    ]


def test_header_key_that_is_no_text_is_printed_and_read_back() -> None:
    headers = [("\udcff", b"x")]
    line = printed(formatter("json"), record(headers=headers))
    assert json.loads(line)["headers"] == [{"key_base64": "/w==", "value": "x"}]
    assert from_json(line).headers == headers
    assert printed(formatter("%h"), record(headers=headers)) == b"\xff=x"


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({}, b"null\n"),
        ({"null.literal": "-", "print.key": "true"}, b"k\t-\n"),
        (
            {"print.timestamp": "true", "print.headers": "true", "key.separator": "|"},
            b"CreateTime:3|h:x,h:null|null\n",
        ),
    ],
)
def test_properties_of_kafkas_tool_choose_the_form(properties: dict[str, str], text: bytes) -> None:
    assert printed(kafka_formatter(properties), record(value=None)) == text


DATA = st.none() | st.binary(max_size=8)


@given(DATA, DATA, st.lists(st.tuples(st.text(max_size=3), DATA), max_size=3), st.booleans())
def test_printed_json_is_read_back_as_the_same_record(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    all_base64: bool,
) -> None:
    headers = [(name.encode("utf-8", "ignore").decode(), data) for name, data in headers]
    line = printed(formatter("json", all_base64), record(key=key, value=value, headers=headers))
    assert from_json(line) == JsonRecord(key, value, headers, 1, 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"vlue": "a"}', "'vlue' is not one of key"),
        (
            b'{"value": {"a": 1}}',
            "value: not a text or null; JSON inside a value is given as a text",
        ),
        (b'{"value": "a", "value_base64": "YQ=="}', "give only one of them"),
        (b'{"key_base64": "!"}', "key_base64: not base64"),
        (b'{"key_base64": 1}', "key_base64: not base64"),
        (b'{"value": "\\ud800"}', "half of a surrogate pair"),
        (b'{"headers": {"a": "b"}}', "headers: not a list"),
        (b'{"headers": [{"value": "b"}]}', "key of a header is not a text"),
        (b'{"partition": true}', "partition: not a whole number"),
        (b'{"timestamp": "now"}', "timestamp: not a whole number"),
    ],
)
def test_line_that_is_no_record_is_refused_with_the_reason(line: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        from_json(line)


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"partition": ' + b"9" * 5_000 + b"}"])
def test_record_that_python_cannot_read_is_no_json(line: bytes) -> None:
    with pytest.raises(FormatError, match="not JSON"):
        from_json(line)
