"""The wire protocol of Apache Kafka, without sockets, files or clocks.

Messages are in kwire.messages (one module per API), record batches in kwire.records, the state
machine of a connection in kwire.connection. This module exports what most users need:

    request = MetadataRequest(topics=None)
    data = encode(request, 12)
    decode(MetadataRequest, data, 12) == request
"""

from __future__ import annotations

TYPE_CHECKING = False  # the one of `typing` takes longer to import than the rest
if TYPE_CHECKING:
    from kwire.api import ApiKey, request_class, response_class
    from kwire.codec import decode, decode_prefix, encode, encode_parts, encoded_size
    from kwire.errors import (
        BadLength,
        BadTag,
        BadUtf8,
        BadVersion,
        CorruptRecord,
        EncodeError,
        ErrorCode,
        RecordError,
        TooLarge,
        Truncated,
        UnsupportedCodec,
        WireError,
    )
    from kwire.header import (
        RequestHeader,
        decode_request_header,
        decode_response_header,
        encode_request_header,
        encode_response_header,
        request_header_version,
        response_header_version,
    )
    from kwire.types import ONE_UUID, ZERO_UUID, uuid_from_str, uuid_to_str
del TYPE_CHECKING

__all__ = [
    "ONE_UUID",
    "ZERO_UUID",
    "ApiKey",
    "BadLength",
    "BadTag",
    "BadUtf8",
    "BadVersion",
    "CorruptRecord",
    "EncodeError",
    "ErrorCode",
    "RecordError",
    "RequestHeader",
    "TooLarge",
    "Truncated",
    "UnsupportedCodec",
    "WireError",
    "decode",
    "decode_prefix",
    "decode_request_header",
    "decode_response_header",
    "encode",
    "encode_parts",
    "encode_request_header",
    "encode_response_header",
    "encoded_size",
    "request_class",
    "request_header_version",
    "response_class",
    "response_header_version",
    "uuid_from_str",
    "uuid_to_str",
]

#: Where these names are, modules that take long to import last.
_HOMES = ("errors", "api", "types", "header", "codec")


def __getattr__(name: str) -> object:
    """Import a name on its first use: `kwire --help` needs none, and most other commands few."""
    if name in __all__:
        from importlib import import_module

        for home in _HOMES:
            module = import_module(f"kwire.{home}")
            if hasattr(module, name):
                value: object = getattr(module, name)
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
