"""Avro: its schemas, their columns, and values that were written by them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kwire.records.schema_ids import PREFIX_BYTES

from ..problems import WrongCall
from .forms import BARE, MAX_PRECISION, Misfit, ValueForm, misfit

_TYPES: dict[str, pa.DataType] = {
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
#: Types that are no records.
_BARE = frozenset(
    {
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "string",
        "bytes",
        "enum",
        "fixed",
        "array",
        "map",
    }
)


@dataclass(frozen=True)
class Avro:
    """Avro of the schema that fastavro has parsed."""

    schema: Any

    def body(self, value: bytes) -> bytes:
        """See ValueForm."""
        return value[PREFIX_BYTES:]

    def read(self, data: bytes, table: ValueForm | None = None) -> dict[str, Any]:
        """See ValueForm; a value is resolved to the table's schema by Avro's rules."""
        import fastavro

        stream = io.BytesIO(data)
        reader = table.schema if isinstance(table, Avro) and table is not self else None
        try:
            found: Any = fastavro.schemaless_reader(stream, self.schema, reader)
        except Exception as error:
            also = "" if reader is None else ", or the table's schema cannot read it"
            raise misfit("Avro", error, also=also) from error
        if left := len(data) - stream.tell():
            raise Misfit(f"{left} bytes are left after the value")
        return found if is_record(self.schema) else {BARE: found}

    def columns(self, where: str) -> pa.Schema:
        """The columns of a table. Raises WrongCall for a type that tables lack; `where` is said of it."""
        try:
            if not is_record(self.schema):
                return pa.schema([_field(BARE, self.schema, where, {})])
            return pa.schema(list(_of_avro(self.schema, where, {})))
        except (KeyError, TypeError) as error:
            raise WrongCall(f"{where} is not an Avro schema: {error!r}") from error


def read_avro(text: str, where: str, *, bare: bool = False) -> Avro | None:
    """The schema of an Avro record, or, with `bare`, of any type; None for text of another kind. Raises WrongCall."""
    try:
        tree = json.loads(text)
    except ValueError:
        return None  # the other reader reports the error
    kind = tree.get("type") if isinstance(tree, dict) else tree
    if kind != "record" and not (bare and isinstance(kind, str) and kind in _BARE):
        return None
    return Avro(_parsed(tree, where))


def is_record(schema: Any) -> bool:
    """Whether the values of a parsed schema are made of fields."""
    return isinstance(schema, dict) and schema["type"] == "record"


def _parsed(tree: Any, where: str) -> Any:
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
    if isinstance(parsed, dict) and "__named_schemas" in parsed:
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
    return logical in _TYPES and logical not in ("string", "bytes") and kind == base


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
    if kind not in _TYPES and kind not in ("record", "array", "map", "fixed", "null"):
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


def _of_avro(tree: Any, where: str, named: dict[str, pa.DataType]) -> pa.DataType:
    """The type of an Avro schema; `named` are the records, enums and fixed that came before."""
    if isinstance(tree, str):
        if tree in named:
            return named[tree]
        if tree in _TYPES:
            return _TYPES[tree]
        raise WrongCall(f"{where}: unknown type {tree}")
    if isinstance(tree, list):
        return _of_union(tree, where, named)[0]
    kind, logical = tree["type"], tree.get("logicalType")
    found: pa.DataType
    if logical == "decimal":
        if tree["precision"] > MAX_PRECISION:
            raise WrongCall(f"{where}: tables have no decimals of more than {MAX_PRECISION} digits")
        found = pa.decimal128(tree["precision"], tree.get("scale", 0))
    elif logical in _TYPES:
        found = _TYPES[logical]
    elif kind == "record":
        found = pa.struct(
            [
                _field(field["name"], field["type"], f"{where}: {field['name']}", named)
                for field in tree["fields"]
            ]
        )
    elif kind == "fixed":
        found = pa.binary()
    elif kind == "array":
        found = pa.list_(_field("element", tree["items"], f"{where}[]", named))
    elif kind == "map":
        found = pa.map_(pa.string(), _field("value", tree["values"], f"{where}.*", named))
    else:
        return _of_avro(kind, where, named) if kind != "enum" else _TYPES["enum"]
    if "name" in tree:
        named[tree["name"]] = found
    return found


def _field(name: str, tree: Any, where: str, named: dict[str, pa.DataType]) -> pa.Field:
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
