"""A member of a consumer group with its connections and the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from .brokers import PATIENCE_S, Brokers
from .contact import RETRY_S
from .errors import ClientError, Unavailable
from .member import MemberRequests, TryAgain
from .requests import Partition

T = TypeVar("T")

#: Added to the time for which a JoinGroup may wait for other members.
MARGIN_S = 15.0


class GroupMembership:
    """A member of a group, run on brokers. Unit: ms. Source of the defaults: ConsumerConfig."""

    def __init__(
        self,
        brokers: Brokers,
        member: MemberRequests,
        *,
        heartbeat_ms: int = 3000,
        metadata_max_age_ms: int = 300_000,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brokers = brokers
        self._member = member
        self._heartbeat_s = heartbeat_ms / 1000
        self._metadata_s = metadata_max_age_ms / 1000
        self._now = now
        self._next_beat = self._next_look = 0.0
        self._uncommitted: dict[Partition, int] = {}

    @property
    def is_in(self) -> bool:
        """Whether the partitions of this member are still its own, to its knowledge."""
        return self._member.generation >= 0

    def join(self) -> tuple[list[Partition], dict[Partition, int]]:
        """Join the group; returns this member's partitions, and the group's positions in them. Errors: ClientError."""
        self._uncommitted = {}
        while True:
            joined = self._attempt(self._join)
            if joined is not None:
                return joined
            time.sleep(RETRY_S)

    def _join(self) -> tuple[list[Partition], dict[Partition, int]]:
        node = self._brokers.run(self._member.find())
        # A JoinGroup is answered when all members have joined.
        wire = self._brokers.wire(node)
        wire.sock.settimeout(self._member.rebalance_timeout_ms / 1000 + MARGIN_S)
        tps = self._brokers.run(self._member.join())
        wire.sock.settimeout(PATIENCE_S)
        self._next_beat = self._now() + self._heartbeat_s
        self._next_look = self._now() + self._metadata_s
        while self.is_in:
            offsets = self._attempt(lambda: self._brokers.run(self._member.committed(tps)))
            if offsets is not None:
                return tps, offsets
            time.sleep(RETRY_S)
            self.keep_alive()
        raise TryAgain

    def _attempt(self, action: Callable[[], T]) -> T | None:
        """Run an action; None if it has to be repeated after a moment. Errors: ClientError."""
        try:
            return action()
        except TryAgain:
            return None
        except Unavailable:
            self._member.coordinator = None
            return None

    def keep_alive(self) -> None:
        """Send a heartbeat when it is due; afterwards, this member may have to join again. Errors: ClientError."""
        now = self._now()
        if self.is_in and now >= self._next_beat:
            self._next_beat = now + self._heartbeat_s
            self._attempt(lambda: self._brokers.run(self._member.beat()))
        if self.is_in and now >= self._next_look:
            self._next_look = now + self._metadata_s
            self._attempt(lambda: self._brokers.run(self._member.look_for_partitions()))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Store this member's positions; records are read again if that is not possible. Errors: ClientError."""
        self._uncommitted.update(offsets)
        if self._uncommitted and self.is_in:
            self._attempt(self._commit)

    def _commit(self) -> None:
        self._brokers.run(self._member.commit(self._uncommitted))
        self._uncommitted = {}

    def leave(self) -> None:
        """Leave the group after committing the remaining offsets; failures only delay the other members."""
        if self._member.coordinator is not None:
            # The consumer may have been stopped in the middle of a request.
            self._brokers.forget(self._member.coordinator)
        try:
            self.commit({})
            self._attempt(lambda: self._brokers.run(self._member.leave()))
        except ClientError:
            pass
