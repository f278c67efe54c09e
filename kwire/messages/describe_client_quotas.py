"""DescribeClientQuotas (API key 48): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Float64, Int8, Int16, Int32, String


@struct
class ComponentData:
    entity_type: str = field(String)
    match_type: int = field(Int8)
    match: str | None = field(String, nullable="0+")


@message(api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, kind="request", versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """Asks for the quotas of entities that match a filter.

    Source: DescribeClientQuotasRequest.json; KIP-546.
    """

    components: list[ComponentData] = field(Array(ComponentData))
    strict: bool = field(Bool)


@struct
class EntityData:
    entity_type: str = field(String)
    entity_name: str | None = field(String, nullable="0+")


@struct
class ValueData:
    key: str = field(String)
    value: float = field(Float64)


@struct
class EntryData:
    entity: list[EntityData] = field(Array(EntityData))
    values: list[ValueData] = field(Array(ValueData))


@message(api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, kind="response", versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The quotas of each entity. Source: DescribeClientQuotasResponse.json."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    entries: list[EntryData] | None = field(Array(EntryData), nullable="0+")
