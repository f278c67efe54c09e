"""The columns of a topic's values: given as Spark's DDL, Spark's own JSON, or a JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..problems import WrongCall
from .ddl import DdlError, read_ddl

#: JSON Schema's type -> Spark's, for types that depend on nothing else.
PLAIN_TYPES: dict[str, DataType] = {
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
}
#: JSON Schema's format of a string -> Spark's type.
FORMATS: dict[str, DataType] = {"date-time": TimestampType(), "date": DateType()}


def read_schema(text: str | None, file: Path | None, default: str) -> StructType:
    """The schema of `--schema` or `--schema-file`, else the default; a column that is not nullable is required.

    Raises WrongCall for a file that cannot be read and for text that is not a schema.
    """
    if text is not None and file is not None:
        raise WrongCall("say either --schema or --schema-file")
    where = "--schema"
    if file is not None:
        where = str(file)
        try:
            text = file.read_text()
        except OSError as error:
            raise WrongCall(f"cannot read {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise WrongCall(f"{file} is not UTF-8") from error
    given = (text if text is not None else default).strip()
    if not given:
        raise WrongCall(f"{where}: no columns")
    schema = schema_of(given, where)
    if not schema.fields:
        raise WrongCall(f"{where}: no columns")
    names = [field.name.lower() for field in schema.fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WrongCall(
            f"{where}: column {twice[0]} is given twice (upper and lower case are the same)"
        )
    return schema


def schema_of(text: str, where: str) -> StructType:
    """The columns that a text in any of the forms gives; `where` is said of mistakes. Raises WrongCall."""
    if text.startswith("{"):
        try:
            tree = json.loads(text)
        except ValueError as error:
            raise WrongCall(f"{where} is not JSON: {error}") from error
        if tree.get("type") != "struct":
            return _object(tree, where)
        try:
            return StructType.fromJson(tree)
        except Exception as error:  # whatever is wrong with it
            raise WrongCall(f"{where} is not a schema in Spark's JSON: {error!r}") from error
    try:
        return read_ddl(text)
    except DdlError as error:
        raise WrongCall(f"{where} is not Spark's DDL: {error}") from error


def _object(tree: dict[str, Any], where: str) -> StructType:
    """A JSON Schema of `type: object` with `properties`; those in `required` are not nullable."""
    properties = tree.get("properties")
    if tree.get("type") != "object" or not isinstance(properties, dict):
        raise WrongCall(
            f"{where}: JSON must be a JSON Schema of type object with properties,"
            " or a schema in Spark's JSON of type struct"
        )
    required = tree.get("required", [])
    absent = [name for name in required if name not in properties]
    if absent:
        raise WrongCall(f"{where}: {absent[0]} is required, but not among the properties")
    return StructType(
        [
            StructField(name, _type(item, f"{where}: {name}"), name not in required)
            for name, item in properties.items()
        ]
    )


def _type(tree: Any, where: str) -> DataType:
    kinds = tree.get("type") if isinstance(tree, dict) else None
    given = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
    if len(given) != 1 or given[0] is None:
        raise WrongCall(f"{where}: expected one type, or one type and null")
    kind = given[0]
    if kind in PLAIN_TYPES:
        return PLAIN_TYPES[kind]
    if kind == "string":
        return FORMATS.get(tree.get("format", ""), StringType())
    if kind == "array":
        return ArrayType(_type(tree.get("items"), f"{where}[]"))
    if kind == "object" and "properties" in tree:
        return _object(tree, where)
    if kind == "object":
        values = tree.get("additionalProperties")
        of = _type(values, f"{where}.*") if isinstance(values, dict) else StringType()
        return MapType(StringType(), of)
    raise WrongCall(f"{where}: unknown type {kind!r}")


def nullable(schema: StructType) -> StructType:
    """The same columns, none of them required: how values are read at first."""
    return StructType([StructField(field.name, field.dataType, True) for field in schema.fields])


def column(schema: StructType, name: str, option: str) -> StructField:
    """The column that an option names. Raises WrongCall if there is none."""
    for field in schema.fields:
        if field.name.lower() == name.lower():
            return field
    raise WrongCall(f"{option} {name}: the schema has {', '.join(schema.fieldNames())}")
