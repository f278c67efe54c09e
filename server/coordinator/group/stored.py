"""All records of a group coordinator in __consumer_offsets, as values and as bytes.

Keys 0 to 2 belong to classic groups and offsets (records.py), 3 to 8 and 16 to consumer groups (consumer/records.py),
10 to 15 to share groups (share/records.py). The other keys belong to protocols that kwire does not have; readers skip
them.
"""

from __future__ import annotations

from struct import Struct

from .consumer.records import (
    KEY_TYPES,
    ConsumerGroupRecord,
    decode_consumer_group_record,
    encode_consumer_group_record,
)
from .records import (
    CLASSIC_KEY_TYPES,
    ClassicRecord,
    GroupRecord,
    OffsetRecord,
    decode_classic_record,
    encode_classic_record,
)
from .share.records import (
    KEY_TYPES as SHARE_KEY_TYPES,
)
from .share.records import (
    ShareGroupRecord,
    decode_share_group_record,
    encode_share_group_record,
)

GroupCoordinatorRecord = ClassicRecord | ConsumerGroupRecord | ShareGroupRecord

_INT16 = Struct(">h")


def encode_record(record: GroupCoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record."""
    if isinstance(record, OffsetRecord | GroupRecord):
        return encode_classic_record(record)
    if isinstance(record, ShareGroupRecord):
        return encode_share_group_record(record)
    return encode_consumer_group_record(record)


def decode_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> GroupCoordinatorRecord | None:
    """Decode a stored record; None for a key of another protocol.

    Errors: WireError if the bytes do not match their version.
    """
    (key_type,) = _INT16.unpack_from(key)
    if key_type in CLASSIC_KEY_TYPES:
        return decode_classic_record(key, value)
    if key_type in KEY_TYPES:
        return decode_consumer_group_record(key, value)
    if key_type in SHARE_KEY_TYPES:
        return decode_share_group_record(key, value)
    return None
