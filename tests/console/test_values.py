"""Keys and values in displayed form."""

from __future__ import annotations

import json

from server.console.documents import parsed, written
from server.console.filters import MAX_PARSED_BYTES, NO_JSON, as_json
from server.console.values import MAX_LINE, MAX_TEXT, beginning, document, shown


def test_form_is_chosen_by_what_the_bytes_are() -> None:
    assert shown(b'{"a": [1]}').kind == "json"
    assert shown(b"plain \xc3\xa4").line == "plain ä"
    assert shown(b"\xff\x00").kind == "hex"
    assert shown(b"\x00\x01text").kind == "hex"
    assert shown(None).kind == "null"
    assert shown(b"").kind == "empty"


def test_json_is_indented_when_it_is_opened() -> None:
    found = shown(b'{"a":{"b":"\xc3\xa4"}}')
    assert found.line == '{"a": {"b": "ä"}}'
    assert json.loads(found.whole) == {"a": {"b": "ä"}} and "\n" in found.whole


def test_what_looks_like_json_and_is_none_is_text() -> None:
    assert shown(b"[not json").kind == "text"
    assert shown(b"[" * 200_000).kind == "text"


def test_json_is_shown_digit_by_digit_and_with_all_of_its_names() -> None:
    stored = b'{"a": 1.10, "b": 1234567890123456.78, "c": 1e400, "d": -0, "a": [2E5, {}, [], NaN], "e": "\\u00e4\\n"}'
    found = shown(stored)
    assert found.kind == "json"
    assert found.line == stored.decode().replace("\\u00e4", "ä")
    assert "".join(found.whole.split()) == "".join(found.line.split())
    long = b'{"n": ' + b"9" * 5_000 + b"}"
    assert "".join(shown(long).whole.split()) == long.decode().replace(" ", "")


def test_text_that_is_no_utf_8_shows_its_bytes() -> None:
    assert shown(b"a\xff", "text").line == "a\\xff"


def test_hexadecimal_has_its_text_beside_it() -> None:
    assert shown(b"AB\x00", "hex").whole == f"00000000  {'41 42 00':<23}  {'':<23}  AB."


def test_long_values_are_cut() -> None:
    found = shown(b"x" * 1_000_000)
    assert len(found.line) == MAX_LINE and len(found.whole) == MAX_TEXT and found.size == 1_000_000


def test_short_text_has_nothing_more_to_open() -> None:
    assert shown(b"short").whole == ""
    assert shown(b"two\nlines").whole == "two\nlines"


def test_document_with_keys_that_json_cannot_have_is_hexadecimal() -> None:
    assert document("msgpack", b"\x81\xc4\x01a\x01", {b"a": 1}).kind == "hex"


def test_json_that_would_take_long_to_parse_is_text() -> None:
    large = b"[" + b"0," * (MAX_PARSED_BYTES // 2) + b"0]"
    assert shown(large).kind == "text" and as_json(large) is NO_JSON
    assert shown(large[: MAX_PARSED_BYTES - 3] + b"0]").kind == "json"


def test_document_that_is_nested_deep_is_written_only_as_far_as_it_is_shown() -> None:
    depth = 300
    data = b"[" * depth + b"1," * 50_000 + b"1" + b"]" * depth
    found = shown(data)
    assert found.kind == "json" and len(found.whole) == MAX_TEXT
    # 30 MB with all of its indents
    assert len(beginning(written(parsed(data), indent=2), MAX_TEXT)) < 2 * MAX_TEXT
