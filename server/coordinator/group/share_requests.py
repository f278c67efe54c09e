"""The share groups of the group coordinator, as handlers use them; combines the state machine and the persister.

Source: GroupCoordinatorService (share parts).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import ErrorCode
from kwire.messages import share_group_describe as described_share_group
from kwire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kwire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from ...cause import Own
from ...metadata.topic_partition import TopicPartition
from ...shares import NOBODY
from ...turns import Steps, each_in_steps
from ..share_state.operations import (
    DELETE_STATE,
    INITIALIZE_STATE,
    READ_SUMMARY,
    OutcomeT,
    RowT,
    StateOperation,
)
from ..share_state.rows import (
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    InitializeState,
    ReadState,
    StateOutcome,
    StatePartition,
    StateSummary,
)
from .listing import describe_share_group
from .modern.context import GroupClient
from .modern.refusal import GroupRefusal
from .share.heartbeat import check_request, refused
from .share.records import NamedPartitions
from .share.sentences import sentence
from .share.states import InitializeStates

if TYPE_CHECKING:
    from ...metadata.image import MetadataImage
    from ..common.front_desk import FrontDesk
    from ..share_state.persister import SharePersister
    from .config import GroupConfig
    from .shard import GroupShard

#: The number of share partitions for which the persister is asked in one step.
ROWS_AT_ONCE = 8

#: The owner of the work that follows the deletion of topics.
DELETED = Own("deleted topics")

LatestOffsetsOf = Callable[
    [Iterable[TopicPartition]], Awaitable[dict[TopicPartition, int | ErrorCode]]
]


class ShareOffset(NamedTuple):
    """The position of a share group in a partition.

    Shape: `start_offset` and `lag`, the number of records still to be processed, are -1 if they are not known.
    """

    topic_id: bytes
    partition: int
    start_offset: int = UNINITIALIZED_START_OFFSET
    leader_epoch: int = 0
    lag: int = -1
    error: ErrorCode = ErrorCode.NONE


class OffsetsDeleted(NamedTuple):
    """The outcome of a DeleteShareGroupOffsets.

    Shape: with an error, nothing was deleted; otherwise each topic, by name and id, has its own error and message.
    """

    error: ErrorCode
    message: str | None = None
    topics: tuple[tuple[str, bytes, ErrorCode, str | None], ...] = ()


async def no_latest_offsets(
    tps: Iterable[TopicPartition],
) -> dict[TopicPartition, int | ErrorCode]:
    """The end offsets of a broker that knows no partitions."""
    return dict.fromkeys(tps, ErrorCode.LEADER_NOT_AVAILABLE)


class ShareGroupRequests:
    """Requests to share groups.

    Shape: each method returns its answer, or an awaitable of it if it has to wait.
    """

    def __init__(
        self,
        groups: FrontDesk[GroupConfig, GroupShard],
        image: Callable[[], MetadataImage],
        persister: SharePersister | None,
        latest_offsets: LatestOffsetsOf = no_latest_offsets,
    ) -> None:
        self._groups = groups
        self._image = image
        self._runtime = groups.runtime
        self._persister = persister
        self._latest_offsets = latest_offsets
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Stop asking share coordinators."""
        for task in self._tasks:
            task.cancel()

    # Members

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: GroupClient
    ) -> ShareGroupHeartbeatResponse | Awaitable[ShareGroupHeartbeatResponse]:
        """Let a member join, stay or leave."""
        try:
            check_request(request)
        except GroupRefusal as refusal:
            return refused(refusal)
        return self._groups.run(
            request.group_id,
            lambda shard, token, now_ms: shard.share.share_heartbeat(
                request, client, token, now_ms
            ),
            lambda error: ShareGroupHeartbeatResponse(error_code=error),
        )

    def describe(self, group_id: str) -> Steps[described_share_group.DescribedGroup]:
        """Describe a share group in steps, without authorized operations."""
        _, shard = self._groups.find(group_id)
        if isinstance(shard, ErrorCode):
            return described_share_group.DescribedGroup(group_id=group_id, error_code=shard)
        group = shard.groups.get(group_id)
        return (yield from describe_share_group(group_id, group, self._image()))

    # States of share partitions

    def initialize(self, partition: int, effect: InitializeStates) -> None:
        """Have states initialized, and report the result to the group's shard."""
        task = asyncio.get_running_loop().create_task(
            self._initialize(partition, effect), name=f"states of {effect.group_id}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _initialize(self, partition: int, effect: InitializeStates) -> None:
        outcomes = await self._ask(INITIALIZE_STATE, effect.group_id, effect.rows)
        self._made(partition, effect.group_id, outcomes)

    def _made(self, partition: int, group_id: str, outcomes: Sequence[StateOutcome]) -> None:
        self._groups.hand_over(
            partition, lambda shard, now_ms: shard.share.states_made(group_id, outcomes, now_ms)
        )

    async def _ask(
        self, operation: StateOperation[RowT, OutcomeT], group_id: str, rows: Sequence[RowT]
    ) -> list[OutcomeT]:
        """Ask the persister, for a few share partitions at a time; its answers are in the order of the rows."""
        if self._persister is None:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return [operation.outcome(row.topic_id, row.partition, error) for row in rows]
        futures = []
        for first in range(0, len(rows), ROWS_AT_ONCE):
            if first:
                await self._runtime.turns.pause()
            futures.append(
                self._persister.ask(operation, group_id, rows[first : first + ROWS_AT_ONCE])
            )
            if not first:  # otherwise, thousands would wait for the topic to be created
                await futures[0]
        answers: list[OutcomeT] = []
        for future in futures:
            if answers:
                await self._runtime.turns.pause()
            answers += await future
        return answers

    # Offsets

    def describe_all_offsets(self, group_id: str) -> ErrorCode | Awaitable[list[ShareOffset]]:
        """Return the positions of a group in all partitions that have a state; none if there is no such group.

        Errors: those of GroupCoordinator.find.
        """
        _, shard = self._groups.find(group_id, may_be_empty=True)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.groups.get(group_id)
        known = self._image().topics_by_id
        initialized = getattr(group, "initialized", {})
        return self.describe_offsets(
            group_id,
            [
                (topic_id, number)
                for topic_id, (_, partitions) in initialized.items()
                if topic_id in known
                for number in sorted(partitions)
            ],
        )

    async def describe_offsets(
        self, group_id: str, partitions: Sequence[tuple[bytes, int]]
    ) -> list[ShareOffset]:
        """Return the positions of a group in partitions of existing topics, in the same order."""
        turns = self._runtime.turns
        rows = await turns.run(each_in_steps(lambda each: ReadState(*each, -1), partitions))
        summaries = await self._ask(READ_SUMMARY, group_id, rows)
        topics = self._image().topics_by_id
        asked: set[TopicPartition] = set()
        for number, row in enumerate(summaries):
            if number and not number % ROWS_AT_ONCE:
                await turns.pause()
            if _has_lag(row) and row.topic_id in topics:
                asked.add(TopicPartition(topics[row.topic_id].name, row.partition))
        ends = await self._latest_offsets(asked) if asked else {}
        found = []
        for number, row in enumerate(summaries):
            if number and not number % ROWS_AT_ONCE:
                await turns.pause()
            topic = topics.get(row.topic_id)
            end = None
            if topic is not None and _has_lag(row):
                end = ends[TopicPartition(topic.name, row.partition)]
            found.append(_offset(row, end))
        return found

    def alter_offsets(
        self, request: AlterShareGroupOffsetsRequest, account: Hashable = NOBODY
    ) -> AlterShareGroupOffsetsResponse | Awaitable[AlterShareGroupOffsetsResponse]:
        """Alter the offsets of an empty group; an unknown group is created."""
        _, shard = self._groups.find(request.group_id)
        if isinstance(shard, ErrorCode):
            return AlterShareGroupOffsetsResponse(error_code=shard, error_message=sentence(shard))
        return self._alter(request, account)

    async def _alter(
        self, request: AlterShareGroupOffsetsRequest, account: Hashable
    ) -> AlterShareGroupOffsetsResponse:
        group_id = request.group_id
        assert group_id is not None
        work = asked_starts(request, self._image())
        response, topics, starts = await self._runtime.turns.run(work)
        partition, shard = self._groups.find(group_id)
        if isinstance(shard, ErrorCode):
            return AlterShareGroupOffsetsResponse(error_code=shard, error_message=sentence(shard))
        begun = self._runtime.run(
            partition,
            lambda shard, token, now_ms: shard.share.alter_offsets(
                group_id, topics, account, token, now_ms
            ),
        )
        alteration = await begun if isinstance(begun, Awaitable) else begun
        if alteration.error is not ErrorCode.NONE:
            return AlterShareGroupOffsetsResponse(
                error_code=alteration.error, error_message=alteration.message
            )
        if not starts:
            return response
        rows = await self._runtime.turns.run(
            each_in_steps(
                lambda each: InitializeState(*each[0], alteration.state_epoch, each[1]),
                starts.items(),
            )
        )
        outcomes = await self._ask(INITIALIZE_STATE, group_id, rows)
        failed = {
            (row.topic_id, row.partition): row
            for row in outcomes
            if row.error_code is not ErrorCode.NONE
        }
        if failed:
            await self._runtime.turns.run(_with_failures(response, failed))
            return response
        error = self._runtime.shard(partition)
        if not isinstance(error, ErrorCode):
            # Later requests see the new offsets.
            made = self._runtime.run(
                partition,
                lambda shard, token, now_ms: shard.share.states_made(
                    group_id, outcomes, now_ms, token
                ),
            )
            error = await made if isinstance(made, Awaitable) else made
        if error is not ErrorCode.NONE:
            # The group does not know of these states: it would have others made in their place.
            return AlterShareGroupOffsetsResponse(error_code=error, error_message=sentence(error))
        return response

    async def delete_offsets(self, group_id: str, names: Sequence[str]) -> OffsetsDeleted:
        """Delete the offsets of an empty group in topics.

        Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, those of find.
        """
        partition, shard = self._groups.find(group_id)
        if isinstance(shard, ErrorCode):
            return OffsetsDeleted(shard, sentence(shard))
        answer = self._runtime.run(
            partition,
            lambda shard, token, now_ms: shard.share.begin_deleting_offsets(
                group_id, names, token, now_ms
            ),
        )
        deletion = await answer if isinstance(answer, Awaitable) else answer
        if deletion.error is not ErrorCode.NONE:
            return OffsetsDeleted(deletion.error, deletion.message)
        topics = await self._runtime.turns.run(
            each_in_steps(
                lambda each: (each[0], bytes(16), each[1], each[2] or sentence(each[1])),
                deletion.refused,
            )
        )
        errors = await self._delete_states(group_id, deletion.rows)
        known = self._image().topics_by_id
        gone = []
        for topic_id, error in errors.items():
            name = known[topic_id].name if topic_id in known else ""
            if error is ErrorCode.NONE:
                gone.append((name, topic_id, error, None))
            else:
                topics.append((name, topic_id, error, sentence(error)))
        if gone:
            refusal = await self._forget_states(partition, group_id, [each[1] for each in gone])
            if refusal is not ErrorCode.NONE:
                return OffsetsDeleted(refusal, sentence(refusal))
        return OffsetsDeleted(ErrorCode.NONE, None, (*gone, *topics))

    async def _delete_states(
        self, group_id: str, rows: Sequence[StatePartition]
    ) -> dict[bytes, ErrorCode]:
        """Delete states; return the first error of each topic."""
        outcomes = await self._ask(DELETE_STATE, group_id, rows)
        errors: dict[bytes, ErrorCode] = {}
        for row in outcomes:
            errors[row.topic_id] = errors.get(row.topic_id, ErrorCode.NONE) or row.error_code
        return errors

    async def _forget_states(
        self, partition: int, group_id: str, topic_ids: Collection[bytes]
    ) -> ErrorCode:
        if isinstance(shard := self._runtime.shard(partition), ErrorCode):
            return shard
        answer = self._runtime.run(
            partition,
            lambda shard, token, now_ms: shard.share.offsets_deleted(
                group_id, topic_ids, token, now_ms
            ),
        )
        return await answer if isinstance(answer, Awaitable) else answer

    # Groups

    async def delete_group(self, partition: int, group_id: str) -> ErrorCode:
        """Delete the states of a group without members, then the group.

        Errors: NON_EMPTY_GROUP, those of the persister.
        """
        begun = self._runtime.run(
            partition,
            lambda shard, token, now_ms: shard.share.begin_deleting_group(group_id, token, now_ms),
        )
        deletion = await begun if isinstance(begun, Awaitable) else begun
        if deletion.error is not ErrorCode.NONE:
            return deletion.error
        errors = await self._delete_states(group_id, deletion.rows)
        for error in errors.values():
            if error is not ErrorCode.NONE:
                return error
        if isinstance(shard := self._runtime.shard(partition), ErrorCode):
            return shard
        answer = self._runtime.run(
            partition, lambda shard, token, now_ms: shard.delete_group(group_id, token, now_ms)
        )
        return await answer if isinstance(answer, Awaitable) else answer

    def topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        """Forget topics in all share groups, in turns."""
        self._runtime.turns.start(self._forget_topics(frozenset(topic_ids)), DELETED)

    def _forget_topics(self, topic_ids: frozenset[bytes]) -> Steps[None]:
        for partition, shard in self._runtime.active():
            for group_id, group in list(shard.groups.items()):
                yield
                if self._runtime.shard(partition) is not shard:
                    break
                if group.kind == "share":
                    self._runtime.start(
                        partition,
                        lambda shard, now_ms, group_id=group_id: shard.share.topics_deleted(  # type: ignore[misc]
                            group_id, topic_ids, now_ms
                        ),
                    )


def _has_lag(row: StateSummary) -> bool:
    """Whether the lag of a group in a partition is known."""
    return (
        row.error_code is ErrorCode.NONE
        and row.start_offset != UNINITIALIZED_START_OFFSET
        and row.delivery_complete_count != UNINITIALIZED_DELIVERY_COMPLETE_COUNT
    )


def _offset(row: StateSummary, end: int | ErrorCode | None) -> ShareOffset:
    """The position of a group in a partition with that end; an error of a share coordinator counts as unknown."""
    if row.error_code is not ErrorCode.NONE:
        return ShareOffset(row.topic_id, row.partition)
    if end is None:
        return ShareOffset(row.topic_id, row.partition, row.start_offset, row.leader_epoch)
    if isinstance(end, ErrorCode):
        return ShareOffset(row.topic_id, row.partition, 0, error=end)
    lag = end - row.start_offset - row.delivery_complete_count
    # A group may have been reset to any number, and Java's subtraction also wraps around.
    lag = (lag + 2**63) % 2**64 - 2**63
    return ShareOffset(row.topic_id, row.partition, row.start_offset, row.leader_epoch, lag)


def asked_starts(
    request: AlterShareGroupOffsetsRequest, image: MetadataImage
) -> Steps[
    tuple[
        AlterShareGroupOffsetsResponse,
        dict[bytes, NamedPartitions],
        dict[tuple[bytes, int], int],
    ]
]:
    """The answer for the case of success, the partitions whose offsets are altered, and their new start offsets.

    Shape: a partition that is named twice is answered twice; the last request counts.
    """
    response = AlterShareGroupOffsetsResponse()
    named: dict[bytes, NamedPartitions] = {}
    starts: dict[tuple[bytes, int], int] = {}
    for asked in request.topics:
        yield
        topic = image.topics.get(asked.topic_name)
        count = 0 if topic is None else len(topic.partitions)
        answered = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        known: set[int] = set()
        for row in asked.partitions:
            yield
            number = row.partition_index
            error = ErrorCode.NONE if 0 <= number < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answered.partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=number,
                    error_code=error,
                    error_message=sentence(error),
                )
            )
            if topic is not None and error is ErrorCode.NONE:
                known.add(number)
                starts[topic.topic_id, number] = row.start_offset
        if topic is not None:
            answered.topic_id = topic.topic_id
            named[topic.topic_id] = NamedPartitions(asked.topic_name, frozenset(known))
        response.responses.append(answered)
    return response, named, starts


def _with_failures(
    response: AlterShareGroupOffsetsResponse,
    failed: Mapping[tuple[bytes, int], StateOutcome],
) -> Steps[None]:
    """The answer with the partitions whose offsets could not be altered."""
    for topic in response.responses:
        for row in topic.partitions:
            yield
            outcome = failed.get((topic.topic_id, row.partition_index))
            if outcome is not None and row.error_code == ErrorCode.NONE:
                row.error_code = outcome.error_code
                row.error_message = outcome.error_message
