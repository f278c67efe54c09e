"""The options of an aggregate: schemas, columns, contradictions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext
from pyspark.errors import ParseException
from pyspark.sql.types import LongType, MapType, StringType, StructType, TimestampType

from kwire.pipeline.aggregate.batches import OWNER, check_owner, watermark_ms
from kwire.pipeline.aggregate.defaults import SCHEMAS
from kwire.pipeline.aggregate.java_syntax import check_time_format, group_numbers
from kwire.pipeline.aggregate.job import check_options, plan, run
from kwire.pipeline.aggregate.kinds import percentile_name
from kwire.pipeline.aggregate.records import named_groups
from kwire.pipeline.checkpoints import Checkpoint
from kwire.pipeline.main import make_parser
from kwire.pipeline.problems import Problem, WrongCall
from kwire.pipeline.schemas.ddl import WORDS, DdlError, read_ddl
from kwire.pipeline.schemas.schema import read_schema
from kwire.pipeline.storage import open_storage

from ..support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import SparkSession


def options_of(kind: str, *words: str) -> Namespace:
    """Options, including those that are always required."""
    fixed = ["--topics=t", "--checkpoint-dir=c", "--to-topic=r"]
    return make_parser("aggregate").parse_args(["aggregate", kind, *fixed, *words])


def test_json_schema_becomes_columns(tmp_path: Path) -> None:
    tree = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "at": {"type": "string", "format": "date-time"},
            "size": {"type": ["integer", "null"]},
            "tags": {"type": "object"},
            "parts": {
                "type": "array",
                "items": {"type": "object", "properties": {"x": {"type": "number"}}},
            },
        },
    }
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(tree))
    schema = read_schema(None, file, "")
    assert [(field.dataType, field.nullable) for field in schema.fields[:4]] == [
        (StringType(), False),
        (TimestampType(), True),
        (LongType(), True),
        (MapType(StringType(), StringType()), True),
    ]
    assert schema["parts"].dataType.simpleString() == "array<struct<x:double>>"
    assert read_schema(schema.json(), None, "") == schema  # Spark's own JSON


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "--schema is not JSON"),
        ('{"a": 1}', "must be a JSON Schema of type object with properties"),
        ('{"type": "object", "properties": {}}', "no columns"),
        ('{"type": "object", "properties": {"a": {}}}', "a: expected one type"),
        ('{"type": "object", "properties": {"a": {"type": "decimal"}}}', "a: unknown type 'dec"),
        ('{"type": "object", "properties": {"a": {"type": "array"}}}', r"a\[\]: expected one type"),
        (
            '{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}',
            "b is required, but not among the properties",
        ),
        (
            '{"type":"object","properties":{"a":{"type":"string"},"A":{"type":"string"}}}',
            "column a is given twice",
        ),
        ('{"type": "struct", "fields": [{"name": "a"}]}', "is not a schema in Spark's JSON"),
    ],
)
def test_wrong_json_schema_is_told(text: str, said: str) -> None:
    with pytest.raises(Problem, match=said):
        read_schema(text, None, "")


def test_absent_schema_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"cannot read .*absent.json: No such file"):
        read_schema(None, tmp_path / "absent.json", "")
    with pytest.raises(Problem, match="either --schema or --schema-file"):
        read_schema("a INT", tmp_path / "absent.json", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topics-pattern=x"], "either --topics or --topics-pattern"),
        (["--late=dead-letter"], "--late dead-letter needs --dead-letter-topic"),
        (["--dead-letter-topic=r"], "--to-topic and --dead-letter-topic are the same"),
        (["--to-topic="], "give --to-topic, --to-parquet or both"),
    ],
)
def test_options_that_do_not_go_together_are_told(words: list[str], said: str) -> None:
    with pytest.raises(Problem, match=said):
        check_options(options_of("logs", *words))


@pytest.mark.parametrize(
    "word", ["--window=0s", "--window=1 month", "--percentiles=101", "--accuracy=0"]
)
def test_wrong_word_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options_of("metrics", word)
    assert word.split("=")[0] in capsys.readouterr().err


def test_groups_of_a_pattern_are_counted_in_both_languages() -> None:
    assert named_groups(r"(a)(?<b>b)(?:c)(?<!x)(?P<d>d)(?<=d)") == {"b": 2, "d": 3}
    for pattern, said in (("(", "--pattern '\\('"), ("(a)", "has no named group")):
        with pytest.raises(WrongCall, match=said):
            named_groups(pattern)


#: Regular expressions -> their error in Java; None if they are valid.
PATTERNS = {
    r"(?<a>\d{2,3}+)\[(?<b>[^]\]]*)\] \p{Alpha}\Q(\E(?i)x(?i:y)\k<a>": None,
    r"(?<a>[a-z&&[^b-c]]|\x41\u0042\012\cA|^$)*?\R\h": None,
    "(?<a>x)(?>y)(?=z)(?!w)(?<=v)(?<!u){1}\\": "nothing follows the last",
    "(?<log_level>x)": "'log_level' is not a group's name in Java",
    "(?<a>x)(?<a>y)": "two groups are named a",
    "(?<a>x": "is never closed",
    "(?<a>x))": "nothing is open",
    "(?<a>[x)": "is never closed",
    "(?<a>x**)": "there is nothing that",
    "+(?<a>x)": "there is nothing that",
    "(?<a>x{)": "is not a repetition",
    "(?<a>{)": "is not a repetition",
    "(?<a>x{3,2})": "is not a repetition",
    r"(?<a>\y)": "has no meaning in Java",
    r"(?<a>\x4)": "is not complete",
    r"(?<a>x)\k<b>": "names no group",
    "(?<a>x)(?#y)": "Java has no group",
    "(?<a>x)(?(1)y|z)": "Java has no group",
}
#: Time formats -> their error in Spark; None if they are valid.
TIME_FORMATS = {
    "dd/MMM/yyyy:HH:mm:ss Z": None,
    "yyyy-MM-dd'T'HH:mm[:ss][.SSSSSS][XXX]": None,
    "yyyyMMdd HHmmss,SSS VV": None,
    "D yy h a O z '' 'o''clock'": None,
    "yyyy-bb": "b is not a letter",
    "YYYY-MM": "Y is not a letter",
    "EEE, dd": "E is not a letter",
    "qq": "q is not a letter",
    "ddd": "ddd has too many letters",
    "MMMMM": "MMMMM has too many letters",
    "yyyyyyy": "yyyyyyy has too many letters",
    "V": "V has too many letters, or too few",
    "OO": "OO has too many letters",
    "aa": "aa has too many",
    "SSSSSSSSSS": "too many",
    "yyyy'T": "' is never closed",
    "yyyy]": "] must be in quotes",
    "{yyyy}": "{ must be in quotes",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_is_checked_as_java_reads_it(pattern: str) -> None:
    said = PATTERNS[pattern]
    if said is None:
        assert "a" in group_numbers(pattern)
        return
    with pytest.raises(ValueError, match=re.escape(said)):
        group_numbers(pattern)


@pytest.mark.parametrize("text", TIME_FORMATS)
def test_time_format_is_checked_as_spark_reads_it(text: str) -> None:
    said = TIME_FORMATS[text]
    if said is None:
        check_time_format(text)
        return
    with pytest.raises(ValueError, match=re.escape(said)):
        check_time_format(text)


def test_name_of_a_percentile_needs_no_quotes() -> None:
    assert [percentile_name(number) for number in (0.0, 50.0, 99.9)] == ["p0", "p50", "p99_9"]


def test_watermark_is_read_from_an_entry_of_sparks_log() -> None:
    entry = b'v1\n{"batchWatermarkMs":1767225600123,"batchTimestampMs":5,"conf":{}}\n{"t":{"0":1}}'
    assert watermark_ms(entry) == 1767225600123


#: DDL -> its error; None if it is valid.
DDL = {
    "a ARRAY<STRUCT<x: INT, `y.z` MAP<STRING, DECIMAL(9,2)> NOT NULL>>, b: STRING": None,
    "`a``b` int NOT NULL COMMENT 'it\\'s', c DEC, d NUMERIC(5), e VARCHAR(3)": None,
    "A: int, b bigint not null,c  STRING, s STRUCT<>": None,
    "a STRIN": "STRIN at character 3 is not a type",
    "a INT b": "a comma is missing before 'b' at character 7",
    "a": "a type is missing before the end",
    "a INT,": "the name of a column is missing before the end",
    "a ARRAY<INT": "> is missing before the end",
    "a MAP<STRING>": ", is missing before '>' at character 13",
    "a DECIMAL(9,10)": "DECIMAL at character 3 has 1 to 38 digits",
    "a VARCHAR": "( is missing before the end",
    "a INT COMMENT b": "a comment in quotes is missing before 'b'",
    "INT": "a type is missing before the end",
    "a INT NOT": "a comma is missing before 'NOT'",
    "1 INT": "the name of a column is missing before '1'",
}


@pytest.mark.parametrize("text", DDL)
def test_ddl_is_read_without_spark(text: str) -> None:
    said = DDL[text]
    if said is None:
        assert read_ddl(text).fields
        return
    with pytest.raises(DdlError, match=re.escape(said)):
        read_ddl(text)


_PLAIN = "--schema=name STRING, time TIMESTAMP"


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topics=t", _PLAIN], "--value-column value: the schema has name, time"),
        (["--topics=t", "--schema={"], "--schema is not JSON"),
        (["--topics=t", "--schema-file=/nowhere/schema"], "cannot read /nowhere/schema"),
        (["--topics=t", "--pattern=(a)"], r"--pattern '\(a\)' has no named group"),
        (["--topics-pattern=("], r"--topics-pattern '\('"),
        (["--topics=t,absent"], "there is no topic t, absent at"),
        (["--topics=t", "--schema=x ARRAY<IN>"], "IN at character 9 is not a type"),
        (["--topics=t", "--pattern=(?<value>x)(?#y)"], "Java has no group"),
        (["--topics=t", "--time-format=yyyy-bb"], "b is not a letter with which Spark reads times"),
        (["--topics=t", "-b=127.0.0.1:1"], "no broker answers at 127.0.0.1:1"),
        (["--topics-pattern=x"], "belongs to job aggregate .kind metrics,.* window_ms 1000"),
    ],
)
def test_what_needs_no_spark_is_told_before_it_starts(
    broker: BrokerProcess,
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kwire.pipeline.aggregate.job.start_session", None)
    monkeypatch.setattr("kwire.pipeline.cluster.PATIENCE", 1.0)
    # As in a process that has not started one.
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    Checkpoint(tmp_path).claim("aggregate", {"kind": "metrics", "window_ms": "1000"})
    fixed = ["aggregate", "metrics", f"-b={broker.bootstrap}", "--to-topic=r"]
    parser = make_parser("aggregate")
    with pytest.raises(Problem, match=said):
        run(parser.parse_args([*fixed, f"--checkpoint-dir={tmp_path}", *words]))


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_schema_and_columns_that_do_not_fit_are_told(spark: SparkSession) -> None:
    cases = [
        (
            "metrics",
            ["--schema=name STRIN"],
            "--schema is not Spark's DDL: STRIN at character 6 is",
        ),
        (
            "metrics",
            ["--schema=name STRING, time TIMESTAMP"],
            "--value-column value: the schema has name, time",
        ),
        (
            "metrics",
            ["--schema=name STRING, value STRING, time TIMESTAMP"],
            "value is STRING, not a number",
        ),
        (
            "metrics",
            ["--schema=name STRING, value INT, time BOOLEAN"],
            "time is BOOLEAN, not a timestamp",
        ),
        ("metrics", ["--group-by=host"], "--group-by host: the schema has time, name, value"),
        ("metrics", ["--require=host"], "--require host: the schema has"),
        ("metrics", ["--time-column=at"], "--time-column at: the schema has"),
        ("metrics", ["--slide=2m"], "--slide is longer than --window"),
        (
            "sessions",
            ["--schema=time TIMESTAMP, user ARRAY<INT>"],
            "user is ARRAY<INT>: a group needs",
        ),
        (
            "logs",
            ["--schema=time TIMESTAMP, service STRING, level STRING, date DATE"],
            "column date: the store adds",
        ),
        (
            "logs",
            ["--pattern=(?<time>.)(?<level>.)"],
            "--group-by service: the schema has time, level",
        ),
        (
            "logs",
            ["--pattern=(?<time>.)", "--schema=time STRING, service STRING, level STRING"],
            "no group named service",
        ),
        (
            "logs",
            ["--pattern=(?<time>.)(?<level>.)(?<service>.)(?<=(a|b)*)"],
            "--pattern .*: Look-behind group does not have an obvious maximum length",
        ),
        ("logs", ["--time-format=yyyy-bb"], "--time-format 'yyyy-bb'"),
    ]
    for kind, words, said in cases:
        with pytest.raises(Problem, match=said):
            plan(options_of(kind, *words))
    words = ["--schema=`a.b` STRING, v DECIMAL(9,2) NOT NULL, c INT"]
    plain = [f"c{n} {word}" for n, word in enumerate(WORDS)]
    for text in (*SCHEMAS.values(), ", ".join(plain)):
        assert read_ddl(text) == StructType.fromDDL(text)
    _agrees_with_spark(spark)
    form, grouping = plan(
        options_of(
            "metrics", *words, "--record-time", "--group-by=a.b", "--value-column=v", "--exact"
        )
    )
    assert form.required == ("v", "a.b")
    assert grouping.definition() == {
        "kind": "metrics",
        "groups": "a.b",
        "window_ms": "60000",
        "slide_ms": "60000",
        "value": "v",
        "percentiles": "50,95,99",
        "accuracy": "exact",
    }


def _agrees_with_spark(spark: SparkSession) -> None:
    """The tables above agree with Spark and Java for each text: whether it is valid, and its meaning."""
    for text, said in DDL.items():
        if said is None:
            assert read_ddl(text) == StructType.fromDDL(text)
        elif text != "INT":  # a type without a name is a type to Spark, not an error
            with pytest.raises(ParseException):
                StructType.fromDDL(text)
    jvm: Any = spark.sparkContext._jvm
    for pattern, said in PATTERNS.items():
        assert _accepted(lambda text: jvm.java.util.regex.Pattern.compile(text), pattern) == (
            said is None
        ), pattern
    formatters = jvm.org.apache.spark.sql.catalyst.util.DateTimeFormatterHelper
    for text, said in TIME_FORMATS.items():

        def read(text: str) -> None:
            converted = formatters.convertIncompatiblePattern(text, True)
            jvm.java.time.format.DateTimeFormatter.ofPattern(converted)

        assert _accepted(read, text) == (said is None), text


def _accepted(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except Exception:  # noqa: BLE001 - whatever Java says
        return False
    return True


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_damaged_owner_of_an_output_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / OWNER).write_text(text)
    with pytest.raises(Problem, match=rf"{tmp_path}/{OWNER} is damaged"):
        check_owner(open_storage(str(tmp_path)), Checkpoint(tmp_path / "c"))
