"""Parses records' values into columns: JSON by Spark's DDL or a JSON Schema, Avro and Protobuf by their own schemas.

A value that does not fit is not guessed at: the record is a dead letter, with the reason. A record without a value has none of
the columns, unless one is required. Where values begin with the id of a schema in a registry, each is parsed by the schema of its
id and resolved to that of the table: Avro by Avro's rules, other values by the names of their fields.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from kwire.records.schema_ids import schema_id

from ..problems import WrongCall
from .avro import read_avro
from .forms import BARE, Json, Misfit, ValueForm
from .protobuf import file_and_message, read_protobuf
from .schema import schema_of

#: The column with a key's fields, or its value; the bytes of the key have a column of their own.
KEY = "_parsed_key"

_PLAIN: dict[type[spark.DataType], pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int32(),
    spark.ShortType: pa.int32(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.CharType: pa.string(),
    spark.VarcharType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", "UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
}


@dataclass(frozen=True)
class ValueSchema:
    """The columns of one topic's values, how values are written, and the same for keys, if they are parsed too.

    Shape: `by_id` are the schemas by which values with a prefix may be written, by the id in it; without any, values have no
    prefix and are written by this schema.
    """

    columns: pa.Schema
    form: ValueForm
    by_id: Mapping[int, ValueSchema] = attribute(default_factory=dict)
    key: ValueSchema | None = None

    @property
    def kind(self) -> pa.DataType:
        """The type of a column that has all of these columns."""
        if self.columns.names == [BARE]:
            return self.columns.field(0).type
        return pa.struct([field.with_nullable(True) for field in self.columns])

    def fields(self) -> list[pa.Field]:
        """The columns of a table; none is required, since another schema may leave it out."""
        own = [field.with_nullable(True) for field in self.columns]
        return own if self.key is None else [*own, pa.field(KEY, self.key.kind)]

    @property
    def text(self) -> str:
        """The columns, for comparison."""
        text = ", ".join(f"{field.name} {field.type}" for field in self.columns)
        return text if self.key is None else f"{text}, {KEY} {self.key.kind}"

    def parse(self, value: bytes | None) -> dict[str, Any]:
        """The columns of one value. Raises Misfit."""
        if value is None:
            return self._fitted({})
        if not self.by_id:
            try:
                return self._fitted(self.form.read(value))
            except Misfit as error:
                if value[:1] == b"\0" and (number := schema_id(value)) is not None:
                    raise Misfit(
                        f"{error} (or it begins with the id of a schema, {number}: give it with ID:)"
                    ) from error
                raise
        number = schema_id(value)
        if number is None:
            raise Misfit("the value does not begin with 0 and the id of a schema")
        own = self.by_id.get(number)
        if own is None:
            known = ", ".join(map(str, sorted(self.by_id)))
            raise Misfit(f"the value is of schema {number}, which is not given (only {known})")
        try:
            return self._resolved(own, value)
        except Misfit as error:
            raise Misfit(f"schema {number}: {error}") from error

    def parse_key(self, key: bytes | None) -> Any:
        """The value of the column KEY. Raises Misfit."""
        assert self.key is not None
        if key is None:
            return None
        try:
            row = self.key.parse(key)
        except Misfit as error:
            raise Misfit(f"key: {error}") from error
        return row.get(BARE, row)

    def _resolved(self, own: ValueSchema, value: bytes) -> dict[str, Any]:
        """The columns of a value that was written by `own`, another version of this schema."""
        row = own.form.read(own.form.body(value), self.form)
        if own.columns is not self.columns:
            own._fitted(row)
        return self._fitted(row)

    def _fitted(self, row: dict[str, Any]) -> dict[str, Any]:
        return {field.name: _fit(row.get(field.name), field, field.name) for field in self.columns}


def parse_all(
    values: Iterable[bytes | None], schema: ValueSchema, keys: Iterable[bytes | None] = ()
) -> tuple[pa.Table, list[int], list[tuple[int, str]]]:
    """(the columns of the records that fit, the numbers of these, the numbers of the others with the reason).

    The keys are needed only if the schema has one for them.
    """
    rows: list[dict[str, Any]] = []
    good: list[int] = []
    bad: list[tuple[int, str]] = []
    for number, (value, key) in enumerate(zip_longest(values, keys)):
        try:
            row = schema.parse(value)
            if schema.key is not None:
                row[KEY] = schema.parse_key(key)
            rows.append(row)
            good.append(number)
        except Misfit as error:
            bad.append((number, str(error)))
    return pa.Table.from_pylist(rows, schema=pa.schema(schema.fields())), good, bad


def _fit(value: Any, field: pa.Field, where: str) -> Any:
    """A value as the type of a column has it. Raises Misfit."""
    if value is None:
        if not field.nullable:
            raise Misfit(f"{where} is missing")
        return None
    kind = field.type
    if pa.types.is_struct(kind):
        _must(isinstance(value, dict), value, where, kind)
        return {
            kind.field(i).name: _fit(
                value.get(kind.field(i).name), kind.field(i), f"{where}.{kind.field(i).name}"
            )
            for i in range(kind.num_fields)
        }
    if pa.types.is_list(kind):
        _must(isinstance(value, list), value, where, kind)
        return [_fit(item, kind.value_field, f"{where}[]") for item in value]
    if pa.types.is_map(kind):
        _must(isinstance(value, dict), value, where, kind)
        return [
            (
                _fit(key, kind.key_field, f"the keys of {where}"),
                _fit(item, kind.item_field, f"{where}.*"),
            )
            for key, item in value.items()
        ]
    for fits, convert in _CONVERSIONS:
        if fits(kind):
            try:
                return convert(value, kind)
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
                break
    raise Misfit(f"{where}: {_shown(value)} is not {kind}")


def _must(fits: bool, value: Any, where: str, kind: pa.DataType) -> None:
    if not fits:
        raise Misfit(f"{where}: {_shown(value)} is not {kind}")


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _integer(value: Any, kind: pa.DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    most = 1 << (kind.bit_width - 1)
    if not -most <= value < most:
        raise ValueError
    return value


def _number(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise TypeError
    return float(value)


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        raise TypeError
    return pa.scalar(Decimal(value), kind).as_py()  # type: ignore[no-any-return]


def _same(*kinds: type) -> Callable[[Any, pa.DataType], Any]:
    def convert(value: Any, kind: pa.DataType) -> Any:
        if not isinstance(value, kinds):
            raise TypeError
        return value

    return convert


def _text(value: Any, kind: pa.DataType) -> str:
    text = str(value) if isinstance(value, uuid.UUID) else str(_same(str)(value, kind))
    text.encode()  # JSON can have halves of surrogate pairs, which are not text
    return text


def _bytes(value: Any, kind: pa.DataType) -> bytes:
    if isinstance(value, bytes):
        return value
    return base64.b64decode(_same(str)(value, kind), validate=True)


def _moment(value: Any, kind: pa.DataType) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if kind.tz is None:
        return moment.replace(tzinfo=None)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def _day(value: Any, kind: pa.DataType) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)


_CONVERSIONS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]]] = (
    (pa.types.is_boolean, _same(bool)),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _number),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _bytes),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_date, _day),
)


def read_schemas_by_id(texts: Mapping[int, str], where: str, *, bare: bool = False) -> ValueSchema:
    """The schema of values that begin with an id; the table has the columns of the last one. Raises WrongCall."""
    *others, last = texts
    found = {
        number: read_value_schema(texts[number], where, bare=bare, is_table=False)
        for number in others
    }
    found[last] = read_value_schema(texts[last], where, bare=bare)
    return replace(found[last], by_id=found)


def read_value_schema(
    text: str, where: str, *, bare: bool = False, is_table: bool = True
) -> ValueSchema:
    """The schema that a text, or a file named by `@FILE`, gives; `bare` if it may be no record's. Raises WrongCall.

    Avro and Protobuf that are no table's have no columns, so they may have types that tables lack.
    """
    columns = pa.schema([])
    if text.startswith("@"):
        where = text[1:]
        if (named := file_and_message(where)) is not None:
            protobuf = read_protobuf(*named)
            if is_table:
                columns = _checked(protobuf.columns(where), where)
            return ValueSchema(columns, protobuf)
        try:
            text = Path(where).read_text()
        except OSError as error:
            raise WrongCall(f"cannot read {where}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise WrongCall(f"{where} is not UTF-8") from error
    text = text.strip()
    if (avro := read_avro(text, where, bare=bare)) is not None:
        return ValueSchema(_checked(avro.columns(where), where) if is_table else columns, avro)
    columns = _struct(schema_of(text, where), where)
    if not columns.names or len({name.lower() for name in columns.names}) < len(columns):
        raise WrongCall(f"{where}: no columns, or two with the same name")
    return ValueSchema(_checked(columns, where), Json())


def _checked(schema: pa.Schema, where: str) -> pa.Schema:
    for name in schema.names:
        if name.startswith("_"):
            raise WrongCall(f"{where}: {name}: names that begin with _ are the table's own")
    return schema


def _struct(found: spark.StructType, where: str) -> pa.Schema:
    return pa.schema(
        [
            pa.field(
                field.name, _of_spark(field.dataType, f"{where}: {field.name}"), field.nullable
            )
            for field in found.fields
        ]
    )


def _of_spark(kind: spark.DataType, where: str) -> pa.DataType:
    if (plain := _PLAIN.get(type(kind))) is not None:
        return plain
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(_of_spark(kind.elementType, f"{where}[]"))
    if isinstance(kind, spark.MapType):
        return pa.map_(_of_spark(kind.keyType, where), _of_spark(kind.valueType, f"{where}.*"))
    if isinstance(kind, spark.StructType):
        return pa.struct(list(_struct(kind, where)))
    raise WrongCall(f"{where}: tables have no {kind.simpleString()}")
