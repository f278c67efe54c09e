"""The state of a group or a transactional id in the coordinators' topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kwire.codec import decode
from kwire.errors import RecordError, WireError
from kwire.messages.internal.group_metadata import GroupMetadataValue
from kwire.records.batch import RecordBatch

from ..coordinator.group.records import GroupRecord, OffsetRecord
from ..coordinator.group.stored import decode_record as decode_group_record
from ..coordinator.transaction.records import decode_record as decode_transaction_record
from ..coordinator.transaction.state import TransactionMetadata
from .facts import GroupMember

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


class GroupReading:
    """The latest stored state of a group.

    Shape: `committed` and `committed_ms` are by (topic, partition). `generation` is None until the group's own record
    was seen.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self.seen = False
        self.generation: int | None = None
        self.leader: str | None = None
        self.assignor: str | None = None
        self.members: dict[str, Any] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.committed_ms: dict[tuple[str, int], int] = {}

    def feed(self, batch: RecordBatch) -> None:
        """Process a batch of __consumer_offsets. Errors: RecordError."""
        if batch.is_control:
            return
        for record in batch.records():
            try:
                stored = decode_group_record(record.key or b"", record.value)
            except (RecordError, WireError, ValueError):
                continue
            if stored is None or stored.group_id != self._group:
                continue
            self.seen = True
            if isinstance(stored, OffsetRecord):
                self._commit(stored)
            elif isinstance(stored, GroupRecord):
                self._generation(stored)

    def _commit(self, stored: OffsetRecord) -> None:
        tp = (stored.tp.topic, stored.tp.partition)
        if stored.value is None:
            self.committed.pop(tp, None)
            self.committed_ms.pop(tp, None)
        else:
            self.committed[tp] = stored.value.offset
            self.committed_ms[tp] = stored.value.commit_timestamp_ms

    def _generation(self, stored: GroupRecord) -> None:
        self.members = {}
        self.generation = self.leader = self.assignor = None
        if stored.value is None:
            return
        version = int.from_bytes(stored.value[:2], "big")
        message = decode(GroupMetadataValue, stored.value, version, 2)
        self.generation = message.generation
        self.leader = message.leader
        self.assignor = message.protocol
        self.members = {each.member_id: each for each in message.members}

    def completed(self, member: GroupMember) -> GroupMember:
        """A member, completed with its stored timeouts."""
        stored = self.members.get(member.member_id)
        if stored is None:
            return member
        return replace(
            member,
            session_timeout_ms=stored.session_timeout,
            rebalance_timeout_ms=stored.rebalance_timeout,
        )


class TransactionReading:
    """The latest stored state of each transactional id."""

    def __init__(self) -> None:
        self.by_id: dict[str, TransactionMetadata] = {}

    def feed(self, batch: RecordBatch) -> None:
        """Process a batch of __transaction_state. Errors: RecordError."""
        if batch.is_control:
            return
        for record in batch.records():
            try:
                stored = decode_transaction_record(record.key or b"", record.value)
            except (RecordError, WireError):
                continue
            if stored is None:
                continue
            if stored.value is None:
                self.by_id.pop(stored.transactional_id, None)
            else:
                self.by_id[stored.transactional_id] = stored.value
