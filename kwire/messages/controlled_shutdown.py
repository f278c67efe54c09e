"""ControlledShutdown (API key 7): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Int16, Int32, Int64, String


@message(api_key=ApiKey.CONTROLLED_SHUTDOWN, kind="request", versions="0-3", flexible="3+")
class ControlledShutdownRequest:
    """A broker asks the controller to give its partitions other leaders before it stops.

    Source: ControlledShutdownRequest.json; KIP-380 (v2 broker epoch).
    """

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, "2+", default=-1, ignorable=True)


@struct
class RemainingPartition:
    topic_name: str = field(String)
    partition_index: int = field(Int32)


@message(api_key=ApiKey.CONTROLLED_SHUTDOWN, kind="response", versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    """The partitions that the broker still leads. Source: ControlledShutdownResponse.json."""

    error_code: int = field(Int16)
    remaining_partitions: list[RemainingPartition] = field(Array(RemainingPartition))
