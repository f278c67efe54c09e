"""The language of message filters. Pure: a filter is parsed into closures, and no part of it is executed as code.

    orders                          the word is in the key, the value or a header
    value.city = Oslo               a field of a JSON value; `value.items.0.sku` goes into lists
    key ~ c-1 and not header.trace  contains; has such a header
    value.total >= 100 or (offset < 50 and timestamp >= 2026-01-31T12:00)

Fields are `key`, `value`, `offset`, `partition`, `timestamp`, `size`, and `header.NAME`; `=`, `!=`, `~` (contains), `!~`, `<`,
`<=`, `>` and `>=` compare; `and`, `or`, `not` and parentheses combine, and `and` may be omitted. Values with blanks or
signs are quoted. Numbers are compared exactly: `value.price = 1.10` finds 1.1 too, and `value.price = "1.10"` only
what is written so. If an object has a name more than once, each of its values is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from ..times import unix_ms
from .documents import Members, Number, exact, parsed, text_of

MAX_CHARACTERS = 1_000
MAX_DEPTH = 32
#: The maximum number of conditions; each is checked for every record.
MAX_CONDITIONS = 32
#: The largest value that is parsed, as JSON for example: parsing blocks all threads of the interpreter.
MAX_PARSED_BYTES = 128 * 1024

TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<sign>!=|!~|<=|>=|[=~<>()])|(?P<word>[^\s=~<>()!"']+))"""
)
COMPARISONS = ("=", "!=", "~", "!~", "<", "<=", ">", ">=")
NUMBERS = ("offset", "partition", "timestamp", "size")
#: The longest text that is compared as a number.
MAX_NUMBER = 64
MISSING = object()


class FilterError(ValueError):
    """The filter is invalid; the message says where and why."""


class SearchedRecord:
    """One record as filters see it; its value is parsed as JSON at most once.

    Shape: `value` and `key` are bytes, or None for null; `decoded` replaces the JSON of the value if a schema decoded
    it.
    """

    __slots__ = ("_json", "decoded", "headers", "key", "offset", "partition", "timestamp", "value")

    def __init__(
        self,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Any = (),
        decoded: Any = MISSING,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.decoded = decoded
        self._json: Any = MISSING

    def json(self) -> Any:
        """The value as JSON; MISSING if it is not JSON."""
        if self.decoded is not MISSING:
            return self.decoded
        if self._json is MISSING:
            self._json = as_json(self.value)
        return MISSING if self._json is NO_JSON else self._json


NO_JSON = object()
Test = Callable[[SearchedRecord], bool]


def as_json(data: bytes | None) -> Any:
    """A JSON document; NO_JSON if it is not JSON, or too large to be parsed in one step."""
    if data is None or data[:1] not in OPENING or len(data) > MAX_PARSED_BYTES:
        return NO_JSON
    try:
        return parsed(data)
    except (ValueError, RecursionError):
        return NO_JSON


OPENING = frozenset(bytes([byte]) for byte in b'{["-0123456789tfn \t\r\n')


class Token(NamedTuple):
    """A word, a quoted text or a sign, and its position."""

    kind: str
    text: str
    at: int


def tokens_of(text: str) -> list[Token]:
    """Split a filter into tokens. Errors: FilterError."""
    found = []
    at = 0
    while at < len(text) and text[at:].strip():
        match = TOKEN.match(text, at)
        if match is None:
            rest = text[at:].strip()
            if rest[0] in "\"'":
                raise FilterError(f"the quote at {at + 1} is not closed")
            raise FilterError(f"{rest[0]!r} at {at + 1} is not expected")
        kind = match.lastgroup or ""
        part = match[kind]
        if kind == "quoted":
            part = re.sub(r"\\(.)", r"\1", part[1:-1])
        found.append(Token(kind, part, match.start(kind)))
        at = match.end()
    return found


def parse(text: str) -> Test | None:
    """Return a function that tells whether a record matches; None for an empty filter. Errors: FilterError."""
    if len(text) > MAX_CHARACTERS:
        raise FilterError(f"the filter is longer than {MAX_CHARACTERS} characters")
    tokens = tokens_of(text)
    if not tokens:
        return None
    parser = FilterParser(tokens)
    test = parser.either(0)
    if parser.at < len(tokens):
        left = tokens[parser.at]
        raise FilterError(f"{left.text!r} at {left.at + 1} is not expected")
    return test


class FilterParser:
    """Reads the tokens once, from start to end."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self._conditions = 0

    def either(self, depth: int) -> Test:
        """A or B or ..."""
        if depth > MAX_DEPTH:
            raise FilterError(f"the filter is nested deeper than {MAX_DEPTH}")
        tests = [self.both(depth)]
        while self.takes("or"):
            tests.append(self.both(depth))
        return tests[0] if len(tests) == 1 else lambda record: any(each(record) for each in tests)

    def both(self, depth: int) -> Test:
        """A and B ..., also without `and`."""
        tests = [self.one(depth)]
        while True:
            if not self.takes("and"):
                following = self.next()
                if following is None or is_word(following, "or") or is_sign(following, ")"):
                    break
            tests.append(self.one(depth))
        return tests[0] if len(tests) == 1 else lambda record: all(each(record) for each in tests)

    def one(self, depth: int) -> Test:
        """not A, (A), FIELD = VALUE, or a word."""
        negations = 0
        while self.takes("not"):
            negations += 1
        token = self.next()
        if token is None:
            raise FilterError("the filter ends where something should follow")
        self.at += 1
        if is_sign(token, "("):
            test = self.either(depth + 1)
            closing = self.next()
            if closing is None or not is_sign(closing, ")"):
                raise FilterError(f"the parenthesis at {token.at + 1} is not closed")
            self.at += 1
        elif token.kind == "sign":
            raise FilterError(f"{token.text!r} at {token.at + 1} is not expected")
        else:
            test = self.comparison(token)
        return test if negations % 2 == 0 else lambda record: not test(record)

    def comparison(self, token: Token) -> Test:
        """A condition that begins with a word."""
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise FilterError(f"the filter has more than {MAX_CONDITIONS} conditions")
        sign = self.next()
        if sign is not None and sign.kind == "sign" and sign.text in COMPARISONS:
            if token.kind == "quoted":
                raise FilterError(f"{token.text!r} at {token.at + 1} is not a field")
            field = field_of(token)
            self.at += 1
            value = self.next()
            if value is None or value.kind == "sign":
                raise FilterError(f"{sign.text!r} at {sign.at + 1} has nothing to compare with")
            self.at += 1
            return compared(token, field, sign.text, value)
        if token.kind == "word" and token.text.startswith("header."):
            field = field_of(token)
            return lambda record: field(record) is not MISSING
        return contains(token.text)

    def takes(self, word: str) -> bool:
        """Whether the next token is this word; consumes it if so."""
        token = self.next()
        if token is not None and is_word(token, word):
            self.at += 1
            return True
        return False

    def next(self) -> Token | None:
        """The next token, without consuming it."""
        return self.tokens[self.at] if self.at < len(self.tokens) else None


def is_word(token: Token, word: str) -> bool:
    """Whether the token is this word of the language."""
    return token.kind == "word" and token.text.lower() == word


def is_sign(token: Token, sign: str) -> bool:
    """Whether the token is this sign."""
    return token.kind == "sign" and token.text == sign


def contains(text: str) -> Test:
    """The text is in the key, the value or a header; not case-sensitive."""
    wanted = text.encode().lower()

    def test(record: SearchedRecord) -> bool:
        if record.key is not None and wanted in record.key.lower():
            return True
        if record.value is not None and wanted in record.value.lower():
            return True
        return any(
            wanted in name.encode("utf-8", "surrogateescape").lower()
            or (value is not None and wanted in value.lower())
            for name, value in record.headers
        )

    return test


def field_of(token: Token) -> Callable[[SearchedRecord], Any]:
    """The reader of a field: a number, a text, None for null, or MISSING. Errors: FilterError."""
    name, _, rest = token.text.partition(".")
    if name in NUMBERS and not rest:
        if name == "size":
            return lambda record: len(record.key or b"") + len(record.value or b"")
        return lambda record: getattr(record, name)
    if name == "key" and not rest:
        return lambda record: as_text(record.key)
    if name == "value" and not rest:
        return lambda record: as_text(record.value)
    if name == "value":
        steps = rest.split(".")
        return lambda record: one_of(within([record.json()], steps))
    if name == "header" and rest:
        return lambda record: header_of(record, rest)
    raise FilterError(
        f"{token.text!r} at {token.at + 1} is not a field; fields are key, value, value.NAME, header.NAME,"
        f" {', '.join(NUMBERS)}"
    )


def as_text(data: bytes | None) -> str | None:
    """Bytes as text; invalid UTF-8 is replaced."""
    return None if data is None else data.decode("utf-8", "replace")


def header_of(record: SearchedRecord, name: str) -> Any:
    """The last header with a name."""
    found: Any = MISSING
    for key, value in record.headers:
        if key == name:
            found = as_text(value)
    return found


class Several(list[Any]):
    """The values of a name that an object has more than once."""


def one_of(values: list[Any]) -> Any:
    """The value found; MISSING for none, and `Several`."""
    return values[0] if len(values) == 1 else Several(values) if values else MISSING


def within(values: list[Any], steps: list[str]) -> list[Any]:
    """The parts of JSON documents at a place; none where it does not exist."""
    for step in steps:
        below: list[Any] = []
        for value in values:
            if isinstance(value, Members):
                below += [each for name, each in value if name == step]
            elif isinstance(value, dict):
                below += [value[step]] if step in value else []
            elif isinstance(value, list) and step.isdecimal() and len(step) < 10:
                below += value[int(step) : int(step) + 1]
        values = below
    return [value for value in values if value is not MISSING]


def compared(token: Token, field: Callable[[SearchedRecord], Any], sign: str, value: Token) -> Test:
    """FIELD = VALUE. Errors: FilterError for an invalid number or time."""
    wanted = value.text
    number = None if value.kind == "quoted" else as_number(wanted)
    if token.text == "timestamp" and number is None:
        number = Decimal(as_time(wanted, value))
    elif token.text in NUMBERS and number is None:
        raise FilterError(f"{wanted!r} at {value.at + 1} is not a number")
    is_null = value.kind == "word" and wanted == "null"

    if sign in ("~", "!~"):
        folded = wanted.lower()

        def has(found: Any) -> bool:
            return found is not None and folded in text_of(found).lower()

        if sign == "~":
            return lambda record: any_of(field(record), has)
        return lambda record: not any_of(field(record), has)

    def equal(found: Any) -> bool:
        if found is None or is_null:
            return found is None and is_null
        if number is not None and (other := comparable(found, number)) is not None:
            return bool(other[0] == other[1])
        return text_of(found) == wanted

    if sign == "=":
        return lambda record: any_of(field(record), equal)
    if sign == "!=":
        return lambda record: not any_of(field(record), equal)

    def ordered(found: Any) -> bool:
        if isinstance(found, str):
            if number is None:
                return in_order(found, sign, wanted)
            found = as_number(found)
        other = None if number is None else comparable(found, number)
        return other is not None and in_order(other[0], sign, other[1])

    return lambda record: any_of(field(record), ordered)


def any_of(found: Any, test: Callable[[Any], bool]) -> bool:
    """Whether a value is there and passes a test; of several, any."""
    if found is MISSING:
        return False
    return any(map(test, found)) if type(found) is Several else test(found)


def comparable(found: Any, number: Decimal) -> tuple[Any, Any] | None:
    """A value and a number in the form in which they are compared; None if the value is not a number.

    Shape: a binary number of Avro or MessagePack is compared with the binary number nearest to the one that is wanted,
    all others exactly.
    """
    if isinstance(found, Number):
        value = found.value()
        return None if value is None else (value, number)
    if isinstance(found, float):
        return found, float(number)
    if isinstance(found, int | Decimal) and not isinstance(found, bool):
        return found, number
    return None


def in_order(left: Any, sign: str, right: Any) -> bool:
    """Compare two numbers or two texts."""
    if sign == "<":
        return bool(left < right)
    if sign == "<=":
        return bool(left <= right)
    if sign == ">":
        return bool(left > right)
    return bool(left >= right)


def as_number(text: str) -> Decimal | None:
    """The exact value of a number; None if the text is not a number."""
    return exact(text) if len(text) <= MAX_NUMBER else None


def as_time(text: str, token: Token) -> int:
    """A time such as 2026-01-31, 2026-01-31T12:00 or with seconds and zone; UTC without a zone. Unit: ms. Errors:
    FilterError.
    """
    try:
        return unix_ms(text)
    except ValueError:
        raise FilterError(
            f"{text!r} at {token.at + 1} is not a time such as 2026-01-31T12:00"
        ) from None
