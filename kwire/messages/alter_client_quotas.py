"""AlterClientQuotas (API key 49): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Float64, Int16, Int32, String


@struct
class EntityData:
    entity_type: str = field(String)
    entity_name: str | None = field(String, nullable="0+")


@struct
class OpData:
    key: str = field(String)
    value: float = field(Float64)
    remove: bool = field(Bool)


@struct
class AlterClientQuotasRequestEntryData:
    entity: list[EntityData] = field(Array(EntityData))
    ops: list[OpData] = field(Array(OpData))


@message(api_key=ApiKey.ALTER_CLIENT_QUOTAS, kind="request", versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Sets or removes quotas of entities.

    Source: AlterClientQuotasRequest.json; KIP-546.
    """

    entries: list[AlterClientQuotasRequestEntryData] = field(
        Array(AlterClientQuotasRequestEntryData)
    )
    validate_only: bool = field(Bool)


@struct
class AlterClientQuotasResponseEntryData:
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    entity: list[EntityData] = field(Array(EntityData))


@message(api_key=ApiKey.ALTER_CLIENT_QUOTAS, kind="response", versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """The outcome for each entity. Source: AlterClientQuotasResponse.json."""

    throttle_time_ms: int = field(Int32)
    entries: list[AlterClientQuotasResponseEntryData] = field(
        Array(AlterClientQuotasResponseEntryData)
    )
