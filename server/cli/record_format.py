"""The forms in which `kwire consume` prints records, and the JSON that `kwire produce` reads back.

Format strings are those of kcat: see FIELDS and ESCAPES.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

#: Makes the bytes that are printed for a record of kafka-python, line end included.
Formatter = Callable[[Any], bytes]


class FormatError(ValueError):
    """A format string, or a line of JSON, that cannot be meant."""


# Printing


def formatter(form: str, all_base64: bool = False) -> Formatter:
    """The function for a form. Shape: `value`, `key-value`, `json`, or a format string. Errors: FormatError."""
    if form == "value":
        return lambda record: (record.value or b"") + b"\n"
    if form == "key-value":
        return lambda record: (record.key or b"") + b"\t" + (record.value or b"") + b"\n"
    if form == "json":
        return lambda record: to_json(record, all_base64) + b"\n"
    if "%" not in form:
        raise FormatError(
            f"{form!r} is neither value, key-value, json nor a format string such as '%k: %s\\n'"
        )
    return compiled(form)


def length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


#: What a letter behind % stands for.
FIELDS: dict[str, Formatter] = {
    "s": lambda record: record.value or b"",
    "S": lambda record: length(record.value),
    "R": lambda record: packed_length(record.value),
    "k": lambda record: record.key or b"",
    "K": lambda record: length(record.key),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "h": lambda record: b",".join(
        key.encode() + b"=" + (b"NULL" if value is None else value) for key, value in record.headers
    ),
    "%": lambda record: b"%",
}
ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
PART = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{1,2}|.?)|[^%\\]+", re.DOTALL)


def packed_length(data: bytes | None) -> bytes:
    return (-1 if data is None else len(data)).to_bytes(4, "big", signed=True)


def compiled(form: str) -> Formatter:
    """The function for a format string. Errors: FormatError, which names the part that is not understood."""
    parts: list[Formatter] = []
    for match in PART.finditer(form):
        field, escape = match[1], match[2]
        if field is not None:
            if field not in FIELDS:
                raise FormatError(f"%{field} is none of {' '.join('%' + each for each in FIELDS)}")
            parts.append(FIELDS[field])
            continue
        text = match[0].encode()
        if escape is not None:
            if escape[:1] == "x":
                text = bytes([int(escape[1:], 16)])
            elif escape in ESCAPES:
                text = ESCAPES[escape]
            else:
                raise FormatError(f"\\{escape} is none of \\n \\r \\t \\\\ \\0 \\xNN")
        parts.append(lambda _, text=text: text)  # type: ignore[misc]
    return lambda record: b"".join([part(record) for part in parts])


def kafka_formatter(properties: dict[str, str]) -> Formatter:
    """The form of kafka-console-consumer.sh with these properties. Errors: FormatError. Source: DefaultMessageFormatter."""
    known = {
        **dict.fromkeys(("print.timestamp", "print.partition", "print.offset"), "false"),
        **dict.fromkeys(("print.headers", "print.key"), "false"),
        "print.value": "true",
        "key.separator": "\t",
        "line.separator": "\n",
        "headers.separator": ",",
        "null.literal": "null",
    }
    for name in properties:
        if name not in known:
            raise FormatError(f"{name} is none of {', '.join(known)}")
    chosen = known | properties
    null = chosen["null.literal"].encode()
    between = chosen["headers.separator"].encode()

    def headers(record: Any) -> bytes:
        pairs = [
            key.encode() + b":" + (null if value is None else value)
            for key, value in record.headers
        ]
        return between.join(pairs) or b"NO_HEADERS"

    def timestamp(record: Any) -> bytes:
        kind = b"LogAppendTime" if record.timestamp_type == 1 else b"CreateTime"
        return kind + b":%d" % record.timestamp

    columns: dict[str, Formatter] = {
        "print.timestamp": timestamp,
        "print.partition": lambda record: b"Partition:%d" % record.partition,
        "print.offset": lambda record: b"Offset:%d" % record.offset,
        "print.headers": headers,
        "print.key": lambda record: null if record.key is None else record.key,
        "print.value": lambda record: null if record.value is None else record.value,
    }
    used = [column for name, column in columns.items() if chosen[name].lower() == "true"]
    separator, end = chosen["key.separator"].encode(), chosen["line.separator"].encode()
    return lambda record: separator.join([column(record) for column in used]) + end


def to_json(record: Any, all_base64: bool) -> bytes:
    """One record as a JSON object that loses nothing.

    Bytes that are UTF-8 are given as text under `key` and `value`, others as base64 under `key_base64` and
    `value_base64`; with `all_base64`, all are.
    """
    entry: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if record.timestamp_type == 1 else "CreateTime",
    }
    put(entry, "key", record.key, all_base64)
    put(entry, "value", record.value, all_base64)
    entry["headers"] = []
    for key, value in record.headers:
        header = {"key": key}
        put(header, "value", value, all_base64)
        entry["headers"].append(header)
    return json.dumps(entry, ensure_ascii=False).encode()


def put(entry: dict[str, Any], name: str, data: bytes | None, all_base64: bool) -> None:
    """Add bytes to a JSON object, as text if they are text."""
    if data is None:
        entry[name] = None
        return
    if not all_base64:
        try:
            entry[name] = data.decode()
            return
        except UnicodeDecodeError:
            pass
    entry[f"{name}_base64"] = base64.b64encode(data).decode()


# Reading back


class JsonRecord(NamedTuple):
    """A record to send. Shape: `partition` and `timestamp` are None if the line does not have them."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int | None


NAMES = ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp")
#: What `kwire consume` says of a record that is no part of a new one.
IGNORED = ("topic", "offset", "timestamp_type")


def from_json(line: bytes) -> JsonRecord:
    """Read one line as `to_json` writes it; every field may be left out. Errors: FormatError."""
    try:
        entry = json.loads(line)
    except ValueError as error:  # UnicodeDecodeError is one
        raise FormatError(f"not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise FormatError("not a JSON object")
    for name in entry:
        if name not in NAMES and name not in IGNORED:
            raise FormatError(f"{name!r} is none of {', '.join(NAMES)}")
    headers = entry.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(each, dict) for each in headers):
        raise FormatError('headers: not a list of {"key": ..., "value": ...}')
    return JsonRecord(
        data_of(entry, "key"),
        data_of(entry, "value"),
        [(name_of(header), data_of(header, "value")) for header in headers],
        number_of(entry, "partition"),
        number_of(entry, "timestamp"),
    )


def name_of(header: dict[str, Any]) -> str:
    name = header.get("key")
    if not isinstance(name, str):
        raise FormatError("headers: the key of a header is not a text")
    return name


def data_of(entry: dict[str, Any], name: str) -> bytes | None:
    text, encoded = entry.get(name), entry.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise FormatError(f"{name} and {name}_base64: give only one of them")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise FormatError(f"{name}_base64: not base64") from None
    if text is None:
        return None
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise FormatError(f"{name}: half of a surrogate pair is not a text") from None
    raise FormatError(f"{name}: not a text or null; JSON inside a {name} is given as a text")


def number_of(entry: dict[str, Any], name: str) -> int | None:
    value = entry.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise FormatError(f"{name}: not a whole number")
