"""What the forms that are written by hand know of a message, compared with its declaration when they are loaded.

A form states in which versions the fields change that it reads or writes, and the newest version that it knows. Newer
versions, which may have other fields or another meaning, are left to the codec and the handler.
"""

from __future__ import annotations

from typing import Any

from kwire.schema import Schema, schema_of
from kwire.types import Array, WireType


def check_layouts(message: type, since: tuple[int, ...], newest: int) -> None:
    """Compare what a form knows of a message with its declaration.

    Shape: `since` are the first version that it knows, and each one after it in which the untagged fields change, or their
    encoding, up to the `newest`. Errors: ValueError if the message is declared otherwise.
    """
    layouts: dict[int, object] = {-1: None}
    for version in range(since[0], newest + 1):
        layout = _layout(message, version)
        if layout != next(reversed(layouts.values())):
            layouts[version] = layout
    changes, declared = tuple(layouts)[1:], schema_of(message).versions
    if changes != since or newest not in declared:
        raise ValueError(
            f"{message.__name__} {declared} changes in the versions {changes};"
            f" a form of it knows those up to {newest}, and that it changes in {since}"
        )


def _layout(message: type, version: int) -> tuple[Any, ...]:
    schema = schema_of(message)
    return version in schema.flexible, *_fields(schema, version)


def _fields(schema: Schema, version: int) -> list[tuple[Any, ...]]:
    """The untagged fields, in the order in which they are sent."""
    return [
        (each.name, version in each.nullable, *_type(each.type, version))
        for each in schema.fields
        if version in each.versions and version not in each.tagged
    ]


def _type(type_: WireType, version: int) -> tuple[Any, ...]:
    if isinstance(type_, Array):
        return "[]", *_type(type_.element, version)
    if isinstance(type_, type):
        return tuple(_fields(schema_of(type_), version))
    return (type_,)
