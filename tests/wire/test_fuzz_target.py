"""The fuzz target itself: it must read valid messages, and report findings."""

from __future__ import annotations

import random

import pytest

from kwire.codec import encode
from tests.fuzz import fuzz_codec

from .entropy import message_from


def test_honest_and_damaged_messages_pass() -> None:
    generator = random.Random(5)
    for number in range(0, len(fuzz_codec.PAIRS), 7):
        cls, version = fuzz_codec.PAIRS[number]
        data = encode(message_from(cls, version, generator.randbytes(100)), version)
        fuzz_codec.fuzz_one(number.to_bytes(2, "big") + data)
        fuzz_codec.fuzz_one(number.to_bytes(2, "big") + data[:-1])
    fuzz_codec.fuzz_one(b"")


def test_other_errors_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(cls: type, buffer: bytes, version: int) -> None:
        raise IndexError

    monkeypatch.setattr(fuzz_codec, "decode", broken)
    with pytest.raises(IndexError):
        fuzz_codec.fuzz_one(b"\0\0\0\0")
