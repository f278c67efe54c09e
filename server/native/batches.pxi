# The headers of record batches.

cdef enum:
    # kwire/records/layout.py
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CODEC_MASK = 0x07
    DELETE_HORIZON = 0x40
    USUAL_ATTRIBUTES = 0x17  # all but UNUSUAL_ATTRIBUTES of server/log/validator.py
    # INLINE_WALK_BYTES of server/log/validator.py
    INLINE_WALK_BYTES = 8 << 20


cdef int64_t FAR = <int64_t>1 << 61


cdef struct Header:
    int64_t base_offset, base_timestamp, max_timestamp, producer_id
    Py_ssize_t size
    uint32_t crc
    int32_t delta, sequence, count
    int attributes
    int16_t producer_epoch
    bint was_read  # compressed records are not


cdef bint read_header(const uint8_t* p, Py_ssize_t left, Header* header) noexcept nogil:
    """Read the header of a batch of magic 2; false if so many bytes are not a whole one. Mirrors kwire/records/batch.py."""
    if left < HEADER_SIZE or p[16] != 2:
        return False
    header.base_offset, header.size = big_endian(p, 8), big_endian(p + 8, 4) + LOG_OVERHEAD
    header.crc, header.attributes = big_endian(p + 17, 4), big_endian(p + 21, 2)
    header.delta, header.base_timestamp = big_endian(p + 23, 4), big_endian(p + 27, 8)
    header.max_timestamp, header.producer_id = big_endian(p + 35, 8), big_endian(p + 43, 8)
    header.producer_epoch, header.sequence, header.count = big_endian(p + 51, 2), big_endian(p + 53, 4), big_endian(p + 57, 4)
    return HEADER_SIZE <= header.size <= left


cdef bint plain_header(
    const uint8_t* p, Py_ssize_t size, int64_t now_ms, int64_t before_ms, int64_t after_ms, Py_ssize_t max_bytes,
    bint reads, bint needs_keys, Header* header
) noexcept nogil:
    """Check a client's batch of magic 2, but for its CRC and whether the topic takes its codec; false if it is not plain.

    Mirrors `check_header` and, if it `reads`, `reads_as_stated` for CreateTime, both in server/log/validator.py.
    """
    cdef int64_t base, latest
    cdef Walk found
    if size > max_bytes or not read_header(p, size, header) or header.size != size:
        return False
    base, latest = header.base_timestamp, header.max_timestamp
    if header.attributes & ~USUAL_ATTRIBUTES or header.base_offset:
        return False
    if header.count <= 0 or header.count - 1 != header.delta or base > latest or base < now_ms - before_ms:
        return False
    if after_ms < INT64_MAX - now_ms and latest > now_ms + after_ms:
        return False
    header.was_read = reads and not header.attributes & CODEC_MASK
    if header.was_read:
        if size - HEADER_SIZE > INLINE_WALK_BYTES or not walk(p + HEADER_SIZE, p + size, header.count, &found):
            return False
        if not found.consecutive or (needs_keys and found.keyless):
            return False
        # Far timestamps would overflow.
        if not -FAR < base < FAR or not -FAR < found.earliest <= found.latest < FAR:
            return False
        if base + found.latest != latest or latest < 0 or base + found.earliest < now_ms - before_ms:
            return False
    return True


def check_batch(batch, int64_t now_ms, int64_t before_ms, int64_t after_ms, Py_ssize_t max_bytes, bint reads, bint needs_keys):
    """See `plain_header`.

    Shape: (crc, attributes, last offset delta, base timestamp, largest timestamp, producer id, producer epoch, sequence,
    whether its records were read, which compressed ones are not); None if it is not plain.
    """
    cdef Py_buffer view
    cdef Header h
    cdef bint is_plain
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    is_plain = plain_header(<const uint8_t*>view.buf, view.len, now_ms, before_ms, after_ms, max_bytes, reads, needs_keys, &h)
    PyBuffer_Release(&view)
    if not is_plain:
        return None
    return (
        h.crc, h.attributes, h.delta, h.base_timestamp, h.max_timestamp, h.producer_id, h.producer_epoch, h.sequence,
        h.was_read,
    )
