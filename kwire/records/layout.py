"""The layout of a record batch, for every magic: positions of fields, masks, and structs to read them.

Layout of a batch of magic 2 (big-endian; 61 bytes, then the records):

    off size field
      0    8 base_offset
      8    4 batch_length           bytes after this field
     12    4 partition_leader_epoch set by the leader; outside the CRC
     16    1 magic                  2
     17    4 crc                    CRC-32C of everything from `attributes` to the end
     21    2 attributes             bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                    6 delete horizon
     23    4 last_offset_delta
     27    8 base_timestamp         the delete horizon, in ms, where bit 6 is set
     35    8 max_timestamp
     43    8 producer_id            -1: none
     51    2 producer_epoch
     53    4 base_sequence
     57    4 records_count          also right where the body is compressed
     61    . records                one compressed blob if codec is not none

Messages of magic 0 and 1 share the first two fields and the position of the magic byte; their table
is in `legacy.py`. Source: DefaultRecordBatch, LegacyRecord.
"""

from __future__ import annotations

from struct import Struct

BASE_OFFSET_AT = 0
BATCH_LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORDS_COUNT_AT = 57
RECORDS_AT = 61

LOG_OVERHEAD = 12
"""Bytes before the part that batch_length counts."""
HEADER_SIZE_TO_MAGIC = 17
HEADER_SIZE = 61
"""Bytes of a magic 2 header, and so the size of the smallest batch of magic 2."""
LEGACY_CRC_AT = 12
LEGACY_ATTRIBUTES_AT = 17
LEGACY_TIMESTAMP_AT = 18
LEGACY_OVERHEAD = (14, 22)
"""Bytes other than key and value that `size` counts, for magic 0 and magic 1."""
LEGACY_MIN_SIZE = tuple(LOG_OVERHEAD + overhead for overhead in LEGACY_OVERHEAD)
"""Smallest message of magic 0 and of magic 1, with null key and null value."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

HEADER = Struct(">qiibIhiqqqhii")
HEADER_TO_CRC = Struct(">qiibI")
"""The part of the header that its CRC does not cover."""
HEADER_FROM_ATTRIBUTES = Struct(">hiqqqhii")
HEADER_TO_DELTA = Struct(">qiibIhi")
"""The header up to last_offset_delta, which is enough for a search for an offset."""
LEGACY_HEAD = Struct(">qiIbb")
OFFSET_AND_LENGTH = Struct(">qi")
INT64 = Struct(">q")
INT32 = Struct(">i")
