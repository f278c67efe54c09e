"""The share partitions of a group that have a state at their share coordinators, and those that are to get or lose one.

A partition is assigned only if it has a state. Partitions of newly subscribed topics, and new partitions of known
topics, are first recorded as initializing. Then the persister is asked, and its answer is recorded.
Source: GroupMetadataManager.subscribedTopicsChangeMap, addInitializingTopicsRecords, initializeShareGroupState,
uninitializeShareGroupState, shareGroupBuildPartitionDeleteRequest, sharePartitionsEligibleForOffsetDeletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kwire.errors import ErrorCode

from ....metadata.image import MetadataImage
from ...share_state.rows import InitializeState, StatePartition
from ..modern.context import GroupContext
from ..modern.draft import Draft
from .group import ShareGroup, topics_bytes
from .records import NamedPartitions, StatePartitions, StatePartitionsRecord

Topics = Mapping[bytes, NamedPartitions]

UNKNOWN_NAME = "<UNKNOWN>"

NO_STATES = StatePartitions()


class InitializeStates(NamedTuple):
    """The effect that share coordinators initialize partitions."""

    group_id: str
    rows: list[InitializeState]
    owner: object = None


class Deletion(NamedTuple):
    """The request to the share coordinators before offsets, or a whole group, are deleted.

    Shape: `refused` maps topics whose states are kept to the error, with a message or None for the usual one.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    rows: tuple[StatePartition, ...] = ()
    refused: tuple[tuple[str, ErrorCode, str | None], ...] = ()


def write_states(
    context: GroupContext,
    group: ShareGroup,
    initializing: Topics,
    initialized: Topics,
    deleting: Iterable[bytes],
    draft: Draft,
) -> None:
    """Store which share partitions have a state."""
    named = {topic_id: _name(context.image, topic_id) for topic_id in deleting}
    states = StatePartitions(initializing, initialized, named)
    draft.records.append(StatePartitionsRecord(group.group_id, states))


def _name(image: MetadataImage, topic_id: bytes) -> str:
    topic = image.topics_by_id.get(topic_id)
    return UNKNOWN_NAME if topic is None else topic.name


def missing_states(context: GroupContext, group: ShareGroup, names: Iterable[str]) -> Topics:
    """The partitions of subscribed topics that have no state, and for which none was requested recently."""
    states = group.states or NO_STATES
    if names is group.topics and group.complete_version == context.image.version:
        return {}
    interval_ms = max(
        context.config.share_initialize_retry_interval_ms, context.config.offsets_commit_timeout_ms
    )
    asked = states.initializing if context.now_ms - group.states_ms < interval_ms else {}
    missing = {}
    for name in names:
        topic = context.image.topics.get(name)
        if topic is None:
            continue
        known = _partitions(states.initialized, topic.topic_id)
        if len(known) >= len(topic.partitions):
            continue
        known |= _partitions(asked, topic.topic_id)
        if not known or len(known) < len(topic.partitions):
            all_partitions = frozenset(range(len(topic.partitions)))
            missing[topic.topic_id] = NamedPartitions(name, all_partitions - known)
    if names is group.topics and not missing and not states.initializing:
        group.complete_version = context.image.version
    return missing


def _partitions(topics: Topics, topic_id: bytes) -> frozenset[int]:
    found = topics.get(topic_id)
    return frozenset() if found is None else found.partitions


def ask_for_states(
    context: GroupContext, group: ShareGroup, group_epoch: int, missing: Topics, draft: Draft
) -> None:
    """Record that states are being initialized, and request them."""
    if not missing:
        return
    note_initializing(context, group, missing, draft)
    rows = [
        InitializeState(topic_id, number, group_epoch)
        for topic_id, (_, partitions) in missing.items()
        for number in sorted(partitions)
    ]
    draft.effects.append(InitializeStates(group.group_id, rows))


def refuses_states(
    context: GroupContext, group: ShareGroup, topics: Topics, more: int = 0
) -> ErrorCode:
    """The error if there is no memory to note that partitions have a state, and for `more` other bytes; or NONE.

    Errors: those of GroupMemory.refuses_members.
    """
    known = group.initialized
    new = {
        topic_id: NamedPartitions(name, partitions - _partitions(known, topic_id))
        for topic_id, (name, partitions) in topics.items()
    }
    more += topics_bytes(new)
    return context.memory.refuses_members(context.config, group.client, group.held_bytes, more)


def note_initializing(
    context: GroupContext, group: ShareGroup, topics: Topics, draft: Draft
) -> None:
    """Record that states are being initialized; cancels the deletion of these states."""
    if not topics:
        return
    states = group.states or NO_STATES
    initializing = combined(states.initializing, topics)
    deleting = [topic_id for topic_id in states.deleting if topic_id not in initializing]
    write_states(context, group, initializing, states.initialized, deleting, draft)


def combined(first: Topics, second: Topics) -> dict[bytes, NamedPartitions]:
    """The union of both, with the names of the second."""
    return {
        **first,
        **{
            topic_id: NamedPartitions(name, partitions | _partitions(first, topic_id))
            for topic_id, (name, partitions) in second.items()
        },
    }


def without(topics: Topics, gone: Mapping[bytes, Collection[int]]) -> dict[bytes, NamedPartitions]:
    """The partitions that remain."""
    left = {}
    for topic_id, (name, partitions) in topics.items():
        if topic_id not in gone:
            left[topic_id] = NamedPartitions(name, partitions)
        elif rest := partitions.difference(gone[topic_id]):
            left[topic_id] = NamedPartitions(name, rest)
    return left


def initialized(
    context: GroupContext,
    group: ShareGroup,
    partitions: Mapping[bytes, Collection[int]],
    draft: Draft,
) -> None:
    """Record that partitions have a state now."""
    states = group.states or NO_STATES
    made = {
        topic_id: NamedPartitions(_name(context.image, topic_id), frozenset(some))
        for topic_id, some in partitions.items()
    }
    write_states(
        context,
        group,
        without(states.initializing, partitions),
        combined(states.initialized, made),
        states.deleting,
        draft,
    )


def not_initialized(
    context: GroupContext,
    group: ShareGroup,
    partitions: Mapping[bytes, Collection[int]],
    draft: Draft,
) -> None:
    """Record that partitions have no state after all; the next heartbeat requests them again."""
    states = group.states
    if states is None or not states.initializing or not partitions:
        return
    left = without(states.initializing, partitions)
    write_states(context, group, left, states.initialized, states.deleting, draft)


def begin_deletion(context: GroupContext, group: ShareGroup, draft: Draft) -> Deletion:
    """Record that all states of a group are being deleted, and return them."""
    states = group.states
    if states is None:
        return Deletion()
    again = {
        topic_id: NamedPartitions(topic.name, frozenset(range(len(topic.partitions))))
        for topic_id in states.deleting
        if (topic := context.image.topics_by_id.get(topic_id)) is not None
    }
    gone = combined(combined(states.initialized, states.initializing), again)
    deleting = {topic_id: name for topic_id, (name, _) in gone.items()}
    states = StatePartitions(deleting=deleting)
    draft.records.append(StatePartitionsRecord(group.group_id, states))
    return Deletion(rows=_rows(gone))


def begin_deletion_of_topics(
    context: GroupContext, group: ShareGroup, names: Iterable[str], draft: Draft
) -> Deletion:
    """Record that the states of some topics are being deleted, and return them."""
    states = group.states
    if states is None:
        return Deletion()
    kept = dict(states.initialized)
    deleting = set(states.deleting)
    gone: dict[bytes, NamedPartitions] = {}
    refused: list[tuple[str, ErrorCode, str | None]] = []
    for name in names:
        topic = context.image.topics.get(name)
        if topic is None:
            refused.append((name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
        elif topic.topic_id in kept:
            gone[topic.topic_id] = kept.pop(topic.topic_id)
            deleting.add(topic.topic_id)
        elif topic.topic_id in deleting:
            all_partitions = frozenset(range(len(topic.partitions)))
            gone[topic.topic_id] = NamedPartitions(name, all_partitions)
        else:
            why = "There is no offset information to delete."
            refused.append((name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why))
    write_states(context, group, states.initializing, kept, deleting, draft)
    return Deletion(rows=_rows(gone), refused=tuple(refused))


def _rows(topics: Topics) -> tuple[StatePartition, ...]:
    return tuple(
        StatePartition(topic_id, number)
        for topic_id, (_, partitions) in topics.items()
        for number in sorted(partitions)
    )


def deleted(
    context: GroupContext, group: ShareGroup, topic_ids: Collection[bytes], draft: Draft
) -> None:
    """Record that the states of topics have been deleted."""
    states = group.states
    if states is None:
        return
    gone = frozenset(topic_ids)
    left = [topic_id for topic_id in states.deleting if topic_id not in gone]
    write_states(context, group, states.initializing, states.initialized, left, draft)


def forget_topics(
    context: GroupContext, group: ShareGroup, topic_ids: Collection[bytes], draft: Draft
) -> None:
    """Forget deleted topics; the share coordinators delete their states themselves."""
    states = group.states
    if states is None or not any(topic_id in topics for topics in states for topic_id in topic_ids):
        return
    write_states(
        context,
        group,
        {each: value for each, value in states.initializing.items() if each not in topic_ids},
        {each: value for each, value in states.initialized.items() if each not in topic_ids},
        [each for each in states.deleting if each not in topic_ids],
        draft,
    )
