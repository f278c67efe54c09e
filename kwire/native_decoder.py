"""Decoders of the native module for messages and versions, and the description of fields for its StructDecoder.

A field has a kind: the code of a fixed-size type; `u` for an id, `S` a string, `B` bytes, `R` records, `A` an array,
`O` a struct; `=` for a field that is not sent and has a default, `(` for a default that is made for each object. The
few messages with other types are decoded in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kwire import native
from kwire.interpreter import min_size
from kwire.schema import Field, Schema, schema_of
from kwire.source_writer import has_records
from kwire.types import Array, Bytes, Records, String, Uuid, WireType

_KINDS = {Uuid: "u", String: "S", Bytes: "B", Records: "R"}
_FIXED = "bhiq?"


def native_decoder(
    cls: type,
    version: int,
    most: int | None,
    otherwise: Callable[[Any, int, int], tuple[Any, int]],
) -> Callable[[Any, int, int], tuple[Any, int]] | None:
    """Make `decode(buffer, pos, end)`, which passes unusual input to `otherwise`; None without the native module."""
    if native.StructDecoder is None:
        return None
    schema = schema_of(cls)
    options = {} if most is None else {"most": most}
    try:
        decoder = native.StructDecoder(
            cls,
            _fields(cls, schema, version),
            version in schema.flexible,
            has_records=has_records(cls),
            otherwise=otherwise,
            **options,
        )
    except NotImplementedError:
        return None
    decode: Callable[[Any, int, int], tuple[Any, int]] = decoder.decode
    return decode


def _fields(cls: type, message: Schema, version: int) -> list[tuple[Any, ...]]:
    fields: list[tuple[Any, ...]] = []
    for declared in schema_of(cls).fields:
        if version not in declared.versions or version in declared.tagged:
            kind, default = _default(declared)
            fields.append((declared.name, kind, False, False, "-", 0, default))
            continue
        flexible = message.flexible if declared.flexible is None else declared.flexible
        compact, nullable = version in flexible, version in declared.nullable
        type_, element, smallest = declared.type, "-", 0
        kind = "A" if isinstance(type_, Array) else _kind(type_)
        if isinstance(type_, Array):
            type_ = type_.element
            element, smallest = _kind(type_), min_size(type_, version, compact)
        elif kind == "O" and nullable:
            raise NotImplementedError(f"{declared.name} may be null")
        other = None
        if isinstance(type_, type):
            assert native.StructDecoder is not None
            rows = _fields(type_, message, version)
            other = native.StructDecoder(type_, rows, version in message.flexible)
        fields.append((declared.name, kind, compact, nullable, element, smallest, other))
    return fields


def _kind(type_: WireType) -> str:
    if isinstance(type_, type):
        return "O"
    kind = _KINDS.get(type_)
    if kind is None:
        kind = getattr(type_, "code", "")
        if not kind or kind not in _FIXED:
            raise NotImplementedError(f"{type_} is not read natively")
    return str(kind)


def _default(declared: Field) -> tuple[str, object]:
    if declared.fresh_default and isinstance(declared.type, Array):
        return "(", list
    if declared.fresh_default and declared.tag < 0:
        return "(", declared.type
    return "=", declared.make_default()
