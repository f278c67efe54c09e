# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""What the hot path does most, without the interpreter; optional, and equal to what Python does without it.

Python is the reference. Each function names the Python function that it mirrors, does only the plain case of it, and
returns None, with nothing done, for everything else: the Python function then does it, or says what is wrong. Bytes of
clients are read through pointers, each step within bounds that are checked before it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport getenv
from libc.string cimport memcpy

cdef extern from *:
    """
    #ifndef KWIRE_SOURCE
    #define KWIRE_SOURCE ""
    #endif
    """
    const char* KWIRE_SOURCE

if getenv("KWIRE_PURE") != NULL and getenv("KWIRE_PURE")[0] == c"1":
    raise ImportError("switched off by KWIRE_PURE=1")

#: The hash of the source that this was built from; see setup.py.
SOURCE = KWIRE_SOURCE.decode()


cdef enum:
    MIN_RECORD_SIZE = 7  # of kwire/records/record.py


# -- integers of variable length: read_varint and read_varlong of kwire/records/record.py

cdef inline bint read_varint(const uint8_t** at, const uint8_t* end, int32_t* value) noexcept nogil:
    """Read a zig-zag integer of at most 32 bits, and go behind it; false where the bytes end, or it does not."""
    cdef const uint8_t* p = at[0]
    cdef uint32_t raw = 0
    cdef uint8_t byte
    cdef int shift = 0
    while p < end and shift <= 28:
        byte = p[0]
        raw |= (<uint32_t>(byte & 0x7F)) << shift
        p += 1
        if byte < 0x80:
            value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            at[0] = p
            return True
        shift += 7
    return False


cdef inline bint read_varlong(const uint8_t** at, const uint8_t* end, int64_t* value) noexcept nogil:
    """As `read_varint`, of at most 64 bits."""
    cdef const uint8_t* p = at[0]
    cdef uint64_t raw = 0
    cdef uint8_t byte
    cdef int shift = 0
    while p < end and shift <= 63:
        byte = p[0]
        raw |= (<uint64_t>(byte & 0x7F)) << shift
        p += 1
        if byte < 0x80:
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            at[0] = p
            return True
        shift += 7
    return False


cdef inline bint skip(const uint8_t** at, const uint8_t* end, int32_t size) noexcept nogil:
    """Go behind so many bytes, none if negative; false where there are fewer."""
    if size > 0:
        if size > end - at[0]:
            return False
        at[0] += size
    return True


# -- records

cdef struct Record:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size  # negative: null
    int32_t value_size
    const uint8_t* key
    const uint8_t* value


cdef inline bint read_record(const uint8_t** at, const uint8_t* body_end, Record* record) noexcept nogil:
    """Read the record at a place in a body, and go behind it; false if its lengths do not fit together."""
    cdef const uint8_t* p = at[0]
    cdef const uint8_t* end
    cdef int32_t size, headers
    if not read_varint(&p, body_end, &size) or size < MIN_RECORD_SIZE - 1 or size > body_end - p:
        return False
    end = p + size
    p += 1  # attributes
    if not read_varlong(&p, end, &record.timestamp_delta) or not read_varint(&p, end, &record.offset_delta):
        return False
    if not read_varint(&p, end, &record.key_size):
        return False
    record.key = p
    if not skip(&p, end, record.key_size) or not read_varint(&p, end, &record.value_size):
        return False
    record.value = p
    if not skip(&p, end, record.value_size) or not read_varint(&p, end, &headers):
        return False
    if headers < 0 or <int64_t>headers * 2 > end - p:
        return False
    while headers:
        headers -= 1
        if not read_varint(&p, end, &size) or size < 0 or not skip(&p, end, size):
            return False
        if not read_varint(&p, end, &size) or not skip(&p, end, size):
            return False
    at[0] = p
    return p == end


cdef struct Walk:
    int64_t earliest  # timestamp deltas
    int64_t latest
    int index_of_latest
    bint consecutive  # offset deltas are 0, 1, 2, ...
    bint keyless  # any key is null


cdef bint walk(const uint8_t* p, const uint8_t* end, int count, Walk* found) noexcept nogil:
    """Look at all records of a body; false if anything is wrong. Mirrors `_scan` of kwire/records/validation.py."""
    cdef Record record
    cdef int index
    found[0] = Walk(0, 0, -1, True, False)
    if count < 0 or <int64_t>count * MIN_RECORD_SIZE > end - p:
        return False
    for index in range(count):
        if not read_record(&p, end, &record):
            return False
        if record.timestamp_delta > found.latest or index == 0:
            found.latest = record.timestamp_delta
            found.index_of_latest = index
            if index == 0:
                found.earliest = found.latest
        elif record.timestamp_delta < found.earliest:
            found.earliest = record.timestamp_delta
        if record.offset_delta != index:
            found.consecutive = False
        if record.key_size < 0:
            found.keyless = True
    return p == end


def walk_records(body, int count):
    """Look at all records of a decompressed magic 2 body.

    Shape: (earliest timestamp delta, latest, its index, whether offset deltas are 0, 1, 2, ..., whether any key is null);
    None if anything is wrong.
    """
    cdef Py_buffer view
    cdef Walk found
    cdef bint is_sound
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    is_sound = walk(<const uint8_t*>view.buf, <const uint8_t*>view.buf + view.len, count, &found)
    PyBuffer_Release(&view)
    if not is_sound:
        return None
    return found.earliest, found.latest, found.index_of_latest, found.consecutive, found.keyless


# -- batches

cdef enum:
    # kwire/records/layout.py
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CODEC_MASK = 0x07
    USUAL_ATTRIBUTES = 0x17  # all but UNUSUAL_ATTRIBUTES of server/log/validator.py
    # INLINE_WALK_BYTES of server/log/validator.py
    INLINE_WALK_BYTES = 8 << 20


cdef int64_t FAR = <int64_t>1 << 61


cdef inline int64_t big_endian(const uint8_t* p, int size) noexcept nogil:
    """The signed integer of so many bytes, 2, 4 or 8."""
    cdef uint64_t value = 0
    cdef int each
    for each in range(size):
        value = value << 8 | p[each]
    if size == 2:
        return <int16_t>value
    if size == 4:
        return <int32_t>value
    return <int64_t>value


def check_batch(
    records, int64_t now_ms, int64_t before_ms, int64_t after_ms, Py_ssize_t max_bytes, bint reads, bint needs_keys
):
    """Check a client's batch of magic 2, but for its CRC and whether the topic takes its codec.

    Shape: (crc, attributes, last offset delta, base timestamp, largest timestamp, producer id, producer epoch, sequence,
    whether its records were read, which compressed ones are not); None if it is not plain. Mirrors `check_header` and, if it
    `reads`, `reads_as_stated` for CreateTime, both in server/log/validator.py.
    """
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef int64_t count, delta, base, latest
    cdef int attributes
    cdef bint was_read = False
    cdef Walk found
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*>view.buf
        if view.len < HEADER_SIZE or view.len > max_bytes or big_endian(p + 8, 4) + LOG_OVERHEAD != view.len:
            return None
        attributes = <int>big_endian(p + 21, 2)
        delta = big_endian(p + 23, 4)
        base = big_endian(p + 27, 8)
        latest = big_endian(p + 35, 8)
        count = big_endian(p + 57, 4)
        if p[16] != 2 or attributes & ~USUAL_ATTRIBUTES or big_endian(p, 8) or count != delta + 1 or count <= 0:
            return None
        if base > latest or base < now_ms - before_ms:
            return None
        if after_ms < INT64_MAX - now_ms and latest > now_ms + after_ms:
            return None
        if reads and not attributes & CODEC_MASK:
            if view.len - HEADER_SIZE > INLINE_WALK_BYTES:
                return None
            if not walk(p + HEADER_SIZE, p + view.len, <int>count, &found):
                return None
            if not found.consecutive or (needs_keys and found.keyless):
                return None
            # Far timestamps would overflow.
            if not -FAR < base < FAR or not -FAR < found.earliest <= found.latest < FAR:
                return None
            if base + found.latest != latest or latest < 0 or base + found.earliest < now_ms - before_ms:
                return None
            was_read = True
        return (
            <uint32_t>big_endian(p + 17, 4), attributes, delta, base, latest, big_endian(p + 43, 8),
            big_endian(p + 51, 2), big_endian(p + 53, 4), was_read,
        )
    finally:
        PyBuffer_Release(&view)


# -- compaction

def record_heads(bytes body, int count, int last_offset_delta):
    """The ends, keys and offset deltas of the records of a magic 2 body, and the numbers of those without a value.

    Shape: None if anything is unusual. Mirrors `record_heads` of server/log/cleaner/record_spans.py.
    """
    cdef Record record
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(body)
    cdef const uint8_t* p = start
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(body)
    cdef int number, previous = -1
    if count < 0 or <int64_t>count * MIN_RECORD_SIZE > end - start:
        return None
    ends, keys, deltas, nulls = [], [], [], []
    for number in range(count):
        if not read_record(&p, end, &record) or not previous < record.offset_delta <= last_offset_delta:
            return None
        previous = record.offset_delta
        ends.append(p - start)
        keys.append(
            None if record.key_size < 0
            else PyBytes_FromStringAndSize(<const char*>record.key, record.key_size)
        )
        deltas.append(previous)
        if record.value_size < 0:
            nulls.append(number)
    if p != end:
        return None
    return ends, keys, deltas, nulls


def copy_records(bytes body, list numbers):
    """Copy the records with these ascending numbers out of a magic 2 body, whose other records are skipped.

    Shape: (their bytes, their largest timestamp delta); None if anything is unusual, if there are none, or if one has no
    value. Mirrors `some_records` of server/log/cleaner/record_spans.py, and what `_without_others` does with its result.
    """
    cdef Record record
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(body)
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(body)
    cdef const uint8_t* p
    cdef const uint8_t* before
    cdef uint8_t* into = NULL
    cdef int64_t latest = 0
    cdef int64_t wanted
    cdef Py_ssize_t number, size = 0, each
    cdef int32_t length
    copied = None
    # Once to find out how many bytes they are, and once to copy them.
    while True:
        p = start
        number = 0
        for each in range(len(numbers)):
            wanted = numbers[each]
            if wanted < number:
                return None
            while number < wanted:
                if not read_varint(&p, end, &length) or length < MIN_RECORD_SIZE - 1 or length > end - p:
                    return None
                p += length
                number += 1
            before = p
            if not read_record(&p, end, &record) or record.value_size < 0:
                return None
            number += 1
            if into == NULL:
                size += p - before
                if each == 0 or record.timestamp_delta > latest:
                    latest = record.timestamp_delta
            else:
                memcpy(into, before, p - before)
                into += p - before
        if size == 0:
            return None
        if copied is not None:
            return copied, latest
        copied = PyBytes_FromStringAndSize(NULL, size)
        into = <uint8_t*>PyBytes_AS_STRING(copied)


# -- columns of records

def append_record_ends(data, Py_ssize_t at, Py_ssize_t end, int count, list ends):
    """Append the end positions of the `count` records between `at` and `end`, and return True.

    Shape: False, with nothing appended, if their lengths do not lead from `at` to `end`. Mirrors `append_record_ends` of
    pipeline/segments/decode.py.
    """
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef const uint8_t* p
    cdef const uint8_t* stop
    cdef int32_t size
    found = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= view.len:
            return False
        start = <const uint8_t*>view.buf
        p = start + at
        stop = start + end
        while count > 0:
            count -= 1
            if not read_varint(&p, stop, &size) or size < MIN_RECORD_SIZE - 1 or size > stop - p:
                return False
            p += size
            found.append(p - start)
        if p != stop:
            return False
    finally:
        PyBuffer_Release(&view)
    ends.extend(found)
    return True


def read_fields(data, starts, ends, into):
    """Read the records that lie between starts and ends, and return True; False if anything is unusual.

    Shape: all but data are arrays of int64. Into `into` go, one row of all records after the other: timestamp and offset
    deltas, positions and lengths (-1: null) of keys and values, positions of the numbers of headers. Mirrors `read_fields`
    of pipeline/segments/decode.py.
    """
    cdef Py_buffer data_view, starts_view, ends_view, into_view
    PyObject_GetBuffer(data, &data_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(starts, &starts_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(ends, &ends_view, PyBUF_SIMPLE)
            try:
                PyObject_GetBuffer(into, &into_view, PyBUF_WRITABLE)
                try:
                    if ends_view.len != starts_view.len or into_view.len != 7 * starts_view.len:
                        return False
                    return fill_fields(
                        <const uint8_t*>data_view.buf, data_view.len, <const int64_t*>starts_view.buf,
                        <const int64_t*>ends_view.buf, starts_view.len // 8, <int64_t*>into_view.buf,
                    )
                finally:
                    PyBuffer_Release(&into_view)
            finally:
                PyBuffer_Release(&ends_view)
        finally:
            PyBuffer_Release(&starts_view)
    finally:
        PyBuffer_Release(&data_view)


cdef bint fill_fields(
    const uint8_t* data, Py_ssize_t size, const int64_t* starts, const int64_t* ends, Py_ssize_t count, int64_t* into
) noexcept nogil:
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef int64_t timestamp
    cdef int32_t value
    cdef Py_ssize_t number
    for number in range(count):
        if not 0 <= starts[number] <= ends[number] - MIN_RECORD_SIZE or ends[number] > size:
            return False
        p = data + starts[number]
        end = data + ends[number]
        if not read_varint(&p, end, &value) or value < 0 or p >= end:
            return False
        p += 1  # attributes
        if not read_varlong(&p, end, &timestamp) or not read_varint(&p, end, &value):
            return False
        into[number] = timestamp
        into[number + count] = value
        if not read_varint(&p, end, &value):
            return False
        into[number + 2 * count] = p - data
        into[number + 3 * count] = value if value >= 0 else -1
        if not skip(&p, end, value) or not read_varint(&p, end, &value):
            return False
        into[number + 4 * count] = p - data
        into[number + 5 * count] = value if value >= 0 else -1
        if not skip(&p, end, value) or p >= end or (p[0] == 0 and p + 1 != end):
            return False
        into[number + 6 * count] = p - data
    return True
