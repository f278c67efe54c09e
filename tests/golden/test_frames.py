"""Frames that Apache Kafka received and sent, read and written again byte for byte.

A file `<api>_v<N>_<case>.hex` has a comment, the request and the response in hex, both with their headers
and without the length in front. The differential tests record them (KWIRE_RECORD_FRAMES=1) from 3.9.2,
and from 4.3.0 where 3.9.2 has no such version.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.api import ApiKey, request_class, response_class
from kwire.codec import decode, encode
from kwire.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

FRAMES = sorted((Path(__file__).parent / "frames").glob("*.hex"))


@pytest.mark.parametrize("path", FRAMES, ids=lambda path: path.stem)
def test_frame_survives_the_round_trip(path: Path) -> None:
    """Header and body, request and response."""
    _, request, response = path.read_text().splitlines()
    sent, received = bytes.fromhex(request), bytes.fromhex(response)
    header, offset = decode_request_header(sent)
    key, version = ApiKey(header.api_key), header.api_version
    body = decode(request_class(key), sent, version, offset)
    assert encode_request_header(header) + encode(body, version) == sent
    correlation_id, offset = decode_response_header(received, key, version)
    assert correlation_id == header.correlation_id
    answer = decode(response_class(key), received, version, offset)
    again = encode_response_header(key, version, correlation_id) + encode(answer, version)
    assert again == received


def test_there_is_a_frame_of_each_version_compared() -> None:
    """The folder is complete: every version of every API that the differential test covers."""
    found = {tuple(path.stem.split("_v")[0:1]) for path in FRAMES}
    assert len(FRAMES) > 130 and len(found) > 25
