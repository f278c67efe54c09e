# The plain Produce: from the bytes of a request to those of its response. Mirrors, where all that they decide is plain,
# `plain_produce` of server/handlers/produce_plain.py and what it calls, one function here for each there.

from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.errno cimport EINTR, errno
from libc.string cimport strerror

cdef extern from "unistd.h" nogil:
    Py_ssize_t pwrite(int descriptor, const void* data, size_t size, int64_t position)

cdef enum:
    # server/handlers/produce_plain.py
    FLEXIBLE_SINCE = 9
    TOPIC_IDS_SINCE = 13
    NEWEST_PRODUCE = 13
    ID_BYTES = 16
    HEAD_BYTES = 7
    ROW_BYTES = 33  # of the response
    TRANSACTIONAL = 0x10
    # kwire/header.py: of a request; and kwire/connection.py: of a response, with its size
    CORRELATION_AT = 4
    CLIENT_ID_AT = 10
    HEADER_BYTES = 9
    BATCHES_REMEMBERED = 5  # server/log/producer_state.py
    HINTS = 16  # server/log/reader.py
    # More are not plain here; Python takes 126 of each.
    MAX_TOPICS = 32
    MAX_ROWS = 64

cdef int64_t UNKNOWN_TIMESTAMP = -INT64_MAX - 1  # UNKNOWN of server/log/segment.py
cdef int64_t INT32_LAST = 0x7FFFFFFF  # SEQUENCE_MASK of server/log/producer_state.py, too


cdef struct Row:
    int32_t index
    uint8_t* data
    Py_ssize_t size
    Header header
    int64_t offset, log_start


cdef struct Topic:
    const uint8_t* name  # or its id, as it is in the request
    int name_bytes, rows


cdef struct Request:
    bint is_whole  # with its header, and to be answered at once
    int acks, topics, rows
    Topic topic[MAX_TOPICS]
    Row row[MAX_ROWS]


cdef inline int64_t number(value) except? -1:
    """An integer of Python; the next one that there is if it is beyond 64 bits, as NEVER of server/log/segment.py is."""
    cdef int overflow = 0
    cdef int64_t found = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        return INT64_MAX if overflow > 0 else UNKNOWN_TIMESTAMP
    return found


cdef bint read_request(uint8_t* p, uint8_t* end, int version, Request* request) noexcept nogil:
    """Find the rows of a request; false if it is not plain. Mirrors the loops of `plain_produce`."""
    cdef int topics, rows
    cdef int64_t size
    cdef Topic* topic
    cdef Row* row
    request.rows = 0
    if not HEAD_BYTES < end - p <= INLINE_WALK_BYTES or p[0]:  # too long for one turn of the loop; a transactional id
        return False
    request.acks = <int>big_endian(p + 1, 2)
    request.topics = topics = p[HEAD_BYTES] - 1
    p += HEAD_BYTES + 1
    if not -1 <= request.acks <= 1 or not 0 < topics <= MAX_TOPICS:
        return False
    topic = request.topic
    while topics:
        topics -= 1
        if p >= end:
            return False
        topic.name = p
        topic.name_bytes = ID_BYTES if version >= TOPIC_IDS_SINCE else p[0]
        if not 0 < topic.name_bytes < 128 or end - p <= topic.name_bytes:
            return False
        p += topic.name_bytes
        topic.rows = rows = p[0] - 1
        p += 1
        if rows <= 0 or request.rows + rows > MAX_ROWS:
            return False
        while rows:
            rows -= 1
            row = &request.row[request.rows]
            request.rows += 1
            if end - p < 5:
                return False
            row.index = <int32_t>big_endian(p, 4)
            p += 4
            if not read_length(<const uint8_t**>&p, end, True, 0, &size):
                return False
            # What `check_form` asks, but for what `plain_header` asks too; and no tagged fields.
            if size < HEADER_SIZE or size >= end - p or big_endian(p + 21, 2) & TRANSACTIONAL or p[size]:
                return False
            row.data = p
            row.size = size
            p += size + 1
        if p >= end or p[0]:
            return False
        p += 1
        topic += 1
    return p < end and not p[0]


cdef class ProducePath:
    """Answers plain Produce requests.

    Shape: what it needs of the server: `crc32c`; `batch_metadata` and `append_info`, which make these tuples of all their
    fields; the `internal` topics; `pwrite`, the system's, which no other FileLayer may stand for; `classes`, those whose
    fields are read and set here: a partition, log or segment of another class is not plain.
    """

    cdef object crc32c, batch_metadata, append_info, internal, pwrite, partition_class, log_class, segment_class

    def __init__(self, crc32c, batch_metadata, append_info, internal, pwrite, classes):
        self.crc32c = crc32c
        self.batch_metadata = batch_metadata
        self.append_info = append_info
        self.internal = internal
        self.pwrite = pwrite
        self.partition_class, self.log_class, self.segment_class = classes

    def answer(self, frame, Py_ssize_t at, int version, dict partitions, int64_t now_ms, metadata):
        """Append the batches of the request whose body begins there in its frame; -1: behind its header, which is there.

        Shape: (body of the response, with a header if the request has one, empty if there is none; number of rows); None, with
        nothing done, if the request is not plain; a list of AppendInfo or AppendError if a batch is yet to be copied by followers, or writing one fails.
        """
        cdef Py_buffer view
        cdef Request request
        cdef bint is_whole = at == -1
        if not FLEXIBLE_SINCE <= version <= NEWEST_PRODUCE:
            return None
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            if is_whole:
                at = body_of(<const uint8_t*>view.buf, view.len)
            if view.readonly or not 0 <= at <= view.len:
                return None
            if not read_request(<uint8_t*>view.buf + at, <uint8_t*>view.buf + view.len, version, &request):
                return None
            request.is_whole = is_whole
            found = self.find(frame, <uint8_t*>view.buf, version, partitions, now_ms, metadata, &request)
            if found is None:
                return None
            results = self.append(frame, <uint8_t*>view.buf, <list>found, now_ms, &request)
            if results is not None:
                return results
            if request.acks == 0:
                return b"", 1
            return response(version, &request, <const uint8_t*>view.buf + CORRELATION_AT if is_whole else NULL), request.rows
        finally:
            PyBuffer_Release(&view)

    cdef find(self, frame, uint8_t* start, int version, dict partitions, int64_t now_ms, metadata, Request* request):
        """The partition and the log of each row, one after the other; None if anything is not plain."""
        cdef int topic, last = 0, each = 0
        cdef Row* row
        cdef Py_ssize_t at
        found = []
        before = None
        for topic in range(request.topics):
            if version < TOPIC_IDS_SINCE:
                try:
                    name = PyUnicode_DecodeUTF8(
                        <const char*>request.topic[topic].name + 1, request.topic[topic].name_bytes - 1, NULL
                    )
                except UnicodeDecodeError:
                    return None
            else:
                known = metadata().topic_by_id(PyBytes_FromStringAndSize(<const char*>request.topic[topic].name, ID_BYTES))
                if known is None:
                    return None
                name = known.name
            if name in self.internal or name == before:
                return None
            before = name
            last += request.topic[topic].rows
            while each < last:
                row = &request.row[each]
                each += 1
                partition = partitions.get((name, row.index))
                if partition is None or type(partition) is not self.partition_class:
                    return None
                log = partition.log
                if type(log) is not self.log_class or not self.may_append(partition, log, now_ms, request, row):
                    return None
                for other in found:
                    if other is log:  # its second batch is to be compared with what the first leaves behind
                        return None
                at = row.data - start
                if self.crc32c(frame[at + 21 : at + row.size]) != row.header.crc:
                    return None
                found.append(partition)
                found.append(log)
        return found

    cdef bint may_append(self, partition, log, int64_t now_ms, Request* request, Row* row) except -1:
        """Whether a batch may be appended at once, and need not wait for a flush.

        Mirrors the questions of `Appends.append_records`, `Partition.append_as_leader`, `Log.append_as_leader` and
        `Partition.advance_high_watermark`.
        """
        cdef Header* header = &row.header
        cdef int64_t last_offset, flush_messages
        if (
            not partition.is_leader or partition.append_queues is not None
            or (request.acks == -1 and partition.followers and (request.is_whole or partition.under_min_isr()))
            or partition.held_bytes or log.may_rewrite or log.unusual or log.offline
        ):
            return False
        if not plain_header(
            row.data, row.size, now_ms, number(log.timestamp_before), number(log.timestamp_after),
            log.max_batch_bytes, log.reads_natively, log.needs_keys, header,
        ):
            return False
        if not log.codec_ok[header.attributes & CODEC_MASK] or (log.reads_natively and not header.was_read):
            return False
        producers = log.producers
        if header.producer_id >= 0:
            entry = producers.producers.get(header.producer_id)
            if entry is None or header.sequence < 0 or producers.verifying or entry.producer_epoch != header.producer_epoch:
                return False
            batches = <list?>entry.batches
            if not batches or batches[len(batches) - 1].last_sequence + 1 != header.sequence:
                return False
            if entry.current_txn_first_offset >= 0:
                return False
        segment = log.active_segment
        last_offset = number(log.log_end_offset) + header.delta
        if (
            type(segment) is not self.segment_class or segment.size == 0  # the first batch decides when it rolls
            or number(segment.size) + row.size > number(log.segment_bytes)
            or header.max_timestamp > number(segment.roll_timestamp) or segment.index_room <= 0
            or last_offset - number(segment.base_offset) > INT32_LAST
            or number(segment.known_max_timestamp) == UNKNOWN_TIMESTAMP
            or segment.loaded_offset_index is None or segment.loaded_time_index is None
            or log.leader_epoch_cache.latest != partition.state.leader_epoch
        ):
            return False
        flush_state = log.flush_state
        flush_messages = number(log.config.flush_messages)
        return not flush_state.awaited and last_offset + 1 - number(flush_state.recovery_point) < flush_messages

    cdef append(self, frame, uint8_t* start, list found, int64_t now_ms, Request* request):
        """Append each row; None, or the result of each row if not all are committed as `acks` requires."""
        cdef int each, number_of_row
        cdef Row* row
        cdef bint committed = True
        for each in range(request.rows):
            row = &request.row[each]
            partition, log = found[2 * each], found[2 * each + 1]
            refusal = self.append_row(frame, start, partition, log, now_ms, row)
            if refusal is not None:
                break
            if request.acks == -1 and partition.followers and log.committed <= row.offset + row.header.delta:
                committed = False
        else:
            if committed:
                return None
            each = request.rows
        results = []
        for number_of_row in range(request.rows):
            row = &request.row[number_of_row]
            if number_of_row < each:
                last = row.offset + row.header.delta
                results.append(self.append_info(
                    (row.offset, last, -1, row.log_start, row.header.max_timestamp, row.size, False)
                ))
            elif number_of_row == each:
                results.append(refusal)
            else:  # the logs of the same directory are offline now, and Python says so
                records = frame[row.data - start : row.data - start + row.size]
                partition = found[2 * number_of_row]
                results.append(partition.append_as_leader(records, acks=request.acks, now_ms=now_ms))
        return results

    cdef append_row(self, frame, uint8_t* start, partition, log, int64_t now_ms, Row* row):
        """Append a batch; return an AppendError if it cannot be written.

        Mirrors `Partition.append_as_leader` and what it calls: the functions that are named within.
        """
        cdef int64_t offset = number(log.log_end_offset), last_offset = offset + row.header.delta
        segment = log.active_segment
        cdef int64_t position = number(segment.size)
        # Log.append_as_leader
        put(row.data, offset, 8)
        put(row.data + 12, number(partition.state.leader_epoch), 4)
        try:
            self.write(log.layer, segment.log, position, frame, row.data - start, row)
        except OSError as error:
            return log.on_io_error(error)
        # LogSegment.append
        segment.size = position + row.size
        if row.header.max_timestamp > number(segment.known_max_timestamp):
            segment.known_max_timestamp = row.header.max_timestamp
            segment.known_max_timestamp_offset = last_offset
        if segment.bytes_since_index_entry > log.config.index_interval_bytes:
            segment.loaded_offset_index.append(last_offset, position)
            segment.loaded_time_index.maybe_append(segment.known_max_timestamp, segment.known_max_timestamp_offset)
            segment.bytes_since_index_entry = 0
            segment.index_room -= 1
        segment.bytes_since_index_entry += row.size
        # Log.write, LogReader.remember
        hints = <dict?>log.reader.hints
        if len(hints) >= HINTS and offset not in hints:
            del hints[next(iter(hints))]
        hints[offset] = (segment, position, 0)
        end_offset = last_offset + 1
        log.log_end_offset = end_offset
        producers = log.producers
        producers.last_map_offset = end_offset
        # ProducerStateManager.append_data
        if row.header.producer_id >= 0:
            entry = producers.producers[row.header.producer_id]
            batches = <list?>entry.batches
            if len(batches) >= BATCHES_REMEMBERED:
                del batches[0]
            batches.append(self.batch_metadata((
                row.header.sequence, (row.header.sequence + <int64_t>row.header.delta) & INT32_LAST, last_offset,
                row.header.delta, row.header.max_timestamp,
            )))
            entry.last_timestamp = row.header.max_timestamp
        row.offset = offset
        row.log_start = number(log.log_start_offset)
        # Partition.append_as_leader, Partition.advance_high_watermark
        partition.appends += 1
        partition.bytes_in += row.size
        if partition.followers:
            partition.advance_high_watermark(row.size, now_ms)
            return None
        log.committed = end_offset
        if producers.unreplicated:
            producers.on_high_watermark_updated(end_offset)
        waiters = partition.waiters
        if waiters.commits:
            waiters.release_committed(end_offset, partition.commit_error)
        if waiters.fetches:
            waiters.wake_consumers(log, row.size)
        return None

    cdef int write(self, layer, file, int64_t position, frame, Py_ssize_t at, Row* row) except -1:
        """Write a batch, in one system call unless the kernel stops short. Mirrors `LogFile.write_at`."""
        cdef Py_ssize_t written = 0
        cdef int descriptor
        opened = file.opened
        if opened is not None and layer.pwrite is self.pwrite:
            opened.recent = True
            descriptor = opened.fd
            with nogil:
                written = pwrite(descriptor, row.data, row.size, position)
            if written == row.size:
                return 0
            if written < 0 and errno != EINTR:
                raise OSError(errno, strerror(errno).decode(), file.path)
            written = max(written, 0)
        file.write_at(frame[at + written : at + row.size], position + written)
        return 0


cdef Py_ssize_t body_of(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    """Where the body begins behind a request header of version 2; -1 if that is not plain. Mirrors `decode_request_header`."""
    cdef Py_ssize_t client_id_bytes, end
    if size <= CLIENT_ID_AT:
        return -1
    client_id_bytes = big_endian(p + CLIENT_ID_AT - 2, 2)
    end = CLIENT_ID_AT + max(client_id_bytes, 0)
    return end + 1 if client_id_bytes >= -1 and end < size and not p[end] else -1  # without tagged fields


cdef bytes response(int version, Request* request, const uint8_t* correlation_id):
    """The body of the response; with a correlation id, its whole frame.

    Mirrors `answer` in `plain_produce`, and `response_frame` of kwire/connection.py.
    """
    cdef Py_ssize_t size = 1 + 5 + (HEADER_BYTES if correlation_id != NULL else 0)
    cdef int topic, each = 0, last = 0
    cdef uint8_t* p
    cdef Row* row
    for topic in range(request.topics):
        size += request.topic[topic].name_bytes + 2 + ROW_BYTES * request.topic[topic].rows
    body = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t*>PyBytes_AS_STRING(body)
    if correlation_id != NULL:
        put(p, size - 4, 4)
        memcpy(p + 4, correlation_id, 4)
        p[8] = 0  # no tagged fields
        p += HEADER_BYTES
    p[0] = request.topics + 1
    p += 1
    for topic in range(request.topics):
        memcpy(p, request.topic[topic].name, request.topic[topic].name_bytes)
        p += request.topic[topic].name_bytes
        p[0] = request.topic[topic].rows + 1
        p += 1
        last += request.topic[topic].rows
        while each < last:
            row = &request.row[each]
            each += 1
            put(p, row.index, 4)
            put(p + 4, 0, 2)  # error_code
            put(p + 6, row.offset, 8)
            put(p + 14, -1, 8)  # log_append_time_ms
            put(p + 22, row.log_start, 8)
            put(p + 30, 0x010000, 3)  # no record_errors, error_message or tagged fields
            p += ROW_BYTES
        p[0] = 0
        p += 1
    put(p, 0, 5)  # throttle_time_ms, no tagged fields
    return body
