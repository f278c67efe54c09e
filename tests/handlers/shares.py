"""A broker whose partitions are consumed by share groups, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, TypeVar

from kwire.messages import share_acknowledge as acknowledges
from kwire.messages import share_fetch as fetches
from server.handlers.ceilings import SHARE_VERSION
from server.handlers.context import ConnectionInfo, Features, Later, RequestContext
from server.handlers.share_acknowledge import share_acknowledge
from server.handlers.share_fetch import share_fetch
from server.share.led import ShareRooms
from server.share.manager import SharePartitionManager
from server.share.sessions import ShareSessionCache
from server.share.settings import ShareSettings
from tests.support.replicas import Replicas, finish, stored, topic_id, turns
from tests.support.services import with_rooms
from tests.support.share_persister import MemoryPersister, Stored
from tests.support.steps import finished

T = TypeVar("T")

VERSION = 2
GROUP = "group"

Acks = tuple[int, int, int | Sequence[int]]


def on_loop(test: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """Run a test on its own loop."""

    @wraps(test)
    def run(*args: Any, **options: Any) -> T:
        return asyncio.run(test(*args, **options))

    return run


class Shares:
    """A room with share groups. Shape: `settings` are those of all groups."""

    def __init__(self, room: Replicas, *, sessions: int = 10, turns: Any = None) -> None:
        self.room = room
        self.settings = ShareSettings(offset_reset="earliest")
        self.persister = MemoryPersister()
        self.manager = SharePartitionManager(
            ShareRooms(
                room.replicas,
                room.publisher.current,
                self.persister,
                room.clock,
                turns or room.turns,
                lambda _: self.settings,
                self._search,
            ),
            ShareSessionCache(sessions),
        )
        room.replicas.on_leadership(self.manager.on_leadership)
        room.services = with_rooms(
            room.services,
            share_partitions=self.manager,
            features=Features.of({SHARE_VERSION: (0, 1)}),
        )

    async def _search(self, search: Any) -> None:
        raise AssertionError("nothing is searched elsewhere")

    def consumed(self, *names: str, group: str = GROUP, start: int = -1) -> None:
        """Create topics, and let a group's state of their partitions be initialized."""
        for name in names:
            if self.room.replicas.get(name, 0) is None:
                self.room.create(name)
            self.persister.stored[group, topic_id(name), 0] = Stored(0, 0, start, -1, {})

    def member(
        self, name: str = "one", group: str = GROUP, connection: ConnectionInfo | None = None
    ) -> Member:
        return Member(self, name, group, connection or ConnectionInfo(f"connection of {name}"))


class Member:
    """A member of a share group, which counts the epochs of its session."""

    def __init__(self, shares: Shares, name: str, group: str, connection: ConnectionInfo) -> None:
        self.shares = shares
        self.name = name
        self.group = group
        self.connection = connection
        self.epoch = 0

    def context(self, handler: Any, version: int = VERSION) -> RequestContext:
        ctx = self.shares.room.context(version, handler=handler)
        ctx.connection = self.connection
        return ctx

    def request(
        self,
        *topics: str,
        acks: dict[str, Sequence[Acks]] | None = None,
        epoch: int | None = None,
        forget: Sequence[str] = (),
        **options: Any,
    ) -> fetches.ShareFetchRequest:
        acks = acks or {}
        values = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        return fetches.ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                fetches.FetchTopic(
                    topic_id=topic_id(name),
                    partitions=[
                        fetches.FetchPartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                fetches.AcknowledgementBatch(
                                    first_offset=first,
                                    last_offset=last,
                                    acknowledge_types=[types]
                                    if isinstance(types, int)
                                    else list(types),
                                )
                                for first, last, types in acks.get(name, ())
                            ],
                        )
                    ],
                )
                for name in dict.fromkeys([*topics, *acks])
            ],
            forgotten_topics_data=[
                fetches.ForgottenTopic(topic_id=topic_id(name), partitions=[0]) for name in forget
            ],
            **{**values, **options},
        )

    def begin(self, *topics: str, version: int = VERSION, **options: Any) -> Any:
        """Send a ShareFetch: the response, or a Later."""
        request = self.request(*topics, **options)
        if options.get("epoch") is None:
            self.epoch += 1
        handler: Any = share_fetch
        ctx = self.context(handler, version)
        denied = handler.authorize(ctx, request)
        return handler.refuse(ctx, request, denied) if denied else finished(handler(ctx, request))

    async def fetch(self, *topics: str, **options: Any) -> fetches.ShareFetchResponse:
        """Fetch, and wait for the answer."""
        response = await finish(self.begin(*topics, **options))
        assert isinstance(response, fetches.ShareFetchResponse)
        return response

    async def loaded(self, *topics: str, **options: Any) -> fetches.ShareFetchResponse:
        """Begin a session, wait until the partitions are loaded, and fetch."""
        await self.fetch(*topics, **options)
        await turns()
        return await self.fetch(**options)

    async def acknowledge(
        self, acks: dict[str, Sequence[Acks]], *, epoch: int | None = None, is_renew: bool = False
    ) -> acknowledges.ShareAcknowledgeResponse:
        request = acknowledges.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=is_renew,
            topics=[
                acknowledges.AcknowledgeTopic(
                    topic_id=topic_id(name),
                    partitions=[
                        acknowledges.AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                acknowledges.AcknowledgementBatch(
                                    first_offset=first,
                                    last_offset=last,
                                    acknowledge_types=[types]
                                    if isinstance(types, int)
                                    else list(types),
                                )
                                for first, last, types in batches
                            ],
                        )
                    ],
                )
                for name, batches in acks.items()
            ],
        )
        if epoch is None:
            self.epoch += 1
        handler: Any = share_acknowledge
        ctx = self.context(handler)
        denied = handler.authorize(ctx, request)
        answer = handler.refuse(ctx, request, denied) if denied else handler(ctx, request)
        response = await finish(answer)
        assert isinstance(response, acknowledges.ShareAcknowledgeResponse)
        return response

    def disconnect(self) -> None:
        assert self.connection.on_close is not None
        self.connection.on_close()


def acquired(response: fetches.ShareFetchResponse) -> dict[str, list[tuple[int, int, int]]]:
    """The acquired records, by topic: (first, last, delivery count)."""
    assert response.error_code == 0, response
    return {
        topic.topic_id.rstrip(b"\1").decode(): [
            (each.first_offset, each.last_offset, each.delivery_count)
            for row in topic.partitions
            for each in row.acquired_records
        ]
        for topic in response.responses
    }


def errors(response: Any, field: str = "error_code") -> dict[str, int]:
    """The error of each topic's partition."""
    return {
        topic.topic_id.rstrip(b"\1").decode(errors="replace"): getattr(row, field)
        for topic in response.responses
        for row in topic.partitions
    }


def records(response: fetches.ShareFetchResponse) -> bytes:
    """The records of the only partition."""
    data = stored(response.responses[0].partitions[0].records)
    assert data is not None
    return data


def waits(answer: Any) -> Later[Any]:
    assert isinstance(answer, Later), answer
    assert isinstance(answer.awaitable, asyncio.Future) and not answer.awaitable.done()
    return answer
