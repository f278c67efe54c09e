"""Records of __cluster_metadata about ACLs, tokens and credentials (KRaft)."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Bytes, Float64, Int8, Int32, Int64, String, Uuid


@message(kind="metadata", api_key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    """A delegation token was created or renewed. Source: DelegationTokenRecord.json."""

    owner: str = field(String)
    requester: str = field(String)
    renewers: list[str] = field(Array(String))
    issue_timestamp: int = field(Int64)
    max_timestamp: int = field(Int64)
    expiration_timestamp: int = field(Int64)
    token_id: str = field(String)


@message(kind="metadata", api_key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    """A user's SCRAM credential was set. Source: UserScramCredentialRecord.json."""

    name: str = field(String)
    mechanism: int = field(Int8)
    salt: bytes = field(Bytes)
    stored_key: bytes = field(Bytes)
    server_key: bytes = field(Bytes)
    iterations: int = field(Int32)


@struct
class EntityData:
    entity_type: str = field(String)
    entity_name: str | None = field(String, nullable="0+")


@message(kind="metadata", api_key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    """A quota of an entity was set or removed. Source: ClientQuotaRecord.json."""

    entity: list[EntityData] = field(Array(EntityData))
    key: str = field(String)
    value: float = field(Float64)
    remove: bool = field(Bool)


@message(kind="metadata", api_key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An ACL was added. Source: AccessControlEntryRecord.json."""

    id: bytes = field(Uuid)
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


@message(kind="metadata", api_key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """An ACL was removed. Source: RemoveAccessControlEntryRecord.json."""

    id: bytes = field(Uuid)


@message(kind="metadata", api_key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """A user's SCRAM credential was removed. Source: RemoveUserScramCredentialRecord.json."""

    name: str = field(String)
    mechanism: int = field(Int8)


@message(kind="metadata", api_key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """A delegation token was removed. Source: RemoveDelegationTokenRecord.json."""

    token_id: str = field(String)
