"""The known facts about a record, a group or a transactional id, before the rules are applied.

None means that a fact is not known, unless the field says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A transaction that is open in a partition.

    Shape: `producer_id` to `last_write_ms` come from the partition; the other fields come from the coordinator, None if
    it was not found. `hanging` is true if the coordinator knows no such transaction.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_write_ms: int | None = None
    transactional_id: str | None = None
    state: str | None = None
    start_ms: int | None = None
    timeout_ms: int | None = None
    hanging: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """A copy of the partition. Shape: `log_end` is the offset after its last record."""

    broker: int
    log_end: int | None
    in_sync: bool


@dataclass(frozen=True, slots=True)
class Marker:
    """The control record that ended a producer's transaction. Shape: `kind` is COMMIT or ABORT."""

    offset: int
    kind: str
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """The content of the log at an offset.

    Shape: `control` is the kind of a control record, None for data. `marker` is the one that ended the record's
    transaction; None if it is not transactional, or if none was found.
    """

    timestamp_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    transactional: bool = False
    control: str | None = None
    key_size: int = -1
    value_size: int = -1
    marker: Marker | None = None

    @property
    def is_tombstone(self) -> bool:
        """Whether this deletes its key in a compacted topic."""
        return self.value_size < 0 and self.key_size >= 0


@dataclass(frozen=True, slots=True)
class LaterRecord:
    """A record with the same key at a later offset."""

    offset: int
    is_tombstone: bool


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """The known facts about an offset in a partition.

    Shape: `problem` names the reason that the partition cannot be read (NO_TOPIC, NO_PARTITION, NO_LEADER,
    NOT_AUTHORIZED, CORRUPT), None if there is no problem. `high_watermark` and `last_stable` are the first offset that
    is not committed, not stable. `stored` is None if the log has no record at the offset; then `gap` is the range
    without records around it, both inclusive. `start_inside` says whether the log begins inside a batch or a segment,
    which only DeleteRecords causes.
    """

    topic: str
    partition: int
    offset: int
    now_ms: int
    problem: str | None = None
    problem_text: str = ""
    partitions: int | None = None
    leader: int | None = None
    replicas: tuple[Replica, ...] = ()
    log_start: int = 0
    high_watermark: int = 0
    last_stable: int = 0
    log_end: int | None = None
    start_inside: bool | None = None
    cleanup_policy: str | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    delete_retention_ms: int | None = None
    open_transactions: tuple[PendingTransaction, ...] = ()
    stored: StoredRecord | None = None
    gap: tuple[int, int] | None = None
    later: LaterRecord | None = None
    scanned_to: int | None = None
    """The end of the search for a later record or a marker, if it did not reach the end of the log."""

    @property
    def name(self) -> str:
        """The partition's name in Kafka."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    Shape: `partitions` are the assigned (topic, partition), `subscribed` are the topics of its subscription.
    """

    member_id: str
    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    partitions: tuple[tuple[str, int], ...] = ()
    subscribed: tuple[str, ...] = ()
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    epoch: int | None = None
    target: tuple[tuple[str, int], ...] | None = None
    """With the consumer protocol (KIP-848): the member's target assignment."""


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's state in a partition.

    Shape: `committed` is -1 if the group has no offset there. `readable` says whether a reader with read_committed
    finds any record between `committed` and `last_stable`; `markers` is the number of offsets from `committed` on if all
    of them are markers of transactions, else 0. For a share group, `committed` is its start offset, and
    `unacknowledged` is the number of offsets from there on that are not acknowledged.
    """

    topic: str
    partition: int
    committed: int = -1
    committed_ms: int | None = None
    metadata: str = ""
    leader: bool = True
    log_start: int | None = None
    end: int | None = None
    last_stable: int | None = None
    readable: bool | None = None
    markers: int = 0
    open_transactions: tuple[PendingTransaction, ...] = ()
    unacknowledged: int | None = None

    @property
    def note(self) -> str | None:
        """What a lag of this number means, if it is not that of records to be read."""
        lag = self.lag
        if lag is None or self.unacknowledged is not None:
            return None
        if lag < 0:
            return "beyond the end of the log"
        if 0 < lag == self.markers:
            return "only a transaction marker" if lag == 1 else "only transaction markers"
        return None

    @property
    def lag(self) -> int | None:
        """The number of remaining offsets; None if it is not known, or if there is no offset.

        Shape: negative if the group's offset is beyond the end of the log.
        """
        if self.unacknowledged is not None:
            return self.unacknowledged
        if self.end is None or self.committed < 0:
            return None
        return self.end - self.committed


def total_lag(lags: Iterable[int | None]) -> int | None:
    """The sum of the known lags; None if none is known.

    Shape: an offset beyond the end of its partition does not make up for a lag in another, so negative lags count only
    if there are no others.
    """
    known = [lag for lag in lags if lag is not None]
    if not known:
        return None
    return sum(lag for lag in known if lag > 0) or sum(known)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The known facts about a group.

    Shape: `problem` names the reason that the coordinator cannot answer, None if there is no problem; `state` is
    Kafka's name, `kind` the group's type: classic, consumer or share. `rejoined` are ids of members that have joined
    the current rebalance.
    """

    group: str
    now_ms: int
    problem: str | None = None
    problem_text: str = ""
    state: str = "Stable"
    kind: str = "classic"
    generation: int | None = None
    leader: str | None = None
    assignor: str | None = None
    coordinator: int | None = None
    members: tuple[GroupMember, ...] = ()
    rejoined: frozenset[str] | None = None
    partitions: tuple[GroupPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionFacts:
    """The known facts about a transactional id.

    Shape: `partitions` are those that take part in the transaction; in the states PrepareCommit and PrepareAbort, those
    that still lack the marker. `holds_back` are partitions in which it is open, with its first offset there and the
    number of committed offsets after that.
    """

    transactional_id: str
    now_ms: int
    problem: str | None = None
    problem_text: str = ""
    state: str = "Empty"
    producer_id: int = -1
    producer_epoch: int = -1
    start_ms: int | None = None
    timeout_ms: int | None = None
    last_update_ms: int | None = None
    coordinator: int | None = None
    partitions: tuple[tuple[str, int], ...] = ()
    without_leader: tuple[tuple[str, int], ...] = ()
    holds_back: tuple[tuple[str, int, int, int], ...] = field(default=())
