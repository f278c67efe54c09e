"""A member of a consumer group, by the classic protocol: pure, since its runner has the connections and the time.

The functions that send requests are generators, as in asking.py. `TryAgain` means that the same call has to be
repeated after a moment. Source: AbstractCoordinator, ConsumerCoordinator (Java);
KIP-345, KIP-394, KIP-447.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .asking import Ask, Asking, placed_of
from .assignors import ASSIGNORS, assignment, partitions_in, subscription, topics_in
from .errors import ClientError, words_of
from .requests import GROUP, MAX_FIND_VERSION, Partition, by_topic, coordinator_request

#: The kind of group, in JoinGroup.
CONSUMER = "consumer"
#: The last versions in which a group's leader always assigns, and topics are identified by
#: name.
JOIN_VERSION, COMMIT_VERSION, OFFSET_FETCH_VERSION = 7, 8, 7

REJOIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)
ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
SAID = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members use neither the range nor the roundrobin assignor,"
    " or are not consumers",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it has as many members as the broker allows (group.max.size)",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms is not within what the broker allows",
    ErrorCode.FENCED_INSTANCE_ID: "another member has joined with the same group.instance.id",
}


class TryAgain(Exception):
    """Something is not ready yet, so the call has to be repeated after a moment. The text tells the user what is not
    ready.
    """


class MemberRequests:
    """One member of a group. Errors of all requests: ClientError for permanent refusals, TryAgain, Unavailable.

    Unit: timeouts in ms. Source of the defaults: ConsumerConfig.
    """

    def __init__(
        self,
        group: str,
        topics: Sequence[str],
        *,
        instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        self.generation = -1
        """-1 until it has joined."""
        self.led: dict[str, int] = {}
        """Numbers of partitions at the last assignment, of the topics of all members; empty for members that do not
        assign.
        """
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.coordinator: int | None = None
        self._group = group
        self._topics = list(topics)
        self._instance_id = instance_id
        self._session_timeout_ms = session_timeout_ms
        self._member_id = ""

    @property
    def is_static(self) -> bool:
        """Whether the member keeps its partitions after leaving, until its session ends (KIP-345)."""
        return self._instance_id is not None

    def find(self) -> Asking[int]:
        """Find the group's coordinator."""
        if self.coordinator is None:
            request = coordinator_request(GROUP, self._group)
            response = yield Ask(request, None, MAX_FIND_VERSION)
            if response.error_code:
                self._refused(response.error_code)
            self.coordinator = response.node_id
        return self.coordinator

    def join(self) -> Asking[list[Partition]]:
        """Join, or join again; returns the partitions of this member."""
        self.generation = -1
        node = yield from self.find()
        data = subscription(self._topics)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name in ASSIGNORS],
        )
        joined = yield Ask(request, node, JOIN_VERSION)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = request.member_id = joined.member_id
            joined = yield Ask(request, node, JOIN_VERSION)
        if joined.error_code:
            self._refused(joined.error_code)
        self._member_id = joined.member_id
        assignments: list[SyncGroupRequestAssignment] = []
        self.led = {}
        if joined.leader == joined.member_id:
            assignments = yield from self._assign(joined)
        synced = yield Ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type=CONSUMER,
                protocol_name=joined.protocol_name,
                assignments=assignments,
            ),
            node,
        )
        if synced.error_code:
            self._refused(synced.error_code)
        self.generation = joined.generation_id
        return partitions_in(synced.assignment)

    def _assign(self, joined: Any) -> Asking[list[SyncGroupRequestAssignment]]:
        """The partitions of each member. Shape: static members come first, so that their partitions stay the same."""
        rows = sorted(
            joined.members,
            key=lambda row: (
                row.group_instance_id is None,
                row.group_instance_id or "",
                row.member_id,
            ),
        )
        members = {row.member_id: topics_in(row.metadata) for row in rows}
        self.led = yield from self._counts(set().union(*members.values()))
        shares = ASSIGNORS[joined.protocol_name](self.led, members)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=assignment(tps))
            for member, tps in shares.items()
        ]

    def _counts(self, topics: Iterable[str]) -> Asking[dict[str, int]]:
        """Numbers of partitions by topic."""
        placed = yield from placed_of(topics)
        return {topic: len(partitions) for topic, partitions in placed.items()}

    def look_for_partitions(self) -> Asking[None]:
        """Rebalance the group if this member assigned the partitions, and the topics now have other partitions."""
        if self.led and (yield from self._counts(self.led)) != self.led:
            self.generation = -1

    def committed(self, tps: Iterable[Partition]) -> Asking[dict[Partition, int]]:
        """The group's committed offsets; partitions without an offset are omitted."""
        topics = by_topic(tps, lambda tp: tp[1])
        if not topics:
            return {}
        request = OffsetFetchRequest(
            group_id=self._group,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in topics.items()
            ],
            require_stable=True,
        )
        response = yield Ask(request, (yield from self.find()), OFFSET_FETCH_VERSION)
        found = {}
        errors = [response.error_code]
        for topic_row in response.topics:
            for row in topic_row.partitions:
                errors.append(row.error_code)
                if row.committed_offset >= 0:
                    found[topic_row.name, row.partition_index] = row.committed_offset
        self._check(errors)
        return found

    def commit(self, offsets: Mapping[Partition, int]) -> Asking[None]:
        """Store this member's positions; afterwards, it may have to join again."""

        def row(tp: Partition) -> OffsetCommitRequestPartition:
            return OffsetCommitRequestPartition(
                partition_index=tp[1], committed_offset=offsets[tp], committed_metadata=""
            )

        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=[
                OffsetCommitRequestTopic(name=topic, partitions=rows)
                for topic, rows in by_topic(offsets, row).items()
            ],
        )
        response = yield Ask(request, (yield from self.find()), COMMIT_VERSION)
        self._check(row.error_code for topic in response.topics for row in topic.partitions)

    def beat(self) -> Asking[None]:
        """Tell the coordinator that this member is alive; afterwards, it may have to join again."""
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        response = yield Ask(request, (yield from self.find()))
        self._check([response.error_code])

    def leave(self) -> Asking[None]:
        """Leave the group, so that others get the partitions immediately."""
        if not self._member_id or self.is_static:
            return
        row = MemberIdentity(member_id=self._member_id, reason="the command has ended")
        request = LeaveGroupRequest(group_id=self._group, members=[row])
        yield Ask(request, (yield from self.find()))
        self._member_id, self.generation = "", -1

    def _check(self, errors: Iterable[int]) -> None:
        """Handle the errors of an answer to a member that has joined."""
        for error in errors:
            if error in REJOIN:
                self._forget(error)
            elif error:
                self._refused(error)

    def _forget(self, error: int) -> None:
        self.generation = -1
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    def _refused(self, error: int) -> NoReturn:
        """Errors: ClientError or TryAgain."""
        said = SAID.get(error) or words_of(error)  # type: ignore[call-overload]
        text = f"{self._group}: {said}"
        if error in REJOIN:
            self._forget(error)
            raise TryAgain(text)
        if error in ELSEWHERE:
            self.coordinator = None
            raise TryAgain(text)
        if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or ErrorCode(error).retriable:
            raise TryAgain(text)
        raise ClientError(text)
