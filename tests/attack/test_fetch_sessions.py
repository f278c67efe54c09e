"""Fetch sessions that would fill the memory."""

from __future__ import annotations

from kwire.errors import ErrorCode
from server.replication.fetch_session import FetchSessionCache

from ..replication.test_fetch_session import opened, request

MANY = [("t", number, 0) for number in range(6)]


def test_no_session_begins_beyond_the_partitions_that_all_may_have() -> None:
    cache = FetchSessionCache(1000, 1000, max_partitions=10)
    opened(cache, *MANY)
    refused = cache.context(request(*MANY), 12, 5)
    assert refused.session is None and not refused.error
    assert len(refused.partitions) == 6  # it is still answered
    opened(cache, *MANY[:4])
    # Idle ones make room.
    opened(cache, *MANY, now=1006)
    assert sum(len(session.partitions) for session in cache.sessions.values()) == 10


def test_session_that_grows_beyond_them_ends() -> None:
    cache = FetchSessionCache(1000, 1000, max_partitions=10)
    session = opened(cache, *MANY)
    other = opened(cache, ("u", 0, 0))
    more = [("u", number, 0) for number in range(5)]
    grown = cache.context(request(*more, session=session, epoch=1), 12, 0)
    assert grown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert list(cache.sessions) == [other]
