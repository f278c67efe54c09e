"""Protobuf values become columns, each by the message that the id and the indexes before it name."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

from kwire.pipeline.problems import WrongCall
from kwire.pipeline.schemas.values import (
    Misfit,
    ValueSchema,
    read_schemas_by_id,
    read_value_schema,
)
from kwire.varint import varint

Field = descriptor_pb2.FieldDescriptorProto
NUMBER = {
    "int32": Field.TYPE_INT32,
    "sint64": Field.TYPE_SINT64,
    "int64": Field.TYPE_INT64,
    "uint32": Field.TYPE_UINT32,
    "fixed64": Field.TYPE_FIXED64,
    "float": Field.TYPE_FLOAT,
    "double": Field.TYPE_DOUBLE,
    "bool": Field.TYPE_BOOL,
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
}


def message(
    name: str, *fields: str, inside: list[Any] | None = None
) -> descriptor_pb2.DescriptorProto:
    """A message; a field is `[repeated|optional|required] TYPE NAME`, numbered from 1, and .NAME is a message's or an enum's type."""
    made = descriptor_pb2.DescriptorProto(name=name, nested_type=inside or [])
    for number, text in enumerate(fields, 1):
        *label, kind, field_name = text.split()
        field = made.field.add(name=field_name, number=number)
        field.label = {
            "repeated": Field.LABEL_REPEATED,
            "required": Field.LABEL_REQUIRED,
        }.get("".join(label), Field.LABEL_OPTIONAL)
        if kind.startswith("enum."):
            field.type, field.type_name = Field.TYPE_ENUM, kind.removeprefix("enum")
        elif kind.startswith("."):
            field.type, field.type_name = Field.TYPE_MESSAGE, kind
        else:
            field.type = NUMBER[kind]
        if label == ["optional"]:
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field_name}")
    return made


def map_entry(name: str, key: str, value: str) -> descriptor_pb2.DescriptorProto:
    """The message that protoc makes of a map."""
    made = message(name, f"{key} key", f"{value} value")
    made.options.map_entry = True
    return made


def descriptors(
    *messages: descriptor_pb2.DescriptorProto, syntax: str = "proto3", package: str = "acme"
) -> descriptor_pb2.FileDescriptorSet:
    """A set as protoc writes it: what is imported comes first."""
    found = descriptor_pb2.FileDescriptorSet()
    imported = [timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR]
    for each in imported:
        found.file.append(descriptor_pb2.FileDescriptorProto.FromString(each.serialized_pb))
    found.file.add(
        name="orders.proto",
        package=package,
        syntax=syntax,
        dependency=[each.name for each in imported],
        message_type=messages,
        enum_type=[
            descriptor_pb2.EnumDescriptorProto(
                name="Kind",
                value=[
                    descriptor_pb2.EnumValueDescriptorProto(name=one, number=number)
                    for number, one in enumerate(("PLAIN", "GIFT"))
                ],
            )
        ],
    )
    return found


def written(found: descriptor_pb2.FileDescriptorSet, path: Path) -> str:
    """The set in a file, as --value-schema names it."""
    path.write_bytes(found.SerializeToString())
    return f"@{path}"


def made(found: descriptor_pb2.FileDescriptorSet, name: str, /, **fields: Any) -> bytes:
    """The bytes of a message."""
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))(
        **fields
    ).SerializeToString()


def framed(number: int, indexes: tuple[int, ...], data: bytes) -> bytes:
    """Bytes after the id of a schema and the indexes of a message."""
    words = (len(indexes), *indexes) if indexes else (0,)
    return bytes(1) + number.to_bytes(4, "big") + b"".join(map(varint, words)) + data


ALL = descriptors(
    message("Place", "string city", "optional int32 zip"),
    message(
        "Order",
        "int32 id",
        "sint64 amount",
        "uint32 count",
        "fixed64 serial",
        "float part",
        "double price",
        "bool ok",
        "string name",
        "bytes raw",
        "enum.acme.Kind kind",
        "repeated string tags",
        ".acme.Place place",
        "repeated .acme.Place stops",
        "optional string note",
        ".google.protobuf.Timestamp at",
        ".google.protobuf.Int64Value some",
        "repeated .acme.Order.ExtraEntry extra",
        "repeated .acme.Order.NumberedEntry numbered",
        inside=[
            map_entry("ExtraEntry", "string", "double"),
            map_entry("NumberedEntry", "int32", ".acme.Place"),
        ],
    ),
)


@pytest.mark.parametrize("with_id", [False, True])
def test_message_becomes_columns(tmp_path: Path, with_id: bool) -> None:
    text = f"{written(ALL, tmp_path / 'orders.desc')}#acme.Order"
    schema = read_schemas_by_id({7: text}, "here") if with_id else read_value_schema(text, "here")
    schema = pickle.loads(pickle.dumps(schema))  # as it goes to Spark's tasks

    def parsed(data: bytes) -> dict[str, Any]:
        return schema.parse(framed(7, (1,), data) if with_id else data)

    value = made(
        ALL,
        "acme.Order",
        id=-1,
        amount=-(1 << 40),
        count=(1 << 32) - 1,
        serial=(1 << 64) - 1,
        part=0.5,
        price=1e300,
        ok=True,
        name="a",
        raw=b"\xff",
        kind=1,
        tags=["x", "y"],
        place={"city": "Ulm"},
        stops=[{"city": "Bonn", "zip": 0}],
        note="",
        at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        some={"value": 0},
        extra={"k": 1.5},
        numbered={5: {"city": "Ulm"}},
    )
    ulm = {"city": "Ulm", "zip": None}
    assert parsed(value) == {
        "id": -1,
        "amount": -(1 << 40),
        "count": (1 << 32) - 1,
        "serial": Decimal((1 << 64) - 1),
        "part": 0.5,
        "price": 1e300,
        "ok": True,
        "name": "a",
        "raw": b"\xff",
        "kind": "GIFT",
        "tags": ["x", "y"],
        "place": ulm,
        "stops": [{"city": "Bonn", "zip": 0}],
        "note": "",
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "some": 0,
        "extra": [("k", 1.5)],
        "numbered": [(5, ulm)],
    }
    # What a message does not say has its default; what it could have left unsaid is null.
    bare = parsed(b"")
    assert bare["id"] == 0
    assert bare["kind"] == "PLAIN"
    assert bare["tags"] == bare["extra"] == []
    assert [name for name, one in bare.items() if one is None] == ["place", "note", "at", "some"]
    assert schema.parse(None) == dict.fromkeys(bare)
    assert str(schema.columns.field("numbered").type).startswith("map<int32, struct<city: string")


FIRST = descriptors(message("Order", "int64 id", "string first", "string last"))
SECOND = descriptors(
    message("Refund", "int64 id"),
    message("Order", "int64 id", "string last", "string first", "int32 price_cents"),
)


def two(tmp_path: Path) -> ValueSchema:
    """The table has the columns of schema 2."""
    first = written(FIRST, tmp_path / "1.desc")
    second = written(SECOND, tmp_path / "2.desc") + "#acme.Order"
    return read_schemas_by_id({1: first, 2: second}, "here")


def test_each_value_is_parsed_by_the_schema_that_its_id_names(tmp_path: Path) -> None:
    table = two(tmp_path)
    value = made(FIRST, "acme.Order", id=1, first="Ada", last="Byron")
    for indexes in ((), (0,)):
        assert table.parse(framed(1, indexes, value)) == {
            "id": 1,
            "last": "Byron",
            "first": "Ada",
            "price_cents": None,
        }
    value = made(SECOND, "acme.Order", id=1, first="Ada", last="Byron", price_cents=5)
    found = table.parse(framed(2, (1,), value))
    assert (found["first"], found["last"], found["price_cents"]) == ("Ada", "Byron", 5)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (framed(2, (0,), b""), "^schema 2: the value is of the message acme.Refund, not of acme.Order"),
        (framed(2, (2,), b""), r"^schema 2: the schema has no message \(2,\)"),
        (framed(2, (1, 0), b""), r"^schema 2: the schema has no message \(1, 0\)"),
        (framed(2, (1,), b"\xff"), "^schema 2: not Protobuf of this schema: DecodeError"),
        (framed(2, (1,), b"\x12\x01\xff"), "^schema 2: not Protobuf of this schema"),  # not UTF-8
        # Field 9 is no field of the message, so this was written by another one.
        (framed(2, (1,), b"\x48\x01"), "^schema 2: the value has fields that acme.Order does not have"),
        (b"\0\0\0\0\2", "^schema 2: .*no message indexes"),
        (b"\0\0\0\0\2\x01", "^schema 2: .*no message indexes"),
        (framed(3, (0,), b""), r"is of schema 3, which is not given \(only 1, 2\)"),
    ],
)  # fmt: skip
def test_value_of_another_message_says_so(tmp_path: Path, value: bytes, why: str) -> None:
    with pytest.raises(Misfit, match=why):
        two(tmp_path).parse(value)


def test_protobuf_and_other_forms_may_follow_each_other(tmp_path: Path) -> None:
    """The registry of a topic that has moved from JSON."""
    texts = {1: "id INT, first STRING", 2: written(FIRST, tmp_path / "1.desc")}
    table = read_schemas_by_id(texts, "here")
    assert table.parse(bytes(4) + b'\1{"id": 1, "first": "a"}')["first"] == "a"
    back = read_schemas_by_id(dict(reversed(texts.items())), "here")
    assert back.parse(framed(2, (), made(FIRST, "acme.Order", id=1))) == {"id": 1, "first": ""}


def test_fields_that_proto2_requires_are_required(tmp_path: Path) -> None:
    found = descriptors(message("Order", "required int64 id", "string name"), syntax="proto2")
    schema = read_value_schema(written(found, tmp_path / "o.desc"), "here")
    assert schema.parse(b"\x08\x01") == {"id": 1, "name": None}
    for value, why in ((b"", "id is missing"), (None, "id is missing")):
        with pytest.raises(Misfit, match=why):
            schema.parse(value)


def test_number_that_an_enum_does_not_have_is_not_guessed_at(tmp_path: Path) -> None:
    found = descriptors(message("Order", "enum.acme.Kind kind"))
    schema = read_value_schema(written(found, tmp_path / "o.desc"), "here")
    with pytest.raises(Misfit, match=r"kind: acme\.Kind has no 5"):
        schema.parse(b"\x08\x05")


def test_newer_fields_of_values_without_an_id_are_left_out(tmp_path: Path) -> None:
    """As Protobuf does: producers may have been changed first, and nothing names the schema."""
    schema = read_value_schema(written(FIRST, tmp_path / "o.desc"), "here")
    assert schema.parse(b"\x08\x01\x48\x01")["id"] == 1


@pytest.mark.parametrize(
    ("found", "name", "why"),
    [
        (SECOND, "", "has the messages acme.Refund, acme.Order: name one, as in @.*o.desc#acme.Refund"),
        (SECOND, "#acme.Other", "has no message acme.Other, only acme.Refund, acme.Order"),
        (descriptors(message("Node", ".acme.Node next")), "", "acme.Node is inside itself"),
        (descriptors(message("Order", "int64 _offset")), "", "_offset: names that begin with _"),
        (descriptors(message("Order", "int64 a", "int64 A")), "", "two with the same name"),
        (descriptors(message("Order")), "", "no columns"),
        (descriptors(), "", "has no message"),
        (descriptors(message("Order", ".acme.Absent a")), "", "is not a set of descriptors"),
    ],
)  # fmt: skip
def test_wrong_set_of_descriptors_is_told(
    tmp_path: Path, found: descriptor_pb2.FileDescriptorSet, name: str, why: str
) -> None:
    with pytest.raises(WrongCall, match=why):
        read_value_schema(written(found, tmp_path / "o.desc") + name, "here")


def test_files_of_another_kind_are_told(tmp_path: Path) -> None:
    (tmp_path / "o.desc").write_bytes(b"no descriptors")
    (tmp_path / "o.proto").write_text('syntax = "proto3"; message Order { int64 id = 1; }')
    lonely = descriptor_pb2.FileDescriptorSet(file=FIRST.file[-1:])
    written(lonely, tmp_path / "lonely.desc")
    for name, why in (
        ("o.desc", "is not a set of descriptors"),
        ("o.proto", r"protoc --include_imports --descriptor_set_out=o\.desc o\.proto"),
        ("lonely.desc", "is not a set of descriptors.*timestamp"),
        ("none.desc", "cannot read .*none.desc: No such file"),
    ):
        with pytest.raises(WrongCall, match=why):
            read_value_schema(f"@{tmp_path / name}", "here")
