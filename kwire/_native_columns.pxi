# Columns of records, for Spark.

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
    cdef Py_buffer views[4]
    cdef int held = 0
    try:
        for each in (data, starts, ends, into):
            PyObject_GetBuffer(each, &views[held], PyBUF_WRITABLE if held == 3 else PyBUF_SIMPLE)
            held += 1
        if views[2].len != views[1].len or views[3].len != 7 * views[1].len:
            return False
        return fill_fields(
            <const uint8_t*>views[0].buf, views[0].len, <const int64_t*>views[1].buf, <const int64_t*>views[2].buf,
            views[1].len // 8, <int64_t*>views[3].buf,
        )
    finally:
        while held:
            held -= 1
            PyBuffer_Release(&views[held])


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
