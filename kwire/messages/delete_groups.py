"""DeleteGroups (API key 42): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String


@message(api_key=ApiKey.DELETE_GROUPS, kind="request", versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Deletes groups without members.

    Source: DeleteGroupsRequest.json; KIP-229.
    """

    groups_names: list[str] = field(Array(String))


@struct
class DeletableGroupResult:
    group_id: str = field(String)
    error_code: int = field(Int16)


@message(api_key=ApiKey.DELETE_GROUPS, kind="response", versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """The outcome for each group. Source: DeleteGroupsResponse.json."""

    throttle_time_ms: int = field(Int32)
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult))
