"""Reads the columns of Spark's DDL without Spark, so that a mistake is told before Spark starts.

Shape: `name TYPE [NOT NULL] [COMMENT 'text']`, separated by commas; a colon may stand between name and type, and names may be in
backquotes. Types are those that values can have: no INTERVAL, no COLLATE. Source: colTypeList in Spark's SqlBaseParser.g4.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

#: Types of one word.
WORDS: dict[str, DataType] = {
    "STRING": StringType(),
    "DOUBLE": DoubleType(),
    "FLOAT": FloatType(),
    "REAL": FloatType(),
    "TINYINT": ByteType(),
    "BYTE": ByteType(),
    "SMALLINT": ShortType(),
    "SHORT": ShortType(),
    "INT": IntegerType(),
    "INTEGER": IntegerType(),
    "BIGINT": LongType(),
    "LONG": LongType(),
    "BOOLEAN": BooleanType(),
    "BINARY": BinaryType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_LTZ": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "VOID": NullType(),
    "VARIANT": VariantType(),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
#: The most digits of a DECIMAL.
_DIGITS = 38
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|(.))")


class DdlError(ValueError):
    """The text is not DDL; the message says what was expected, and where."""


class _Token(NamedTuple):
    kind: str
    """`name`, `text`, `word`, a sign, or `` at the end."""
    text: str
    at: int


def read_ddl(text: str) -> StructType:
    """The columns. Errors: DdlError."""
    reader = _Reader(text)
    found = [reader.column()]
    while reader.takes(","):
        found.append(reader.column())
    reader.end()
    return StructType(found)


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(text.rstrip()):
        quoted, string, word, sign = match.groups()
        at = match.end() - len(match[0].lstrip())
        if quoted is not None:
            found.append(_Token("name", quoted[1:-1].replace("``", "`"), at))
        elif string is not None:
            found.append(_Token("text", re.sub(r"\\(.)", r"\1", string[1:-1]), at))
        elif word is not None:
            found.append(_Token("word", word, at))
        else:
            found.append(_Token(sign, sign, at))
    return [*found, _Token("", "", len(text))]


class _Reader:
    """Takes one token after another."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def takes(self, *words: str) -> bool:
        """Whether these words or signs come next; if so, consume them."""
        ahead = self._tokens[self._next : self._next + len(words)]
        if [token.text.upper() for token in ahead if token.kind not in ("name", "text")] != list(
            words
        ):
            return False
        self._next += len(words)
        return True

    def end(self) -> None:
        """Check that the end has been reached."""
        if self._token.kind:
            raise self._expected("a comma")

    def column(self) -> StructField:
        """One column."""
        name = self._token
        if name.kind != "name" and (name.kind != "word" or name.text.isdigit()):
            raise self._expected("the name of a column")
        self._next += 1
        self.takes(":")
        kind = self._type()
        required = self.takes("NOT", "NULL")
        metadata = None
        if self.takes("COMMENT"):
            if self._token.kind != "text":
                raise self._expected("a comment in quotes")
            metadata = {"comment": self._token.text}
            self._next += 1
        return StructField(name.text, kind, not required, metadata)

    def _type(self) -> DataType:
        token = self._token
        if token.kind != "word":
            raise self._expected("a type")
        self._next += 1
        word = token.text.upper()
        if word in WORDS:
            return WORDS[word]
        if word in _DECIMALS:
            return self._decimal(token)
        if word in ("CHAR", "CHARACTER", "VARCHAR"):
            (length,) = self._numbers(1)
            return VarcharType(length) if word == "VARCHAR" else CharType(length)
        if word == "ARRAY":
            self._must("<")
            of = self._type()
            self._must(">")
            return ArrayType(of)
        if word == "MAP":
            self._must("<")
            key = self._type()
            self._must(",")
            value = self._type()
            self._must(">")
            return MapType(key, value)
        if word == "STRUCT":
            return self._struct()
        raise DdlError(
            f"{token.text} at character {token.at + 1} is not a type; types are"
            f" {', '.join([*WORDS, 'DECIMAL(p,s)', 'CHAR(n)', 'VARCHAR(n)', 'ARRAY<>', 'MAP<,>', 'STRUCT<>'])}"
        )

    def _struct(self) -> StructType:
        self._must("<")
        fields: list[StructField] = []
        while not self.takes(">"):
            if fields:
                self._must(",")
            fields.append(self.column())
        return StructType(fields)

    def _decimal(self, token: _Token) -> DecimalType:
        numbers = self._numbers(2) if self._token.kind == "(" else [10]
        precision, scale = (*numbers, 0)[:2]
        if not scale <= precision <= _DIGITS or not precision:
            raise DdlError(
                f"DECIMAL at character {token.at + 1} has 1 to {_DIGITS} digits, and at most as many after the point"
            )
        return DecimalType(precision, scale)

    def _numbers(self, most: int) -> list[int]:
        self._must("(")
        found: list[int] = []
        while not found or (len(found) < most and self.takes(",")):
            if not self._token.text.isdigit():
                raise self._expected("a number")
            found.append(int(self._token.text))
            self._next += 1
        self._must(")")
        return found

    def _must(self, sign: str) -> None:
        if not self.takes(sign):
            raise self._expected(sign)

    def _expected(self, what: str) -> DdlError:
        token = self._token
        place = f"{token.text!r} at character {token.at + 1}" if token.kind else "the end"
        return DdlError(f"{what} is missing before {place}")
