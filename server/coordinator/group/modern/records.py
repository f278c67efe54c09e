"""How records of groups of the newer protocols are stored: each type has a message for its key and one for its value."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any, NamedTuple

from kwire.messages.internal import decode_value, encode_key, encode_value
from kwire.schema import schema_of

from .members import Partitions

VALUE_VERSION = 0


class RecordForm(NamedTuple):
    """The stored form of one type of record, whose fields are those of its key, and `value`.

    Shape: `write(record)` makes the message of the value, and `read(key, message)` the value from it. The value is a
    tombstone if it is None. Without a message, the value is bytes that are not used.
    """

    record: Callable[..., Any]
    key: type[Any]
    message: type[Any] | None = None
    write: Callable[[Any], Any] = bytes
    read: Callable[[Any, Any], Any] = lambda key, message: bytes(message)


def epoch_form(record: Callable[..., Any], key: type[Any], message: type[Any]) -> RecordForm:
    """The form of a group's epoch and its metadata hash."""
    return RecordForm(
        record,
        key,
        message,
        lambda record: message(epoch=record.value[0], metadata_hash=record.value[1]),
        lambda _, stored: (stored.epoch, stored.metadata_hash),
    )


def target_epoch_form(record: Callable[..., Any], key: type[Any], message: type[Any]) -> RecordForm:
    """The form of the epoch of a target assignment, and when it was made in ms since the epoch."""
    return RecordForm(
        record,
        key,
        message,
        lambda record: message(
            assignment_epoch=record.value[0], assignment_timestamp=record.value[1]
        ),
        lambda _, stored: (stored.assignment_epoch, stored.assignment_timestamp),
    )


def target_form(
    record: Callable[..., Any], key: type[Any], message: type[Any], row: type[Any]
) -> RecordForm:
    """The form of a member's target assignment; `row` is the message's struct of a topic."""
    return RecordForm(
        record,
        key,
        message,
        lambda record: message(topic_partitions=in_rows(row, record.value)),
        lambda _, stored: from_rows(stored.topic_partitions),
    )


class Forms:
    """The forms of the records of one kind of group."""

    def __init__(self, *forms: RecordForm) -> None:
        self._by_record = {each.record: each for each in forms}
        self._by_key = {each.key: each for each in forms}
        self._names = {
            each.key: tuple(field.name for field in schema_of(each.key).fields) for each in forms
        }
        self.keys = tuple(self._by_key)

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Return the key and the value of a record."""
        form = self._by_record[type(record)]
        names = self._names[form.key]
        key = encode_key(form.key(**dict(zip(names, record, strict=False))))
        if record.value is None or form.message is None:
            return key, record.value
        return key, encode_value(form.write(record), VALUE_VERSION)

    def decode(self, key: Any, value: bytes | memoryview | None) -> Any:
        """Decode a record with one of `keys`. Errors: WireError if the bytes do not match their version."""
        form = self._by_key[type(key)]
        names = [intern(getattr(key, name)) for name in self._names[form.key]]
        if value is None:
            return form.record(*names, None)
        message = value if form.message is None else decode_value(form.message, value)
        return form.record(*names, form.read(key, message))


def in_rows(row: type[Any], partitions: Partitions) -> list[Any]:
    """Partitions by topic as rows of a message."""
    return [
        row(topic_id=topic_id, partitions=sorted(some)) for topic_id, some in partitions.items()
    ]


def from_rows(rows: list[Any]) -> dict[bytes, frozenset[int]]:
    """Partitions by topic from the rows of a message."""
    return {row.topic_id: frozenset(row.partitions) for row in rows}
