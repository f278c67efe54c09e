"""What decoded values take in memory, for bounds that are checked before anything is allocated."""

from __future__ import annotations

from functools import cache

from kwire.schema import schema_of
from kwire.types import Array, Fixed, Sized, WireType

#: Unit: bytes, in CPython: the header of an object that the collector tracks, and one that it does not.
TRACKED_BYTES = 32
NUMBER_BYTES = 32
LIST_BYTES = 72
#: A short string, or the object around bytes. Empty strings take nothing, but an answer has a row for each.
STRING_BYTES = 96


@cache
def memory_of(type_: WireType, version: int) -> int:
    """What a value takes, without the elements of its arrays and the content of its strings. Unit: bytes.

    Shape: an estimate on the high side, except for long strings, which take as much as on the wire.
    """
    if isinstance(type_, Fixed):
        return NUMBER_BYTES if type_.size > 1 else 0
    if isinstance(type_, Sized):
        return STRING_BYTES
    if isinstance(type_, Array):
        return LIST_BYTES
    size = TRACKED_BYTES + 8
    for declared in schema_of(type_).fields:
        size += 8
        if (
            version in declared.versions and version not in declared.tagged
        ) or declared.fresh_default:
            size += memory_of(declared.type, version)
    return size
