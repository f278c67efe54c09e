"""Headers: their version for each message, and the fast and slow ways of reading them."""

from __future__ import annotations

import pytest

from kwire.api import ApiKey
from kwire.codec import encode
from kwire.errors import BadVersion, Truncated
from kwire.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from kwire.messages import headers

PRODUCE_V2 = b"\x00\x00\x00\x09\x00\x00\x00\x07\x00\x03cli\x00"


@pytest.mark.parametrize(
    ("api_key", "version", "client_id"),
    [
        (0, 9, "cli"),
        (0, 8, "cli"),
        (0, 8, None),
        (0, 9, None),
        (0, 9, ""),
        (7, 0, None),
        (18, 3, "ü"),
    ],
)
def test_request_header_comes_back_as_it_was(
    api_key: int, version: int, client_id: str | None
) -> None:
    header = RequestHeader(api_key, version, 42, client_id)
    data = encode_request_header(header)
    assert decode_request_header(data + b"body") == (header, len(data))
    assert decode_request_header(memoryview(data)) == (header, len(data))
    message = headers.RequestHeader(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=42,
        client_id=client_id if version else "",
    )
    assert encode(message, request_header_version(api_key, version)) == data


def test_header_of_a_newer_api_versions_is_read() -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, 99, 1, "new")
    assert decode_request_header(encode_request_header(header))[0] == header


def test_tagged_fields_of_a_header_are_skipped() -> None:
    data = PRODUCE_V2[:-1] + b"\x01\x09\x02ab"
    assert decode_request_header(data + b"body") == (RequestHeader(0, 9, 7, "cli"), len(data))


@pytest.mark.parametrize("size", range(len(PRODUCE_V2)))
def test_truncated_request_header_is_refused(size: int) -> None:
    with pytest.raises(Truncated) as caught:
        decode_request_header(PRODUCE_V2[:size])
    assert caught.value.api == "RequestHeader"


def test_unknown_api_is_refused() -> None:
    with pytest.raises(BadVersion, match="key 9999"):
        decode_request_header(b"\x27\x0f\x00\x00\x00\x00\x00\x07\xff\xff")


def test_client_id_that_is_not_utf8_is_read_as_java_reads_it() -> None:
    header, _ = decode_request_header(PRODUCE_V2.replace(b"cli", b"c\xffi"))
    assert header.client_id == "c\ufffdi"


def test_negative_client_id_length_is_null() -> None:
    header, _ = decode_request_header(PRODUCE_V2.replace(b"\x00\x03cli", b"\xff\xfe"))
    assert header.client_id is None


def test_api_versions_is_answered_with_the_oldest_header() -> None:
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2
    assert response_header_version(ApiKey.API_VERSIONS, 3) == 0
    assert encode_response_header(ApiKey.API_VERSIONS, 3, 5) == b"\0\0\0\5"


def test_response_header_comes_back_as_it_was() -> None:
    for version, size in ((8, 4), (9, 5)):
        data = encode_response_header(ApiKey.PRODUCE, version, 77)
        assert len(data) == size
        assert decode_response_header(data + b"body", ApiKey.PRODUCE, version) == (77, size)


def test_controlled_shutdown_0_has_no_client_id() -> None:
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0) == 0
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 1) == 1
