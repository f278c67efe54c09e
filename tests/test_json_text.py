"""JSON whose texts are no Unicode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kwire.testing.recording import BadRecording, load
from server.coordination.paths import MalformedNode
from server.coordination.paths import load as load_node
from server.coordination.transfer import BadDocument, parse
from server.json_text import parse_json
from server.security.sasl.claims import InvalidToken, claims_of
from server.security.sasl.unsecured_tokens import unsigned_claims, unsigned_token

HALVES = [
    b'{"a":"\\ud800"}',
    b'{"\\udfff":1}',
    b'["x",["\\ude00\\ud83d"]]',
    b'"\xed\xa0\x80"',
    '"\ud800"'.encode("utf-16-le", "surrogatepass"),
    '"\\ud800"'.encode("utf-16-le"),
    '"\\ud800"'.encode("utf-32-be"),
]


@pytest.mark.parametrize("data", HALVES)
def test_half_of_a_character_is_refused(data: bytes) -> None:
    json.loads(data)
    with pytest.raises(ValueError, match="surrogates not allowed"):
        parse_json(data)


@pytest.mark.parametrize("data", ['{"a":"\\ud83d\\ude00"}', '"\\\\ud800"', '"\\u00e9é"', "[1]"])
def test_all_other_texts_are_read(data: str) -> None:
    assert parse_json(data) == parse_json(data.encode()) == json.loads(data)


def test_documents_of_all_kinds_are_refused_where_they_are_read(tmp_path: Path) -> None:
    with pytest.raises(MalformedNode, match="/brokers"):
        load_node(HALVES[0], "/brokers")
    with pytest.raises(BadDocument):
        parse(HALVES[0].decode())
    with pytest.raises(InvalidToken):
        claims_of(HALVES[0])
    with pytest.raises(InvalidToken):
        unsigned_claims(unsigned_token({"sub": "\ud800"}))
    (tmp_path / "recording").write_bytes(HALVES[0])
    with pytest.raises(BadRecording):
        load(tmp_path / "recording")
