"""Makes messages from bytes: any bytes result in a message that its version can carry.

The bytes choose lengths and values, so Hypothesis shrinks messages by shrinking bytes, and a seeded random generator
also works. When they run out, the remaining fields get the smallest values.
"""

from __future__ import annotations

from typing import Any

from kwire.interpreter import is_default, known_tags
from kwire.schema import Field, Schema, schema_of
from kwire.types import Array, Bool, Fixed, Float64, Sized, String, Uuid, WireType

_TEXTS = ("", "a", "orders", "x" * 130, "ü€😀", "\0", "__consumer_offsets", "b" * 300)
_SIZES = (0, 1, 7, 126, 127, 128, 2000, 16383)


class Entropy:
    """Bytes, used up one by one."""

    def __init__(self, data: bytes) -> None:
        self.data = iter(data)

    def below(self, limit: int) -> int:
        return next(self.data, 0) % limit

    def raw(self, size: int) -> bytes:
        return bytes(next(self.data, 0) for _ in range(size))


def message_from(cls: type, version: int, data: bytes) -> Any:
    """Make a message in which every field that its version does not have is default."""
    return _struct(cls, version, schema_of(cls), Entropy(data))


def _struct(cls: type, version: int, top: Schema, entropy: Entropy) -> Any:
    values = {}
    for field in schema_of(cls).fields:
        if version in field.versions:
            value = _field(field, version, top, entropy)
            # A tagged struct that is default is not sent and comes back as None.
            if not (version in field.tagged and field.is_struct and is_default(field, value)):
                values[field.name] = value
    made = cls(**values)
    if version in top.flexible and entropy.below(8) == 1:
        first = max(known_tags(schema_of(cls)), default=-1) + 1
        made.unknown_tags = {
            first + entropy.below(200): entropy.raw(_SIZES[entropy.below(4)])
            for _ in range(1 + entropy.below(3))
        }
    return made


def _field(field: Field, version: int, top: Schema, entropy: Entropy) -> Any:
    if version in field.tagged and entropy.below(3) == 0:
        return field.make_default()
    if version in field.nullable and entropy.below(4) == 1:
        return None
    return _value(field.type, version, top, entropy)


def _value(type_: WireType, version: int, top: Schema, entropy: Entropy) -> Any:
    if isinstance(type_, Array):
        # The compiled codecs treat up to 15 numbers, and counts from 127 on, in their own way.
        counts = (0, 1, 2, 3, 15, 16, 130) if isinstance(type_.element, Fixed) else (0, 1, 2, 3)
        count = counts[entropy.below(len(counts))]
        return [_value(type_.element, version, top, entropy) for _ in range(count)]
    if isinstance(type_, Fixed):
        return _fixed(type_, entropy)
    if type_ is String:
        return _TEXTS[entropy.below(len(_TEXTS))]
    if isinstance(type_, Sized):
        return bytes(_SIZES[entropy.below(len(_SIZES))])
    return _struct(type_, version, top, entropy)


def _fixed(type_: Fixed, entropy: Entropy) -> Any:
    if type_ is Uuid:
        return entropy.raw(16)
    if type_ is Bool:
        return entropy.below(2) == 1
    if type_ is Float64:
        return (0.0, -1.5, 1e300, float("inf"))[entropy.below(4)]
    signed = type_.name.startswith("int")
    edge = entropy.below(8)
    if edge < 4:
        highest = (1 << (type_.size * 8 - signed)) - 1
        return (0, 1, highest, -highest - 1 if signed else highest)[edge]
    return int.from_bytes(entropy.raw(type_.size), "big", signed=signed)
