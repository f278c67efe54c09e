"""Every message in every version: there and back, and the compiler against the interpreter."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire import interpreter
from kwire.codec import (
    decode,
    decode_at_once,
    decode_prefix,
    decode_steps,
    encode,
    encode_parts,
    encode_steps,
)
from kwire.errors import BadLength
from kwire.schema import schema_of
from server.turns import exhaust
from tests.support.catalogue import all_messages, all_versions

from .entropy import message_from

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
CLASSES = sorted(all_messages().values(), key=lambda cls: cls.__name__)


def check_round_trip(cls: type, version: int, entropy: bytes) -> None:
    """Encode and decode a message in every way there is; all must agree."""
    message = message_from(cls, version, entropy)
    data = encode(message, version)
    assert interpreter.encode(message, version) == data
    assert b"".join(encode_parts(message, version)) == data
    assert decode(cls, data, version) == message
    assert decode(cls, memoryview(b"12" + data), version, 2) == message
    assert decode(cls, bytearray(data), version) == message
    assert interpreter.decode(cls, data, version) == message
    assert decode_prefix(cls, data + b"more", version) == (message, len(data))
    with pytest.raises(BadLength, match="1 bytes are left"):
        decode(cls, data + b"\0", version)


@settings(max_examples=300)
@given(pair=st.sampled_from(all_versions()), entropy=st.binary(max_size=600))
def test_any_message_comes_back_as_it_was(pair: tuple[type, int], entropy: bytes) -> None:
    check_round_trip(*pair, entropy)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_version_comes_back_as_it_was(cls: type) -> None:
    versions = schema_of(cls).versions
    generator = random.Random(cls.__name__)
    for version in range(versions.lowest, versions.highest + 1):
        check_round_trip(cls, version, b"")
        check_round_trip(cls, version, generator.randbytes(600))


@pytest.mark.slow
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_many_messages_of_every_version_come_back(cls: type) -> None:
    @settings(max_examples=200 if LONG else 10)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        versions = schema_of(cls).versions
        version = data.draw(st.integers(versions.lowest, versions.highest))
        check_round_trip(cls, version, data.draw(st.binary(max_size=2000)))

    check()


def check_steps(cls: type, version: int, entropy: bytes) -> None:
    """In steps and in one go, the result is the same."""
    message = message_from(cls, version, entropy)
    data = encode(message, version)
    assert b"".join(exhaust(encode_steps(message, version))) == data
    for buffer in (data, memoryview(data), memoryview(b"12" + data + bytes(70_000))[2:]):
        assert exhaust(decode_steps(cls, buffer, version)) == (message, len(data))
    at_once = decode_at_once(cls, memoryview(b"12" + data + b"more"), version, 2)
    assert at_once == message or (at_once is None and len(data) > 512)


@settings(max_examples=300)
@given(pair=st.sampled_from(all_versions()), entropy=st.binary(max_size=600))
def test_any_message_is_the_same_in_steps(pair: tuple[type, int], entropy: bytes) -> None:
    check_steps(*pair, entropy)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_message_is_the_same_in_steps(cls: type) -> None:
    versions = schema_of(cls).versions
    generator = random.Random(cls.__name__)
    for version in {versions.lowest, versions.highest}:
        check_steps(cls, version, generator.randbytes(600))
