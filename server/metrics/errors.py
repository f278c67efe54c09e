"""How many errors of each kind a response has, in itself and in its rows. Source: AbstractResponse.errorCounts."""

from __future__ import annotations

from typing import Any, NamedTuple

from kwire.schema import schema_of
from kwire.types import Array

ERROR_CODE = "error_code"


class Places(NamedTuple):
    """Where a message has error codes: in itself, and in the rows of which lists."""

    own: bool
    rows: tuple[str, ...]


_places: dict[type, Places] = {}


def places(message_class: type) -> Places:
    """Where messages of a class have error codes."""
    found = _places.get(message_class)
    if found is None:
        found = _places[message_class] = _look(message_class)
    return found


def _look(message_class: type) -> Places:
    own, rows = False, []
    for field in schema_of(message_class).fields:
        if field.name == ERROR_CODE:
            own = True
        elif isinstance(field.type, Array) and isinstance(field.type.element, type):
            below = places(field.type.element)
            if below.own or below.rows:
                rows.append(field.name)
    return Places(own, tuple(rows))


def count_errors(message: Any, counts: dict[int, int]) -> None:
    """Count the error codes of a message, 0 among them, into `counts`."""
    own, rows = places(type(message))
    if own:
        code = int(message.error_code)
        counts[code] = counts.get(code, 0) + 1
    for name in rows:
        for row in getattr(message, name) or ():
            count_errors(row, counts)
