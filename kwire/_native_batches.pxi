# The headers of record batches.

cdef enum:
    # kwire/records/layout.py
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CODEC_MASK = 0x07
    USUAL_ATTRIBUTES = 0x17  # all but UNUSUAL_ATTRIBUTES of server/log/validator.py
    # INLINE_WALK_BYTES of server/log/validator.py
    INLINE_WALK_BYTES = 8 << 20


cdef int64_t FAR = <int64_t>1 << 61


cdef struct Header:
    uint32_t crc
    int attributes
    int32_t delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t sequence
    bint was_read  # compressed records are not


cdef bint plain_header(
    const uint8_t* p, Py_ssize_t size, int64_t now_ms, int64_t before_ms, int64_t after_ms, Py_ssize_t max_bytes,
    bint reads, bint needs_keys, Header* header
) noexcept nogil:
    """Check a client's batch of magic 2, but for its CRC and whether the topic takes its codec; false if it is not plain.

    Mirrors `check_header` and, if it `reads`, `reads_as_stated` for CreateTime, both in server/log/validator.py.
    """
    cdef int64_t count, delta, base, latest
    cdef Walk found
    if size < HEADER_SIZE or size > max_bytes or big_endian(p + 8, 4) + LOG_OVERHEAD != size:
        return False
    header.attributes = <int>big_endian(p + 21, 2)
    delta = big_endian(p + 23, 4)
    base = big_endian(p + 27, 8)
    latest = big_endian(p + 35, 8)
    count = big_endian(p + 57, 4)
    if p[16] != 2 or header.attributes & ~USUAL_ATTRIBUTES or big_endian(p, 8) or count != delta + 1 or count <= 0:
        return False
    if base > latest or base < now_ms - before_ms:
        return False
    if after_ms < INT64_MAX - now_ms and latest > now_ms + after_ms:
        return False
    header.was_read = reads and not header.attributes & CODEC_MASK
    if header.was_read:
        if size - HEADER_SIZE > INLINE_WALK_BYTES:
            return False
        if not walk(p + HEADER_SIZE, p + size, <int>count, &found):
            return False
        if not found.consecutive or (needs_keys and found.keyless):
            return False
        # Far timestamps would overflow.
        if not -FAR < base < FAR or not -FAR < found.earliest <= found.latest < FAR:
            return False
        if base + found.latest != latest or latest < 0 or base + found.earliest < now_ms - before_ms:
            return False
    header.crc = <uint32_t>big_endian(p + 17, 4)
    header.delta = <int32_t>delta
    header.base_timestamp = base
    header.max_timestamp = latest
    header.producer_id = big_endian(p + 43, 8)
    header.producer_epoch = <int16_t>big_endian(p + 51, 2)
    header.sequence = <int32_t>big_endian(p + 53, 4)
    return True


def check_batch(
    records, int64_t now_ms, int64_t before_ms, int64_t after_ms, Py_ssize_t max_bytes, bint reads, bint needs_keys
):
    """See `plain_header`.

    Shape: (crc, attributes, last offset delta, base timestamp, largest timestamp, producer id, producer epoch, sequence,
    whether its records were read, which compressed ones are not); None if it is not plain.
    """
    cdef Py_buffer view
    cdef Header h
    cdef bint is_plain
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    is_plain = plain_header(
        <const uint8_t*>view.buf, view.len, now_ms, before_ms, after_ms, max_bytes, reads, needs_keys, &h
    )
    PyBuffer_Release(&view)
    if not is_plain:
        return None
    return (
        h.crc, h.attributes, h.delta, h.base_timestamp, h.max_timestamp, h.producer_id, h.producer_epoch, h.sequence,
        h.was_read,
    )
