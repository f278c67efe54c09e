"""Incremental fetch sessions (KIP-227): what a client asked for, and what it was last told.

Pure: time is passed in. A session keeps its partitions in the order in which they are served: at
first the order of the first request; a partition that returned records then moves to the end, so
that no partition starves behind another.
Source: kafka.server.FetchSession.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

from ..steps import exhaust

if TYPE_CHECKING:
    from .membership import PartitionState
    from .partition import Partition

#: The number of partitions of a long request that one step processes.
STEP = 128

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

#: The maximum number of partitions in all sessions together, at about 400 bytes each. A client for which there is no
#: room fetches without a session, as when all slots are taken.
MAX_PARTITIONS = 250_000
#: A partition whose topic has a name longer than this, which no real topic has, counts more than once.
NAME_CHARACTERS = 400

#: The first Fetch version that names topics by id.
TOPIC_IDS_SINCE = 13

#: A client that guessed the id of another client's session could end it, and see in errors which topics it reads.
unpredictable = random.SystemRandom()

#: (topic name, or "" with an id; topic id, or zeros with a name; partition)
Key = tuple[str, bytes, int]


class FetchedPartition:
    """One partition of a fetch: what is asked for, and the offsets last answered."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower_log_start",
        "high_watermark",
        "idle",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, asked: FetchPartition) -> None:
        #: The name; "" for a topic named by an id, until it has been found once: a session keeps the
        #: name even if the topic is deleted. Source: CachedPartition.maybeResolveUnknownName.
        self.topic = topic
        self.topic_id = topic_id
        self.partition = asked.partition
        self.high_watermark = -1
        self.log_start_offset = -1
        #: The partition's state when there was last nothing to read; see `Partition.idles`.
        self.idle: tuple[Partition, PartitionState, int] | None = None
        self.fetch_offset = asked.fetch_offset
        self.follower_log_start = asked.log_start_offset
        self.max_bytes = asked.partition_max_bytes
        # Any epoch below 0 means "not given", in Fetch alone.
        epoch = asked.current_leader_epoch
        self.current_leader_epoch = epoch if epoch >= 0 else -1
        epoch = asked.last_fetched_epoch
        self.last_fetched_epoch = epoch if epoch >= 0 else -1

    def differs(
        self, error: ErrorCode, high_watermark: int, log_start_offset: int, *, has_news: bool
    ) -> bool:
        """Whether an incremental answer must include this partition; notes what is answered.

        Shape: `has_news` means records or a diverging epoch. An error is repeated in every answer.
        """
        if error:
            self.high_watermark = -1
            return True
        if high_watermark != self.high_watermark:
            self.high_watermark = high_watermark
            has_news = True
        if log_start_offset != self.log_start_offset:
            self.log_start_offset = log_start_offset
            has_news = True
        return has_news


class FetchSession:
    """One client's session; its next request must carry `epoch`.

    Shape: `weight` is the number of partitions that it counts as.
    """

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "last_used_ms",
        "partitions",
        "uses_topic_ids",
        "weight",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[Key, FetchedPartition],
        now_ms: int,
        *,
        uses_topic_ids: bool = False,
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.epoch = 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.uses_topic_ids = uses_topic_ids
        self.weight = sum(map(weight, partitions))

    def update(
        self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic]
    ) -> Generator[None, None, None]:
        """Add, change and drop partitions as the client asks, in steps."""
        partitions, left = self.partitions, STEP
        for topic in topics:
            name, topic_id = topic.topic, topic.topic_id
            for asked in topic.partitions:
                if not left:
                    yield
                    left = STEP
                left -= 1
                key = (name, topic_id, asked.partition)
                found = FetchedPartition(name, topic_id, asked)
                known = partitions.get(key)
                if known is not None:
                    found.topic = known.topic
                    found.high_watermark = known.high_watermark
                    found.log_start_offset = known.log_start_offset
                else:
                    self.weight += weight(key)
                partitions[key] = found
        for gone in forgotten:
            for number in gone.partitions:
                if not left:
                    yield
                    left = STEP
                left -= 1
                key = (gone.topic, gone.topic_id, number)
                if partitions.pop(key, None) is not None:
                    self.weight -= weight(key)

    def put_behind(self, keys: Iterable[Key]) -> None:
        """Move partitions to the end, in this order."""
        partitions = self.partitions
        for key in keys:
            found = partitions.pop(key, None)
            if found is not None:
                partitions[key] = found


def weight(key: Key) -> int:
    """The number of partitions that one partition counts as."""
    return 1 + len(key[0]) // NAME_CHARACTERS


class FetchContext:
    """The partitions of one Fetch request, in the order in which they are served.

    Shape: `session` is None for a fetch without one; `incremental` says that unchanged partitions
    are left out of the answer; `error` applies to the whole request.
    """

    __slots__ = ("_epoch", "error", "incremental", "partitions", "session")

    def __init__(
        self,
        partitions: dict[Key, FetchedPartition],
        session: FetchSession | None = None,
        *,
        incremental: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        """Remember the session's epoch as of this request."""
        self.partitions = partitions
        self.session = session
        self.incremental = incremental
        self.error = error
        self._epoch = 0 if session is None else session.epoch

    @property
    def overtaken(self) -> bool:
        """Whether a later request of the session was received before this one was answered."""
        return self.session is not None and self.session.epoch != self._epoch

    def __iter__(self) -> Iterator[tuple[Key, FetchedPartition]]:
        return iter(self.partitions.items())


def _partitions(request: FetchRequest) -> Generator[None, None, dict[Key, FetchedPartition]]:
    """The partitions that the request itself names, in steps."""
    partitions: dict[Key, FetchedPartition] = {}
    left = STEP
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        for asked in topic.partitions:
            if not left:
                yield
                left = STEP
            left -= 1
            partitions[name, topic_id, asked.partition] = FetchedPartition(name, topic_id, asked)
    return partitions


def _why_not(session: FetchSession | None, epoch: int) -> ErrorCode:
    """Why a request does not belong to a session."""
    if session is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class FetchSessionCache:
    """A bounded number of sessions; a new one may replace one that is idle or smaller.

    Unit: a session is safe for eviction_ms after its creation, and after its last use.
    Source: FetchSessionCacheShard.tryEvict.
    """

    def __init__(
        self,
        max_sessions: int,
        eviction_ms: int = 120_000,
        max_partitions: int = MAX_PARTITIONS,
    ) -> None:
        self.max_sessions = max_sessions
        self.max_partitions = max_partitions
        self.eviction_ms = eviction_ms
        self.sessions: dict[int, FetchSession] = {}
        #: The last answer to a fetch that had waited, until the end of the turn; see handlers/fetch_plain.py.
        self.last_answer: object = None

    def context(self, request: FetchRequest, version: int, now_ms: int) -> FetchContext:
        """Find or create the session that a short request belongs to."""
        return exhaust(self.context_in_steps(request, version, now_ms))

    def context_in_steps(
        self, request: FetchRequest, version: int, now_ms: int
    ) -> Generator[None, None, FetchContext]:
        """Find or create the session that a request belongs to.

        Errors, in the context: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        epoch, session_id = request.session_epoch, request.session_id
        by_id = version >= TOPIC_IDS_SINCE
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            partitions = yield from _partitions(request)
            if session_id != NO_SESSION:
                self.sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return FetchContext(partitions)
            return FetchContext(partitions, self._create(partitions, now_ms, uses_topic_ids=by_id))
        session = self.sessions.get(session_id)
        if session is None or session.epoch != epoch or session.uses_topic_ids != by_id:
            return FetchContext({}, error=_why_not(session, epoch))
        if request.topics or request.forgotten_topics_data:
            size = session.weight
            # Partitions are added immediately; if the rest then fails, the client begins another session.
            yield from session.update(request.topics, request.forgotten_topics_data)
            known = self.sessions.get(session_id)
            if known is not session or session.epoch != epoch:  # between two steps
                return FetchContext({}, error=_why_not(known, epoch))
            if session.weight > size and not self._has_room(0):
                del self.sessions[session_id]
                return FetchContext({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            del self.sessions[session_id]
            # The session is empty and ends: the partitions of this request are fetched without a session.
            return FetchContext((yield from _partitions(request)))
        return self.go_on(session, now_ms)

    def go_on(self, session: FetchSession, now_ms: int) -> FetchContext:
        """Use a session that already has the partitions of its newest request."""
        session.last_used_ms = now_ms
        session.epoch = 1 if session.epoch == 0x7FFFFFFF else session.epoch + 1
        # Moved to the end: the cache is ordered by last use.
        self.sessions[session.id] = self.sessions.pop(session.id)
        return FetchContext(session.partitions, session, incremental=True)

    def _create(
        self, partitions: dict[Key, FetchedPartition], now_ms: int, *, uses_topic_ids: bool
    ) -> FetchSession | None:
        size = sum(map(weight, partitions))
        if len(self.sessions) >= self.max_sessions and not self._evict(size, now_ms):
            return None
        while not self._has_room(size):
            if not self._evict(size, now_ms):
                return None
        while True:
            session_id = unpredictable.randint(1, 0x7FFFFFFF)
            if session_id not in self.sessions:
                break
        session = FetchSession(session_id, partitions, now_ms, uses_topic_ids=uses_topic_ids)
        self.sessions[session_id] = session
        return session

    def _has_room(self, more: int) -> bool:
        known = sum(session.weight for session in self.sessions.values())
        return known + more <= self.max_partitions

    def _evict(self, size: int, now_ms: int) -> bool:
        sessions = self.sessions.values()
        oldest = next(iter(sessions), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self.eviction_ms:
            del self.sessions[oldest.id]
            return True
        smallest = min(
            # A session used only once may belong to a client that makes a new session each time.
            (s for s in sessions if s.last_used_ms - s.created_ms > self.eviction_ms),
            key=lambda session: session.weight,
            default=None,
        )
        if smallest is None or smallest.weight >= size:
            return False
        del self.sessions[smallest.id]
        return True
