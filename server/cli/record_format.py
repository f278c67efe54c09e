"""The forms in which `kwire consume` prints records, and the JSON input of `kwire produce`.

Format strings are those of kcat; see FIELDS and ESCAPES.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.records.record import Record

#: json.dumps would make an encoder for each record.
encode_json = json.JSONEncoder(ensure_ascii=False).encode


class Source(NamedTuple):
    """The origin of a record. Shape: `timestamp_type` is 1 for LogAppendTime."""

    topic: str
    partition: int
    timestamp_type: int


#: Makes the printed bytes of a record, including the line end.
Formatter = Callable[[Record, Source], bytes]


class Around(NamedTuple):
    """The text that a form prints before and after each value, and for null."""

    before: bytes
    after: bytes
    null: bytes


class PrintForm(NamedTuple):
    """The way to print records. Shape: `around` is set if only values are printed."""

    one: Formatter
    around: Around | None = None


class FormatError(ValueError):
    """An invalid format string or line of JSON."""


# Printing


def formatter(form: str, all_base64: bool = False) -> PrintForm:
    """A form by name. Shape: `value`, `key-value`, `json`, or a format string. Errors: FormatError."""
    if form == "value":
        return compiled("%s\\n")
    if form == "key-value":
        return PrintForm(lambda record, _: b"%b\t%b\n" % (record.key or b"", record.value or b""))
    if form == "json":
        return PrintForm(lambda record, source: to_json(record, source, all_base64) + b"\n")
    if "%" not in form:
        raise FormatError(
            f"{form!r} is neither value, key-value, json nor a format string such as '%k: %s\\n'"
        )
    return compiled(form)


def length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def header_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


#: The meaning of a letter after %.
FIELDS: dict[str, Formatter] = {
    "s": lambda record, _: record.value or b"",
    "S": lambda record, _: length(record.value),
    "R": lambda record, _: packed_length(record.value),
    "k": lambda record, _: record.key or b"",
    "K": lambda record, _: length(record.key),
    "t": lambda _, source: source.topic.encode(),
    "p": lambda _, source: b"%d" % source.partition,
    "o": lambda record, _: b"%d" % record.offset,
    "T": lambda record, _: b"%d" % record.timestamp,
    "h": lambda record, _: b",".join(
        header_key(key) + b"=" + (b"NULL" if value is None else value)
        for key, value in record.headers
    ),
}
ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
PART = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{1,2}|.?)|[^%\\]+", re.DOTALL)


def packed_length(data: bytes | None) -> bytes:
    return (-1 if data is None else len(data)).to_bytes(4, "big", signed=True)


def compiled(form: str) -> PrintForm:
    """A format string. Errors: FormatError, which names the invalid part."""
    fields: list[str] = []
    texts = [b""]
    for match in PART.finditer(form):
        field, escape = match[1], match[2]
        if field is None:
            texts[-1] += match[0].encode() if escape is None else escaped(escape)
        elif field == "%":
            texts[-1] += b"%"
        elif field in FIELDS:
            fields.append(field)
            texts.append(b"")
        else:
            known = " ".join("%" + each for each in (*FIELDS, "%"))
            raise FormatError(f"%{field} is not one of {known}")
    if fields == ["s"]:
        before, after = texts
        return PrintForm(
            lambda record, _: before + (record.value or b"") + after, Around(before, after, b"")
        )
    template = b"%b".join(text.replace(b"%", b"%%") for text in texts)
    parts = [FIELDS[field] for field in fields]
    return PrintForm(
        lambda record, source: template % tuple([part(record, source) for part in parts])
    )


def escaped(escape: str) -> bytes:
    """The meaning of a backslash and a letter. Errors: FormatError."""
    if escape[:1] == "x" and len(escape) > 1:
        return bytes([int(escape[1:], 16)])
    if escape in ESCAPES:
        return ESCAPES[escape]
    raise FormatError(f"\\{escape} is not one of \\n \\r \\t \\\\ \\0 \\xNN")


def kafka_formatter(properties: dict[str, str]) -> PrintForm:
    """The form of kafka-console-consumer.sh with these properties. Errors: FormatError. Source:
    DefaultMessageFormatter.
    """
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
            raise FormatError(f"{name} is not one of {', '.join(known)}")
    chosen = known | properties
    null = chosen["null.literal"].encode()
    between = chosen["headers.separator"].encode()

    def headers(record: Record, _: Source) -> bytes:
        pairs = [
            header_key(key) + b":" + (null if value is None else value)
            for key, value in record.headers
        ]
        return between.join(pairs) or b"NO_HEADERS"

    columns: dict[str, Formatter] = {
        "print.timestamp": lambda record, source: (
            timestamp_type(source).encode() + b":%d" % record.timestamp
        ),
        "print.partition": lambda _, source: b"Partition:%d" % source.partition,
        "print.offset": lambda record, _: b"Offset:%d" % record.offset,
        "print.headers": headers,
        "print.key": lambda record, _: null if record.key is None else record.key,
        "print.value": lambda record, _: null if record.value is None else record.value,
    }
    names = [name for name in columns if chosen[name].lower() == "true"]
    used = [columns[name] for name in names]
    separator, end = chosen["key.separator"].encode(), chosen["line.separator"].encode()
    return PrintForm(
        lambda record, source: separator.join([column(record, source) for column in used]) + end,
        Around(b"", end, null) if names == ["print.value"] else None,
    )


def timestamp_type(source: Source) -> str:
    """The type of a record's timestamp, in Apache Kafka's words."""
    return "LogAppendTime" if source.timestamp_type == 1 else "CreateTime"


def to_json(record: Record, source: Source, all_base64: bool) -> bytes:
    """One record as a lossless JSON object.

    Bytes in UTF-8 are text under `key` and `value`, other bytes are base64 under `key_base64` and `value_base64`; with
    `all_base64`, all bytes are base64.
    """
    entry: dict[str, Any] = {
        "topic": source.topic,
        "partition": source.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": timestamp_type(source),
    }
    put(entry, "key", record.key, all_base64)
    put(entry, "value", record.value, all_base64)
    entry["headers"] = []
    for key, value in record.headers:
        header: dict[str, Any] = {}
        put(header, "key", header_key(key), False)
        put(header, "value", value, all_base64)
        entry["headers"].append(header)
    return encode_json(entry).encode()


def put(entry: dict[str, Any], name: str, data: bytes | None, all_base64: bool) -> None:
    """Add bytes to a JSON object, as text if they are UTF-8."""
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
#: Fields that `kwire consume` prints but that do not belong to a new record.
IGNORED = ("topic", "offset", "timestamp_type")


def from_json(line: bytes) -> JsonRecord:
    """Read one line in the format of `to_json`; every field is optional. Errors: FormatError."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:  # includes UnicodeDecodeError
        raise FormatError(f"not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise FormatError("not a JSON object")
    for name in entry:
        if name not in NAMES and name not in IGNORED:
            raise FormatError(f"{name!r} is not one of {', '.join(NAMES)}")
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
    name = data_of(header, "key")
    if name is None:
        raise FormatError("headers: the key of a header is not a text")
    return name.decode("utf-8", "surrogateescape")


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
