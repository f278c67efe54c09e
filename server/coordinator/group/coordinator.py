"""The group coordinator as handlers use it: finds the shard, and refuses requests for other coordinators' groups.

A group belongs to the broker that leads its partition of __consumer_offsets.
Source: GroupCoordinator.scala (validateGroupStatus), GroupCoordinatorAdapter.scala.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages import consumer_group_describe as described_consumer_group
from kwire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire.messages.describe_groups import DescribedGroup
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kwire.messages.list_groups import ListedGroup
from kwire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kwire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from ...cause import Address, Own, account_of, cause, caused_by
from ...clock import Clock
from ...metadata.image import MetadataImage
from ...metadata.internal_topics import GROUP_METADATA_TOPIC
from ...metadata.topic_partition import TopicPartition
from ...shares import NOBODY
from ...turns import Steps, Turns
from ..common.front_desk import FrontDesk
from ..common.result import Result
from ..common.runtime import CoordinatorLog
from ..share_state.persister import SharePersister
from .classic import Joining
from .config import GroupConfig
from .consumer.draft import ResolveRegexes
from .consumer.heartbeat import check_request, refused
from .listing import describe_consumer_group, describe_group, list_group
from .memory import GroupMemory
from .modern.context import GroupClient, GroupSettings, Metadata
from .modern.draft import AssignTarget
from .modern.group import ModernGroup
from .modern.refusal import GroupRefusal
from .modern.topic_hash import TopicHashes
from .offsets import FetchedOffset, commit_error, transactional_commit_error
from .rebalance import join_error, sync_error
from .shard import GroupShard
from .share.group import ShareGroup
from .share.states import InitializeStates
from .share_requests import LatestOffsetsOf, ShareGroupRequests, no_latest_offsets
from .topic_matches import TopicMatches

#: The number of characters of a client's or instance's id that a new member id includes. The whole id must fit into a
#: string of the protocol (32767 bytes).
MEMBER_ID_PREFIX = 8000

#: The owner of the work that timers of loaded groups set off, whose clients are not connected to this broker yet.
LOADED_GROUPS = Address("loaded groups")

#: The number of topics that are hashed in one step, which takes up to 7 us each.
HASHED_IN_STEP = 64

#: The maximum number of protocols (assignors) of a member. Clients name a handful, and each rebalance examines all of
#: them.
MAX_PROTOCOLS = 1000


class FetchedGroup(NamedTuple):
    """The result of OffsetFetch for one group: an error, or rows by topic."""

    error: ErrorCode
    topics: list[tuple[str, list[FetchedOffset]]]


class WaitingJoin(NamedTuple):
    """A JoinGroup that is answered later; `abandon` is called if its connection ends first."""

    answer: Awaitable[JoinGroupResponse]
    abandon: Callable[[], None]


def random_uuid() -> str:
    """A random UUID as text. The module `uuid` would load a C library, and `platform`, for the same result."""
    made = bytearray(os.urandom(16))
    made[6] = made[6] & 0x0F | 0x40
    made[8] = made[8] & 0x3F | 0x80
    text = made.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class GroupCoordinator(FrontDesk[GroupConfig, GroupShard]):
    """All groups that this broker coordinates.

    Shape: each operation returns its answer, or an awaitable of the answer if the operation has to wait. APIs that only
    store offsets accept "" as a group.
    """

    topic = GROUP_METADATA_TOPIC

    def __init__(
        self,
        config: GroupConfig,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        new_uuid: Callable[[], object] = random_uuid,
        turns: Turns | None = None,
        metadata: Callable[[], MetadataImage] = MetadataImage,
        settings_of: Callable[[str, str], GroupSettings | None] = lambda group_id, kind: None,
        persister: SharePersister | None = None,
        latest_offsets: LatestOffsetsOf = no_latest_offsets,
    ) -> None:
        self.image = metadata
        self.settings_of = settings_of
        self.broker_settings = GroupSettings.by_kind(config)
        self.metadata = Metadata(metadata, TopicHashes(), self.group_settings)
        self.memory = GroupMemory()
        self.matches = TopicMatches()
        self.new_uuid = new_uuid
        super().__init__(
            config,
            config.offsets_topic_partitions,
            coordinator_log,
            clock,
            lambda partition: GroupShard(partition, self.config, self.memory, self.metadata),
            lambda: self.config.offsets_commit_timeout_ms,
            turns,
        )
        self.share = ShareGroupRequests(self, metadata, persister, latest_offsets)

    # Called by the broker

    def reconfigure(self, config: GroupConfig) -> None:
        """Apply changed settings."""
        self.broker_settings = GroupSettings.by_kind(config)
        super().reconfigure(config)

    def partitions_deleted(
        self,
        tps: Iterable[TopicPartition],
        exists: Callable[[TopicPartition], bool] = lambda tp: False,
    ) -> None:
        """Remove the offsets of all groups for deleted partitions, in turns.

        Shape: `exists` says whether a partition has been created again since then; its offsets are kept.
        """
        self.runtime.turns.start(self._remove_offsets(list(tps), exists), Own("deleted partitions"))

    def _remove_offsets(
        self, deleted: list[TopicPartition], exists: Callable[[TopicPartition], bool]
    ) -> Generator[None, None, None]:
        for partition, shard in self.runtime.active():
            for number, group_id in enumerate(list(shard.groups)):
                yield
                if not number % 64:
                    tps = [tp for tp in deleted if not exists(tp)]
                if self.runtime.shard(partition) is not shard:
                    break
                self.runtime.start(
                    partition,
                    lambda shard, now_ms, group_id=group_id, tps=tps: shard.remove_partitions(  # type: ignore[misc]
                        group_id, tps, now_ms
                    ),
                )

    def end_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """Apply a committed marker in a partition of __consumer_offsets."""
        self.runtime.end_transaction(partition, producer_id, committed)

    def close(self) -> None:
        """Give up all partitions."""
        self.share.close()
        super().close()

    # Members

    def join_group(
        self,
        request: JoinGroupRequest,
        *,
        client_id: str,
        client_host: str,
        require_member_id: bool,
        can_skip_assignment: bool,
        may_describe: Callable[[str], bool],
        account: Hashable = NOBODY,
    ) -> JoinGroupResponse | WaitingJoin:
        """Add a member; see `Joining` for the differences between versions."""
        if len(request.protocols) > MAX_PROTOCOLS:
            return join_error(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        partition, shard = self.find(request.group_id)
        if isinstance(shard, ErrorCode):
            return join_error(request.member_id, shard)
        prefix = client_id if request.group_instance_id is None else request.group_instance_id
        new_member_id = (
            "" if request.member_id else f"{prefix[:MEMBER_ID_PREFIX]}-{self.new_uuid()}"
        )
        # A protocol that is named twice counts only once.
        protocols = list({row.name: row.metadata for row in request.protocols}.items())

        token = -1

        def join(shard: GroupShard, given: int, now_ms: int) -> Result[JoinGroupResponse]:
            nonlocal token
            token = given
            joining = Joining(
                request,
                protocols,
                token,
                client_id,
                client_host,
                new_member_id,
                require_member_id,
                can_skip_assignment,
                may_describe,
                account,
            )
            return shard.join_group(joining, now_ms)

        answer = self.runtime.run(partition, join)
        if isinstance(answer, JoinGroupResponse):
            return answer

        def abandon() -> None:
            if not isinstance(self.runtime.shard(partition), ErrorCode):
                self.runtime.start(
                    partition,
                    lambda shard, now_ms: shard.join_abandoned(
                        request.group_id, token, bool(request.member_id), now_ms
                    ),
                )

        return WaitingJoin(answer, abandon)

    def sync_group(
        self, request: SyncGroupRequest
    ) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
        """Give a member its assignment."""
        partition, shard = self.find(request.group_id)
        if isinstance(shard, ErrorCode):
            # The previous coordinator's rebalance in progress is lost. Older clients do not expect a loading error
            # here, and have to join again anyway.
            loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return sync_error(ErrorCode.REBALANCE_IN_PROGRESS if loading else shard)
        return self.runtime.run(
            partition, lambda shard, token, now_ms: shard.sync_group(request, token, now_ms)
        )

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Note that a member is alive."""
        partition, shard = self.find(request.group_id)
        if isinstance(shard, ErrorCode):
            # While loading, no member can have failed, so the answer is no error.
            loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else shard)
        answer: HeartbeatResponse = self.runtime.run_at_once(
            partition, lambda shard, token, now_ms: shard.heartbeat(request, token, now_ms)
        )
        return answer

    def leave_group(
        self, request: LeaveGroupRequest
    ) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
        """Remove the members in `request.members`."""
        return self.run(
            request.group_id,
            lambda shard, token, now_ms: shard.leave_group(request, token, now_ms),
            lambda error: LeaveGroupResponse(error_code=error),
        )

    # Members of the consumer protocol

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: GroupClient
    ) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
        """Let a member join, stay or leave."""
        try:
            check_request(request, client.version, self.config.consumer_assignors)
        except GroupRefusal as refusal:
            return refused(refusal)
        partition, shard = self.find(request.group_id)
        if isinstance(shard, ErrorCode):
            return ConsumerGroupHeartbeatResponse(error_code=shard)
        if not request.member_id:
            request.member_id = self.new_member_id()
        return self.runtime.run(
            partition,
            lambda shard, token, now_ms: shard.consumer.consumer_heartbeat(
                request, client, token, now_ms
            ),
        )

    def remember_topic(self, name: str) -> None:
        """Compute a topic's hash in advance, for a later request that needs the hashes of all its topics."""
        self.metadata.hashes.of_topic(name, self.image())

    def new_member_id(self) -> str:
        """Make a member id as Apache Kafka does: a random UUID in base64, without padding."""
        made = bytes.fromhex(str(self.new_uuid()).replace("-", ""))
        text = urlsafe_b64encode(made).decode().rstrip("=")
        return "A" + text[1:] if text.startswith("-") else text

    def group_settings(self, group_id: str, kind: str) -> GroupSettings:
        """The settings of a group of a kind: its own, or else those of the broker."""
        return self.settings_of(group_id, kind) or self.broker_settings[kind]

    def describe_consumer_group(
        self, group_id: str
    ) -> Steps[described_consumer_group.DescribedGroup]:
        """Describe a consumer group in steps, without authorized operations."""
        _, shard = self.find(group_id)
        if isinstance(shard, ErrorCode):
            return described_consumer_group.DescribedGroup(group_id=group_id, error_code=shard)
        return (
            yield from describe_consumer_group(
                group_id,
                shard.groups.get(group_id),
                self.config.consumer_assignors[0],
                self.image(),
            )
        )

    def perform(
        self,
        partition: int,
        leader_epoch: int,
        effect: AssignTarget | ResolveRegexes | InitializeStates,
    ) -> None:
        """Do the work in turns that is too long for a group's operation, and pass the result to its shard.

        The work belongs to the client whose operation caused it. Work of groups that were just loaded shares the turn of
        one client.
        """
        owner = LOADED_GROUPS if effect.owner is None else effect.owner
        if isinstance(effect, InitializeStates):
            with caused_by(owner):
                self.share.initialize(partition, effect)
            return
        steps: Steps[None]
        if isinstance(effect, AssignTarget):
            steps = self._assign(partition, effect)
        else:
            steps = self._resolve(partition, effect)
        self.runtime.turns.start(steps, owner, can_wait=True)

    def _assign(self, partition: int, effect: AssignTarget) -> Steps[None]:
        found = None
        try:
            if self._is_due(partition, effect.group_id):
                found = yield from effect.steps
        finally:
            self.hand_over(
                partition,
                lambda shard, now_ms: shard.target_assigned(effect, found, now_ms),
            )

    def _is_due(self, partition: int, group_id: str) -> bool:
        """Whether work for a group is still of use, and its result may be written; if not, a later heartbeat begins it."""
        shard = self.runtime.shard(partition)
        group: Any = None if isinstance(shard, ErrorCode) else shard.groups.get(group_id)
        return (
            isinstance(group, ModernGroup)
            and bool(group.members)
            and self.memory.pace.may_write(account_of(cause()), self.runtime.now_ms())
        )

    def _resolve(self, partition: int, effect: ResolveRegexes) -> Steps[None]:
        image = self.image()
        began_ms = self.runtime.now_ms()
        found: dict[str, frozenset[str]] | None = None
        try:
            if self._is_due(partition, effect.group_id):
                matches = self.matches.steps(effect.regexes, effect.may_describe, image.topics)
                found = yield from matches
            for names in (found or {}).values():
                for number, name in enumerate(names):
                    if not number % HASHED_IN_STEP:
                        yield
                    self.metadata.hashes.of_topic(name, image)  # cached, for the group's operation
        finally:
            self.hand_over(
                partition,
                lambda shard, now_ms: shard.consumer.regexes_resolved(
                    effect, found, image, began_ms, now_ms
                ),
            )

    # Offsets

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        unknown_group: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
        version: int = -1,
        account: Hashable = NOBODY,
    ) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        """Store offsets for partitions that the caller has found to exist."""
        return self.run(
            request.group_id,
            lambda shard, token, now_ms: shard.commit_offsets(
                request, token, now_ms, unknown_group, version, account
            ),
            lambda error: commit_error(request, error),
            may_be_empty=True,
        )

    def ensure_group(self, group_id: str, account: Hashable = NOBODY) -> ErrorCode:
        """Create an unknown group, as Apache Kafka 3.9 does before it verifies a transaction.

        Errors: those of find and of GroupMemory.
        """
        _, shard = self.find(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        full = shard.refuses_group(group_id, account)
        if full is ErrorCode.NONE and not shard.config.verifies_first:
            shard.ensure(group_id, self.runtime.now_ms(), account)
        return full

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, account: Hashable = NOBODY
    ) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
        """Store offsets in a transaction that the caller has verified."""
        return self.run(
            request.group_id,
            lambda shard, token, now_ms: shard.commit_transactional_offsets(
                request, token, now_ms, account
            ),
            lambda error: transactional_commit_error(request, error),
        )

    def fetch_offsets(
        self,
        group_id: str,
        topics: Sequence[tuple[str, Sequence[int]]] | None,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> FetchedGroup:
        """Read committed offsets; all of them if `topics` is None."""
        _, shard = self.find(group_id, may_be_empty=True)
        if isinstance(shard, ErrorCode):
            return FetchedGroup(shard, [])
        error = shard.validate_fetch(group_id, member_id, member_epoch)
        if error is not ErrorCode.NONE:
            return FetchedGroup(error, [])
        return FetchedGroup(ErrorCode.NONE, shard.fetch_offsets(group_id, topics, require_stable))

    def committed_partitions(self, group_id: str) -> list[tuple[str, list[int]]]:
        """Return the partitions, by topic, for which a group has offsets; none if the group is not available here."""
        _, shard = self.find(group_id, may_be_empty=True)
        return [] if isinstance(shard, ErrorCode) else shard.committed_partitions(group_id)

    def delete_offsets(
        self, request: OffsetDeleteRequest
    ) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
        """Remove offsets."""
        return self.run(
            request.group_id,
            lambda shard, token, now_ms: shard.delete_offsets(request, token, now_ms),
            lambda error: OffsetDeleteResponse(error_code=error),
        )

    # Groups

    def delete_group(self, group_id: str) -> ErrorCode | Awaitable[ErrorCode]:
        """Remove a group without members."""
        partition, shard = self.find(group_id, may_be_empty=True)
        if isinstance(shard, ErrorCode):
            return shard
        if isinstance(shard.groups.get(group_id), ShareGroup):
            return self.share.delete_group(partition, group_id)
        return self.runtime.run(
            partition, lambda shard, token, now_ms: shard.delete_group(group_id, token, now_ms)
        )

    def describe_group(self, group_id: str, version: int) -> DescribedGroup:
        """Describe a group for a DescribeGroups version, without authorized operations."""
        _, shard = self.find(group_id, may_be_empty=True)
        if isinstance(shard, ErrorCode):
            return DescribedGroup(group_id=group_id, error_code=shard)
        return describe_group(
            group_id,
            shard.groups.get(group_id),
            version,
            last_assignments=shard.config.shows_last_assignments,
        )

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> Generator[None, None, tuple[ErrorCode, list[ListedGroup]]]:
        """List groups in steps, of all states or types if none is given; names are not case-sensitive.

        Errors: COORDINATOR_LOAD_IN_PROGRESS, together with the groups that are loaded.
        """
        wanted_states = {state.lower() for state in states}
        wanted_types = {name.lower() for name in types}
        loading = self.runtime.is_loading()
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE
        rows = []
        for _, shard in list(self.runtime.active()):
            for group in list(shard.groups.values()):
                yield
                if wanted_types and group.kind not in wanted_types:
                    continue
                if not wanted_states or group.state.value.lower() in wanted_states:
                    rows.append(list_group(group))
        return error, rows
