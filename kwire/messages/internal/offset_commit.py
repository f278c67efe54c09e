"""Keys and values of committed offsets in __consumer_offsets."""

from __future__ import annotations

from kwire.schema import field, message
from kwire.types import Int32, Int64, String, Uuid


@message(kind="coordinator-key", key_type=0, versions="0")
class LegacyOffsetCommitKey:
    """Names the partition of an offset, in the oldest format.

    Source: LegacyOffsetCommitKey.json.
    """

    group: str = field(String)
    topic: str = field(String)
    partition: int = field(Int32)


@message(kind="coordinator-value", key_type=0, versions="0")
class LegacyOffsetCommitValue:
    """A committed offset, in the oldest format. Source: LegacyOffsetCommitValue.json."""

    offset: int = field(Int64)
    metadata: str = field(String)
    commit_timestamp: int = field(Int64)


@message(kind="coordinator-key", key_type=1, versions="0")
class OffsetCommitKey:
    """Names group and partition of a committed offset. Source: OffsetCommitKey.json."""

    group: str = field(String)
    topic: str = field(String)
    partition: int = field(Int32)


@message(kind="coordinator-value", key_type=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset. Source: OffsetCommitValue.json."""

    offset: int = field(Int64)
    leader_epoch: int = field(Int32, "3+", default=-1, ignorable=True)
    metadata: str = field(String)
    commit_timestamp: int = field(Int64)
    # Only in v1; later versions use the broker's retention.
    expire_timestamp: int = field(Int64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(Uuid, "4+", tag=0, ignorable=True)
