"""Avro and Protobuf: records decoded by the schemas in a directory (`kwire.console.schemas`).

`TOPIC-value.avsc` and `TOPIC-key.avsc` are Avro schemas. `TOPIC-value.desc` is a set of Protobuf descriptors, as
written by `protoc --include_imports --descriptor_set_out`; its last message is the type of the values, and
`TOPIC-value.desc.NAME` names another one. If serializers of a schema registry write an id before each value, the
schema of each id is in `TOPIC-value.ID.avsc` or `TOPIC-value.ID.desc`, and Protobuf's message indexes name the
message in the last file of the set. Nothing is decoded by another schema than its own.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kwire.records.schema_ids import PREFIX_BYTES, message_indexes, message_name, schema_id

from .filters import MAX_PARSED_BYTES, SearchedRecord
from .values import Shown, document

logger = logging.getLogger(__name__)

Decode = Callable[[bytes], Any]
#: The largest Avro decimal that is shown as a number: 300 digits.
MAX_DECIMAL_BYTES = 128


class Schemas:
    """The schemas of a topic's keys or values: one for those without an id, and those of ids.

    Shape: pairs of a kind (`avro`, `protobuf`) and a function that decodes everything after the id.
    """

    def __init__(
        self, plain: tuple[str, Decode] | None, by_id: dict[int, tuple[str, Decode]]
    ) -> None:
        self.plain = plain
        self.by_id = by_id

    def __bool__(self) -> bool:
        return self.plain is not None or bool(self.by_id)

    def missing(self, data: bytes) -> int | None:
        """The id in the data that has no schema here; None without an id, or where ids are not expected."""
        number = schema_id(data) if self.by_id else None
        return None if number in self.by_id else number

    def decode(self, data: bytes) -> tuple[str, Any]:
        """The kind and the value. Errors: any, for data that is not of its schema, or has none."""
        number = schema_id(data) if self.by_id else None
        kind, decode = self.by_id[number] if number is not None else self.plain or NONE
        return kind, decode(data)


class TopicDecoder:
    """Decodes the keys and values of one topic. Shape: bytes that cannot be decoded are shown unchanged."""

    def __init__(self, key: Schemas, value: Schemas) -> None:
        self.key = key
        self.value = value

    def look(self, record: SearchedRecord) -> None:
        """Make the decoded value available to filters."""
        if self.value and record.value is not None and may_parse(record.value):
            try:
                record.decoded = self.value.decode(record.value)[1]
            except Exception:  # noqa: BLE001 - whatever it is, it is not of this schema
                return

    def shown(self, record: SearchedRecord, key: Shown, value: Shown) -> tuple[Shown, Shown]:
        """The key and the value, decoded if possible."""
        return of_schema(self.key, record.key, key), of_schema(self.value, record.value, value)


def may_parse(data: bytes) -> bool:
    """Whether bytes are short enough to be decoded in one step."""
    return len(data) <= MAX_PARSED_BYTES


def of_schema(schemas: Schemas, data: bytes | None, plain: Shown) -> Shown:
    """Bytes decoded by their schema, or else unchanged."""
    if not schemas or data is None or not may_parse(data):
        return plain
    if (number := schemas.missing(data)) is not None:
        return plain._replace(kind=f"{plain.kind} (no schema {number})")
    try:
        kind, value = schemas.decode(data)
        return document(kind, data, value)
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

    def _read(self, name: str) -> Schemas:
        assert self._directory is not None
        found = Schemas(None, {})
        for path in sorted(self._directory.glob(f"{name}.*")):
            parts = FILE.fullmatch(path.name.removeprefix(name))
            if parts is None:
                continue
            try:
                decoder = decoder_of(path, parts)
            except Exception as error:  # noqa: BLE001 - the file is not what it should be
                logger.warning("the schema %s cannot be used: %s", path.name, error)
                continue
            if parts["id"] is not None:
                found.by_id[int(parts["id"])] = decoder
            elif found.plain is None:
                found.plain = decoder
        return found


#: What follows the topic and `-key` or `-value` in the name of a file.
FILE = re.compile(r"(?:\.(?P<id>\d{1,10}))?\.(?:(?P<avro>avsc)|desc(?:\.(?P<message>.+))?)")


def no_schema(data: bytes) -> Any:
    """Refuse data that has no schema. Errors: ValueError."""
    raise ValueError("there is no schema for it")


NONE: tuple[str, Decode] = ("", no_schema)


def decoder_of(path: Path, name: re.Match[str]) -> tuple[str, Decode]:
    """The decoder for the schema in a file. Errors: those of an invalid schema; OSError."""
    framed = name["id"] is not None
    if name["avro"] is None:
        return "protobuf", protobuf_decoder(path.read_bytes(), name["message"] or "", framed)
    decode = avro_decoder(path.read_text(encoding="utf-8"))
    return "avro", (lambda data: decode(data[PREFIX_BYTES:])) if framed else decode


def avro_decoder(schema: str) -> Decode:
    """A reader for records of an Avro schema, which have to end where the data does.

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
        body = io.BytesIO(data)
        value = schemaless_reader(body, parsed, None)
        if body.tell() != len(data):
            raise ValueError("bytes are left after the record")
        return value

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


def protobuf_decoder(descriptors: bytes, name: str = "", framed: bool = False) -> Decode:
    """A reader for messages of a set of descriptors; `framed` ones begin with an id and the indexes of their message.

    Shape: `name` is that of the message, if it is neither the last one nor that of the indexes. Errors: ImportError without
    protobuf; ValueError, KeyError.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)

    def class_of(message: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))

    def as_dict(cls: Any, data: bytes) -> Any:
        return json_format.MessageToDict(cls.FromString(data), preserving_proto_field_name=True)

    if framed:
        main = files.file[-1]

        def decode(data: bytes) -> Any:
            indexes, at = message_indexes(data)
            named = message_name(main, indexes)
            if name and named != name:
                raise ValueError(f"a {named}, not a {name}")
            return as_dict(class_of(named), data[at:])

        return decode
    if not name:
        last = [file for file in files.file if file.message_type][-1]
        name = ".".join(filter(None, (last.package, last.message_type[-1].name)))
    cls = class_of(name)
    return lambda data: as_dict(cls, data)
