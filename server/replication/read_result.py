"""What is read of a partition, and by which follower."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, final

from kwire.errors import ErrorCode

from ..log.file_layer import FileSlice

if TYPE_CHECKING:
    import asyncio


class FollowerFetch(NamedTuple):
    """Who fetches as a replica, and what it says of its own log."""

    broker_id: int
    broker_epoch: int
    log_start_offset: int


T = TypeVar("T")


@final
class ReadResult(NamedTuple):
    """What a fetch of one partition found; all offsets -1 beside an error."""

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    data: bytes | FileSlice
    next_offset: int
    diverging: tuple[int, int] | None = None
    aborted: list[tuple[int, int]] | None = None
    #: The broker that a consumer should rather read from (KIP-392), -1 for this one.
    preferred_replica: int = -1

    def close(self) -> None:
        """Let go of records that are not sent."""
        if not isinstance(self.data, bytes):
            self.data.close()


@final
class LaterRead(NamedTuple):
    """A read that takes time: what is known without it, without records, and all of it later."""

    now: ReadResult
    later: asyncio.Future[ReadResult]


def maker(cls: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """What makes a named tuple of a plain one that has all its fields in order.

    As `cls(*fields)` does, but without a call in Python, where each fetch makes some.
    """
    return partial(tuple.__new__, cls)  # type: ignore[type-var]


read_result = maker(ReadResult)


def refused(error: ErrorCode) -> ReadResult:
    """The result of a read that was not made."""
    return ReadResult(error, -1, -1, -1, b"", -1)
