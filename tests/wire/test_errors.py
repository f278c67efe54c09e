"""Error codes and the texts of exceptions."""

from __future__ import annotations

import inspect

import pytest

from kwire import errors
from kwire.errors import CorruptRecord, EncodeError, ErrorCode, RecordError, Truncated, WireError


def test_code_is_its_number_and_knows_whether_to_retry() -> None:
    assert ErrorCode.NONE == 0
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.INVALID_REQUEST.retriable
    with pytest.raises(ValueError):
        ErrorCode(9999)


def test_every_code_is_documented() -> None:
    lines = inspect.getsource(ErrorCode).splitlines()
    for code in ErrorCode:
        at = next(n for n, line in enumerate(lines) if line.strip().startswith(f"{code.name} = "))
        assert lines[at + 1].strip().startswith('"""'), code


def test_message_says_what_is_known() -> None:
    full = Truncated("3 left", api="FetchRequest", version=4, path="topics[0]", offset=9)
    assert str(full) == "FetchRequest v4 topics[0] at byte 9: 3 left"
    assert (
        str(EncodeError("too long", api="FetchRequest", version=4)) == "FetchRequest v4: too long"
    )
    assert str(WireError("odd")) == "odd"
    assert issubclass(CorruptRecord, RecordError)


def test_every_exception_is_a_wire_error() -> None:
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, Exception):
            assert issubclass(value, WireError)
