# The plain Fetch of a consumer: its request is read, its partitions are read, and their rows are written.
# server/handlers/fetch_plain.py and server/replication/read.py use these functions, and are what they mirror.

cdef enum:
    # kwire/messages/fetch.py
    SESSIONS_SINCE = 7
    PREFERRED_SINCE = 11
    FETCH_FLEXIBLE_SINCE = 12
    FETCH_IDS_SINCE = 13
    REPLICA_STATE_SINCE = 15
    # server/handlers/fetch.py, fetch_plain.py
    READS_ZSTD_SINCE = 10
    NEWEST_FETCH = 18
    MAX_FETCHED = 255
    JOINED_BYTES = 16 * 1024
    # What a row takes at most besides its records, and a topic besides its name.
    FETCHED_BYTES = 56
    FETCHED_TOPIC_BYTES = 16

cdef bytes NO_ID = bytes(16)


# -- the request

cdef struct Asked:
    int32_t partition, leader_epoch, last_epoch, max_bytes
    int64_t offset, log_start


cdef inline bint read_asked(const uint8_t** at, const uint8_t* end, bint flexible, Asked* asked) noexcept nogil:
    """Read the row of a partition."""
    cdef const uint8_t* p = at[0]
    if end - p < (33 if flexible else 28):
        return False
    asked.partition, asked.leader_epoch = <int32_t>big_endian(p, 4), <int32_t>big_endian(p + 4, 4)
    asked.offset = big_endian(p + 8, 8)
    p += 16
    asked.last_epoch = -1
    if flexible:
        asked.last_epoch = <int32_t>big_endian(p, 4)
        p += 4
    asked.log_start, asked.max_bytes = big_endian(p, 8), <int32_t>big_endian(p + 8, 4)
    p += 12
    if flexible:
        if p[0]:  # tagged fields
            return False
        p += 1
    at[0] = p
    return True


cdef int note_asked(object noted, Asked* asked) except -1:
    """Mirrors what `FetchedPartition` of server/replication/fetch_session.py takes from a request."""
    noted.idle = None
    noted.fetch_offset = asked.offset
    noted.follower_log_start = asked.log_start
    noted.max_bytes = asked.max_bytes
    noted.current_leader_epoch = asked.leader_epoch if asked.leader_epoch >= 0 else -1
    noted.last_fetched_epoch = asked.last_epoch if asked.last_epoch >= 0 else -1
    return 0


def take_fetch(frame, Py_ssize_t at, int version, dict sessions, fetched_partition):
    """Read a consumer's Fetch without a session, or one that changes no more than offsets and limits in its session.

    Shape: `fetched_partition` is the class FetchedPartition. Returns (max_wait_ms, min_bytes, max_bytes, whether it is
    read_committed, partitions, session), with the session's partitions brought up to date, and the session None without one;
    None if the request is not plain. Mirrors decoding, and `FetchSessionCache.context` and `FetchSession.update` of
    server/replication/fetch_session.py.
    """
    cdef Py_buffer view
    cdef const uint8_t* start
    if not READS_ZSTD_SINCE <= version <= NEWEST_FETCH:
        return None
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= view.len:
            return None
        start = <const uint8_t*>view.buf
        return taken(start + at, start + view.len, version, sessions, fetched_partition)
    except UnicodeDecodeError:
        return None
    finally:
        PyBuffer_Release(&view)


cdef taken(const uint8_t* p, const uint8_t* end, int version, dict sessions, fetched_partition):
    cdef bint flexible = version >= FETCH_FLEXIBLE_SINCE, by_id = version >= FETCH_IDS_SINCE
    cdef Asked rows[MAX_FETCHED]
    cdef int64_t topics, left, size
    cdef int count = 0
    cdef int64_t max_wait_ms, min_bytes, max_bytes, session_epoch
    cdef dict partitions
    cdef list known = []
    if end - p < 25:
        return None
    if version < REPLICA_STATE_SINCE:
        if big_endian(p, 4) != -1:
            return None
        p += 4
    max_wait_ms, min_bytes, max_bytes = big_endian(p, 4), big_endian(p + 4, 4), big_endian(p + 8, 4)
    cdef int isolation_level = p[12]
    session_id = big_endian(p + 13, 4)
    session_epoch = big_endian(p + 17, 4)
    p += 21
    session = None
    if isolation_level > 1 or (session_epoch == -1 and session_id) or session_epoch == 0 or session_epoch < -1:
        return None
    if session_epoch > 0:
        session = sessions.get(session_id)
        if session is None or <int64_t>session.epoch != session_epoch or <bint>session.uses_topic_ids != by_id:
            return None
        partitions = session.partitions
        if not partitions:
            return None
        if not flexible:  # it could not be told where histories diverge, if a newer request has asked for that
            for each in partitions.values():
                if <int64_t>each.last_fetched_epoch != -1:
                    return None
    else:
        partitions = {}
    if not read_length(&p, end, flexible, 4, &topics) or not 0 <= topics <= MAX_FETCHED:
        return None
    while topics:
        topics -= 1
        if by_id:
            if end - p < 16:
                return None
            topic, topic_id = "", p[:16]
            p += 16
        else:
            if not read_length(&p, end, flexible, 2, &size) or not 0 <= size <= end - p:
                return None
            topic, topic_id = PyUnicode_DecodeUTF8(<const char*>p, size, NULL), NO_ID
            p += size
        if not read_length(&p, end, flexible, 4, &left) or not 0 <= left <= MAX_FETCHED - count:
            return None
        while left:
            left -= 1
            if not read_asked(&p, end, flexible, &rows[count]):
                return None
            key = (topic, topic_id, rows[count].partition)
            if session is not None:
                noted = partitions.get(key)
                if noted is None:
                    return None
                known.append(noted)
            else:
                noted = fetched_partition.__new__(fetched_partition)
                noted.topic = topic
                noted.topic_id = topic_id
                noted.partition = rows[count].partition
                noted.high_watermark = noted.log_start_offset = -1
                note_asked(noted, &rows[count])
                partitions[key] = noted
            count += 1
        if flexible:
            if p >= end or p[0]:
                return None
            p += 1
    # No forgotten topics, an empty rack, and no tagged fields.
    if not read_length(&p, end, flexible, 4, &size) or size:
        return None
    if version >= PREFERRED_SINCE and (not read_length(&p, end, flexible, 2, &size) or size):
        return None
    if flexible and (p >= end or p[0]):
        return None
    for left in range(len(known)):
        note_asked(known[left], &rows[left])
    return max_wait_ms, min_bytes, max_bytes, isolation_level == 1, partitions, session


# -- reading

def read_partitions(
    dict asked_of, dict partitions, by_id, bint read_committed, bint leader_only, int64_t budget, bint always_one_batch,
    bint may_wait, no_error, result_of,
):
    """Read every partition of a consumer's fetch once, in order, within its limits.

    Shape: `by_id` is None where topics are named; `result_of` makes a ReadResult of its fields. Returns (rows, size, answer_now,
    waiting) as `Reading` has them, without rows if nothing can be read and it `may_wait`; None if anything is unusual, such as
    an error. Mirrors `_read_each` of server/replication/read.py and `Partition.read`.
    """
    cdef int64_t size = 0, offset, end, committed, stable, until, next_offset, limit, length, epoch
    cdef bint answer_now = False, one_batch = True
    cdef list rows = [], waiting = []
    for key, asked in asked_of.items():
        topic = topic_of(asked, by_id)
        partition = partitions.get((topic, asked.partition))
        if partition is None:
            return None
        log = partition.log
        if not is_plain(partition, log, asked, leader_only):
            return None
        offset = next_offset = asked.fetch_offset
        end = log.log_end_offset
        if may_wait:
            if offset != end:  # from the beginning, and with rows
                return read_partitions(
                    asked_of, partitions, by_id, read_committed, leader_only, budget, always_one_batch, False, no_error,
                    result_of,
                )
            waiting.append((partition, offset))
            continue
        committed = log.committed
        producers = log.producers
        stable = log.last_stable_offset if producers.ongoing or producers.unreplicated else committed
        until = stable if read_committed else committed
        limit = min(<int64_t>asked.max_bytes, budget)
        data = b""
        length = 0
        if offset != end:
            if partition.reader is not log or not <int64_t>log.log_start_offset <= offset <= end:
                return None
            found = log.read(offset, limit, until, one_batch)
            if not isinstance(found, tuple):
                return None
            _, data, next_offset, length = found
        aborted = None
        if read_committed:
            if length:
                aborted = log.aborted_transactions(offset, next_offset)
            elif not (limit > 0 and offset < until):
                aborted = []
        if length:
            size += length
            budget = max(0, budget - length)
            one_batch = always_one_batch
        answer_now = answer_now or next_offset < until
        waiting.append((partition, next_offset))
        result = result_of((no_error, committed, stable, log.log_start_offset, data, next_offset, None, aborted, -1))
        rows.append((key, asked, topic, result))
    return rows, size, answer_now, waiting


cdef inline object topic_of(asked, by_id):
    """The name of the topic, by its id where there are ids; "" if that is not known."""
    if by_id is None:
        return asked.topic
    found = by_id.get(asked.topic_id)
    if found is None:
        return ""
    topic = found.name
    asked.topic = topic
    return topic


cdef inline bint is_plain(partition, log, asked, bint leader_only) except -1:
    """Whether what `Partition.read` checks before it reads is as it should be."""
    cdef int64_t epoch = asked.current_leader_epoch
    if epoch != -1 and epoch != <int64_t>partition.state.leader_epoch:
        return False
    if (leader_only and not partition.is_leader) or log.offline:
        return False
    epoch = asked.last_fetched_epoch
    return epoch == -1 or (
        epoch == <int64_t>log.leader_epoch_cache.latest and <int64_t>log.log_end_offset >= <int64_t>asked.fetch_offset
    )


# -- the answer

cdef inline uint8_t* put_next(uint8_t* p, int64_t value, int size) noexcept nogil:
    """Write an integer in so many bytes, and return where it ends."""
    put(p, value, size)
    return p + size


cdef inline uint8_t* put_length(uint8_t* p, uint64_t length, bint compact, int size) noexcept nogil:
    """Write a length of `size` bytes, or a compact one."""
    if not compact:
        return put_next(p, length, size)
    length += 1
    while length > 0x7F:
        p[0] = <uint8_t>(length | 0x80)
        p += 1
        length >>= 7
    p[0] = <uint8_t>length
    return p + 1


def write_rows(int version, list rows):
    """The topics of an answer with these rows, and what observers count of them; None if a row is not plain.

    Mirrors `write_rows` of server/handlers/fetch_plain.py.
    """
    cdef bint flexible = version >= FETCH_FLEXIBLE_SINCE, by_id = version >= FETCH_IDS_SINCE
    cdef Py_ssize_t count = len(rows), number, room, size, total
    cdef int group_of[MAX_FETCHED]
    cdef int counts[MAX_FETCHED]
    cdef int groups = 0, group
    cdef dict known = {}
    cdef list names = [], parts = [], read = []
    cdef bytes name
    cdef uint8_t* start
    cdef uint8_t* p
    if not SESSIONS_SINCE <= version <= NEWEST_FETCH or count > MAX_FETCHED:
        return None
    room = FETCHED_TOPIC_BYTES
    for number in range(count):
        key, _, _, result = rows[number]
        error, _, _, _, data, _, diverging, aborted, _ = result
        if error or diverging is not None or aborted:
            return None
        called = key[1] if by_id else key[0]
        place = known.get(called)
        if place is None:
            place = known[called] = groups
            name = called if by_id else (<str>called).encode()
            if len(name) > MAX_FETCHED - 1:
                return None
            names.append((called, name))
            room += FETCHED_TOPIC_BYTES + len(name)
            counts[groups] = 0
            groups += 1
        group_of[number] = place
        counts[group_of[number]] += 1
        room += FETCHED_BYTES
        if type(data) is bytes and len(data) <= JOINED_BYTES:
            room += len(data)
    scratch = PyBytes_FromStringAndSize(NULL, room)
    start = <uint8_t*>PyBytes_AS_STRING(scratch)
    p = put_length(start, groups, flexible, 4)
    for group in range(groups):
        called, name = names[group]
        if not by_id:
            p = put_length(p, len(name), flexible, 2)
        memcpy(p, PyBytes_AS_STRING(name), len(name))
        p = put_length(p + len(name), counts[group], flexible, 4)
        total = 0
        for number in range(count):
            if group_of[number] != group:
                continue
            _, asked, _, result = rows[number]
            _, high_watermark, stable, log_start, data, _, _, aborted, preferred = result
            size = len(data)
            total += size
            p = put_next(p, asked.partition, 4)
            p = put_next(p, 0, 2)
            p = put_next(p, high_watermark, 8)
            p = put_next(p, stable, 8)
            p = put_next(p, log_start, 8)
            p = put_length(p, -1 if aborted is None else 0, flexible, 4)  # no aborted transactions, or null
            if version >= PREFERRED_SINCE:
                p = put_next(p, preferred, 4)
            p = put_length(p, size, flexible, 4)
            if size:
                if type(data) is bytes and size <= JOINED_BYTES:
                    memcpy(p, PyBytes_AS_STRING(data), size)
                    p += size
                else:
                    parts.append(PyBytes_FromStringAndSize(<const char*>start, p - start))
                    parts.append(data)
                    p = start
            if flexible:
                p = put_next(p, 0, 1)
        if flexible:
            p = put_next(p, 0, 1)
        read.append((called, counts[group], total))
    if flexible:
        p = put_next(p, 0, 1)
    parts.append(PyBytes_FromStringAndSize(<const char*>start, p - start))
    return parts, read


# -- one answer for several

def asked_by(dict partitions):
    """What decides, of each partition of a fetch, how it is answered. Mirrors `asked_by` of server/handlers/fetch_plain.py."""
    return [
        (
            key, each.fetch_offset, each.max_bytes, each.high_watermark, each.log_start_offset, each.current_leader_epoch,
            each.last_fetched_epoch,
        )
        for key, each in partitions.items()
    ]


def as_seen(list seen):
    """Whether partitions are as they were. Mirrors `as_seen` of server/handlers/fetch_plain.py."""
    for partition, log, leads, state, committed, log_start, log_end in seen:
        if log.committed != committed or log.log_start_offset != log_start or log.log_end_offset != log_end or log.offline:
            return False
        if partition.state is not state or partition.is_leader is not leads or partition.log is not log:
            return False
    return True
