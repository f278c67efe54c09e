"""JSON documents as they are stored: numbers digit by digit, and objects with all of their names. Pure.

Python's own reading would turn 1.10 into 1.1 and 1e400 into infinity, and would keep only the last of several equal
names in an object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any


class Number:
    """A number of a document, as it is written there."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def value(self) -> Decimal | None:
        """Its exact value; None for NaN and what is beyond all limits."""
        return exact(self.text)


class Members(list[tuple[Any, Any]]):
    """The members of an object, as pairs of name and value in the order in which they are stored."""


def exact(text: str) -> Decimal | None:
    """The exact value of a number; None if the text is not one."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def parsed(data: bytes | str) -> Any:
    """Read a document, with `Number` and `Members` in place of numbers and objects. Errors: ValueError, RecursionError."""
    return json.loads(
        data,
        parse_int=Number,
        parse_float=Number,
        parse_constant=Number,
        object_pairs_hook=Members,
    )


def written(value: Any, indent: int | None = None) -> Iterator[str]:
    """A document in pieces: in one line, or in lines with an indent.

    Shape: besides what `parsed` returns, `value` may have dictionaries, numbers and values of other types, which are
    shown as texts. Errors: RecursionError, for documents that are nested too deeply; TypeError for names that JSON cannot
    have.
    """
    return _written(value, indent, "\n")


def _written(value: Any, indent: int | None, line: str) -> Iterator[str]:
    if isinstance(value, Number):
        yield value.text
    elif isinstance(value, dict | Members):
        members = value.items() if isinstance(value, dict) else value
        yield from _listed(
            (
                (f"{json.dumps(name_of(name), ensure_ascii=False)}: ", each)
                for name, each in members
            ),
            "{}",
            indent,
            line,
        )
    elif isinstance(value, list | tuple):
        yield from _listed((("", each) for each in value), "[]", indent, line)
    else:
        yield json.dumps(value, ensure_ascii=False, default=str)


def _listed(
    items: Iterator[tuple[str, Any]], brackets: str, indent: int | None, line: str
) -> Iterator[str]:
    inner = "" if indent is None else line + " " * indent
    between = ", " if indent is None else f",{inner}"
    before = inner
    yield brackets[0]
    for prefix, each in items:
        yield before + prefix
        yield from _written(each, indent, inner)
        before = between
    if indent is not None and before is between:
        yield line
    yield brackets[1]


def name_of(name: Any) -> str:
    """The name of a member as a text: MessagePack has numbers too. Errors: TypeError for other names."""
    if isinstance(name, str):
        return name
    if name is None or isinstance(name, int | float):
        return json.dumps(name)
    raise TypeError(f"a name is of type {type(name).__name__}")


def text_of(value: Any) -> str:
    """A part of a document as a text; strings without quotes."""
    return value if isinstance(value, str) else "".join(written(value))
