"""The permitted content of a Produce request by version, judged by the batch header alone.

Source: ProduceRequest.validateRecords, and MemoryRecords for records that are not a batch.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from kwire.errors import CorruptRecord, ErrorCode
from kwire.records.batch import iter_batch_headers

from ..log.validator import AppendError

if TYPE_CHECKING:
    from kwire.types import RecordsBytes

#: Batch length, magic and attributes of a batch, even if the rest of it is wrong.
_FORM = Struct(">8xi4xb4xh").unpack_from
_LENGTH = Struct(">8xi").unpack_from
_LOG_OVERHEAD = 12
_HEADER_SIZE = 61
_MAGIC_AT = 16
_MIN_BATCH_LENGTH = 14
_CODEC_MASK = 0x07
_TRANSACTIONAL = 0x10
_ZSTD = 4
_ZSTD_OR_TRANSACTIONAL = _ZSTD | _TRANSACTIONAL

#: The form is right; the batch is part of a transaction, which must be verified.
TRANSACTIONAL = AppendError(ErrorCode.NONE)
OLD_MAGIC = (
    "Produce requests with version %d are only allowed to contain record batches with magic "
    "version 2, not %d"
)
NO_BATCH = "Produce requests with version %d must have exactly one record batch per partition"


def check_form(records: RecordsBytes, version: int) -> AppendError | None:
    """Check the form that the request's version prescribes; the log checks the content.

    Shape: below version 3 records may be empty, and nothing is appended.
    """
    if version < 3:
        if records is None:
            return AppendError(ErrorCode.INVALID_RECORD, NO_BATCH % version)
        return TRANSACTIONAL if _has_transactional(records) else None
    size = len(records) if records is not None else 0
    if size < _HEADER_SIZE:
        if size <= _MAGIC_AT or records[_MAGIC_AT] == 2:
            return AppendError(ErrorCode.INVALID_RECORD, NO_BATCH % version)
        return AppendError(ErrorCode.INVALID_RECORD, OLD_MAGIC % (version, records[_MAGIC_AT]))
    length, magic, attributes = _FORM(records)
    if magic != 2 or length + 12 != size:
        return _misshapen(records, version, length, magic, attributes)
    if attributes & _ZSTD_OR_TRANSACTIONAL:
        if version < 7 and attributes & _CODEC_MASK == _ZSTD:
            return _no_zstd(version)
        if attributes & _TRANSACTIONAL:
            return TRANSACTIONAL
    return None


def first_batch(records: RecordsBytes | None) -> AppendError | None:
    """TRANSACTIONAL if records begin with such a batch, CORRUPT_MESSAGE if they begin with no batch, else None.

    Source: RequestUtils.hasTransactionalRecords, ByteBufferLogInputStream.nextBatch.
    """
    size = len(records) if records is not None else 0
    if size < _LOG_OVERHEAD:
        return None
    assert records is not None
    (length,) = _LENGTH(records)
    if length < _MIN_BATCH_LENGTH:
        return _corrupt(
            f"Record size {length} is less than the minimum record overhead ({_MIN_BATCH_LENGTH})"
        )
    if size <= _MAGIC_AT:
        return None
    magic = records[_MAGIC_AT]
    if magic > 2:
        return _corrupt(f"Invalid magic found in record: {magic}")
    if magic < 2 or size < max(length + _LOG_OVERHEAD, _HEADER_SIZE):
        return None
    return TRANSACTIONAL if _FORM(records)[2] & _TRANSACTIONAL else None


def _corrupt(message: str) -> AppendError:
    return AppendError(ErrorCode.CORRUPT_MESSAGE, message, before_append=True)


def _has_transactional(records: RecordsBytes) -> bool:
    """Whether any batch is transactional, in a request that can name no transactional id."""
    try:
        return any(header.is_transactional for _, header in iter_batch_headers(records))
    except CorruptRecord:
        return False  # the log reports the error


def _no_zstd(version: int) -> AppendError:
    return AppendError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"Produce requests with version {version} are not allowed to use ZStandard compression",
    )


def _misshapen(
    records: RecordsBytes, version: int, length: int, magic: int, attributes: int
) -> AppendError:
    """The error for records that are not one batch of magic 2 from end to end."""
    if length < _MIN_BATCH_LENGTH or not 0 <= magic <= 2:
        return AppendError(ErrorCode.CORRUPT_MESSAGE)  # first_batch gives the message
    if magic < 2:
        return AppendError(ErrorCode.INVALID_RECORD, OLD_MAGIC % (version, magic))
    end = length + _LOG_OVERHEAD
    if end > len(records):
        return AppendError(ErrorCode.INVALID_RECORD, NO_BATCH % version)
    if version < 7 and attributes & _CODEC_MASK == _ZSTD:
        return _no_zstd(version)
    behind = first_batch(records[end:])
    if behind is not None and behind is not TRANSACTIONAL:
        return AppendError(behind.error, behind.message)
    return AppendError(
        ErrorCode.INVALID_RECORD,
        f"Produce requests with version {version} are only allowed to contain exactly one record "
        "batch per partition",
    )
