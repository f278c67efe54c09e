# Records of magic 2 bodies.

cdef enum:
    MIN_RECORD_SIZE = 7  # of kwire/records/record.py


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
