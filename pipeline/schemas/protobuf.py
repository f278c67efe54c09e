"""Protobuf: messages by a set of descriptors, their columns, and values that were written by them.

A set is what `protoc --include_imports --descriptor_set_out` writes. Values that begin with the id of a schema say by message
indexes which message of the set's last file they are (`kwire.records.schema_ids`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from kwire.errors import WireError
from kwire.records.schema_ids import message_indexes, message_name

from ..problems import WrongCall
from .forms import Misfit, ValueForm, misfit

#: Numbers of types in descriptors -> types of columns. Source: descriptor.proto, FieldDescriptorProto.Type.
_TYPES: dict[int, pa.DataType] = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.decimal128(20),  # tables have no unsigned numbers
    5: pa.int32(),
    6: pa.decimal128(20),
    7: pa.int64(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),
    14: pa.string(),  # the name
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
_ENUM = 14
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ["Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"]
)


class _Field(NamedTuple):
    """A field of a message: what a message without it has, and what its value becomes."""

    name: str
    default: Any
    convert: Callable[[Any], Any]


@dataclass(frozen=True)
class Protobuf:
    """The message `name` of a set of descriptors."""

    descriptors: bytes
    name: str

    def body(self, value: bytes) -> bytes:
        """See ValueForm. The indexes have to lead to this message."""
        try:
            indexes, at = message_indexes(value)
        except WireError as error:
            raise Misfit(str(error)) from error
        try:
            name = message_name(_files(self.descriptors)[-1], indexes)
        except IndexError:
            raise Misfit(f"the schema has no message {indexes}") from None
        if name != self.name:
            raise Misfit(f"the value is of the message {name}, not of {self.name}")
        return value[at:]

    def read(self, data: bytes, table: ValueForm | None = None) -> dict[str, Any]:
        """See ValueForm. In a value with an id, all fields have to be of the message."""
        cls, fields = _message(self)
        try:
            message = cls.FromString(data)
            if table is not None:
                size = message.ByteSize()
                message.DiscardUnknownFields()
                if message.ByteSize() != size:
                    raise Misfit(f"the value has fields that {self.name} does not have")
            return fields(message)
        except Misfit:
            raise
        except Exception as error:
            raise misfit("Protobuf", error) from error

    def columns(self, where: str) -> pa.Schema:
        """The columns of a table. Raises WrongCall."""
        descriptor = _message(self)[0].DESCRIPTOR
        found = pa.schema(list(_struct(descriptor, where, ())))
        if not found.names or len({name.lower() for name in found.names}) < len(found):
            raise WrongCall(f"{where}: no columns, or two with the same name")
        return found


def file_and_message(name: str) -> tuple[str, str] | None:
    """The file and the message that `FILE.desc#MESSAGE` names; None for another kind of file.

    Raises WrongCall for Protobuf's source.
    """
    if name.endswith(".proto"):
        file = Path(name).name
        raise WrongCall(
            f"{name} is Protobuf's source: give the set of descriptors that this writes:"
            f" protoc --include_imports --descriptor_set_out={Path(file).stem}.desc {file}"
        )
    found = re.fullmatch(r"(.+\.desc)(?:#(.+))?", name)
    return None if found is None else (found[1], found[2] or "")


def read_protobuf(file: str, name: str) -> Protobuf:
    """A message of a file's set of descriptors, the only one if it has no name. Raises WrongCall."""
    try:
        from google.protobuf import descriptor_pb2  # noqa: F401
    except ImportError as error:
        raise WrongCall(f"{file}: Protobuf needs protobuf: pip install protobuf") from error
    try:
        descriptors = Path(file).read_bytes()
    except OSError as error:
        raise WrongCall(f"cannot read {file}: {error.strerror}") from error
    try:
        files = _files(descriptors)
        if not files:
            raise ValueError("it has no files")
        pool = _pool(descriptors)
        known = [
            message_name(files[-1], (number,)) for number in range(len(files[-1].message_type))
        ]
        for each in known:
            pool.FindMessageTypeByName(each)
    except Exception as error:  # whatever is wrong with it
        raise WrongCall(
            f"{file} is not a set of descriptors, as protoc --include_imports --descriptor_set_out writes it: {error}"
        ) from error
    if not known:
        raise WrongCall(f"{file} has no message")
    if not name and len(known) > 1:
        raise WrongCall(
            f"{file} has the messages {', '.join(known)}: name one, as in @{file}#{known[0]}"
        )
    name = name or known[0]
    try:
        pool.FindMessageTypeByName(name)
    except KeyError as error:
        raise WrongCall(f"{file} has no message {name}, only {', '.join(known)}") from error
    return Protobuf(descriptors, name)


@lru_cache
def _files(descriptors: bytes) -> Any:
    from google.protobuf import descriptor_pb2

    return descriptor_pb2.FileDescriptorSet.FromString(descriptors).file


@lru_cache
def _pool(descriptors: bytes) -> Any:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for file in _files(descriptors):
        pool.Add(file)
    return pool


@lru_cache
def _message(form: Protobuf) -> tuple[Any, Callable[[Any], dict[str, Any]]]:
    """The class of a message, and what makes a row of one."""
    from google.protobuf import message_factory

    descriptor = _pool(form.descriptors).FindMessageTypeByName(form.name)
    return message_factory.GetMessageClass(descriptor), _row(descriptor, {})


def _is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)  # from protobuf 6.31 on, which warns of `label`
    return bool(field.label == field.LABEL_REPEATED if known is None else known)


def _is_required(field: Any) -> bool:
    known = getattr(field, "is_required", None)
    return bool(field.label == field.LABEL_REQUIRED if known is None else known)


def _struct(descriptor: Any, where: str, around: tuple[str, ...]) -> pa.DataType:
    """The type of a message; `around` are the messages that it is in."""
    name = descriptor.full_name
    if name in around:
        raise WrongCall(f"{where}: {name} is inside itself, and tables have no such columns")
    inside = (*around, name)
    return pa.struct(
        [
            pa.field(field.name, _type(field, where, inside), not _is_required(field))
            for field in descriptor.fields
        ]
    )


def _type(field: Any, where: str, around: tuple[str, ...]) -> pa.DataType:
    where = f"{where}: {field.name}"
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (message.fields_by_number[number] for number in (1, 2))
        return pa.map_(_type(key, where, around), _type(value, where, around))
    if message is None:
        kind = _TYPES[field.type]
    elif message.full_name == _TIMESTAMP:
        kind = pa.timestamp("us", "UTC")
    elif message.full_name in _WRAPPERS:
        kind = _TYPES[message.fields_by_name["value"].type]
    else:
        kind = _struct(message, where, around)
    return pa.list_(kind) if _is_repeated(field) else kind


def _row(descriptor: Any, known: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """What makes a row of a message; `known` are those of other messages, since they may be inside each other."""
    if descriptor.full_name in known:
        return lambda message: known[descriptor.full_name](message)
    known[descriptor.full_name] = None
    fields: dict[int, _Field] = {}
    for field in descriptor.fields:
        convert = _converter(field, known)
        default: Any = None
        if _is_repeated(field):
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            default = {} if is_map else []
        elif not field.has_presence:
            default = convert(field.default_value)
        fields[field.number] = _Field(field.name, default, convert)
    defaults = {field.name: field.default for field in fields.values()}

    def row(message: Any) -> dict[str, Any]:
        found = dict(defaults)
        for field, value in message.ListFields():
            if not field.is_extension:
                name, _, convert = fields[field.number]
                found[name] = convert(value)
        return found

    known[descriptor.full_name] = row
    return row


def _converter(field: Any, known: dict[str, Any]) -> Callable[[Any], Any]:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        item = _converter(message.fields_by_number[2], known)
        return lambda value: {key: item(value[key]) for key in value}
    one = _one(field, known)
    if _is_repeated(field):
        return lambda value: [one(each) for each in value]
    return one


def _one(field: Any, known: dict[str, Any]) -> Callable[[Any], Any]:
    message = field.message_type
    if field.type == _ENUM:
        names, kind = field.enum_type.values_by_number, field.enum_type.full_name

        def name(number: int) -> str:
            if number not in names:
                raise Misfit(f"{field.name}: {kind} has no {number}")
            return str(names[number].name)

        return name
    if message is None:
        return lambda value: value
    if message.full_name == _TIMESTAMP:
        return lambda value: value.ToDatetime(tzinfo=UTC)
    if message.full_name in _WRAPPERS:
        return lambda value: value.value
    return _row(message, known)
