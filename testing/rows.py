"""Finds, divides and joins the rows of requests and responses by topic and partition, whatever their API.

Messages differ in the names of their fields. A list of structs is a list of topics if they have one of `TOPIC`; a
topic's partitions are its list of numbers, or of structs with one of `PARTITION`. Lists of other structs (groups,
transactions) are looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from kwire.schema import schema_of

TOPIC = ("name", "topic", "topic_name", "topic_id")
PARTITION = ("index", "partition", "partition_index", "partition_id")
#: The field that identifies a group or a transaction among several.
KEY = ("group_id", "transactional_id")

TopicName = Callable[[Any], str]
IsPicked = Callable[[str, int | None], bool]


def lists_of(message: Any) -> Iterator[tuple[str, list[Any]]]:
    """The lists of a message or struct that have elements, with the names of their fields."""
    for declared in schema_of(type(message)).fields:
        value = getattr(message, declared.name)
        if isinstance(value, list) and value:
            yield declared.name, value


def has(struct: Any, names: tuple[str, ...]) -> bool:
    """Whether a struct has a field with one of the names."""
    return any(declared.name in names for declared in schema_of(type(struct)).fields)


def is_struct(value: Any) -> bool:
    """Whether a value is a declared struct."""
    return hasattr(value, "unknown_tags")


def partition_of(row: Any) -> int | None:
    """The partition of a row; None if it is not one."""
    if isinstance(row, int):
        return row
    if is_struct(row):
        for name in PARTITION:
            if hasattr(row, name):
                value = getattr(row, name)
                return value if isinstance(value, int) else None
    return None


def partitions_of(topic: Any) -> tuple[str, list[Any]] | None:
    """The list of a topic's partitions, and its field's name; None if it has none."""
    for name, values in lists_of(topic):
        if partition_of(values[0]) is not None:
            return name, values
    return None


def name_of(topic: Any, names: dict[bytes, str]) -> str:
    """A topic's name; `names` are those of topic ids."""
    for field in TOPIC[:3]:
        value = getattr(topic, field, None)
        if isinstance(value, str) and value:
            return value
    return names.get(getattr(topic, "topic_id", b""), "")


def rows_of(message: Any, names: dict[bytes, str]) -> Iterator[tuple[str, int | None]]:
    """The topics and partitions that a message names."""
    for field, values in lists_of(message):
        if not is_struct(values[0]):
            if field == "topic_names":  # DeleteTopics before version 6
                yield from ((name, None) for name in values)
        elif has(values[0], TOPIC):
            for topic in values:
                found = partitions_of(topic)
                name = name_of(topic, names)
                if found is None:
                    yield name, None
                else:
                    for row in found[1]:
                        yield name, partition_of(row)
        else:
            for each in values:
                yield from rows_of(each, names)


def values_of(message: Any, fields: tuple[str, ...]) -> Iterator[str]:
    """The strings of these fields, in the message and in the structs of its lists; lists of strings too."""
    for declared in schema_of(type(message)).fields:
        value = getattr(message, declared.name)
        if declared.name in fields:
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                yield from (each for each in value if isinstance(each, str))
        if isinstance(value, list) and value and is_struct(value[0]):
            for each in value:
                yield from values_of(each, fields)


def only(message: Any, names: dict[bytes, str], picked: IsPicked) -> Any:
    """A copy of a message with the selected rows; topics without rows are left out."""
    result = copy(message)
    for field, values in lists_of(message):
        if not is_struct(values[0]):
            if field == "topic_names":
                setattr(result, field, [name for name in values if picked(name, None)])
        elif has(values[0], TOPIC):
            topics = []
            for topic in values:
                name, found = name_of(topic, names), partitions_of(topic)
                if found is None:
                    if picked(name, None):
                        topics.append(topic)
                    continue
                kept = [row for row in found[1] if picked(name, partition_of(row))]
                if kept:
                    part = copy(topic)
                    setattr(part, found[0], kept)
                    topics.append(part)
            setattr(result, field, topics)
        else:
            setattr(result, field, [only(each, names, picked) for each in values])
    return result


def is_empty(message: Any, names: dict[bytes, str]) -> bool:
    """Whether a message names no topic."""
    return next(rows_of(message, names), None) is None


def own_bytes(message: Any) -> None:
    """Replace views into the frame, which does not last, by copies."""
    for declared in schema_of(type(message)).fields:
        value = getattr(message, declared.name)
        if isinstance(value, memoryview):
            setattr(message, declared.name, memoryview(bytearray(value)))
        elif isinstance(value, list) and value and is_struct(value[0]):
            for each in value:
                own_bytes(each)


def put_in(response: Any, rows: Any, names: dict[bytes, str]) -> None:
    """Put the rows of one response into another of the same class, in place of those for the same partitions."""
    for field, values in lists_of(rows):
        present: list[Any] = getattr(response, field)
        if not is_struct(values[0]):
            continue
        if not has(values[0], TOPIC):
            _put_in_groups(present, values, names)
            continue
        by_name = {name_of(topic, names): topic for topic in present}
        for topic in values:
            same = by_name.get(name_of(topic, names))
            found = partitions_of(topic)
            if same is None:
                present.append(topic)
            elif found is None:
                present[present.index(same)] = topic
            else:
                refused = {partition_of(row) for row in found[1]}
                kept = [row for row in getattr(same, found[0]) if partition_of(row) not in refused]
                setattr(same, found[0], kept + found[1])


def _put_in_groups(present: list[Any], values: list[Any], names: dict[bytes, str]) -> None:
    for each in values:
        same = next((other for other in present if _key(other) == _key(each)), None)
        if same is None:
            present.append(each)
        else:
            put_in(same, each, names)


def _key(struct: Any) -> Any:
    return next((getattr(struct, name) for name in KEY if hasattr(struct, name)), None)
