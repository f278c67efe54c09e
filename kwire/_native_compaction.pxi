# What compaction needs of records.

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
