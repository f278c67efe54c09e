"""Writes one encode and one decode function for each message and version, on first use.

What makes them fast: adjacent fields of fixed size, and a length that follows them, take one struct
call; a length below 128 or an absent tagged field costs one comparison; no function is called per
field.

What keeps them safe: a read beyond the end raises, and a slice beyond it moves the position past the
end, which the next read or the final comparison notices. Only counts are checked before use, because
lists are made from them. Every failed check raises Refused, and the caller has interpreter.py find
out exactly what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kwire.decoder_writer import DecoderWriter
from kwire.encoder_writer import EncoderWriter
from kwire.interpreter import check_version
from kwire.schema import schema_of

Encoder = Callable[[Any], Any]
Decoder = Callable[[Any, int, int], tuple[Any, int]]


def compile_encoder(cls: type, version: int) -> Encoder:
    """Make `encode(message)`, which returns bytes, or a list of buffers if there are records.

    Errors: BadVersion.
    """
    schema = schema_of(cls)
    check_version(schema, version)
    writer = EncoderWriter(schema, version)
    encoder: Encoder = writer.compile(writer.main(cls))
    return encoder


def compile_decoder(cls: type, version: int, from_view: bool) -> Decoder:
    """Make `decode(buffer, pos, end)`, which returns the message and the position after it.

    Shape: the buffer is a memoryview if from_view, else bytes. Errors: BadVersion.
    """
    schema = schema_of(cls)
    check_version(schema, version)
    writer = DecoderWriter(schema, version, from_view)
    decoder: Decoder = writer.compile(writer.main(cls))
    return decoder
