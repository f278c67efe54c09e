"""From fetched bytes to the records of a page."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from kwire.records.builder import BatchBuilder
from kwire.records.compression import Codec
from kwire.records.control import ControlType
from server.console import records
from server.console.decoders import Decoders, Schemas, avro_decoder, of_schema
from server.console.filters import parse
from server.console.messages import MAX_PAGE_TEXT, SearchCount, shorten
from server.console.records import (
    MAX_BATCH_BYTES,
    MAX_HEADER_TEXT,
    MAX_HEADERS,
    FoundRecords,
    WantedRecords,
    row_of,
    rows_of,
)
from server.console.values import shown
from tests.support.batches import batch, marker


def look(data: bytes, aborted: list[tuple[int, int]] | None = None, **changed: Any) -> FoundRecords:
    wanted = WantedRecords(0, 0, 1 << 40, None, "auto", 100, False, 1 << 40)._replace(**changed)
    return rows_of(data, wanted, aborted or [])


def test_records_of_an_aborted_transaction_are_marked_until_its_marker() -> None:
    data = (
        batch(0, b"a", producer=7)
        + batch(1, b"b", producer=8)
        + marker(2, 7, ControlType.ABORT)
        + batch(3, b"c", producer=7)
        + marker(4, 8, ControlType.COMMIT)
        + batch(5, None)
    )
    found = look(data, [(7, 0)], stable=4)
    assert [row.mark for row in found.rows] == [
        "aborted",
        "",
        "control",
        "",
        "control",
        "tombstone",
    ]
    assert found.rows[2].note == "abort of producer 7, epoch 0"
    assert look(data, [(7, 0)], stable=3).rows[3].mark == "undecided"


def test_records_outside_the_wanted_offsets_are_left_out() -> None:
    data = batch(0, b"a", b"b", b"c") + batch(3, b"d", b"e")
    assert [row.offset for row in look(data, start=1, end=4).rows] == [1, 2, 3]
    assert [row.offset for row in look(data, most=2).rows] == [0, 1]
    assert [row.offset for row in look(data, most=2, newest=True).rows] == [3, 4]
    assert look(data).next_offset == 5


def test_filter_leaves_out_what_does_not_match_and_all_markers() -> None:
    data = batch(0, b"a", b"b") + marker(2, 7, ControlType.COMMIT)
    found = look(data, test=parse("value = b"))
    assert [row.offset for row in found.rows] == [1] and found.looked_at == 3


def test_batch_that_grows_too_large_is_told_and_passed_over() -> None:
    bomb = batch(0, bytes(MAX_BATCH_BYTES + 1), codec=Codec.GZIP)
    assert len(bomb) < 100_000
    found = look(bomb + batch(1, b"after"))
    assert [row.offset for row in found.rows] == [1]
    assert "batch at offset 0" in found.problems[0]


def test_damaged_bytes_end_the_list_with_a_sentence() -> None:
    data = batch(0, b"a") + bytes(8) + struct.pack(">i", 100) + b"\xff" * 200
    found = look(data)
    assert [row.offset for row in found.rows] == [0] and found.problems


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "city", "type": "string"}, {"name": "total", "type": "double"}],
}


def test_avro_is_decoded_by_the_schema_in_the_directory(tmp_path: object) -> None:
    fastavro = pytest.importorskip("fastavro")
    import io
    from pathlib import Path

    folder = Path(str(tmp_path))
    (folder / "orders-value.avsc").write_text(json.dumps(AVRO))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, AVRO, {"city": "Oslo", "total": 9.5})
    plain = body.getvalue()
    decoder = Decoders(str(folder)).of("orders")
    assert Decoders(str(folder)).of("other") is None and Decoders(None).of("orders") is None
    data = batch(0, plain, b"\x00\x00\x00\x00\x07" + plain, b"\xff\xff\xff", plain + b"\0")
    found = look(data, decoder=decoder)
    assert [row.value.kind for row in found.rows] == ["avro", "hex", "hex", "hex"]
    assert json.loads(found.rows[0].value.line) == {"city": "Oslo", "total": 9.5}
    matching = look(data, decoder=decoder, test=parse("value.city = Oslo and value.total > 9"))
    assert [row.offset for row in matching.rows] == [0]


def test_avro_with_an_id_is_decoded_by_the_schema_of_the_id_only(tmp_path: object) -> None:
    fastavro = pytest.importorskip("fastavro")
    import io
    from pathlib import Path

    folder = Path(str(tmp_path))
    fields = [{"name": name, "type": "string"} for name in ("first", "last")]
    for number, order in ((7, fields), (300, fields[::-1])):
        schema = {"type": "record", "name": "Person", "fields": order}
        (folder / f"people-value.{number}.avsc").write_text(json.dumps(schema))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, {"first": "Ada", "last": "Byron"})

    def framed(number: int) -> bytes:
        return b"\0" + number.to_bytes(4, "big") + body.getvalue()

    data = batch(0, framed(300), framed(7), framed(8), b"\1" + framed(7)[1:], body.getvalue())
    decoder = Decoders(str(folder)).of("people")
    rows = look(data, decoder=decoder).rows
    assert [row.value.kind for row in rows] == [
        "avro",
        "avro",
        "hex (no schema 8)",
        "hex",
        "hex",
    ]
    assert json.loads(rows[0].value.line) == {"last": "Byron", "first": "Ada"}
    # The same bytes: it is the id that decides.
    assert json.loads(rows[1].value.line) == {"first": "Byron", "last": "Ada"}
    matching = look(data, decoder=decoder, test=parse("value.first = Ada"))
    assert [row.offset for row in matching.rows] == [0]


RECURSIVE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "branches", "type": {"type": "array", "items": "Tree"}}],
}


def test_avro_record_nested_too_deep_is_shown_as_bytes() -> None:
    pytest.importorskip("fastavro")
    decode = avro_decoder(json.dumps(RECURSIVE))
    assert decode(b"\x02\x00\x00") == {"branches": [{"branches": []}]}
    for depth in (5_000, 100_000):
        data = b"\x02" * depth + b"\x00" * (depth + 1)
        assert of_schema(Schemas(("avro", decode), {}), data, shown(data, "hex")).kind == "hex"


NOTHING = {"type": "record", "name": "N", "fields": [{"name": "x", "type": "null"}]}


@pytest.mark.parametrize(
    "items",
    [
        "null",
        NOTHING,
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "array", "items": "null"},
        {"type": "map", "values": {"type": "array", "items": "null"}},
        ["null", {"type": "array", "items": NOTHING}],
    ],
)
def test_avro_schema_with_which_few_bytes_claim_many_items_is_not_used(items: Any) -> None:
    pytest.importorskip("fastavro")
    fields = [{"name": "many", "type": {"type": "array", "items": items}}]
    with pytest.raises(ValueError, match="items that take no bytes"):
        avro_decoder(json.dumps({"type": "record", "name": "R", "fields": fields}))


def test_avro_decimal_of_many_digits_is_shown_as_bytes() -> None:
    pytest.importorskip("fastavro")
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 1000, "scale": 2}
    fields = [{"name": "n", "type": decimal}]
    decode = avro_decoder(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert str(decode(b"\x04\x04\xd2")["n"]) == "12.34"
    with pytest.raises(ValueError, match="too long"):
        decode(b"\x82\x02" + b"\x7f" * 129)


def test_protobuf_is_decoded_by_the_descriptors_in_the_directory(tmp_path: object) -> None:
    pytest.importorskip("google.protobuf")
    from pathlib import Path

    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(
        name="city",
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    folder = Path(str(tmp_path))
    (folder / "orders-value.desc").write_bytes(files.SerializeToString())
    decoder = Decoders(str(folder)).of("orders")
    plain = b"\x0a\x04Oslo"
    found = look(batch(0, plain, b"\x00\x00\x00\x00\x07\x00" + plain), decoder=decoder)
    assert [row.value.kind for row in found.rows] == ["protobuf", "hex"]
    assert found.rows[0].value.line == '{"city": "Oslo"}'


def test_protobuf_with_an_id_is_the_message_that_its_indexes_name(tmp_path: object) -> None:
    pytest.importorskip("google.protobuf")
    from pathlib import Path

    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="order.proto", package="shop", syntax="proto3")
    outer = file.message_type.add(name="Other")
    for message, field in (
        (outer.nested_type.add(name="Inner"), "inner"),
        (file.message_type.add(name="Order"), "city"),
        (outer, "other"),
    ):
        message.field.add(
            name=field,
            number=1,
            type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        )
    folder = Path(str(tmp_path))
    (folder / "orders-value.7.desc").write_bytes(files.SerializeToString())
    decoder = Decoders(str(folder)).of("orders")
    plain, prefix = b"\x0a\x04Oslo", b"\x00\x00\x00\x00\x07"
    indexes = (b"\x00", b"\x02\x02", b"\x04\x00\x00", b"\x02\x06", b"\x03", b"")
    data = batch(0, *(prefix + some + plain for some in indexes), prefix, plain)
    rows = look(data, decoder=decoder).rows
    assert [row.value.line for row in rows[:3]] == [
        '{"other": "Oslo"}',
        '{"city": "Oslo"}',
        '{"inner": "Oslo"}',
    ]
    assert "protobuf" not in {row.value.kind for row in rows[3:]}


def test_schema_that_cannot_be_read_is_left_out(tmp_path: object) -> None:
    from pathlib import Path

    (Path(str(tmp_path)) / "orders-value.avsc").write_text("{")
    assert Decoders(str(tmp_path)).of("orders") is None


def test_what_is_large_when_decompressed_is_looked_through_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "MAX_PIECE_BYTES", 150_000)
    data = b"".join(batch(n, b"x" * 100_000, codec=Codec.GZIP) for n in range(4))
    assert len(data) < 10_000
    for test in (None, parse("nowhere")):
        found = look(data, test=test)
        assert (found.looked_at, found.next_offset) == (2, 2)
        assert look(data, test=test, start=found.next_offset, most=2).next_offset == 4


def with_headers(count: int, value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(1_000, b"k", b"v", [(f"h{number}", value) for number in range(count)])
    return builder.build()


def test_first_headers_of_a_record_are_shown() -> None:
    (row,) = look(with_headers(MAX_HEADERS + 7, b"x" * 2 * MAX_HEADER_TEXT)).rows
    assert len(row.headers) == MAX_HEADERS and row.more_headers == 7
    assert len(row.headers[0][1].whole) == MAX_HEADER_TEXT


def test_headers_count_for_what_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_PIECE_BYTES", 64 * 1_000)
    data = with_headers(1_000, b"")
    assert look(data + data).looked_at == 1


def test_page_of_long_records_shows_the_first_of_them_in_full() -> None:
    rows = look(batch(0, *[b"{" + b" " * 100 + b'"a": "' + b"x" * 60_000 + b'"}'] * 100)).rows
    assert sum(len(row.value.whole) for row in rows) > MAX_PAGE_TEXT
    search = SearchCount()
    shorten(rows, search)
    assert MAX_PAGE_TEXT - 70_000 < sum(len(row.value.whole) for row in rows) <= MAX_PAGE_TEXT
    assert rows[0].value.whole and not rows[-1].value.whole and rows[-1].value.line
    assert "only the first" in search.problems[0]


def test_rows_are_made_only_of_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(record: Any, *rest: Any) -> Any:
        made.append(record.offset)
        return row_of(record, *rest)

    monkeypatch.setattr(records, "row_of", counted)
    data = batch(0, *[b"v"] * 100)
    assert [row.offset for row in look(data, most=3, newest=True).rows] == [97, 98, 99]
    assert [row.offset for row in look(data, most=3).rows] == [0, 1, 2]
    assert made == [97, 98, 99, 0, 1, 2]
