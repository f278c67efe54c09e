"""Tables of values: columns, another schema later, dead letters, and compaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.pipeline.manifest import Archive
from kwire.pipeline.problems import Problem, WrongCall
from kwire.pipeline.tables.derived import derived
from kwire.pipeline.tables.follower import ArchiveTables
from kwire.pipeline.tables.options import value_schemas
from kwire.pipeline.tables.place import DEAD_LETTERS, VALUES

from ..archive_model import archived
from .table_model import BOTH, add_batch, follow, in_table, options_of, rows_of_table
from .test_follow import compacted

VALID = [b'{"id": 1, "name": "a"}', b'{"id": 2}', b'{"id": 3, "amount": 2.5}']
WRONG = [b"no JSON", b'{"id": "x"}']


def values(path: Path, format: str) -> list[tuple[object, ...]]:
    rows = rows_of_table(path, format, "orders", VALUES)
    return sorted(
        (
            row["_partition"],
            row["_offset"],
            *[row[name] for name in row if name[0] != "_" and name != "date"],
        )
        for row in rows
    )  # type: ignore[type-var]


@pytest.mark.parametrize("format", BOTH)
def test_values_become_columns_and_a_new_schema_adds_some(tmp_path: Path, format: str) -> None:
    add_batch(tmp_path, 5, values=[*VALID, *WRONG])
    assert follow(tmp_path, format, value_schemas=["id INT, name STRING"]) == 3
    assert values(tmp_path, format) == [(0, 0, 1, "a"), (0, 1, 2, None), (0, 2, 3, None)]
    dead = rows_of_table(tmp_path, format, "orders", DEAD_LETTERS)
    assert sorted((row["offset"], row["value"], str(row["error"])[:10]) for row in dead) == [
        (3, b"no JSON", "not JSON o"),
        (4, b'{"id": "x"}', "id: 'x' is"),
    ]
    # Every record is in one of both, and in the table of the records as they were.
    assert in_table(tmp_path, format) == archived(tmp_path)
    add_batch(tmp_path, 3, batch=1, values=VALID)
    assert follow(tmp_path, format, value_schemas=["orders=id INT, amount DOUBLE"]) == 3
    assert values(tmp_path, format) == [
        (0, 0, 1, "a", None),
        (0, 1, 2, None, None),
        (0, 2, 3, None, None),
        (0, 5, 1, None, None),
        (0, 6, 2, None, None),
        (0, 7, 3, None, 2.5),
    ]
    assert follow(tmp_path, format, value_schemas=["orders=id INT, amount DOUBLE"]) == 0
    # A type that cannot become another.
    add_batch(tmp_path, 1, batch=2, values=[b'{"id": true}'])
    with pytest.raises(Problem, match="cannot"):
        follow(tmp_path, format, value_schemas=["id BOOLEAN"])


def test_compaction_without_the_schema_is_refused_and_keeps_the_files_of_values(
    tmp_path: Path,
) -> None:
    schema = ["orders=id BIGINT"]
    for number in range(2):
        add_batch(tmp_path, 5, batch=number, values=VALID)
        follow(tmp_path, "delta", value_schemas=schema)
    [old, *_] = compacted(tmp_path)
    follower = ArchiveTables(Archive(tmp_path), options_of("delta"))
    with pytest.raises(
        Problem, match="tables of the values of orders, which have to follow: add --value-schema"
    ):
        follower.check_all()
    # A run of the job that only archives does not check, and must not delete them, either.
    assert not follower.is_free(old.files[0].path)
    follower.close()
    follower = ArchiveTables(Archive(tmp_path), options_of("delta", value_schemas=schema))
    follower.check_all()
    assert follower.is_free(old.files[0].path)
    follower.close()


@pytest.mark.parametrize("format", BOTH)
def test_compaction_makes_the_files_of_values_anew(tmp_path: Path, format: str) -> None:
    given = {"value_schemas": ["id BIGINT"]}
    for number in range(2):
        add_batch(tmp_path, 5, batch=number, values=[*VALID, *WRONG])
        follow(tmp_path, format, **given)
    before = values(tmp_path, format)
    old = compacted(tmp_path)
    follower = ArchiveTables(Archive(tmp_path), options_of(format, **given))
    assert follower.follow() == 3
    for entry in old:
        for file in entry.files:
            assert (tmp_path / derived(file.path, VALUES, format)).exists()
            follower.forget(file.path)
            assert not (tmp_path / derived(file.path, VALUES, format)).exists()
    follower.close()
    assert values(tmp_path, format) == before
    assert len(rows_of_table(tmp_path, format, "orders", DEAD_LETTERS)) == 4


@pytest.mark.parametrize("format", BOTH)
def test_compaction_does_not_parse_again_what_was_parsed_by_another_schema(
    tmp_path: Path, format: str
) -> None:
    add_batch(tmp_path, 3, values=[b'{"id": 1, "name": "a"}', b"no JSON", b'{"amount": 1.5}'])
    follow(tmp_path, format, value_schemas=["id INT, name STRING"])
    # By the next schema, the first record would lose its name, and the last one be a dead letter.
    given = {"value_schemas": ["id INT NOT NULL, amount DOUBLE"]}
    add_batch(tmp_path, 2, batch=1, values=[b'{"id": 2, "amount": 2.5}', b'{"id": "x"}'])
    follow(tmp_path, format, **given)
    good = [(0, 0, 1, "a", None), (0, 2, None, None, None), (0, 3, 2, None, 2.5)]
    dead = [(1, b"no JSON"), (4, b'{"id": "x"}')]
    compacted(tmp_path)
    assert follow(tmp_path, format, **given) == 3
    assert values(tmp_path, format) == good
    # A file of records that the table has and of one that it has not.
    add_batch(tmp_path, 1, batch=2, values=[b'{"id": 3}'])
    compacted(tmp_path)
    assert follow(tmp_path, format, **given) == 3
    assert values(tmp_path, format) == [*good, (0, 5, 3, None, None)]
    rows = rows_of_table(tmp_path, format, "orders", DEAD_LETTERS)
    assert sorted((row["offset"], row["value"]) for row in rows) == dead
    assert in_table(tmp_path, format) == archived(tmp_path)


def test_only_topics_with_a_schema_have_tables_of_values(tmp_path: Path) -> None:
    add_batch(tmp_path, 3, values=VALID)
    add_batch(tmp_path, 3, topic="others", batch=1)
    assert follow(tmp_path, "delta", value_schemas=["orders=id INT"]) == 4
    assert not (tmp_path / VALUES / "delta" / "others").exists()


def test_wrong_calls_are_told() -> None:
    for given, formats, why in (
        (["id INT", "id INT"], BOTH, "two schemas for every topic"),
        (["a=id INT", "a=id INT"], BOTH, "two schemas for a"),
        (["id NOTHING"], BOTH, "is not a type"),
        (["a=1:id INT", "a=1:id INT"], BOTH, "two schemas for a with the id 1"),
        (["a=1:id INT", "a=id INT"], BOTH, "schemas for a with an id and without"),
        (["id INT", "1:id INT"], BOTH, "schemas for every topic with an id and without"),
    ):
        with pytest.raises(WrongCall, match=why):
            value_schemas(options_of(*formats, value_schemas=given))
    for given in ({"value_schemas": ["id INT"]}, {"key_schemas": ["id INT"]}):
        with pytest.raises(WrongCall, match="is for --table"):
            value_schemas(options_of(**given, table=[]))
    for keys, given, why in (
        (["id INT"], [], "the table of the topics with columns needs --value-schema"),
        (["a=id INT"], ["b=id INT"], "the table of a with columns needs --value-schema"),
        (["id INT", "id INT"], ["id INT"], "--key-schema: two schemas for every topic"),
        (["a=1:id INT", "a=id INT"], ["id INT"], "--key-schema: schemas for a with an id and"),
        (['"null"'], ["id INT"], "--key-schema"),
        (["STRING"], ["id INT"], "--key-schema is not Spark's DDL"),
    ):
        with pytest.raises(WrongCall, match=why):
            value_schemas(options_of(key_schemas=keys, value_schemas=given))
    for given, framing, why in (
        (["a=id INT"], "confluent", "give the id of each one: --value-schema a=ID:..."),
        (["id INT"], "confluent", "give the id of each one: --value-schema ID:..."),
        (["a=1:id INT"], "none", "is for --value-framing confluent"),
    ):
        with pytest.raises(WrongCall, match=why):
            value_schemas(options_of(value_schemas=given, value_framing=framing))


@pytest.mark.parametrize("format", BOTH)
def test_records_of_several_schemas_are_parsed_each_by_its_own(tmp_path: Path, format: str) -> None:
    def framed(number: int, text: bytes) -> bytes:
        return bytes(1) + number.to_bytes(4, "big") + text

    add_batch(tmp_path, 3, values=[framed(1, VALID[0]), framed(2, VALID[2]), framed(3, VALID[1])])
    given = ["orders=1:id INT, name STRING", "orders=2:id INT, amount DOUBLE"]
    assert follow(tmp_path, format, value_schemas=given, value_framing="confluent") == 3
    assert values(tmp_path, format) == [(0, 0, 1, None), (0, 1, 3, 2.5)]
    [dead] = rows_of_table(tmp_path, format, "orders", DEAD_LETTERS)
    assert dead["error"] == "the value is of schema 3, which is not given (only 1, 2)"


def test_key_schemas_go_to_the_topics_that_have_columns() -> None:
    def kinds(keys: list[str], values: list[str]) -> dict[str | None, str | None]:
        found = value_schemas(options_of(key_schemas=keys, value_schemas=values))
        return {of: None if one.key is None else str(one.key.kind) for of, one in found.items()}

    number, text = "int64", "string"
    assert kinds(['"long"'], ["a=id INT", "b=id INT"]) == {"a": number, "b": number}
    assert kinds(['a="long"'], ["id INT"]) == {None: None, "a": number}
    assert kinds(['"string"', 'a="long"'], ["a=id INT", "id INT"]) == {None: text, "a": number}


@pytest.mark.parametrize("format", BOTH)
def test_keys_become_a_column(tmp_path: Path, format: str) -> None:
    """Of two schemas with ids; a key that does not fit makes the record a dead letter."""

    def framed(number: int, text: bytes) -> bytes:
        return bytes(1) + number.to_bytes(4, "big") + text

    keys = [framed(4, b'{"no": 1}'), framed(5, b'{"no": 2, "of": "x"}'), None, framed(6, b"{}")]
    add_batch(tmp_path, 5, values=[VALID[0]] * 5, keys=[*keys, b"{}"])
    given = {
        "value_schemas": ["id INT"],
        "key_schemas": ["orders=4:no INT", "orders=5:no BIGINT, of STRING"],
    }
    assert follow(tmp_path, format, **given) == 3
    rows = rows_of_table(tmp_path, format, "orders", VALUES)
    assert [row["_parsed_key"] for row in sorted(rows, key=lambda row: row["_offset"])] == [
        {"no": 1, "of": None},
        {"no": 2, "of": "x"},
        None,
    ]  # type: ignore[arg-type, return-value]
    assert sorted(row["_key"] or b"" for row in rows) == [b"", *keys[:2]]  # type: ignore[type-var]
    dead = rows_of_table(tmp_path, format, "orders", DEAD_LETTERS)
    assert sorted(str(row["error"]) for row in dead) == [
        "key: the value does not begin with 0 and the id of a schema",
        "key: the value is of schema 6, which is not given (only 4, 5)",
    ]


@pytest.mark.parametrize("format", BOTH)
def test_keys_of_one_avro_type_are_parsed_from_some_time_on(tmp_path: Path, format: str) -> None:
    add_batch(tmp_path, 1, values=VALID[:1], keys=[b"\2"])
    follow(tmp_path, format, value_schemas=["id INT"])
    add_batch(tmp_path, 3, batch=1, values=[VALID[0]] * 3, keys=[b"\2", b"\4", b"\4."])
    follow(tmp_path, format, value_schemas=["id INT"], key_schemas=['{"type": "long"}'])
    rows = rows_of_table(tmp_path, format, "orders", VALUES)
    found = {row["_offset"]: (row["_key"], row["_parsed_key"]) for row in rows}
    assert found == {0: (b"\2", None), 1: (b"\2", 1), 2: (b"\4", 2)}
    [dead] = rows_of_table(tmp_path, format, "orders", DEAD_LETTERS)
    assert dead["error"] == "key: 1 bytes are left after the value"
