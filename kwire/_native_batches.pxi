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
