"""The memory of decoded values, for limits that are checked before anything is allocated."""

from __future__ import annotations

from functools import cache

from kwire.api import response_class
from kwire.schema import schema_of
from kwire.types import Array, Fixed, Sized, WireType

#: Unit: bytes, in CPython: the header of an object that the collector tracks, and of one that it does not.
TRACKED_BYTES = 32
NUMBER_BYTES = 32
LIST_BYTES = 72
#: A short string, or the object around bytes. Empty strings take no memory themselves, but an answer has a row for
#: each.
STRING_BYTES = 96


@cache
def memory_of(type_: WireType, version: int) -> int:
    """The memory of a value, without the elements of its arrays and the content of its strings. Unit: bytes.

    Shape: a high estimate, except for long strings, which take as much as on the wire.
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


@cache
def answer_row(request: type, depth: int) -> int:
    """The memory of a row in a request's response, for each element of an array at the same depth. Unit: bytes.

    Shape: the outermost arrays have depth 1. Strings and numbers do not count, because rows share them or repeat those
    of the request. 0 for other messages, and if the response has no rows at that depth.
    """
    schema = schema_of(request)
    if schema.kind != "request" or schema.api_key is None:
        return 0
    structs = [response_class(schema.api_key)]
    for _ in range(depth):
        arrays = [
            declared.type.element
            for struct in structs
            for declared in schema_of(struct).fields
            if isinstance(declared.type, Array)
        ]
        structs = [element for element in arrays if isinstance(element, type)]
    return max(map(row_of, structs), default=0)


def row_of(struct: type) -> int:
    """The memory of an object with its empty lists, and its entry in a list. Unit: bytes."""
    size = 8 + TRACKED_BYTES + 8
    for declared in schema_of(struct).fields:
        size += 8 + (LIST_BYTES if isinstance(declared.type, Array) else 0)
    return size
