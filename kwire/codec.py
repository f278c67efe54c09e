"""Encode and decode messages: the entry point to the compiled codecs."""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from kwire import interpreter
from kwire.compiler import Decoder, Encoder, compile_decoder, compile_encoder
from kwire.compiler_runtime import Refused
from kwire.errors import EncodeError, WireError
from kwire.source_writer import has_records

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

COPY_BYTES = 65536
"""Views up to this size are copied before they are decoded, because bytes are faster to read."""

_FAILURES = (
    Refused,
    WireError,
    struct.error,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
)


class _Codecs:
    """The compiled codecs of a message, by version."""

    __slots__ = ("encoders", "from_bytes", "from_view", "has_records")

    def __init__(self, cls: type) -> None:
        self.has_records = has_records(cls)
        self.encoders: dict[int, Encoder] = {}
        self.from_bytes: dict[int, Decoder] = {}
        self.from_view: dict[int, Decoder] = {}


_codecs: dict[type, _Codecs] = {}


def encode(message: object, version: int) -> bytes:
    """Encode a message.

    Errors: EncodeError, BadVersion; both name the field. Records must be in memory.
    """
    try:
        encoded = (_encoder(message, version))(message)
        return encoded if type(encoded) is bytes else b"".join(encoded)
    except _FAILURES as failure:
        raise _explain_encode(message, version, True) from failure


def encode_parts(message: object, version: int) -> list[Any]:
    """Encode a message into buffers that are to be sent one after another; large ones are not joined.

    Shape: records that are not small bytes objects are passed on unchanged, whatever their type;
    their size is taken from len(). Errors: as encode.
    """
    try:
        encoded = (_encoder(message, version))(message)
    except _FAILURES as failure:
        raise _explain_encode(message, version, False) from failure
    return [encoded] if type(encoded) is bytes else encoded


def encoded_size(parts: list[Any]) -> int:
    """The total size in bytes of the buffers made by encode_parts."""
    return sum(map(len, parts))


def decode(cls: type[T], buffer: Buffer, version: int, offset: int = 0) -> T:
    """Decode a message that takes up the buffer from the offset to its end.

    Shape: records are views of the buffer, everything else is copied.
    Errors: WireError, which names the field and the byte.
    """
    try:
        codecs = _codecs.get(cls) or _add_codecs(cls)
        end = len(buffer)
        if type(buffer) is bytes:
            decoder = codecs.from_bytes.get(version) or _add_decoder(cls, version, False)
            message, pos = decoder(buffer, offset, end)
        else:
            message, pos = _decode_view(cls, codecs, buffer, version, offset)
    except _FAILURES as failure:
        raise _explain_decode(cls, buffer, version, offset) from failure
    if pos != end:
        raise _explain_decode(cls, buffer, version, offset)
    return message  # type: ignore[no-any-return]


def decode_prefix(cls: type[T], buffer: Buffer, version: int, offset: int = 0) -> tuple[T, int]:
    """Decode a message that may be followed by more bytes; return it and the position after it.

    Shape: read as Java reads it, since a broker accepts that: bytes in strings that are not UTF-8
    become U+FFFD, and any length below 0 is null where null is allowed. Errors: as decode.
    """
    try:
        codecs = _codecs.get(cls) or _add_codecs(cls)
        message, pos = _decode_view(cls, codecs, buffer, version, offset)
    except _FAILURES:
        return interpreter.decode_prefix(cls, buffer, version, offset, lenient=True)
    if pos > len(buffer):
        return interpreter.decode_prefix(cls, buffer, version, offset, lenient=True)
    return message, pos


def _decode_view(
    cls: type, codecs: _Codecs, buffer: Any, version: int, offset: int
) -> tuple[Any, int]:
    end = len(buffer)
    if not codecs.has_records and end <= COPY_BYTES:
        decoder = codecs.from_bytes.get(version) or _add_decoder(cls, version, False)
        return decoder(bytes(buffer), offset, end)
    decoder = codecs.from_view.get(version) or _add_decoder(cls, version, True)
    return decoder(memoryview(buffer), offset, end)


def _encoder(message: object, version: int) -> Encoder:
    cls = type(message)
    codecs = _codecs.get(cls) or _add_codecs(cls)
    encoder = codecs.encoders.get(version)
    if encoder is None:
        encoder = codecs.encoders[version] = compile_encoder(cls, version)
    return encoder


def _add_codecs(cls: type) -> _Codecs:
    codecs = _codecs[cls] = _Codecs(cls)
    return codecs


def _add_decoder(cls: type, version: int, from_view: bool) -> Decoder:
    decoder = compile_decoder(cls, version, from_view)
    codecs = _codecs[cls]
    (codecs.from_view if from_view else codecs.from_bytes)[version] = decoder
    return decoder


def _explain_encode(message: object, version: int, keep_records: bool) -> WireError:
    try:
        interpreter.encode(message, version, keep_records)
    except WireError as error:
        return error
    return EncodeError("cannot be encoded", api=type(message).__name__, version=version)


def _explain_decode(cls: type, buffer: Buffer, version: int, offset: int) -> WireError:
    try:
        interpreter.decode(cls, buffer, version, offset)
    except WireError as error:
        return error
    return WireError("cannot be decoded", api=cls.__name__, version=version, offset=offset)
