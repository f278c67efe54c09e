"""The records of coordinators in internal topics, with the number before each key and value.

key    int16 key type · message        (the type says which message; never with tagged fields)
value  int16 version · message         (which message follows from the key)

Source: CoordinatorRecordSerde, GroupMetadataManager and TransactionLog of Apache Kafka.
"""

from __future__ import annotations

from importlib import import_module
from typing import TypeVar

from kwire.codec import Buffer, decode, encode
from kwire.errors import BadVersion, EncodeError, Truncated
from kwire.schema import schema_of

T = TypeVar("T")

_MODULES = {
    "__consumer_offsets": (
        "offset_commit",
        "group_metadata",
        "consumer_group",
        "share_group",
        "streams_group",
    ),
    "__transaction_state": ("transaction_log",),
    "__share_group_state": ("share_state",),
}

_keys: dict[str, dict[int, type]] = {}


def decode_key(buffer: Buffer, topic: str = "__consumer_offsets") -> object:
    """Read a record's key in an internal topic.

    Errors: WireError; BadVersion if the key type is not known; readers should skip such records.
    """
    keys = _keys.get(topic) or _load_keys(topic)
    key_type = _number(buffer, "key")
    # Before 3.x the key type of an offset was its version: 0 and 1 have the same layout.
    cls = keys.get(key_type)
    if cls is None:
        raise BadVersion(f"key type {key_type} is not known in {topic}", offset=0)
    return decode(cls, buffer, schema_of(cls).versions.highest, 2)


def encode_key(key: object) -> bytes:
    """Write a record's key, with its key type.

    Errors: EncodeError.
    """
    schema = schema_of(type(key))
    if schema.kind != "coordinator-key" or schema.key_type is None:
        raise EncodeError("is not the key of a coordinator's record", api=schema.name)
    return schema.key_type.to_bytes(2, "big") + encode(key, schema.versions.highest)


def decode_value(cls: type[T], buffer: Buffer) -> T:
    """Read a record's value, whose first two bytes are its version.

    Errors: WireError; BadVersion if the version is not known.
    """
    return decode(cls, buffer, _number(buffer, cls.__name__), 2)


def encode_value(value: object, version: int) -> bytes:
    """Write a record's value, with its version.

    Errors: EncodeError, BadVersion.
    """
    return version.to_bytes(2, "big") + encode(value, version)


def _number(buffer: Buffer, name: str) -> int:
    if len(buffer) < 2:
        raise Truncated(f"{len(buffer)} bytes", api=name, offset=0)
    return int.from_bytes(buffer[:2], "big", signed=True)


def _load_keys(topic: str) -> dict[int, type]:
    found: dict[int, type] = {}
    for name in _MODULES[topic]:
        for value in vars(import_module(f"{__name__}.{name}")).values():
            if isinstance(value, type) and "__kwire__" in vars(value):
                schema = schema_of(value)
                if schema.kind == "coordinator-key" and schema.key_type is not None:
                    found[schema.key_type] = value
    _keys[topic] = found
    return found
