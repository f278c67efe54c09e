"""The number of errors of each kind in a response and its rows. Source: AbstractResponse.errorCounts."""

from __future__ import annotations

from typing import Any, NamedTuple

from kwire.schema import schema_of
from kwire.types import Array

ERROR_CODES = ("error_code", "partition_error_code")


class Places(NamedTuple):
    """The error codes of a message: its own fields, by name, and the lists whose rows have them."""

    own: str | None
    rows: tuple[tuple[str, Places], ...]


_places: dict[tuple[type, int], Places] = {}


def places(message_class: type, version: int) -> Places:
    """The places of error codes in messages of a class, in a version."""
    found = _places.get((message_class, version))
    if found is None:
        found = _places[message_class, version] = _look(message_class, version)
    return found


def _look(message_class: type, version: int) -> Places:
    own, rows = None, []
    for field in schema_of(message_class).fields:
        if version not in field.versions:
            continue
        if field.name in ERROR_CODES:
            own = field.name
        elif isinstance(field.type, Array) and isinstance(field.type.element, type):
            below = places(field.type.element, version)
            if below.own or below.rows:
                rows.append((field.name, below))
    return Places(own, tuple(rows))


def count_errors(message: Any, counts: dict[int, int], version: int) -> None:
    """Count the error codes of a message, including 0, into `counts`."""
    _count([message], places(type(message), version), counts)


def _count(messages: list[Any], found: Places, counts: dict[int, int]) -> None:
    own, rows = found
    if own is not None:
        for message in messages:
            code = int(getattr(message, own))
            counts[code] = counts.get(code, 0) + 1
    for name, below in rows:
        for message in messages:
            if there := getattr(message, name):
                _count(there, below, counts)
