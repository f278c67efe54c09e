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
from kwire.pipeline.schemas.values import Misfit, parse_all, read_value_schema

DDL = (
    "id BIGINT NOT NULL, amount DECIMAL(10,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>,"
    " place STRUCT<city: STRING, zip: INT>, extra MAP<STRING, DOUBLE>, ok BOOLEAN"
)


def test_json_becomes_columns_by_ddl() -> None:
    schema = read_value_schema(DDL, "--value-schema", framed=False)
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
    schema = read_value_schema(DDL, "--value-schema", framed=False)
    with pytest.raises(Misfit, match=why):
        schema.parse(value)
    table, good, bad = parse_all([b'{"id": 1}', value], schema)
    assert (table.num_rows, good, [number for number, _ in bad]) == (1, [0], [1])


def test_record_without_a_value_has_no_columns_unless_one_is_required() -> None:
    schema = read_value_schema("id BIGINT", "--value-schema", framed=False)
    assert schema.parse(None) == {"id": None}


def test_json_schema_names_types_and_required_fields(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    tree = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
        "required": ["id"],
    }
    file.write_text(json.dumps(tree))
    schema = read_value_schema(f"@{file}", "--value-schema", framed=False)
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


@pytest.mark.parametrize("framed", [False, True])
def test_avro_becomes_columns(framed: bool) -> None:
    schema = read_value_schema(json.dumps(AVRO), "--value-schema", framed=framed)
    row = {
        "id": 1,
        "note": None,
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "price": Decimal("1.25"),
        "lines": [{"sku": "x"}],
        "kind": "B",
    }
    out = io.BytesIO(b"")
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), row)
    value = (b"\0\0\0\0\7" if framed else b"") + out.getvalue()
    assert schema.parse(value) == row
    with pytest.raises(Misfit, match=r"1 bytes are left|not Avro|does not begin"):
        schema.parse(value + b"\0")
    with pytest.raises(Misfit, match=r"not Avro of this schema|does not begin"):
        schema.parse(b"\1\2")


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
        read_value_schema(text, "--value-schema", framed=False)
