"""Writes one encode and one decode function for each message and version, on first use.

Reasons for their speed: adjacent fields of fixed size, and a length that follows them, take one struct call; a length
below 128 or an absent tagged field costs one comparison; no function is called per field.

The native module, if present, decodes messages without unusual parts (native_decoder.py), and the functions are written
when they are first needed.

Reasons for their safety: a read beyond the end raises, and a slice beyond it moves the position past the end, which the
next read or the final comparison notices. Only counts are checked before use, because lists are made from them. Every
failed check raises Refused, and the caller uses interpreter.py to find the exact error.

Long messages are encoded and decoded in steps, by generators from the same writers, which yield every 64 elements of an
array. A decoder in steps reads leniently, as a broker reads requests, and adds up the memory of the elements of each
array before it makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kwire.decoder_writer import DecoderWriter
from kwire.encoder_writer import EncoderWriter
from kwire.interpreter import check_version
from kwire.native_decoder import native_decoder
from kwire.schema import schema_of

Encoder = Callable[[Any], Any]
Decoder = Callable[[Any, int, int], tuple[Any, int]]
StepsEncoder = Callable[[Any], Generator[None, None, list[Any]]]
StepsDecoder = Callable[[Any, int, int, list[int]], Generator[None, None, tuple[Any, int]]]


def compile_encoder(cls: type, version: int) -> Encoder:
    """Make `encode(message)`, which returns bytes, or a list of buffers if there are records.

    Errors: BadVersion.
    """
    schema = schema_of(cls)
    check_version(schema, version)
    writer = EncoderWriter(schema, version)
    encoder: Encoder = writer.compile(writer.main(cls))
    return encoder


def compile_steps_encoder(cls: type, version: int) -> StepsEncoder:
    """Make `encode(message)`, a generator that returns a list of buffers. Errors: BadVersion."""
    schema = schema_of(cls)
    check_version(schema, version)
    writer = EncoderWriter(schema, version, steps=True)
    encoder: StepsEncoder = writer.compile(writer.main(cls))
    return encoder


def compile_decoder(cls: type, version: int, from_view: bool, most: int | None = None) -> Decoder:
    """Make `decode(buffer, pos, end)`, which returns the message and the position after it.

    Shape: the buffer is a memoryview if from_view, else bytes. A message with more than `most` elements in
    its arrays is refused. Errors: BadVersion.
    """
    schema = schema_of(cls)
    check_version(schema, version)
    written: Decoder | None = None

    def write() -> Decoder:
        writer = DecoderWriter(schema, version, from_view, most=most)
        decoder: Decoder = writer.compile(writer.main(cls))
        return decoder

    def otherwise(buffer: Any, pos: int, end: int) -> tuple[Any, int]:
        nonlocal written
        written = written or write()
        return written(buffer, pos, end)

    return native_decoder(cls, version, most, otherwise) or write()


def compile_steps_decoder(cls: type, version: int, from_view: bool) -> StepsDecoder:
    """Make `decode(buffer, pos, end, room)`, a generator that returns what a decoder does.

    Shape: `room` is a list of one number, the bytes of memory that the message may take; it is counted down.
    Errors: BadVersion.
    """
    schema = schema_of(cls)
    check_version(schema, version)
    writer = DecoderWriter(schema, version, from_view, steps=True)
    decoder: StepsDecoder = writer.compile(writer.main(cls))
    return decoder
