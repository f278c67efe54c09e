"""The words of a command line, each checked once, where it is read: what cannot be sent is refused before anything is done.

A word has to fit into a string of the protocol unless its argument says otherwise, so that a new argument is checked too.
"""

from __future__ import annotations

from argparse import PARSER, Action, ArgumentError, ArgumentParser
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: The length of the protocol's strings, in bytes of UTF-8 (`kwire/interpreter.py`, which takes long to import).
MAX_STRING_BYTES = 32767
#: Beginnings of the names of values that are paths: a file's name may be any bytes.
PATHS = ("FILE", "DIR", "PLAN")
#: The characters of a refused word that are shown.
SHOWN = 40


class Parser(ArgumentParser):
    """A parser whose words are strings of the protocol, except paths, and what has a type `of_any_length`."""

    #: Whether a path may be any bytes.
    any_path = True

    def _get_value(self, action: Action, arg_string: str) -> Any:
        if (
            not (self.any_path and is_path(action)) and action.nargs != PARSER
        ):  # whose words another parser reads
            is_long = getattr(action.type, "of_any_length", False)
            refused = fault_of(arg_string, None if is_long else MAX_STRING_BYTES)
            if refused is not None:
                raise ArgumentError(action, f"{shown(arg_string)} {refused}")
        return super()._get_value(action, arg_string)

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = ", ".join(map(str, action.choices))
            raise ArgumentError(action, f"{shown(str(value))} is not one of {known}")


def is_path(action: Action) -> bool:
    """Whether the value of an argument is a path."""
    return isinstance(action.metavar, str) and action.metavar.startswith(PATHS)


def of_any_length(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let a type have words of any length; the parser checks that they are UTF-8."""
    parse.of_any_length = True  # type: ignore[attr-defined]
    return parse


@of_any_length
def text(word: str) -> str:
    """A word that becomes bytes of a record or of the output."""
    return word


def fault_of(word: str, most: int | None = MAX_STRING_BYTES) -> str | None:
    """Why a text cannot be sent as a string; None if it can. Unit: `most` is in bytes; None for no limit."""
    try:
        size = len(word.encode())
    except UnicodeEncodeError:
        return "is not text in UTF-8"
    if most is not None and size > most:
        return f"is too long: {size:,} bytes, of at most {most:,}"
    return None


def fault_of_host(host: str) -> str | None:
    """Why no address can be looked up for a host; None if one can. For a name outside ASCII, it loads Unicode's tables."""
    labels = host.removesuffix(".").split(".")
    if host.isascii() and all(0 < len(label) < 64 for label in labels):
        return None
    try:
        host.encode("idna")
    except UnicodeError:
        return f"{shown(host)} is not the name of a host"
    return None


def shown(word: str) -> str:
    """A word, or its beginning, as it is shown in an error message."""
    return repr(word) if len(word) <= SHOWN else f"{word[:SHOWN]!r}..."
