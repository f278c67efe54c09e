"""ListGroups (API key 16): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, String


@message(api_key=ApiKey.LIST_GROUPS, kind="request", versions="0-5", flexible="3+")
class ListGroupsRequest:
    """Asks for all groups that this broker coordinates.

    Source: ListGroupsRequest.json; KIP-518 (v4 states), KIP-848 (v5 types).
    """

    states_filter: list[str] = field(Array(String), "4+")
    types_filter: list[str] = field(Array(String), "5+")


@struct
class ListedGroup:
    group_id: str = field(String)
    protocol_type: str = field(String)
    group_state: str = field(String, "4+", ignorable=True)
    group_type: str = field(String, "5+", ignorable=True)


@message(api_key=ApiKey.LIST_GROUPS, kind="response", versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups, with state and type. Source: ListGroupsResponse.json."""

    throttle_time_ms: int = field(Int32, "1+", ignorable=True)
    error_code: int = field(Int16)
    groups: list[ListedGroup] = field(Array(ListedGroup))
