"""RemoveRaftVoter (API key 81): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message
from kwire.types import Int16, Int32, String, Uuid


@message(api_key=ApiKey.REMOVE_RAFT_VOTER, kind="request", versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    """Removes a voter from the KRaft quorum.

    Source: RemoveRaftVoterRequest.json; KIP-853.
    """

    cluster_id: str | None = field(String, nullable="0+")
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)


@message(api_key=ApiKey.REMOVE_RAFT_VOTER, kind="response", versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    """Whether the voter was removed. Source: RemoveRaftVoterResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", ignorable=True)
