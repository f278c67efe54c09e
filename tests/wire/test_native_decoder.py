"""Messages that the native module decodes, compared with pure Python."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kwire.messages.produce import ProduceRequest
from kwire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire.native_decoder import native_decoder
from tests.fuzz import fuzz_native_messages
from tests.fuzz.fuzz_native_messages import LeftError, leave
from tests.support.forms import form

INPUTS = 200_000 if os.environ.get("KWIRE_LONG") else 1_500


def test_damaged_messages_are_decoded_as_in_python() -> None:
    drawn = fuzz_native_messages.inputs(INPUTS, seed=1)
    assert sum(fuzz_native_messages.compare(*each) for each in drawn) > INPUTS // 4


def test_difference_between_the_forms_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(buffer: Any, pos: int, end: int) -> tuple[Any, int]:
        return ProduceRequest(timeout_ms=1), end

    monkeypatch.setattr(
        fuzz_native_messages, "decoders", lambda *_: (wrong, lambda b, p, e: (ProduceRequest(), e))
    )
    with pytest.raises(AssertionError):
        fuzz_native_messages.compare(ProduceRequest, 9, b"")


def test_message_with_tagged_fields_and_one_that_is_too_long_are_left_to_python() -> None:
    with form("native"):
        decoder = native_decoder(MetadataResponse, 13, 3, leave)
    assert decoder is not None
    few = MetadataResponse(topics=[MetadataResponseTopic(name="a")] * 3)
    data = encode(few, 13)
    assert decoder(data, 0, len(data)) == (few, len(data))
    many = encode(MetadataResponse(topics=[MetadataResponseTopic(name="a")] * 4), 13)
    tagged = MetadataResponse()
    tagged.unknown_tags = {7: b"x"}  # type: ignore[attr-defined]
    for data in (many, encode(tagged, 13), many[:-1]):
        with pytest.raises(LeftError):
            decoder(data, 0, len(data))
    with form("native"):
        assert decode(MetadataResponse, encode(tagged, 13), 13) == tagged


def test_lists_and_structs_that_are_not_sent_are_new_for_each_message() -> None:
    with form("native"):
        first, second = (decode(MetadataResponse, encode(MetadataResponse(), 1), 1) for _ in "ab")
    first.topics.append(MetadataResponseTopic())
    assert second.topics == []


def test_null_in_a_list_that_may_be_null_is_left_to_python() -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=None)]
    )  # may be null since version 10
    for version in range(1, 14):
        assert fuzz_native_messages.compare(
            MetadataRequest, version, encode(MetadataRequest(topics=None), version)
        )
    assert fuzz_native_messages.compare(MetadataRequest, 13, encode(request, 13))
    data = bytearray(encode(ShareGroupHeartbeatRequest(subscribed_topic_names=["a"]), 1))
    at = data.index(b"\2a")
    data[at : at + 2] = b"\0"
    assert not fuzz_native_messages.compare(ShareGroupHeartbeatRequest, 1, bytes(data))
