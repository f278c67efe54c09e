"""Keys and values of classic groups in __consumer_offsets."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Bytes, Int32, Int64, String


@message(kind="coordinator-key", key_type=2, versions="0")
class GroupMetadataKey:
    """Names the classic group of a GroupMetadataValue. Source: GroupMetadataKey.json."""

    group: str = field(String)


@struct
class MemberMetadata:
    member_id: str = field(String)
    group_instance_id: str | None = field(String, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field(String)
    client_host: str = field(String)
    rebalance_timeout: int = field(Int32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(Int32)
    subscription: bytes = field(Bytes)
    assignment: bytes = field(Bytes)


@message(kind="coordinator-value", key_type=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A classic group's generation and members. Source: GroupMetadataValue.json."""

    protocol_type: str = field(String)
    generation: int = field(Int32)
    protocol: str | None = field(String, nullable="0+")
    leader: str | None = field(String, nullable="0+")
    # -1 where unknown.
    current_state_timestamp: int = field(Int64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(Array(MemberMetadata))
