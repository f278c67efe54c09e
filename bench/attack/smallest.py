"""Requests of a given size, made of the smallest elements of one of their arrays, derived from the schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import pack
from typing import Any

from kwire.api import request_class
from kwire.schema import Field, Schema, schema_of
from kwire.types import Array, Fixed, String, Uuid, WireType

#: The names of one array's fields, from the outermost array to the filled one.
Path = tuple[str, ...]

#: Distinct names have as many letters as necessary; four of 64 letters make 16 million names.
LETTERS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
NAME_LETTERS = 4


def name_of(number: int) -> str:
    """The name of the element with this number, counted from 0, for distinct elements."""
    letters = bytearray()
    for _ in range(NAME_LETTERS):
        letters.insert(0, LETTERS[number % 64])
        number //= 64
    return letters.decode()


def array_paths(cls: type, version: int, under: Path = ()) -> Iterator[Path]:
    """The arrays of a message in a version, including nested ones, without tagged ones."""
    for field in schema_of(cls).fields:
        if version not in field.versions or version in field.tagged:
            continue
        if isinstance(field.type, Array):
            yield (*under, field.name)
            if isinstance(field.type.element, type):
                yield from array_paths(field.type.element, version, (*under, field.name))


def element_shape(cls: type, path: Path, version: int) -> tuple[object, ...]:
    """A value that identifies the format of an array's elements in a version: the fields that are sent."""
    declared = next(field for field in schema_of(cls).fields if field.name == path[0])
    assert isinstance(declared.type, Array)
    element = declared.type.element
    if len(path) > 1:
        assert isinstance(element, type)
        return element_shape(element, path[1:], version)
    return fields_sent(element, version) if isinstance(element, type) else (element,)


def fields_sent(cls: type, version: int) -> tuple[object, ...]:
    """The fields of a struct in a version, including those of nested structs."""
    found: list[object] = []
    for declared in schema_of(cls).fields:
        if version not in declared.versions or version in declared.tagged:
            continue
        element = declared.type.element if isinstance(declared.type, Array) else declared.type
        within = fields_sent(element, version) if isinstance(element, type) else ()
        found.append((declared.name, version in declared.nullable, within))
    return tuple(found)


def smallest_request(
    api: int,
    version: int,
    path: Path,
    size: int,
    *,
    distinct: bool = False,
    values: Mapping[str, Any] | None = None,
    inner: bool = False,
) -> bytes:
    """A request's body of about `size` bytes, with elements of the array at the path.

    Shape: arrays around that array have one element, all others none. With `distinct`, the first name, id or number of
    each element differs. `values` are values of other fields, by name. With `inner`, each element of the path's array
    has one element in each of its own arrays.
    """
    cls = request_class(api)
    writer = _Writer(schema_of(cls), version, size, distinct, values or {}, inner)
    return bytes(writer.struct(cls, path))


class _Writer:
    def __init__(
        self,
        top: Schema,
        version: int,
        size: int,
        distinct: bool,
        values: Mapping[str, Any],
        inner: bool,
    ) -> None:
        self.top = top
        self.version = version
        self.size = size
        self.distinct = distinct
        self.values = values
        self.inner = inner
        self.varying: tuple[int, int] | None = None  # varying part of an element: position, bytes

    def struct(
        self, cls: type, path: Path, *, element: bool = False, inside: bool = False
    ) -> bytearray:
        """The bytes of a message, of one element of the filled array, or of a struct inside such an element."""
        version = self.version
        out = bytearray()
        for field in schema_of(cls).fields:
            if version not in field.versions or version in field.tagged:
                continue
            if path and field.name == path[0]:
                out += self.filled(field, path[1:])
            else:
                at = len(out) if element else -1
                out += self.value(field, field.type, at, inside or element)
        if version in self.top.flexible:
            out.append(0)  # no tagged fields
        return out

    def filled(self, field: Field, rest: Path) -> bytes:
        """An array on the path."""
        assert isinstance(field.type, Array)
        kind = field.type.element
        if rest:
            assert isinstance(kind, type)
            return self.count(field, 1) + self.struct(kind, rest)
        if isinstance(kind, type):
            one = bytes(self.struct(kind, (), element=True))
        else:
            one = self.value(field, kind, 0, True, element=True)
        count = max(1, self.size // len(one))
        many = bytearray(one * count)
        if self.distinct and self.varying is not None:
            self.tell_apart(many, len(one), count, *self.varying)
        return self.count(field, count) + many

    def tell_apart(self, many: bytearray, stride: int, count: int, at: int, size: int) -> None:
        """Write a number into each element, as letters or as the last bytes of an integer."""
        for digit in range(min(size, NAME_LETTERS)):
            each = 64**digit
            if each > count:
                break
            period = b"".join(bytes([letter]) * each for letter in LETTERS)
            column = (period * (count // len(period) + 1))[:count]
            place = at + size - 1 - digit
            many[place::stride] = column

    def value(
        self, field: Field, kind: WireType, at: int, inside: bool, *, element: bool = False
    ) -> bytes:
        """The smallest value of a field; `at` is its position in an element, -1 elsewhere."""
        version = self.version
        given = self.values.get(field.name, "" if element else field.make_default())
        if isinstance(kind, Array):
            if self.inner and inside:
                nested = kind.element
                if isinstance(nested, type):
                    return self.count(field, 1) + self.struct(nested, (), inside=True)
                return self.count(field, 1) + self.value(field, nested, -1, True, element=True)
            return self.count(field, 0)
        if isinstance(kind, type):
            if version in field.nullable:
                return b"\xff"
            return bytes(self.struct(kind, (), inside=inside))
        if isinstance(kind, Fixed):
            number = given if isinstance(given, type(kind.zero)) else kind.zero
            if self.distinct and at >= 0 and self.varying is None and kind.size >= 4:
                self.varying = (at, kind.size)
                if kind is not Uuid:
                    # Three letters do not make a negative int32.
                    self.varying = (at, kind.size) if kind.size > 4 else (at + 1, 3)
            return pack(">" + kind.code, number)
        if given is None and version in field.nullable:
            return self.length(field, None, kind)
        text = given.encode() if isinstance(given, str) else b""
        if self.distinct and at >= 0 and kind is String and self.varying is None:
            text = LETTERS[:1] * NAME_LETTERS
            self.varying = (at + len(self.length(field, text, kind)), len(text))
        return self.length(field, text, kind) + text

    def count(self, field: Field, count: int) -> bytes:
        return _uvarint(count + 1) if self.flexible(field) else pack(">i", count)

    def length(self, field: Field, data: bytes | None, kind: WireType) -> bytes:
        size = -1 if data is None else len(data)
        if self.flexible(field):
            return _uvarint(size + 1)
        return pack(">h" if kind is String else ">i", size)

    def flexible(self, field: Field) -> bool:
        chosen = self.top.flexible if field.flexible is None else field.flexible
        return self.version in chosen


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
