"""All records of a group coordinator in __consumer_offsets, as values and as bytes.

Those of classic groups and offsets are in records.py, those of consumer groups in consumer/records.py, those of share
groups in share/records.py. The other keys belong to protocols that kwire does not have; readers skip them.
"""

from __future__ import annotations

from kwire.messages.internal import decode_key, keys

from .consumer.records import FORMS as CONSUMER_FORMS
from .consumer.records import ConsumerGroupRecord, encode_consumer_group_record
from .records import (
    CLASSIC_KEYS,
    ClassicRecord,
    GroupRecord,
    OffsetRecord,
    decode_classic_record,
    encode_classic_record,
)
from .share.records import FORMS as SHARE_FORMS
from .share.records import ShareGroupRecord

GroupCoordinatorRecord = ClassicRecord | ConsumerGroupRecord | ShareGroupRecord

_KEYS = keys((*CLASSIC_KEYS, *CONSUMER_FORMS.keys, *SHARE_FORMS.keys))
_DECODERS = {
    **dict.fromkeys(CLASSIC_KEYS, decode_classic_record),
    **dict.fromkeys(CONSUMER_FORMS.keys, CONSUMER_FORMS.decode),
    **dict.fromkeys(SHARE_FORMS.keys, SHARE_FORMS.decode),
}


def encode_record(record: GroupCoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record."""
    if isinstance(record, OffsetRecord | GroupRecord):
        return encode_classic_record(record)
    if isinstance(record, ShareGroupRecord):
        return SHARE_FORMS.encode(record)
    return encode_consumer_group_record(record)


def decode_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> GroupCoordinatorRecord | None:
    """Decode a stored record; None for a key of another protocol.

    Errors: WireError if the bytes do not match their version.
    """
    decoded = decode_key(key, _KEYS)
    if decoded is None:
        return None
    record: GroupCoordinatorRecord = _DECODERS[type(decoded)](decoded, value)
    return record
