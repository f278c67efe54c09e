"""Encode and decode messages: the entry point to the compiled codecs."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any, TypeVar

from kwire import interpreter
from kwire.compiler import (
    Decoder,
    Encoder,
    StepsDecoder,
    StepsEncoder,
    compile_decoder,
    compile_encoder,
    compile_steps_decoder,
    compile_steps_encoder,
)
from kwire.compiler_runtime import Refused, TooMuch
from kwire.errors import EncodeError, MessageTooLarge, WireError
from kwire.source_writer import has_records

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

COPY_BYTES = 65536
"""Views up to this size are copied before they are decoded, because bytes are faster to read."""

AT_ONCE_BYTES = 16 * 1024
"""Requests up to this size are decoded immediately: they cannot have many elements."""

AT_ONCE_ELEMENTS = 512
"""The same for requests with records, whose size does not limit the number of elements."""

DECODED_BYTES = 64 * 1024 * 1024
"""The default limit on the memory that a decoded message may take."""

EXPLAINED_FIELDS = 10_000
"""The number of fields and elements that the interpreter examines to find the error in a message."""

_FAILURES = (
    Refused,
    TooMuch,
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

    __slots__ = (
        "at_once",
        "encoders",
        "from_bytes",
        "from_view",
        "has_records",
        "steps_encoders",
        "steps_from_bytes",
        "steps_from_view",
    )

    def __init__(self, cls: type) -> None:
        self.has_records = has_records(cls)
        self.at_once: dict[int, Decoder] = {}
        self.steps_encoders: dict[int, StepsEncoder] = {}
        self.steps_from_bytes: dict[int, StepsDecoder] = {}
        self.steps_from_view: dict[int, StepsDecoder] = {}
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
    """Encode a message into buffers to be sent one after another; large ones are not joined.

    Shape: records that are not small bytes objects are passed on unchanged, whatever their type; their size is taken
    from len(). Errors: as encode.
    """
    try:
        encoded = (_encoder(message, version))(message)
    except _FAILURES as failure:
        raise _explain_encode(message, version, False) from failure
    return [encoded] if type(encoded) is bytes else encoded


def encoded_size(parts: list[Any]) -> int:
    """The total size in bytes of the buffers made by encode_parts."""
    return sum(map(len, parts))


def encode_steps(message: object, version: int) -> Generator[None, None, list[Any]]:
    """Encode a long message in steps; return buffers as encode_parts does.

    Shape: the message must not change between the steps. Errors: as encode.
    """
    cls = type(message)
    try:
        codecs = _codecs.get(cls) or _add_codecs(cls)
        encoder = codecs.steps_encoders.get(version)
        if encoder is None:
            encoder = codecs.steps_encoders[version] = compile_steps_encoder(cls, version)
        return (yield from encoder(message))
    except _FAILURES as failure:
        raise _explain_encode(message, version, False) from failure


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
    except _FAILURES:
        return interpreter.decode(cls, buffer, version, offset, most=EXPLAINED_FIELDS)
    if pos != end:
        return interpreter.decode(cls, buffer, version, offset, most=EXPLAINED_FIELDS)
    return message  # type: ignore[no-any-return]


def decode_prefix(
    cls: type[T], buffer: Buffer, version: int, offset: int = 0, max_bytes: int = DECODED_BYTES
) -> tuple[T, int]:
    """Decode a message that may be followed by more bytes; return it and the position after it.

    Shape: read as Java reads it, since a broker accepts that: invalid UTF-8 in strings becomes U+FFFD, any length below
    0 is null where null is allowed, and the size of a known tagged field is ignored. Errors: as decode; MessageTooLarge
    if it would take more than `max_bytes` of memory and cannot be decoded in the usual way.
    """
    try:
        codecs = _codecs.get(cls) or _add_codecs(cls)
        message, pos = _decode_view(cls, codecs, buffer, version, offset)
        if pos <= len(buffer):
            return message, pos
    except _FAILURES:
        pass
    steps = decode_steps(cls, buffer, version, offset, max_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def decode_at_once(cls: type[T], buffer: memoryview, version: int, offset: int = 0) -> T | None:
    """Decode a request as decode_prefix does; None if that may take long, or if it fails.

    In that case, `decode_steps` decodes it, or reports the error.
    """
    try:
        codecs = _codecs.get(cls) or _add_codecs(cls)
        end = len(buffer)
        if codecs.has_records:
            decoder = codecs.at_once.get(version)
            if decoder is None:
                decoder = compile_decoder(cls, version, True, AT_ONCE_ELEMENTS)
                codecs.at_once[version] = decoder
            message, pos = decoder(buffer, offset, end)
        elif end - offset <= AT_ONCE_BYTES:
            decoder = codecs.from_bytes.get(version) or _add_decoder(cls, version, False)
            message, pos = decoder(bytes(buffer), offset, end)
        else:
            return None
    except _FAILURES:
        return None
    return message if pos <= end else None


def decode_steps(
    cls: type[T], buffer: Buffer, version: int, offset: int = 0, max_bytes: int = DECODED_BYTES
) -> Generator[None, None, tuple[T, int]]:
    """Decode a long message in steps; return it and the position after it, as decode_prefix does.

    Shape: the buffer must not change until the end. `max_bytes` limits the memory that the message takes.
    Errors: as decode; MessageTooLarge.
    """
    end = len(buffer)
    try:
        codecs = _codecs.get(cls) or _add_codecs(cls)
        from_view = codecs.has_records or end > COPY_BYTES
        buffer = memoryview(buffer) if from_view else bytes(buffer)
        known = codecs.steps_from_view if from_view else codecs.steps_from_bytes
        decoder = known.get(version)
        if decoder is None:
            decoder = known[version] = compile_steps_decoder(cls, version, from_view)
        message, pos = yield from decoder(buffer, offset, end, [max_bytes])
        if pos <= end:
            return message, pos
    except TooMuch:
        raise MessageTooLarge(
            f"would take more than {max_bytes} bytes of memory", api=cls.__name__, version=version
        ) from None
    except _FAILURES:
        pass
    return interpreter.decode_prefix(
        cls, buffer, version, offset, lenient=True, most=EXPLAINED_FIELDS
    )


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
        interpreter.encode(message, version, keep_records, most=EXPLAINED_FIELDS)
    except WireError as error:
        return error
    return EncodeError("cannot be encoded", api=type(message).__name__, version=version)
