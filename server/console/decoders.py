"""Avro and Protobuf: records decoded by the schemas in a directory (`kwire.console.schemas`).

`TOPIC-value.avsc` and `TOPIC-key.avsc` are Avro schemas. `TOPIC-value.desc` is a set of Protobuf descriptors, as
written by `protoc --include_imports --descriptor_set_out`; its last message is the type of the values, and
`TOPIC-value.desc.NAME` names another one. The five bytes that serializers of a schema registry write before a record,
and the message indexes of Protobuf, are skipped.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .filters import MAX_PARSED_BYTES, Searched
from .values import Shown, document

logger = logging.getLogger(__name__)

Decode = Callable[[bytes], Any]
#: The registry's prefix: a zero byte and the schema's id in four bytes.
PREFIX = 5
#: The largest Avro decimal that is shown as a number: 300 digits.
MAX_DECIMAL_BYTES = 128


class TopicDecoder:
    """Decodes the keys and values of one topic. Shape: bytes that cannot be decoded are shown unchanged."""

    def __init__(self, key: tuple[str, Decode] | None, value: tuple[str, Decode] | None) -> None:
        self.key = key
        self.value = value

    def look(self, record: Searched) -> None:
        """Make the decoded value available to filters."""
        if self.value is not None and record.value is not None and may_parse(record.value):
            try:
                record.decoded = self.value[1](record.value)
            except Exception:  # noqa: BLE001 - whatever it is, it is not of this schema
                return

    def shown(self, record: Searched, key: Shown, value: Shown) -> tuple[Shown, Shown]:
        """The key and the value, decoded if possible."""
        return of_schema(self.key, record.key, key), of_schema(self.value, record.value, value)


def may_parse(data: bytes) -> bool:
    """Whether bytes are short enough to be decoded in one step."""
    return len(data) <= MAX_PARSED_BYTES


def of_schema(decoder: tuple[str, Decode] | None, data: bytes | None, plain: Shown) -> Shown:
    """Bytes decoded by their schema, or else unchanged."""
    if decoder is None or data is None or not may_parse(data):
        return plain
    kind, decode = decoder
    try:
        return document(kind, data, decode(data))
    except Exception:  # noqa: BLE001 - as above
        return plain


class Decoders:
    """The decoders of all topics, from the files of a directory. Shape: each file is read once, on first use."""

    def __init__(self, directory: str | None) -> None:
        self._directory = None if not directory else Path(directory)
        self._known: dict[str, TopicDecoder | None] = {}

    def of(self, topic: str) -> TopicDecoder | None:
        """The decoder of a topic; None without a schema."""
        if self._directory is None:
            return None
        if topic not in self._known:
            key, value = self._read(f"{topic}-key"), self._read(f"{topic}-value")
            self._known[topic] = TopicDecoder(key, value) if key or value else None
        return self._known[topic]

    def _read(self, name: str) -> tuple[str, Decode] | None:
        assert self._directory is not None
        avro = self._directory / f"{name}.avsc"
        try:
            if avro.is_file():
                return "avro", avro_decoder(avro.read_text(encoding="utf-8"))
            for path in sorted(self._directory.glob(f"{name}.desc*")):
                message = path.name.removeprefix(f"{name}.desc").removeprefix(".")
                return "protobuf", protobuf_decoder(path.read_bytes(), message)
        except Exception as error:  # noqa: BLE001 - the file is not what it should be
            logger.warning("the schema %s cannot be used: %s", name, error)
        return None


def avro_decoder(schema: str) -> Decode:
    """A reader for records of an Avro schema.

    Errors: ImportError without fastavro; those of an invalid schema; ValueError for a schema whose records can claim
    more items than they contain.
    """
    import json

    import fastavro
    from fastavro.read import LOGICAL_READERS

    parsed = fastavro.parse_schema(json.loads(schema))
    shape = AvroShape()
    shape.least(parsed)
    if shape.is_recursive:
        # The reader in C calls itself for each level; 100,000 of them, in as many bytes, would crash the process.
        from fastavro._read_py import schemaless_reader
    else:
        from fastavro import schemaless_reader
    for name in ("bytes-decimal", "fixed-decimal"):
        LOGICAL_READERS[name] = short_decimals(LOGICAL_READERS[name])

    def decode(data: bytes) -> Any:
        body = io.BytesIO(data[PREFIX:] if data[:1] == b"\x00" and len(data) > PREFIX else data)
        return schemaless_reader(body, parsed, None)

    return decode


class AvroShape:
    """The sizes that a schema lets its records claim. Shape: `is_recursive` is known after `least`."""

    def __init__(self) -> None:
        self.is_recursive = False
        self._open: list[str] = []
        self._named: dict[str, int] = {}

    def least(self, schema: Any) -> int:
        """The minimum size of a value; at least 1 if it cannot be empty.

        Errors: ValueError for an array whose items may be empty: a few bytes could claim millions of them.
        """
        if isinstance(schema, list):
            for each in schema:
                self.least(each)
            return 1
        if isinstance(schema, str):
            if schema in self._open:
                self.is_recursive = True
                return 1
            return self._named.get(schema, 0 if schema == "null" else 1)
        kind, name = schema["type"], schema.get("name", "")
        if kind in ("record", "error"):
            self._open.append(name)
            bytes_count = sum([self.least(each["type"]) for each in schema["fields"]])
            self._open.pop()
        elif kind == "array":
            if not self.least(schema["items"]):
                raise ValueError("it has an array of items that take no bytes")
            return 1
        elif kind == "map":
            self.least(schema["values"])
            return 1
        elif kind == "fixed":
            bytes_count = int(schema["size"])
        elif kind == "enum":
            bytes_count = 1
        else:
            return self.least(kind)
        self._named[name] = bytes_count
        return bytes_count


def short_decimals(read: Callable[..., Any]) -> Callable[..., Any]:
    """A reader of decimals that refuses those that take long to convert to text."""
    if hasattr(read, "is_short"):
        return read

    def short(data: Any, *rest: Any) -> Any:
        if len(data) > MAX_DECIMAL_BYTES:
            raise ValueError("a decimal is too long")
        return read(data, *rest)

    short.is_short = True  # type: ignore[attr-defined]
    return short


def protobuf_decoder(descriptors: bytes, name: str = "") -> Decode:
    """A reader for messages of a set of descriptors. Errors: ImportError without protobuf; ValueError, KeyError."""
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    if not name:
        last = [file for file in files.file if file.message_type][-1]
        name = ".".join(filter(None, (last.package, last.message_type[-1].name)))
    cls = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    def decode(data: bytes) -> Any:
        message = cls.FromString(without_prefix(data))
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    return decode


def without_prefix(data: bytes) -> bytes:
    """A message without the prefix of a registry's serializer: a zero byte, an id, a count and that many indexes."""
    if data[:1] != b"\x00" or len(data) <= PREFIX:
        return data
    at = PREFIX
    count, at = zigzag(data, at)
    for _ in range(min(count, 64)):
        _, at = zigzag(data, at)
    return data[at:]


def zigzag(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 35:
            raise ValueError("a number is too long")
