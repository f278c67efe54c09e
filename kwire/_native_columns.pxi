# All records of a body, and their columns.

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


def read_fields(data, bodies, into):
    """Read the records of some bodies, one after the other, and return True; False if anything is unusual.

    Shape: arrays of int64. `bodies` has three numbers for each body: where it begins and ends, and how many records it has.
    Into `into` go, one row of all records after the other: timestamp and offset deltas, positions and lengths (-1: null) of
    keys and values, positions of the numbers of headers, ends. Mirrors `append_record_ends` and `read_fields` of
    pipeline/segments/decode.py.
    """
    cdef Py_buffer views[3]
    cdef int held = 0
    try:
        for each in (data, bodies, into):
            PyObject_GetBuffer(each, &views[held], PyBUF_WRITABLE if held == 2 else PyBUF_SIMPLE)
            held += 1
        return fill_fields(
            <const uint8_t*>views[0].buf, views[0].len, <const int64_t*>views[1].buf, views[1].len // 24,
            <int64_t*>views[2].buf, views[2].len // 64,
        )
    finally:
        while held:
            held -= 1
            PyBuffer_Release(&views[held])


cdef bint fill_fields(
    const uint8_t* data, Py_ssize_t size, const int64_t* body, Py_ssize_t bodies, int64_t* into, Py_ssize_t total
) noexcept nogil:
    cdef Record record
    cdef const uint8_t* p
    cdef int64_t left
    cdef Py_ssize_t number = 0
    while bodies:
        if not 0 <= body[0] <= body[1] <= size or not 0 <= body[2] <= total - number:
            return False
        p = data + body[0]
        for left in range(body[2]):
            if not read_record(&p, data + body[1], &record):
                return False
            into[number] = record.timestamp_delta
            into[number + total] = record.offset_delta
            into[number + 2 * total] = record.key - data
            into[number + 3 * total] = max(record.key_size, -1)
            into[number + 4 * total] = record.value - data
            into[number + 5 * total] = max(record.value_size, -1)
            into[number + 6 * total] = record.value + max(record.value_size, 0) - data
            into[number + 7 * total] = p - data
            number += 1
        if p != data + body[1]:
            return False
        body += 3
        bodies -= 1
    return number == total
