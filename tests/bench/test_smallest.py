"""Requests of the smallest elements can be read, and have as many of them as fit."""

from __future__ import annotations

from typing import Any

import pytest

from bench.attack.smallest import Path, array_paths, name_of, smallest_request
from kwire.api import ApiKey, request_class
from kwire.codec import decode
from kwire.schema import schema_of

SIZE = 400

EACH = [
    (api, version, path)
    for api in ApiKey
    if (cls := request_class(api)) is not None
    for version in {schema_of(cls).versions.lowest, schema_of(cls).versions.highest}
    for path in array_paths(cls, version)
]


def at(message: Any, path: Path) -> list[Any]:
    """The array that was filled."""
    for name in path[:-1]:
        (message,) = getattr(message, name)
    filled: list[Any] = getattr(message, path[-1])
    return filled


def first_field(element: Any) -> Any:
    """The first field of an element."""
    if not hasattr(element, "unknown_tags"):
        return element
    return getattr(element, schema_of(type(element)).fields[0].name)


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("inner", [False, True])
def test_every_array_of_every_version_can_be_filled(distinct: bool, inner: bool) -> None:
    assert len(EACH) > 150
    for api, version, path in EACH:
        body = smallest_request(api, version, path, SIZE, distinct=distinct, inner=inner)
        filled = at(decode(request_class(api), body, version), path)
        assert len(filled) > (1 if not inner else 0), (api, version, path)
        assert len(body) <= SIZE + 100


def test_distinct_elements_differ() -> None:
    body = smallest_request(ApiKey.DESCRIBE_GROUPS, 5, ("groups",), 40_000, distinct=True)
    names = decode(request_class(ApiKey.DESCRIBE_GROUPS), body, 5).groups
    assert len(set(names)) == 8000
    assert names == [name_of(number) for number in range(8000)]
    body = smallest_request(ApiKey.LIST_OFFSETS, 7, ("topics", "partitions"), 40_000, distinct=True)
    rows = at(decode(request_class(ApiKey.LIST_OFFSETS), body, 7), ("topics", "partitions"))
    assert len({row.partition_index for row in rows}) == len(rows) > 2000
    assert min(row.partition_index for row in rows) >= 0


def test_given_values_are_in_place() -> None:
    body = smallest_request(
        ApiKey.OFFSET_FETCH, 7, ("topics",), 100, values={"group_id": "g", "require_stable": True}
    )
    message = decode(request_class(ApiKey.OFFSET_FETCH), body, 7)
    assert (message.group_id, message.require_stable) == ("g", True)
