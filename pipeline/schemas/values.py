"""Parses records' values into columns: JSON by Spark's DDL or a JSON Schema, Avro by its own schema.

A value that does not fit is not guessed at: the record is a dead letter, with the reason. A record without a value has none of
the columns, unless one is required. Where values begin with the id of a schema in a registry, each is parsed by the schema of its
id and resolved to that of the table: Avro by Avro's rules, other values by the names of their fields.
"""

from __future__ import annotations

import base64
import io
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from kwire.records.schema_ids import PREFIX_BYTES, schema_id

from ..problems import WrongCall
from .schema import schema_of

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
_AVRO: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}

#: The most digits of a decimal in a table.
MAX_PRECISION = 38


class Misfit(ValueError):
    """A value does not fit the schema; says where and why."""


@dataclass(frozen=True)
class ValueSchema:
    """The columns of one topic's values, and how values are written.

    Shape: `avro` is the parsed Avro schema, None for JSON. `by_id` are the schemas by which values with a prefix may be written,
    by the id in it; without any, values have no prefix and are written by this schema.
    """

    columns: pa.Schema
    avro: Any = None
    by_id: Mapping[int, ValueSchema] = attribute(default_factory=dict)

    @property
    def text(self) -> str:
        """The columns, for comparison."""
        return ", ".join(f"{field.name} {field.type}" for field in self.columns)

    def parse(self, value: bytes | None) -> dict[str, Any]:
        """The columns of one value. Raises Misfit."""
        if value is None:
            return self._fitted({})
        if not self.by_id:
            try:
                return self._fitted(self._decoded(value))
            except Misfit as error:
                if value[:1] == b"\0" and (number := schema_id(value)) is not None:
                    raise Misfit(
                        f"{error} (or it begins with the id of a schema, {number}: see ID: of --value-schema)"
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
            return self._resolved(own, value[PREFIX_BYTES:])
        except Misfit as error:
            raise Misfit(f"schema {number}: {error}") from error

    def _resolved(self, own: ValueSchema, value: bytes) -> dict[str, Any]:
        """The columns of a value that was written by `own`, another version of this schema."""
        if own.avro is None:
            row = own._decoded(value)
            own._fitted(row)
            return self._fitted(row)
        reader = None if own.avro is self.avro else self.avro
        return self._fitted(own._decoded(value, reader))

    def _fitted(self, row: dict[str, Any]) -> dict[str, Any]:
        return {field.name: _fit(row.get(field.name), field, field.name) for field in self.columns}

    def _decoded(self, value: bytes, reader: Any = None) -> dict[str, Any]:
        """The fields of a value; `reader` is the Avro schema that they are to have, if not this one."""
        try:
            if self.avro is not None:
                import fastavro

                stream = io.BytesIO(value)
                found = fastavro.schemaless_reader(stream, self.avro, reader)
                if left := len(value) - stream.tell():
                    raise Misfit(f"{left} bytes are left after the value")
            else:
                found = json.loads(value, parse_float=Decimal)
        except Misfit:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if reader is not None:
                raise Misfit(
                    f"not Avro of this schema, or the table's schema cannot read it: {said}"
                ) from error
            form = "JSON" if self.avro is None else "Avro"
            raise Misfit(f"not {form} of this schema: {said}") from error
        if not isinstance(found, dict):
            raise Misfit("not an object")
        return found


def parse_all(
    values: Iterable[bytes | None], schema: ValueSchema
) -> tuple[pa.Table, list[int], list[tuple[int, str]]]:
    """(the columns of the values that fit, the numbers of these, the numbers of the others with the reason)."""
    rows: list[dict[str, Any]] = []
    good: list[int] = []
    bad: list[tuple[int, str]] = []
    for number, value in enumerate(values):
        try:
            rows.append(schema.parse(value))
            good.append(number)
        except Misfit as error:
            bad.append((number, str(error)))
    nullable = pa.schema([field.with_nullable(True) for field in schema.columns])
    return pa.Table.from_pylist(rows, schema=nullable), good, bad


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
            (_key(key, kind, where), _fit(item, kind.item_field, f"{where}.*"))
            for key, item in value.items()
        ]
    for fits, convert in _CONVERSIONS:
        if fits(kind):
            try:
                return convert(value, kind)
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
                break
    raise Misfit(f"{where}: {_shown(value)} is not {kind}")


def _key(key: Any, kind: pa.MapType, where: str) -> Any:
    if not pa.types.is_string(kind.key_type):
        raise Misfit(f"{where}: the keys of a map are strings")
    try:
        return _text(key, kind.key_type)
    except (ValueError, TypeError):
        raise Misfit(f"{where}: {_shown(key)} is not string") from None


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


def read_schemas_by_id(texts: Mapping[int, str], where: str) -> ValueSchema:
    """The schema of values that begin with an id; the table has the columns of the last one. Raises WrongCall."""
    *others, last = texts
    found = {number: read_value_schema(texts[number], where, is_table=False) for number in others}
    found[last] = read_value_schema(texts[last], where)
    return replace(found[last], by_id=found)


def read_value_schema(text: str, where: str, *, is_table: bool = True) -> ValueSchema:
    """The schema that a text, or a file named by `@FILE`, gives. Raises WrongCall.

    Avro that is no table's has no columns, so it may have types that tables lack.
    """
    if text.startswith("@"):
        where = text[1:]
        try:
            text = Path(where).read_text()
        except OSError as error:
            raise WrongCall(f"cannot read {where}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise WrongCall(f"{where} is not UTF-8") from error
    text = text.strip()
    if text.startswith("{") and (tree := _avro_tree(text)) is not None:
        parsed = _avro_parsed(tree, where)
        return ValueSchema(_avro_columns(parsed, where) if is_table else pa.schema([]), parsed)
    found = schema_of(text, where)
    names = [field.name for field in found.fields]
    if not names or len({name.lower() for name in names}) < len(names):
        raise WrongCall(f"{where}: no columns, or two with the same name")
    return ValueSchema(_checked(_struct(found, where), where))


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


def _avro_tree(text: str) -> dict[str, Any] | None:
    """The JSON of an Avro record; None for JSON of another kind."""
    try:
        tree = json.loads(text)
    except ValueError:
        return None  # the other reader reports the error
    return tree if isinstance(tree, dict) and tree.get("type") == "record" else None


def _avro_parsed(tree: dict[str, Any], where: str) -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise WrongCall(f"{where}: Avro needs fastavro: pip install fastavro") from error
    _forget_logical_types(tree)
    try:
        parsed = fastavro.parse_schema(tree)
    except Exception as error:
        raise WrongCall(f"{where} is not an Avro schema: {error}") from error
    _check_depth(parsed, where, ())
    _decode_defaults(parsed, where)
    return parsed


def _forget_logical_types(tree: Any) -> None:
    """Leave the plain types where tables have no such logical type, or it is none of this type."""
    if isinstance(tree, dict):
        if "logicalType" in tree and not _is_logical(tree):
            del tree["logicalType"]
        for key, each in tree.items():
            if key != "default":
                _forget_logical_types(each)
    elif isinstance(tree, list):
        for each in tree:
            _forget_logical_types(each)


def _is_logical(tree: dict[str, Any]) -> bool:
    logical, kind = tree["logicalType"], tree.get("type")
    if logical == "decimal":
        return kind in ("bytes", "fixed") and isinstance(tree.get("precision"), int)
    base = "int" if logical == "date" else "string" if logical == "uuid" else "long"
    return logical in _AVRO and logical not in ("string", "bytes") and kind == base


def _decode_defaults(parsed: Any, where: str) -> None:
    """Make the defaults of fields what a reader returns for a stored value; fastavro returns them as JSON has them."""
    named = parsed["__named_schemas"]
    decoded: list[tuple[dict[str, Any], Any]] = []

    def look(tree: Any) -> None:
        if isinstance(tree, list):
            for each in tree:
                look(each)
        elif isinstance(tree, dict):
            look(tree.get("items"))
            look(tree.get("values"))
            for field in tree.get("fields", ()):
                if "default" in field:
                    try:
                        decoded.append((field, _default(field["default"], field["type"], named)))
                    except Exception as error:  # whatever is wrong with it
                        raise WrongCall(
                            f"{where}: the default of {field['name']} is not of its type: {error!r}"
                        ) from error
                look(field["type"])

    for tree in (parsed, *named.values()):
        look(tree)
    for field, value in decoded:
        field["default"] = value


def _default(value: Any, tree: Any, named: Mapping[str, Any]) -> Any:
    """A default in JSON as a reader returns it. Source: Avro's specification; that of a union is of its first type."""
    from fastavro.read import LOGICAL_READERS

    while not isinstance(tree, dict):
        if isinstance(tree, list):
            tree = tree[0]
        else:
            tree = named.get(tree) or {"type": tree}
    kind = tree["type"]
    if kind not in _AVRO and kind not in ("record", "array", "map", "fixed", "null"):
        return _default(value, kind, named)  # a type in a type of its own
    if kind == "record":
        return {
            field["name"]: _default(
                value.get(field["name"], field.get("default")), field["type"], named
            )
            for field in tree["fields"]
        }
    if kind == "array":
        return [_default(each, tree["items"], named) for each in value]
    if kind == "map":
        return {key: _default(each, tree["values"], named) for key, each in value.items()}
    if kind in ("bytes", "fixed"):
        value = value.encode("latin-1")
    read = LOGICAL_READERS.get(f"{kind}-{tree.get('logicalType')}")
    return value if read is None else read(value, tree, tree)


def _check_depth(tree: Any, where: str, around: tuple[str, ...]) -> None:
    """Raises WrongCall for a record inside itself: fastavro's reader calls itself for each level that a value claims."""
    if isinstance(tree, str):
        if tree in around:
            raise WrongCall(f"{where}: {tree} is inside itself, and tables have no such columns")
    elif isinstance(tree, list):
        for each in tree:
            _check_depth(each, where, around)
    else:
        inside = (*around, tree["name"]) if tree["type"] == "record" else around
        parts = [
            tree.get("items"),
            tree.get("values"),
            *(f["type"] for f in tree.get("fields", ())),
        ]
        for each in filter(None, parts):
            _check_depth(each, where, inside)


def _avro_columns(tree: dict[str, Any], where: str) -> pa.Schema:
    try:
        return _checked(pa.schema(list(_of_avro(tree, where, {}))), where)
    except (KeyError, TypeError) as error:
        raise WrongCall(f"{where} is not an Avro schema: {error!r}") from error


def _of_avro(tree: Any, where: str, named: dict[str, pa.DataType]) -> pa.DataType:
    """The type of an Avro schema; `named` are the records, enums and fixed that came before."""
    if isinstance(tree, str):
        if tree in named:
            return named[tree]
        if tree in _AVRO:
            return _AVRO[tree]
        raise WrongCall(f"{where}: unknown type {tree}")
    if isinstance(tree, list):
        return _of_union(tree, where, named)[0]
    kind, logical = tree["type"], tree.get("logicalType")
    found: pa.DataType
    if logical == "decimal":
        if tree["precision"] > MAX_PRECISION:
            raise WrongCall(f"{where}: tables have no decimals of more than {MAX_PRECISION} digits")
        found = pa.decimal128(tree["precision"], tree.get("scale", 0))
    elif logical in _AVRO:
        found = _AVRO[logical]
    elif kind == "record":
        found = pa.struct(
            [
                _avro_field(field["name"], field["type"], f"{where}: {field['name']}", named)
                for field in tree["fields"]
            ]
        )
    elif kind == "fixed":
        found = pa.binary()
    elif kind == "array":
        found = pa.list_(_avro_field("element", tree["items"], f"{where}[]", named))
    elif kind == "map":
        found = pa.map_(pa.string(), _avro_field("value", tree["values"], f"{where}.*", named))
    else:
        return _of_avro(kind, where, named) if kind != "enum" else _AVRO["enum"]
    if "name" in tree:
        named[tree["name"]] = found
    return found


def _avro_field(name: str, tree: Any, where: str, named: dict[str, pa.DataType]) -> pa.Field:
    if isinstance(tree, list):
        kind, nullable = _of_union(tree, where, named)
        return pa.field(name, kind, nullable)
    return pa.field(name, _of_avro(tree, where, named), nullable=False)


def _of_union(
    tree: list[Any], where: str, named: dict[str, pa.DataType]
) -> tuple[pa.DataType, bool]:
    kinds = [kind for kind in tree if kind != "null"]
    if len(kinds) != 1:
        raise WrongCall(f"{where}: a column has one type, or one type and null")
    return _of_avro(kinds[0], where, named), len(kinds) < len(tree)
