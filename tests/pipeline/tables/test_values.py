"""Values become columns, or dead letters with the reason."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest

from kwire.pipeline.problems import WrongCall
from kwire.pipeline.schemas.values import (
    Misfit,
    parse_all,
    read_schemas_by_id,
    read_value_schema,
)

DDL = (
    "id BIGINT NOT NULL, amount DECIMAL(10,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>,"
    " place STRUCT<city: STRING, zip: INT>, extra MAP<STRING, DOUBLE>, ok BOOLEAN"
)


def test_json_becomes_columns_by_ddl() -> None:
    schema = read_value_schema(DDL, "--value-schema")
    value = {
        "id": 7,
        "amount": 12.5,
        "at": "2026-01-02T03:04:05+01:00",
        "day": "2026-01-02",
        "tags": ["a", None],
        "place": {"city": "Ulm"},
        "extra": {"x": 1},
        "ok": True,
        "more": "is left out",
    }
    table, good, bad = parse_all([json.dumps(value).encode()], schema)
    assert (good, bad) == ([0], [])
    assert table.to_pylist() == [
        {
            "id": 7,
            "amount": Decimal("12.50"),
            "at": datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC),
            "day": date(2026, 1, 2),
            "tags": ["a", None],
            "place": {"city": "Ulm", "zip": None},
            "extra": [("x", 1.0)],
            "ok": True,
        }
    ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "not JSON of this schema: JSONDecodeError"),
        (b"\xff", "not JSON of this schema: UnicodeDecodeError"),
        (b"[1]", "not an object"),
        (None, "id is missing"),
        (b'{"id": null}', "id is missing"),
        (b'{"id": "7"}', "id: '7' is not int64"),
        (b'{"id": true}', "id: True is not int64"),
        (b'{"id": 9223372036854775808}', "id: 9223372036854775808 is not int64"),
        (b'{"id": 1, "amount": 123456789012}', "amount: 123456789012 is not decimal"),
        (b'{"id": 1, "amount": 0.001}', "amount: 0.001 is not decimal"),
        (b'{"id": 1, "at": "yesterday"}', "at: 'yesterday' is not timestamp"),
        (b'{"id": 1, "at": 5}', "at: 5 is not timestamp"),
        (b'{"id": 1, "tags": [1]}', r"tags\[\]: 1 is not string"),
        (b'{"id": 1, "tags": ["\\ud800"]}', r"tags\[\]: .* is not string"),
        (b'{"id": 1, "place": {"zip": "x"}}', "place.zip: 'x' is not int32"),
        (b'{"id": 1, "extra": {"a": "b"}}', r"extra.\*: 'b' is not double"),
    ],
)
def test_value_that_does_not_fit_says_where(value: bytes | None, why: str) -> None:
    schema = read_value_schema(DDL, "--value-schema")
    with pytest.raises(Misfit, match=why):
        schema.parse(value)
    table, good, bad = parse_all([b'{"id": 1}', value], schema)
    assert (table.num_rows, good, [number for number, _ in bad]) == (1, [0], [1])


def test_record_without_a_value_has_no_columns_unless_one_is_required() -> None:
    schema = read_value_schema("id BIGINT", "--value-schema")
    assert schema.parse(None) == {"id": None}


def test_json_schema_names_types_and_required_fields(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    tree = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
        "required": ["id"],
    }
    file.write_text(json.dumps(tree))
    schema = read_value_schema(f"@{file}", "--value-schema")
    assert schema.text == "id int64, at timestamp[us, tz=UTC]"
    with pytest.raises(Misfit, match="id is missing"):
        schema.parse(b"{}")


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}],
                },
            },
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}


def avro_of(schema: dict[str, object], row: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


@pytest.mark.parametrize("framed", [False, True])
def test_avro_becomes_columns(framed: bool) -> None:
    text = json.dumps(AVRO)
    schema = (
        read_schemas_by_id({7: text}, "--value-schema")
        if framed
        else read_value_schema(text, "--value-schema")
    )
    row = {
        "id": 1,
        "note": None,
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "price": Decimal("1.25"),
        "lines": [{"sku": "x"}],
        "kind": "B",
    }
    value = (b"\0\0\0\0\7" if framed else b"") + avro_of(AVRO, row)
    assert schema.parse(value) == row
    with pytest.raises(Misfit, match=r"1 bytes are left|not Avro|does not begin"):
        schema.parse(value + b"\0")
    with pytest.raises(Misfit, match=r"not Avro of this schema|does not begin"):
        schema.parse(b"\1\2")


def record(*fields: tuple[str, object] | dict[str, object]) -> dict[str, object]:
    """An Avro record of these fields."""
    made = [one if isinstance(one, dict) else {"name": one[0], "type": one[1]} for one in fields]
    return {"type": "record", "name": "Order", "fields": made}


#: Each swaps, renames, adds, or widens what an earlier one has, so that the bytes of one can be read by another.
FIRST = record(("id", "long"), ("first", "string"), ("last", "string"), ("quantity", "int"))
SECOND = record(("id", "long"), ("last", "string"), ("first", "string"), ("price_cents", "int"))
TABLE = record(
    ("id", "long"),
    ("first", "string"),
    {"name": "surname", "aliases": ["last"], "type": "string"},
    {"name": "quantity", "type": "long", "default": 1},
    {"name": "price_cents", "type": ["null", "double"], "default": None},
)
#: What no column could have is of no harm where the table does not have it.
ODD = record(*TABLE["fields"][:3], ("any", ["int", "string"]))  # type: ignore[index]


def framed(number: int, data: bytes) -> bytes:
    return bytes(1) + number.to_bytes(4, "big") + data


@pytest.mark.parametrize(
    ("number", "schema", "row", "parsed"),
    [
        (
            1,
            FIRST,
            {"id": 1, "first": "Ada", "last": "Byron", "quantity": 19},
            [1, "Ada", "Byron", 19, None],
        ),
        (
            2,
            SECOND,
            {"id": 2, "first": "Ada", "last": "Byron", "price_cents": 1999},
            [2, "Ada", "Byron", 1, 1999.0],
        ),
        (
            65_536,
            ODD,
            {"id": 3, "first": "Ada", "surname": "Byron", "any": "x"},
            [3, "Ada", "Byron", 1, None],
        ),
        (
            4,
            TABLE,
            {"id": 4, "first": "A", "surname": "B", "quantity": 2, "price_cents": 0.5},
            [4, "A", "B", 2, 0.5],
        ),
    ],
)
def test_each_value_is_parsed_by_the_schema_that_its_id_names(
    number: int, schema: dict[str, object], row: dict[str, object], parsed: list[object]
) -> None:
    texts = {1: FIRST, 2: SECOND, 65_536: ODD, 4: TABLE}
    table = read_schemas_by_id({of: json.dumps(one) for of, one in texts.items()}, "here")
    assert table.columns.names == ["id", "first", "surname", "quantity", "price_cents"]
    assert [*table.parse(framed(number, avro_of(schema, row))).values()] == parsed


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (framed(3, avro_of(FIRST, {"id": 1, "first": "", "last": "", "quantity": 1})), r"is of schema 3, which is not given \(only 1, 2\)"),
        (framed(0, framed(1, b"")), "is of schema 0, which is not given"),
        (avro_of(FIRST, {"id": 1, "first": "", "last": "", "quantity": 1}), "does not begin with 0 and the id"),
        (b"\0\0\0\0", "does not begin with 0 and the id"),
        (framed(1, b""), "^schema 1: not Avro of this schema"),
        (framed(1, avro_of(FIRST, {"id": 1, "first": "", "last": "", "quantity": 1}) + b"."), "^schema 1: 1 bytes are left"),
        # The table requires a quantity, and schema 2 gives none.
        (framed(2, avro_of(SECOND, {"id": 1, "first": "", "last": "", "price_cents": 1})), "^schema 2: .*No default value for field quantity"),
    ],
)  # fmt: skip
def test_value_of_another_schema_says_so(value: bytes, why: str) -> None:
    table = read_schemas_by_id({2: json.dumps(SECOND), 1: json.dumps(FIRST)}, "here")
    with pytest.raises(Misfit, match=why):
        table.parse(value)


def test_json_fits_the_schema_of_its_id_and_that_of_the_table() -> None:
    table = read_schemas_by_id({1: "id INT, name STRING", 2: "id BIGINT NOT NULL, at DATE"}, "here")
    assert table.parse(framed(1, b'{"id": 1, "name": "a"}')) == {"id": 1, "at": None}
    assert table.parse(framed(2, b'{"id": 1, "at": "2026-01-02"}'))["at"] == date(2026, 1, 2)
    for value, why in (
        (framed(1, b'{"id": 1, "name": 5}'), "^schema 1: name: 5 is not string"),
        (framed(1, b'{"name": "a"}'), "^schema 1: id is missing"),
        (b'{"id": 1}', "does not begin with 0"),
    ):
        with pytest.raises(Misfit, match=why):
            table.parse(value)


def test_avro_record_inside_itself_is_refused_whether_it_is_the_table_s_or_not() -> None:
    """Its values could nest so deeply that the reader in C overflows the stack."""
    texts = {
        1: json.dumps(record(("id", "long"), ("next", ["null", "Order"]))),
        2: json.dumps(FIRST),
    }
    for given in (texts, dict(reversed(texts.items()))):
        with pytest.raises(WrongCall, match="Order is inside itself"):
            read_schemas_by_id(given, "here")


def test_value_with_an_id_where_none_was_told_says_what_to_do() -> None:
    schema = read_value_schema("id BIGINT", "here")
    with pytest.raises(
        Misfit, match=r"not JSON .*begins with the id of a schema, 7: give it with ID:"
    ):
        schema.parse(framed(7, b'{"id": 1}'))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id BIGINT, _offset INT", "_offset: names that begin with _"),
        ("id VARIANT", "tables have no variant"),
        ("id", "a type is missing"),
        ("id INT, ID INT", "two with the same name"),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["int", "string"]}]}',
            "one type",
        ),
        ('{"type": "record", "fields": [{"name": "a", "type": "int"}]}', "is not an Avro schema"),
        ("@/does/not/exist", "cannot read /does/not/exist"),
    ],
)
def test_wrong_schema_is_told(text: str, why: str) -> None:
    with pytest.raises(WrongCall, match=why):
        read_value_schema(text, "--value-schema")


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
DAY = {"type": "int", "logicalType": "date"}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
PLACE = {
    "type": "record",
    "name": "com.example.Place",
    "fields": [{"name": "zip", "type": "int", "default": 1}, {"name": "code", "type": "bytes"}],
}


@pytest.mark.parametrize(
    ("kind", "default", "column"),
    [
        ("bytes", "abcd", b"abcd"),  # which is also base64
        (["bytes", "null"], "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "Two", "size": 2}, "\x01\x02", b"\1\2"),
        (DECIMAL, "\x01\x02", Decimal("2.58")),
        (MOMENT, 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ({"type": "array", "items": DAY}, [1], [date(1970, 1, 2)]),
        ({"type": "map", "values": "bytes"}, {"k": "abcd"}, [("k", b"abcd")]),
        (PLACE, {"code": "abcd"}, {"zip": 1, "code": b"abcd"}),
    ],
)
def test_default_of_a_new_avro_field_is_read_as_a_stored_value_is(
    kind: object, default: object, column: object
) -> None:
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    new = {**old, "fields": [{"name": "new", "type": kind, "default": default}]}
    schema = read_schemas_by_id({1: json.dumps(old), 2: json.dumps(new)}, "--value-schema")
    assert schema.parse(b"\0\0\0\0\1\2") == {"new": column}


def test_avro_type_may_be_named_with_its_namespace() -> None:
    tree = {
        "type": "record",
        "name": "com.example.Order",
        "fields": [
            {"name": "to", "type": {**PLACE, "name": "Place"}},
            {"name": "from", "type": ["null", "com.example.Place"]},
        ],
    }
    schema = read_value_schema(json.dumps(tree), "--value-schema")
    assert schema.parse(b"\2\2a\0") == {"to": {"zip": 1, "code": b"a"}, "from": None}


def test_logical_type_that_tables_lack_is_the_type_below_it() -> None:
    fields = [
        {"name": "a", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "b", "type": {"type": "string", "logicalType": "decimal"}},  # no such combination
    ]
    tree = {"type": "record", "name": "Order", "fields": fields}
    schema = read_value_schema(json.dumps(tree), "--value-schema")
    assert schema.parse(b"\2\2x") == {"a": 1, "b": "x"}


@pytest.mark.parametrize(
    ("kind", "default", "why"),
    [
        ({**DECIMAL, "precision": 39}, "", "no decimals of more than 38 digits"),
        ("bytes", "\u0100", "the default of a is not of its type"),
    ],
)
def test_avro_field_that_no_column_can_have_is_a_wrong_call(
    kind: object, default: object, why: str
) -> None:
    fields = [{"name": "a", "type": kind, "default": default}]
    tree = {"type": "record", "name": "Order", "fields": fields}
    with pytest.raises(WrongCall, match=why):
        read_value_schema(json.dumps(tree), "--value-schema")
