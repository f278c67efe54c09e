"""AddRaftVoter (API key 80): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, String, UInt16, Uuid


@struct
class Listener:
    name: str = field(String)
    host: str = field(String)
    port: int = field(UInt16)


@message(api_key=ApiKey.ADD_RAFT_VOTER, kind="request", versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    """Adds a voter to the KRaft quorum.

    Source: AddRaftVoterRequest.json; KIP-853.
    """

    cluster_id: str | None = field(String, nullable="0+")
    timeout_ms: int = field(Int32)
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)
    listeners: list[Listener] = field(Array(Listener))
    ack_when_committed: bool = field(Bool, "1+", default=True)


@message(api_key=ApiKey.ADD_RAFT_VOTER, kind="response", versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    """Whether the voter was added. Source: AddRaftVoterResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", ignorable=True)
