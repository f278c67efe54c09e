"""Contents of small files next to the log."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String, UInt32, Uuid


@struct
class ProducerEntry:
    producer_id: int = field(Int64)
    epoch: int = field(Int16)
    last_sequence: int = field(Int32)
    last_offset: int = field(Int64)
    offset_delta: int = field(Int32)
    timestamp: int = field(Int64)
    coordinator_epoch: int = field(Int32)
    current_txn_first_offset: int = field(Int64)


@message(kind="data", versions="1")
class ProducerSnapshot:
    """The state of all producers of a partition, as in a .snapshot file after its int16 version.

    Source: ProducerSnapshot.json.
    """

    crc: int = field(UInt32)
    producer_entries: list[ProducerEntry] = field(Array(ProducerEntry))


@struct
class Voter:
    voter_id: int = field(Int32)


@message(kind="data", versions="0-1", flexible="0+")
class QuorumStateData:
    """The state of a quorum member, as in the file quorum-state. Source: QuorumStateData.json."""

    cluster_id: str = field(String, "0")
    leader_id: int = field(Int32, default=-1)
    leader_epoch: int = field(Int32, default=-1)
    voted_id: int = field(Int32, default=-1)
    voted_directory_id: bytes = field(Uuid, "1+")
    applied_offset: int = field(Int64, "0")
    current_voters: list[Voter] | None = field(Array(Voter), "0", nullable="0")
