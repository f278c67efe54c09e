"""The cache of incremental fetch sessions; cases of kafka.server.FetchSessionTest."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kwire.types import ZERO_UUID
from server.replication.fetch_session import FetchContext, FetchSession, FetchSessionCache
from server.turns import exhaust

EVICTION = 1000
ID = b"\7" * 16


def request(
    *partitions: tuple[str, int, int],
    session: int = 0,
    epoch: int = 0,
    forget: tuple[tuple[str, int], ...] = (),
    id: bytes = ZERO_UUID,
) -> FetchRequest:
    return FetchRequest(
        session_id=session,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=id,
                partitions=[FetchPartition(partition=number, fetch_offset=offset)],
            )
            for topic, number, offset in partitions
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=topic, topic_id=id, partitions=[number])
            for topic, number in forget
        ],
    )


def opened(cache: FetchSessionCache, *partitions: tuple[str, int, int], now: int = 0) -> int:
    session = cache.context(request(*partitions), 12, now).session
    assert session is not None
    return session.id


def asked(context: FetchContext) -> list[tuple[str, int, int]]:
    return [(each.topic, each.partition, each.fetch_offset) for _, each in context]


def test_full_fetch_begins_a_session_and_incremental_ones_go_on() -> None:
    cache = FetchSessionCache(2, EVICTION)
    session = opened(cache, ("a", 0, 10), ("b", 1, 20))
    assert session > 0
    again = cache.context(request(("b", 1, 25), ("c", 0, 5), session=session, epoch=1), 12, 0)
    assert again.incremental and not again.error
    assert asked(again) == [("a", 0, 10), ("b", 1, 25), ("c", 0, 5)]
    last = cache.context(request(session=session, epoch=2, forget=(("a", 0),)), 12, 0)
    assert asked(last) == [("b", 1, 25), ("c", 0, 5)]


def test_epoch_after_the_largest_is_one() -> None:
    cache = FetchSessionCache(2, EVICTION)
    session = opened(cache, ("a", 0, 0))
    cache.sessions[session].epoch = 0x7FFFFFFF
    assert cache.context(request(session=session, epoch=0x7FFFFFFF), 12, 0).error == 0
    assert cache.sessions[session].epoch == 1


@pytest.mark.parametrize(
    ("session", "epoch", "version", "error"),
    [
        (99, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_request_that_does_not_fit_its_session_is_refused(
    session: int | None, epoch: int, version: int, error: ErrorCode
) -> None:
    cache = FetchSessionCache(2, EVICTION)
    known = opened(cache, ("a", 0, 0))
    refused = cache.context(request(session=session or known, epoch=epoch), version, 0)
    assert refused.error is error and not asked(refused)
    assert cache.sessions[known].epoch == 1


def test_session_of_topic_ids_wants_topic_ids() -> None:
    cache = FetchSessionCache(2, EVICTION)
    session = cache.context(request(("", 0, 5), id=ID), 13, 0).session
    assert session is not None and session.uses_topic_ids
    error = cache.context(request(session=session.id, epoch=1), 12, 0).error
    assert error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert asked(cache.context(request(("", 0, 6), session=session.id, epoch=1, id=ID), 13, 0)) == [
        ("", 0, 6)
    ]


@pytest.mark.parametrize("epoch", [0, -1])
def test_full_fetch_closes_the_session_it_names(epoch: int) -> None:
    cache = FetchSessionCache(2, EVICTION)
    session = opened(cache, ("a", 0, 0))
    context = cache.context(request(("a", 0, 0), session=session, epoch=epoch), 12, 0)
    assert session not in cache.sessions
    assert (context.session is None) == (epoch == -1)
    assert not context.incremental


def test_session_without_partitions_ends() -> None:
    cache = FetchSessionCache(2, EVICTION)
    session = opened(cache, ("a", 0, 0))
    context = cache.context(request(session=session, epoch=1, forget=(("a", 0),)), 12, 0)
    assert context.session is None and not context.error
    assert not cache.sessions


def test_fetch_of_nothing_begins_a_session_too() -> None:
    """As Apache Kafka does; the next fetch of nothing ends it."""
    cache = FetchSessionCache(2, EVICTION)
    session = opened(cache)
    context = cache.context(request(session=session, epoch=1), 12, 0)
    assert context.session is None and not context.error


def test_earlier_request_that_is_answered_late_knows_it() -> None:
    cache = FetchSessionCache(2, EVICTION)
    session = opened(cache, ("a", 0, 0))
    first = cache.context(request(session=session, epoch=1), 12, 0)
    assert not first.overtaken
    cache.context(request(session=session, epoch=2), 12, 0)
    assert first.overtaken


# Partitions that an incremental answer omits: CachedPartition.maybeUpdateResponseData


def test_partition_is_named_again_only_when_there_is_something_new() -> None:
    cache = FetchSessionCache(2, EVICTION)
    (partition,) = cache.sessions[opened(cache, ("a", 0, 0))].partitions.values()
    none = ErrorCode.NONE
    assert partition.differs(none, 5, 0, has_news=False)
    assert not partition.differs(none, 5, 0, has_news=False)
    assert partition.differs(none, 5, 0, has_news=True)
    assert partition.differs(none, 6, 0, has_news=False)
    assert partition.differs(none, 6, 1, has_news=False)
    assert not partition.differs(none, 6, 1, has_news=False)


def test_error_is_named_each_time_and_its_end_too() -> None:
    cache = FetchSessionCache(2, EVICTION)
    (partition,) = cache.sessions[opened(cache, ("a", 0, 0))].partitions.values()
    partition.differs(ErrorCode.NONE, 5, 0, has_news=False)
    assert partition.differs(ErrorCode.UNKNOWN_TOPIC_ID, -1, -1, has_news=False)
    assert partition.differs(ErrorCode.UNKNOWN_TOPIC_ID, -1, -1, has_news=False)
    assert partition.differs(ErrorCode.NONE, 5, 0, has_news=False)


def test_partitions_that_gave_records_go_behind_the_others() -> None:
    cache = FetchSessionCache(2, EVICTION)
    session = cache.sessions[opened(cache, ("a", 0, 0), ("b", 0, 0), ("c", 0, 0))]
    session.put_behind([("a", ZERO_UUID, 0), ("gone", ZERO_UUID, 0)])
    assert [key[0] for key in session.partitions] == ["b", "c", "a"]


# Eviction: FetchSessionCacheShard.tryEvict


def touch(cache: FetchSessionCache, session: int, now: int) -> FetchSession | None:
    epoch = cache.sessions[session].epoch
    return cache.context(request(session=session, epoch=epoch), 12, now).session


def test_full_cache_makes_no_more_sessions() -> None:
    cache = FetchSessionCache(1, EVICTION)
    first = opened(cache, ("a", 0, 0))
    assert cache.context(request(("a", 0, 0), ("b", 0, 0)), 12, EVICTION).session is None
    assert list(cache.sessions) == [first]


def test_no_slots_means_no_sessions() -> None:
    cache = FetchSessionCache(0, EVICTION)
    assert cache.context(request(("a", 0, 0)), 12, 10 * EVICTION).session is None


def test_session_idle_for_long_gives_its_place() -> None:
    cache = FetchSessionCache(2, EVICTION)
    idle = opened(cache, ("a", 0, 0), ("b", 0, 0))
    busy = opened(cache, ("a", 0, 0), now=1)
    touch(cache, busy, EVICTION)
    new = opened(cache, ("c", 0, 0), now=EVICTION + 1)
    assert idle not in cache.sessions
    assert set(cache.sessions) == {busy, new}


def test_older_and_smaller_session_gives_its_place_to_a_larger_one() -> None:
    cache = FetchSessionCache(2, EVICTION)
    large = opened(cache, ("a", 0, 0), ("b", 0, 0))
    small = opened(cache, ("a", 0, 0))
    now = EVICTION + 1
    for session in (large, small):
        touch(cache, session, now)
    equal = cache.context(request(("c", 0, 0)), 12, now)
    assert equal.session is None
    larger = opened(cache, ("c", 0, 0), ("d", 0, 0), now=now)
    assert set(cache.sessions) == {large, larger}


def test_session_never_used_again_does_not_count_as_old_before_it_is_idle() -> None:
    cache = FetchSessionCache(1, EVICTION)
    only = opened(cache, ("a", 0, 0))
    touch(cache, only, EVICTION)
    assert cache.context(request(("b", 0, 0), ("c", 0, 0)), 12, EVICTION + 1).session is None


def test_names_that_no_topic_can_have_fill_sessions_sooner() -> None:
    cache = FetchSessionCache(1000, max_partitions=1000)
    long = "x" * 32_000
    made = 0
    for number in range(100):
        topic = FetchTopic(topic=f"{long}{number}", partitions=[FetchPartition(partition=0)])
        request = FetchRequest(session_id=0, session_epoch=0, topics=[topic])
        made += cache.context(request, 12, 0).session is not None
    assert made == 1000 // (1 + 32_001 // 400)


def test_request_of_another_kind_leaves_the_partitions_of_its_session_alone() -> None:
    cache = FetchSessionCache(2, EVICTION)
    session = opened(cache, ("a", 0, 0))
    before = dict(cache.sessions[session].partitions)
    of_another = request(("b", 0, 0), session=session, epoch=1, id=ID)
    refused = exhaust(cache.context_in_steps(of_another, 13, 0))
    assert refused.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert cache.sessions[session].partitions == before
