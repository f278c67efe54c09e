"""Java's .properties format, used by server.properties and meta.properties.

Source: java.util.Properties.load and store. Keys end at the first unescaped `=`, `:` or blank; a
backslash at the end of a line joins the next one without its indentation; `#` and `!` begin a comment.
"""

from __future__ import annotations

from pathlib import Path

BLANKS = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """The text is not a valid .properties file; the message names the line."""


def read_properties(path: str) -> dict[str, str]:
    """Read a file of keys and values, in UTF-8 with or without a byte order mark.

    A file that is not UTF-8 is in ISO 8859-1, in which Java reads all of them.
    Errors: OSError; PropertiesError, which names the file.
    """
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    try:
        return parse_properties(text)
    except PropertiesError as error:
        raise PropertiesError(f"{path}: {error}") from None


def parse_properties(text: str) -> dict[str, str]:
    """Read keys and values; the last of duplicate keys counts. Errors: PropertiesError for a bad \\u escape and for NUL."""
    result: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = _key_end(line)
        rest = line[end:].lstrip(BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(BLANKS)
        key, value = _unescape(line[:end], number), _unescape(rest, number)
        if "\0" in key or "\0" in value:
            # No path can contain it, and a file in UTF-16 is full of it.
            raise PropertiesError(f"not a text file (line {number} contains NUL)")
        result[key] = value
    return result


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending: str | None = None
    start = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, start = "", number
        pending += line
        if _ends_in_open_backslash(pending):
            pending = pending[:-1]
        else:
            lines.append((start, pending))
            pending = None
    if pending:
        lines.append((start, pending))
    return lines


def _ends_in_open_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _key_end(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=:" + BLANKS:
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            parts.append(char)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            position += 4
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(f"line {line}: \\u{digits} is not \\uXXXX")
            parts.append(chr(int(digits, 16)))
        else:
            parts.append(ESCAPES.get(escaped, escaped))
    # Java writes characters beyond the first plane as two escapes.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
