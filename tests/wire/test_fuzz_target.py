"""The fuzz target itself: it must read valid messages, and report findings."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import WireError
from tests.fuzz import fuzz_codec

from .entropy import message_from


class Decoder:
    """Counts what the target's decoder reads and refuses."""

    def __init__(self) -> None:
        self.read = 0
        self.refused = 0

    def __call__(self, cls: type, buffer: Any, version: int) -> Any:
        try:
            message = decode(cls, buffer, version)
        except WireError:
            self.refused += 1
            raise
        self.read += 1
        return message


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> Decoder:
    made = Decoder()
    monkeypatch.setattr(fuzz_codec, "decode", made)
    return made


def inputs() -> Iterator[tuple[bytes, bytes]]:
    """Some messages as inputs of the target: the first two bytes, and the encoded message."""
    generator = random.Random(5)
    for number in range(0, len(fuzz_codec.PAIRS), 7):
        cls, version = fuzz_codec.PAIRS[number]
        data = encode(message_from(cls, version, generator.randbytes(100)), version)
        yield number.to_bytes(2, "big"), data


def test_honest_messages_are_read_and_read_again_after_writing(decoder: Decoder) -> None:
    count = 0
    for choice, data in inputs():
        fuzz_codec.fuzz_one(choice + data)
        count += 1
    assert count > 100
    assert (decoder.read, decoder.refused) == (2 * count, 0)


def test_messages_without_their_last_byte_are_refused_without_a_finding(decoder: Decoder) -> None:
    count = 0
    for choice, data in inputs():
        if data:
            fuzz_codec.fuzz_one(choice + data[:-1])
            count += 1
    assert (decoder.read, decoder.refused) == (0, count)


def test_input_without_a_choice_is_the_first_message(decoder: Decoder) -> None:
    fuzz_codec.fuzz_one(b"")
    assert decoder.read + decoder.refused == 1


def test_other_errors_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(cls: type, buffer: bytes, version: int) -> None:
        raise IndexError

    monkeypatch.setattr(fuzz_codec, "decode", broken)
    with pytest.raises(IndexError):
        fuzz_codec.fuzz_one(b"\0\0\0\0")


@pytest.mark.parametrize("function", ["decode", "encode"])
def test_interpreter_that_differs_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    choice, data = next(each for each in inputs() if len(each[1]) > 8)
    cls, _ = fuzz_codec.PAIRS[int.from_bytes(choice, "big")]
    other = cls() if function == "decode" else b"other"
    monkeypatch.setattr(fuzz_codec.interpreter, function, lambda *_: other)
    with pytest.raises(AssertionError, match="the interpreter"):
        fuzz_codec.fuzz_one(choice + data)
