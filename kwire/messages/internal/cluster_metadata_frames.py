"""Records of __cluster_metadata with their prefix, which names the record and its version.

varint frame version 1 · varint api key · varint version · message        (unsigned varints)

Source: MetadataRecordSerde, AbstractApiMessageSerde.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kwire.codec import Buffer, decode, encode
from kwire.errors import BadVersion, EncodeError
from kwire.schema import schema_of
from kwire.varint import read_uvarint, uvarint

FRAME_VERSION = 1

_MODULES = ("broker_metadata", "cluster_metadata", "security_metadata")

_classes: dict[int, type[Any]] = {}


class UnknownRecord(BadVersion):
    """A record that a later release has added; `api_key` is its number."""

    def __init__(self, api_key: int) -> None:
        super().__init__(f"metadata record with API key {api_key} is not known", offset=1)
        self.api_key = api_key


def decode_frame(buffer: Buffer) -> tuple[Any, int]:
    """Read a record's value; returns the message and its version.

    Errors: WireError; BadVersion if the frame or the version is not known, UnknownRecord if the record is not.
    """
    frame_version, at = read_uvarint(buffer, 0)
    if frame_version != FRAME_VERSION:
        raise BadVersion(
            f"frame version {frame_version} of a metadata record is not known", offset=0
        )
    api_key, at = read_uvarint(buffer, at)
    version, at = read_uvarint(buffer, at)
    cls = (_classes or _load()).get(api_key)
    if cls is None:
        raise UnknownRecord(api_key)
    return decode(cls, buffer, version, at), version


def encode_frame(message: Any, version: int) -> bytes:
    """Write a record's value. Errors: EncodeError, BadVersion."""
    schema = schema_of(type(message))
    if schema.kind != "metadata" or schema.api_key is None:
        raise EncodeError("is not a record of the cluster's metadata", api=schema.name)
    frame = uvarint(FRAME_VERSION) + uvarint(schema.api_key) + uvarint(version)
    return frame + encode(message, version)


def _load() -> dict[int, type[Any]]:
    for name in _MODULES:
        for value in vars(import_module(f"kwire.messages.internal.{name}")).values():
            if isinstance(value, type) and "__kwire__" in vars(value):
                schema = schema_of(value)
                if schema.kind == "metadata" and schema.api_key is not None:
                    _classes[schema.api_key] = value
    return _classes
