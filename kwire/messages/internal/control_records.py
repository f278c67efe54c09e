"""Keys and values of control records."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String, UInt16, Uuid


@message(kind="data", versions="0")
class ControlRecordTypeSchema:
    """The key of a control record, which gives its type. Source: ControlRecordTypeSchema.json."""

    type: int = field(Int16)


@message(kind="data", versions="0")
class EndTxnMarker:
    """The value of a control record that commits or aborts a transaction.

    Source: EndTxnMarker.json.
    """

    coordinator_epoch: int = field(Int32)


@message(kind="data", versions="0", flexible="0+")
class KRaftVersionRecord:
    """The control record that finalizes the KRaft protocol's version. KIP-853.

    Source: KRaftVersionRecord.json.
    """

    version: int = field(Int16)
    k_raft_version: int = field(Int16)


@struct
class LeaderChangeMessageVoter:
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid, "1+")


@message(kind="data", versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """The control record with which a new KRaft leader begins its epoch. KIP-595.

    Source: LeaderChangeMessage.json.
    """

    version: int = field(Int16)
    leader_id: int = field(Int32)
    voters: list[LeaderChangeMessageVoter] = field(Array(LeaderChangeMessageVoter))
    granting_voters: list[LeaderChangeMessageVoter] = field(Array(LeaderChangeMessageVoter))


@message(kind="data", versions="0", flexible="0+")
class SnapshotFooterRecord:
    """The control record that ends a snapshot. KIP-630. Source: SnapshotFooterRecord.json."""

    version: int = field(Int16)


@message(kind="data", versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """The control record that begins a snapshot. KIP-630. Source: SnapshotHeaderRecord.json."""

    version: int = field(Int16)
    last_contained_log_timestamp: int = field(Int64)


@struct
class Endpoint:
    name: str = field(String)
    host: str = field(String)
    port: int = field(UInt16)


@struct
class KRaftVersionFeature:
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


@struct
class VotersRecordVoter:
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)
    endpoints: list[Endpoint] = field(Array(Endpoint))
    k_raft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


@message(kind="data", versions="0", flexible="0+")
class VotersRecord:
    """The control record that states the set of voters. KIP-853. Source: VotersRecord.json."""

    version: int = field(Int16)
    voters: list[VotersRecordVoter] = field(Array(VotersRecordVoter))
