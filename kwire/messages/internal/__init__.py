"""The records of coordinators in internal topics, with the number before each key and value.

key    int16 key type · message        (the type says which message; never with tagged fields)
value  int16 version · message         (which message follows from the key)

Source: CoordinatorRecordSerde, GroupMetadataManager and TransactionLog of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from struct import Struct
from typing import Any, TypeVar

from kwire.codec import Buffer, decode, encode
from kwire.errors import EncodeError, Truncated
from kwire.schema import schema_of

T = TypeVar("T")

#: The internal topics of coordinators, and the modules of this folder with their messages.
TOPICS = {
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

_INT16 = Struct(">h").unpack_from

#: The messages of keys by key type.
Keys = Mapping[int, type]


def keys(classes: Iterable[type]) -> dict[int, type]:
    """The messages of keys by their key type. Errors: EncodeError for a message that is no key."""
    return {_key_type(cls): cls for cls in classes}


@cache
def topic_messages(topic: str, kind: str = "coordinator-key") -> dict[int, type]:
    """The messages of a kind in an internal topic, by key type; "coordinator-value" is the other kind."""
    found: dict[int, type] = {}
    for name in TOPICS[topic]:
        for value in vars(import_module(f"{__name__}.{name}")).values():
            if isinstance(value, type) and "__kwire__" in vars(value):
                schema = schema_of(value)
                if schema.kind == kind and schema.key_type is not None:
                    found[schema.key_type] = value
    return found


def decode_key(buffer: Buffer, known: Keys) -> Any | None:
    """Read a record's key, which is one of the known messages; None for another key type: readers skip such records.

    Errors: WireError.
    """
    cls = known.get(number_of(buffer))
    return None if cls is None else decode(cls, buffer, schema_of(cls).versions.highest, 2)


_heads: dict[type, tuple[bytes, int]] = {}


def encode_key(key: object) -> bytes:
    """Write a record's key, with its key type.

    Errors: EncodeError.
    """
    cls = type(key)
    head = _heads.get(cls)
    if head is None:
        head = _key_type(cls).to_bytes(2, "big"), schema_of(cls).versions.highest
        _heads[cls] = head
    return head[0] + encode(key, head[1])


def decode_value(cls: type[T], buffer: Buffer) -> T:
    """Read a record's value, whose first two bytes are its version.

    Errors: WireError; BadVersion if the version is not known.
    """
    return decode(cls, buffer, number_of(buffer), 2)


def encode_value(value: object, version: int) -> bytes:
    """Write a record's value, with its version.

    Errors: EncodeError, BadVersion.
    """
    return version.to_bytes(2, "big") + encode(value, version)


def number_of(buffer: Buffer) -> int:
    """The number that a key or value begins with: its key type, or its version. Errors: Truncated."""
    if len(buffer) < 2:
        raise Truncated(f"{len(buffer)} bytes have no room for a key type or version", offset=0)
    number: int = _INT16(buffer)[0]
    return number


def _key_type(cls: type) -> int:
    schema = schema_of(cls)
    if schema.kind != "coordinator-key" or schema.key_type is None:
        raise EncodeError("is not the key of a coordinator's record", api=schema.name)
    return schema.key_type
