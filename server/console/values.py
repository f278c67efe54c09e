"""Keys and values in displayed form: text, JSON, hexadecimal, MessagePack. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .documents import Members, parsed, written
from .filters import MAX_PARSED_BYTES
from .units import shortened

#: The maximum numbers of characters in a table's line, and in an opened record.
MAX_LINE = 240
MAX_TEXT = 64 * 1024
FORMS = ("auto", "text", "json", "hex", "msgpack")


class Shown(NamedTuple):
    """Bytes in displayed form. Shape: `kind` names the form; `line` is the beginning; `whole` is empty if there is no
    more.
    """

    kind: str
    size: int
    line: str
    whole: str = ""


def shown(data: bytes | None, form: str = "auto") -> Shown:
    """Show bytes in a form of FORMS; `auto` chooses JSON, text or hexadecimal."""
    if data is None:
        return Shown("null", 0, "")
    if not data:
        return Shown("empty", 0, "")
    if form == "hex":
        return hexadecimal(data)
    if form == "msgpack" and len(data) <= MAX_PARSED_BYTES:
        return from_msgpack(data)
    text = readable(data)
    if text is None:
        if form == "text":
            return of_text("text", data, data.decode("utf-8", "backslashreplace"))
        return hexadecimal(data)
    if len(data) <= MAX_PARSED_BYTES and (
        form == "json" or (form == "auto" and text.lstrip()[:1] in ("{", "["))
    ):
        try:
            return document("json", data, parsed(text))
        except (ValueError, RecursionError):
            pass
    return of_text("text", data, text)


def readable(data: bytes) -> str | None:
    """Bytes as text, if they are UTF-8 without control characters."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(character >= " " or character in "\t\r\n" for character in text) else None


def of_text(kind: str, data: bytes, text: str) -> Shown:
    """A text, with line breaks only in the whole."""
    line = " ".join(text[: 2 * MAX_LINE].split())
    short = shortened(line, MAX_LINE)
    return Shown(kind, len(data), short, "" if short == text else shortened(text, MAX_TEXT))


def document(kind: str, data: bytes, value: Any) -> Shown:
    """A value that JSON can represent; other values are shown as text."""
    try:
        line = beginning(written(value), MAX_LINE)
        whole = beginning(written(value, indent=2), MAX_TEXT)
    except (ValueError, TypeError, RecursionError):
        return hexadecimal(data)
    return Shown(kind, len(data), shortened(line, MAX_LINE), shortened(whole, MAX_TEXT))


def beginning(pieces: Iterator[str], most: int) -> str:
    """The beginning of a text: indentation can make deeply nested values a thousand times longer."""
    taken, length = [], 0
    for piece in pieces:
        taken.append(piece)
        length += len(piece)
        if length > most:
            break
    return "".join(taken)


def hexadecimal(data: bytes) -> Shown:
    """Bytes in lines of sixteen, with their readable characters next to them."""
    line = shortened(data[:MAX_LINE].hex(" "), MAX_LINE)
    lines = []
    for at in range(0, min(len(data), MAX_TEXT // 4), 16):
        row = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {text}")
    return Shown("hex", len(data), line, "\n".join(lines))


def from_msgpack(data: bytes) -> Shown:
    """MessagePack, if the package `msgpack` is installed and the bytes are MessagePack."""
    try:
        import msgpack
    except ImportError:
        return hexadecimal(data)
    try:
        value = msgpack.unpackb(
            data,
            strict_map_key=False,
            raw=False,
            max_buffer_size=len(data) or 1,
            object_pairs_hook=Members,
        )
    except Exception:  # noqa: BLE001 - whatever it is, it is no MessagePack
        return hexadecimal(data)
    return document("msgpack", data, value)
