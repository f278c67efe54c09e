"""The result of reading a partition, and the follower that reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, final

from kwire.errors import ErrorCode

from ..log.file_layer import FileSlice

if TYPE_CHECKING:
    import asyncio


class FollowerFetch(NamedTuple):
    """A follower that fetches, and where its own log begins."""

    broker_id: int
    broker_epoch: int
    log_start_offset: int


T = TypeVar("T")


@final
class ReadResult(NamedTuple):
    """The result of fetching one partition; with an error all offsets are -1."""

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    data: bytes | FileSlice
    next_offset: int
    diverging: tuple[int, int] | None = None
    aborted: list[tuple[int, int]] | None = None
    #: The broker that a consumer should read from instead (KIP-392); -1 for this one.
    preferred_replica: int = -1

    def close(self) -> None:
        """Release records that will not be sent."""
        if not isinstance(self.data, bytes):
            self.data.close()


@final
class LaterRead(NamedTuple):
    """A read that takes time: `now` is available immediately, without records; `later` is the complete result."""

    now: ReadResult
    later: asyncio.Future[ReadResult]


def maker(cls: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """Return a function that turns a plain tuple of all fields, in order, into a named tuple.

    Like `cls(*fields)`, but without a call in Python, because every fetch makes several.
    """
    return partial(tuple.__new__, cls)  # type: ignore[type-var]


read_result = maker(ReadResult)


def refused(error: ErrorCode) -> ReadResult:
    """The result of a read that was refused."""
    return ReadResult(error, -1, -1, -1, b"", -1)
