"""The slow reference codec, which walks the declaration field by field.

The compiled codecs must agree with it byte for byte. When one of them fails, the same input is run through this one to
find the field and the byte at fault.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

from kwire.errors import (
    BadLength,
    BadTag,
    BadUtf8,
    BadVersion,
    EncodeError,
    Truncated,
    WireError,
)
from kwire.schema import Field, Schema, VersionRange, schema_of
from kwire.types import Array, Fixed, Records, Sized, String, WireType
from kwire.varint import read_uvarint, uvarint

MAX_STRING_BYTES = 32767

#: The byte for a null struct: at its position among the fields, and in a tagged field.
NULL = -1
NULL_IN_TAG = 0

T = TypeVar("T")


def check_version(schema: Schema, version: int) -> None:
    """Raise BadVersion if the message does not exist in this version."""
    if version not in schema.versions:
        raise BadVersion(f"has versions {schema.versions}", api=schema.name, version=version)


def min_size(type_: WireType, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of this type can take, at least 1.

    Like Kafka, this refuses a count larger than the bytes that remain, even for empty elements.
    """
    if isinstance(type_, Fixed):
        return type_.size
    if isinstance(type_, Sized):
        return 1 if flexible else 2 if type_ is String else 4
    if isinstance(type_, Array):
        return 1 if flexible else 4
    size = 1 if flexible else 0
    for declared in schema_of(type_).fields:
        if version in declared.versions and version not in declared.tagged:
            nullable_struct = declared.is_struct and version in declared.nullable
            size += 1 if nullable_struct else min_size(declared.type, version, flexible)
    return max(size, 1)


def is_default(declared: Field, value: object) -> bool:
    """Whether a value equals the value of a field that is not sent."""
    if declared.is_struct and value is None:
        return declared.none_is_absent or declared.default is None
    if declared.is_struct and declared.default is not None:
        assert isinstance(declared.type, type)
        return bool(value == declared.type())
    return bool(value == declared.make_default())


def null_marker(declared: Field, version: int) -> int:
    """The byte before a struct that means that it is null; 1 means that it follows."""
    return NULL_IN_TAG if version in declared.tagged else NULL


def known_tags(schema: Schema) -> dict[int, Field]:
    """The tagged fields of a struct in all versions, by tag."""
    return {declared.tag: declared for declared in schema.fields if declared.tag >= 0}


class _Walk:
    """A codec's position in a message, for error messages."""

    error: type[WireError] = WireError
    pos = -1

    def __init__(self, schema: Schema, version: int) -> None:
        self.schema = schema
        self.version = version
        self.path: list[str] = []
        self.left = sys.maxsize  # the remaining number of fields and elements that it may examine

    def at(self, name: str | int, step: Callable[[], Any]) -> Any:
        """Run a step under the name of a field or the number of an element."""
        self.left -= 1
        if self.left < 0:
            self.fail(self.error, "something is wrong from here on", self.pos)
        self.path.append(f"[{name}]" if isinstance(name, int) else f".{name}")
        result = step()
        self.path.pop()
        return result

    def fail(self, error: type[WireError], reason: str, offset: int = -1) -> NoReturn:
        raise error(
            reason,
            api=self.schema.name,
            version=self.version,
            path="".join(self.path).lstrip("."),
            offset=offset,
        )

    def is_flexible(self, declared: Field) -> bool:
        versions: VersionRange = (
            self.schema.flexible if declared.flexible is None else declared.flexible
        )
        return self.version in versions


def decode(
    cls: type[T], buffer: Any, version: int, offset: int = 0, *, most: int = sys.maxsize
) -> T:
    """Decode a message that takes up the buffer from the offset to its end; see codec.decode.

    Shape: it gives up, with a WireError, after `most` fields and elements.
    """
    message, pos = decode_prefix(cls, buffer, version, offset, most=most)
    if pos != len(buffer):
        raise BadLength(
            f"{len(buffer) - pos} bytes are left",
            api=schema_of(cls).name,
            version=version,
            offset=pos,
        )
    return message


def decode_prefix(
    cls: type[T],
    buffer: Any,
    version: int,
    offset: int = 0,
    *,
    lenient: bool = False,
    most: int = sys.maxsize,
) -> tuple[T, int]:
    """Decode a message that may be followed by more bytes; see codec.decode_prefix.

    Shape: `most` as for `decode`. With `lenient`, invalid UTF-8 in strings becomes U+FFFD, any length below 0 is null
    where null is allowed, the sign of the byte before a struct says whether the struct is null, and the size of a known
    tagged field is ignored.
    """
    schema = schema_of(cls)
    check_version(schema, version)
    reader = _Reader(schema, version, memoryview(buffer).cast("B"), offset)
    reader.lenient = lenient
    reader.left = most
    message = reader.struct(cls)
    return message, reader.pos


class _Reader(_Walk):
    lenient = False

    def __init__(self, schema: Schema, version: int, buffer: memoryview, pos: int) -> None:
        super().__init__(schema, version)
        self.buffer = buffer
        self.pos = pos
        self.end = len(buffer)

    def take(self, size: int) -> memoryview:
        left = self.end - self.pos
        if size > left:
            self.fail(Truncated, f"needs {size} bytes, {left} are left", self.pos)
        self.pos += size
        return self.buffer[self.pos - size : self.pos]

    def fixed(self, code: str) -> Any:
        return struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))[0]

    def uvarint(self) -> int:
        try:
            value, self.pos = read_uvarint(self.buffer[: self.end], self.pos)
        except WireError as error:
            self.fail(type(error), error.reason, self.pos)
        return value

    def length(self, code: str, flexible: bool, nullable: bool) -> int | None:
        """Read a length or count; None is null."""
        at = self.pos
        size = self.uvarint() - 1 if flexible else int(self.fixed(code))
        if size < -1 and not (self.lenient and nullable):
            self.fail(BadLength, f"length {size} is negative", at)
        if size < 0:
            if not nullable:
                self.fail(BadLength, "is null, which this version does not allow", at)
            return None
        return size

    def value(self, type_: WireType, flexible: bool, nullable: bool, null: int = NULL) -> Any:
        if isinstance(type_, Fixed):
            return self.fixed(type_.code)
        if isinstance(type_, Sized):
            return self.sized(type_, flexible, nullable)
        if isinstance(type_, Array):
            return self.array(type_, flexible, nullable)
        at = self.pos
        if nullable:
            marker = self.fixed("b")
            lenient = self.lenient and null == NULL
            if marker == null or (lenient and marker < 0):
                return None
            if marker != 1 and not lenient:
                self.fail(BadLength, f"{marker} is neither {null} (null) nor 1", at)
        return self.struct(type_)

    def sized(self, type_: Sized, flexible: bool, nullable: bool) -> Any:
        at = self.pos
        size = self.length("h" if type_ is String else "i", flexible, nullable)
        if size is None:
            return None
        if type_ is String and size > MAX_STRING_BYTES:
            self.fail(BadLength, f"string of {size} bytes", at)
        at = self.pos
        view = self.take(size)
        if type_ is Records:
            return view
        if type_ is not String:
            return bytes(view)
        try:
            return str(view, "utf-8")
        except UnicodeDecodeError as error:
            if not self.lenient:
                self.fail(BadUtf8, error.reason, at + error.start)
        text = str(view, "utf-8", "replace")
        if len(text.encode()) > MAX_STRING_BYTES:  # an answer could not repeat it
            self.fail(BadLength, f"string of {size} bytes, more when U+FFFD replaces some", at)
        return text

    def array(self, type_: Array, flexible: bool, nullable: bool) -> Any:
        at = self.pos
        count = self.length("i", flexible, nullable)
        if count is None:
            return None
        element = type_.element
        smallest = min_size(element, self.version, flexible)
        if count * smallest > self.end - self.pos:
            self.fail(
                BadLength,
                f"{count} elements of at least {smallest} bytes, {self.end - self.pos} are left",
                at,
            )
        return [
            self.at(number, lambda: self.value(element, flexible, False)) for number in range(count)
        ]

    def struct(self, cls: type) -> Any:
        schema = schema_of(cls)
        made = cls()
        for declared in schema.fields:
            if self.version in declared.versions and self.version not in declared.tagged:
                setattr(made, declared.name, self.field(declared))
        if self.version in self.schema.flexible:
            self.tags(made, known_tags(schema))
        return made

    def field(self, declared: Field) -> Any:
        return self.at(
            declared.name,
            lambda: self.value(
                declared.type,
                self.is_flexible(declared),
                self.version in declared.nullable,
                null_marker(declared, self.version),
            ),
        )

    def tags(self, made: Any, known: dict[int, Field]) -> None:
        at = self.pos
        count = self.uvarint()
        if count * 2 > self.end - self.pos:
            self.fail(BadLength, f"{count} tagged fields, {self.end - self.pos} bytes left", at)
        for _ in range(count):
            self.left -= 1
            if self.left < 0:
                self.fail(WireError, "something is wrong from here on", self.pos)
            self.tag(made, known)

    def tag(self, made: Any, known: dict[int, Field]) -> None:
        at = self.pos
        tag = self.uvarint()
        size = self.uvarint()
        declared = known.get(tag)
        if declared is None:
            data = bytes(self.take(size))
            if made.unknown_tags is None:
                made.unknown_tags = {}
            made.unknown_tags[tag] = data
            return
        if self.version not in declared.tagged:
            self.fail(BadTag, f"tag {tag} ({declared.name}) is not in this version", at)
        if self.lenient:  # Java ignores the size of a field that it knows
            setattr(made, declared.name, self.field(declared))
            return
        if size > self.end - self.pos:
            self.fail(Truncated, f"tag {tag} of {size} bytes, {self.end - self.pos} left", self.pos)
        outer_end = self.end
        self.end = self.pos + size
        setattr(made, declared.name, self.field(declared))
        if self.pos != self.end:
            self.fail(BadTag, f"tag {tag} leaves {self.end - self.pos} bytes", self.pos)
        self.end = outer_end


def encode(
    message: Any, version: int, keep_records: bool = True, *, most: int = sys.maxsize
) -> bytes:
    """Encode a message; see codec.encode.

    Shape: it gives up, with an EncodeError, after `most` fields and elements. Without keep_records, the bytes of
    records are omitted, for records not in memory.
    """
    schema = schema_of(type(message))
    check_version(schema, version)
    writer = _Writer(schema, version, keep_records)
    writer.left = most
    writer.struct(message, type(message))
    return bytes(writer.out)


class _Writer(_Walk):
    error = EncodeError

    def __init__(self, schema: Schema, version: int, keep_records: bool) -> None:
        super().__init__(schema, version)
        self.keep_records = keep_records
        self.out = bytearray()

    def fixed(self, code: str, value: Any) -> None:
        if code == "16s" and (not isinstance(value, bytes) or len(value) != 16):
            self.fail(EncodeError, f"{value!r} is not an id of 16 bytes")
        try:
            self.out += struct.pack(">" + code, value)
        except (struct.error, OverflowError) as error:
            self.fail(EncodeError, f"{value!r}: {error}")

    def length(self, code: str, size: int, flexible: bool) -> None:
        if flexible:
            self.out += uvarint(size + 1)
        else:
            self.fixed(code, size)

    def null(self, code: str, flexible: bool, nullable: bool) -> None:
        if not nullable:
            self.fail(EncodeError, "is None, which this version does not allow")
        self.length(code, -1, flexible)

    def value(
        self, type_: WireType, value: Any, flexible: bool, nullable: bool, null: int = NULL
    ) -> None:
        if isinstance(type_, Fixed):
            self.fixed(type_.code, value)
        elif isinstance(type_, Sized):
            self.sized(type_, value, flexible, nullable)
        elif isinstance(type_, Array):
            if value is None:
                self.null("i", flexible, nullable)
                return
            try:
                self.length("i", len(value), flexible)
            except TypeError:
                self.fail(EncodeError, f"{type(value).__name__} is not a list")
            for number, element in enumerate(value):
                self.at(number, partial(self.value, type_.element, element, flexible, False))
        else:
            if nullable:
                self.fixed("b", null if value is None else 1)
            if value is not None:
                self.struct(value, type_)
            elif not nullable:
                self.fail(EncodeError, "is None, which this version does not allow")

    def sized(self, type_: Sized, value: Any, flexible: bool, nullable: bool) -> None:
        code = "h" if type_ is String else "i"
        if value is None:
            self.null(code, flexible, nullable)
        elif type_ is String:
            try:
                data = value.encode()
            except (AttributeError, UnicodeEncodeError) as error:
                self.fail(EncodeError, f"{value!r}: {error}")
            if len(data) > MAX_STRING_BYTES:
                self.fail(EncodeError, f"string of {len(data)} bytes")
            self.length(code, len(data), flexible)
            self.out += data
        else:
            in_memory = isinstance(value, bytes | bytearray | memoryview)
            if not in_memory and (type_ is not Records or self.keep_records):
                self.fail(EncodeError, f"{type(value).__name__} is not bytes")
            self.length(code, len(value), flexible)
            if in_memory:
                self.out += value

    def refuse(self, value: object) -> NoReturn:
        self.fail(EncodeError, f"{value!r} cannot be sent in this version")

    def struct(self, message: Any, cls: type[Any]) -> None:
        schema = schema_of(cls)
        if type(message) is not cls:
            self.fail(EncodeError, f"{type(message).__name__} is not {cls.__name__}")
        unknown: dict[int, bytes] = message.unknown_tags or {}
        tagged: dict[int, bytes] = {}
        for declared in schema.fields:
            value = getattr(message, declared.name)
            if self.version in declared.tagged:
                if not is_default(declared, value):
                    tagged[declared.tag] = self.aside(declared, value)
            elif self.version in declared.versions:
                self.field(declared, value)
            elif not declared.ignorable and not is_default(declared, value):
                self.at(declared.name, partial(self.refuse, value))
        if self.version in self.schema.flexible:
            self.tags(tagged, unknown, known_tags(schema))
        elif unknown:
            self.fail(EncodeError, "this version has no tagged fields")

    def field(self, declared: Field, value: Any) -> None:
        self.at(
            declared.name,
            lambda: self.value(
                declared.type,
                value,
                self.is_flexible(declared),
                self.version in declared.nullable,
                null_marker(declared, self.version),
            ),
        )

    def aside(self, declared: Field, value: Any) -> bytes:
        outer, self.out = self.out, bytearray()
        self.field(declared, value)
        data, self.out = bytes(self.out), outer
        return data

    def tags(
        self, tagged: dict[int, bytes], unknown: dict[int, bytes], known: dict[int, Field]
    ) -> None:
        for tag in unknown:
            if tag in known:
                self.fail(EncodeError, f"unknown tag {tag} belongs to {known[tag].name}")
        tagged.update(unknown)
        self.out += uvarint(len(tagged))
        for tag in sorted(tagged):
            self.out += uvarint(tag) + uvarint(len(tagged[tag])) + tagged[tag]
