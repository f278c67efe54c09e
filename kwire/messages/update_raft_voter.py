"""UpdateRaftVoter (API key 82): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String, UInt16, Uuid


@struct
class Listener:
    name: str = field(String)
    host: str = field(String)
    port: int = field(UInt16)


@struct
class KRaftVersionFeature:
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


@message(api_key=ApiKey.UPDATE_RAFT_VOTER, kind="request", versions="0", flexible="0+")
class UpdateRaftVoterRequest:
    """Updates endpoints and versions of a KRaft voter.

    Source: UpdateRaftVoterRequest.json; KIP-853.
    """

    cluster_id: str | None = field(String, nullable="0+")
    current_leader_epoch: int = field(Int32)
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)
    listeners: list[Listener] = field(Array(Listener))
    k_raft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


@struct
class CurrentLeader:
    leader_id: int = field(Int32, default=-1)
    leader_epoch: int = field(Int32, default=-1)
    host: str = field(String)
    port: int = field(Int32)


@message(api_key=ApiKey.UPDATE_RAFT_VOTER, kind="response", versions="0", flexible="0+")
class UpdateRaftVoterResponse:
    """Whether the voter was updated. Source: UpdateRaftVoterResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    current_leader: CurrentLeader | None = field(CurrentLeader, tag=0)
