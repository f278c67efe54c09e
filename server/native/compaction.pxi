# Compaction: the keys of plain batches, and what is left of these.

cdef extern from *:
    ctypedef unsigned long long uint128 "unsigned __int128"
    void prefetch "__builtin_prefetch"(const void* at) nogil

cdef enum:
    AHEAD = 8  # how many records are read before the first of them is searched for
cdef uint64_t PRIME = (<uint64_t>1 << 61) - 1


cdef struct Entry:
    uint64_t digest[2]
    int64_t next_offset  # the one after the last of the key; 0: the entry is free


cdef struct Item:
    Record record
    Entry wanted
    Entry* place
    const uint8_t* start
    Py_ssize_t size


cdef class KeyTable:
    """The last offset of each key, by a digest of the key; mirrors `OffsetMap` of server/log/cleaner/offset_map.py.

    Shape: `most` keys fit. The digest is a polynomial of the key, modulo PRIME, at two secret numbers below 2^60, the `seed`.
    Two keys of n bytes, chosen without knowing these, have the same with a probability of at most (n / 7 + 1)^2 in 2^120.
    `body_of` and `with_records` are those of server/log/cleaner/rewriting.py.
    """

    cdef bytes memory
    cdef Entry* entries
    cdef uint64_t seed[2]
    cdef Py_ssize_t most, slots
    cdef readonly Py_ssize_t count
    cdef object crc32c, body_of, with_records

    def __cinit__(self, Py_ssize_t most, list seed, crc32c, body_of, with_records):
        self.most, self.slots, self.seed = most, most + most // 3 + 2, seed
        self.crc32c, self.body_of, self.with_records = crc32c, body_of, with_records
        self.memory = bytes(self.slots * sizeof(Entry))  # zeros, which the system provides when they are used
        self.entries = <Entry*>PyBytes_AS_STRING(self.memory)

    cdef Entry* prepare(self, const uint8_t* key, Py_ssize_t size, Entry* wanted) noexcept nogil:
        """Set the digest of a key; return the place from which to search for it, which is then read into the cache."""
        cdef uint64_t word = size + 1
        cdef uint128 product
        cdef int each
        wanted.digest[0] = wanted.digest[1] = 0
        while True:
            for each in range(2):  # modulo PRIME, but below 2^63 only
                product = <uint128>(wanted.digest[each] + word) * self.seed[each]
                wanted.digest[each] = (<uint64_t>product & PRIME) + <uint64_t>(product >> 61)
            if size <= 0:
                break
            word = 0
            for each in range(min(size, 7)):
                word = word << 8 | key[each]
            key += 7
            size -= 7
        cdef Entry* place = self.entries + <Py_ssize_t>(<uint128>(wanted.digest[0] << 3) * <uint64_t>self.slots >> 64)
        prefetch(place)
        return place

    cdef Entry* find(self, Entry* wanted, Entry* place) noexcept nogil:
        """The entry with the same digest, or the free one where it would be."""
        while place.next_offset and (place.digest[0] != wanted.digest[0] or place.digest[1] != wanted.digest[1]):
            place = place + 1 if place + 1 < self.entries + self.slots else self.entries
        return place

    cdef void note(self, Entry* wanted, Entry* place) noexcept nogil:
        """Set the last offset of a key."""
        place = self.find(wanted, place)
        self.count += not place.next_offset
        place[0] = wanted[0]

    def get(self, bytes key not None, int64_t put=-1):
        """The last offset of a key, which `put` then becomes, if it is given. Mirrors `OffsetMap.get` and `put`."""
        cdef Entry wanted
        cdef Entry* place = self.prepare(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), &wanted)
        last_offset = self.find(&wanted, place).next_offset - 1
        if put >= 0:
            if self.count >= self.slots - 1:
                raise OverflowError
            wanted.next_offset = put + 1
            self.note(&wanted, place)
        return last_offset

    def take(self, window, Py_ssize_t at, int usual, bint notes, int64_t first, int64_t latest, int64_t now_ms):
        """Take batch after batch of those with only `usual` attributes, up to one that is not plain.

        Shape: with `notes`, their keys are noted, from the offset `first` on, as by `note_keys` of record_filter.py; else they are
        filtered by keys up to the offset `latest`, as by `BatchFilter.filter`. Returns where it stopped (some keys of that batch
        may be noted), and of each batch: what is left (None: nothing), its size, its last offset, how many records it had and has.
        """
        cdef Py_buffer view
        cdef Header header
        cdef Item items[AHEAD]
        cdef Item* item
        cdef const uint8_t* p
        cdef const uint8_t* end
        cdef uint8_t* into
        cdef int64_t last_offset, newest, previous, horizon
        cdef int32_t number, kept
        cdef bytes scratch = b""
        rows = []
        PyObject_GetBuffer(window, &view, PyBUF_SIMPLE)
        try:
            while at >= 0 and read_header(<const uint8_t*>view.buf + at, view.len - at, &header):
                if header.attributes & ~usual or not 0 <= header.base_offset < FAR or not -FAR < header.base_timestamp < FAR:
                    break
                if self.crc32c(window[at + 21 : at + header.size]) != header.crc:
                    break
                p, end = <const uint8_t*>view.buf + at + HEADER_SIZE, <const uint8_t*>view.buf + at + header.size
                if header.attributes & CODEC_MASK:
                    body = <bytes?>self.body_of(header.attributes & CODEC_MASK, window[at + HEADER_SIZE : at + header.size])
                    p = <const uint8_t*>PyBytes_AS_STRING(body)
                    end = p + PyBytes_GET_SIZE(body)
                if not 0 < header.count <= (end - p) // MIN_RECORD_SIZE or (notes and header.count > self.most - self.count):
                    break
                if not notes and PyBytes_GET_SIZE(scratch) < end - p:
                    scratch = PyBytes_FromStringAndSize(NULL, end - p)
                into = <uint8_t*>PyBytes_AS_STRING(scratch)
                last_offset, newest, previous, kept = header.base_offset + header.delta, -FAR, -1, 0
                horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else FAR
                for number in range(header.count + AHEAD):
                    item = &items[number % AHEAD]
                    if number >= AHEAD and notes:
                        if item.record.key_size >= 0 and item.wanted.next_offset > first:
                            self.note(&item.wanted, item.place)
                    elif number >= AHEAD and (item.wanted.next_offset > latest + 1 or (
                        item.record.key_size >= 0 and not (item.record.value_size < 0 and horizon <= now_ms)
                        and item.wanted.next_offset >= self.find(&item.wanted, item.place).next_offset
                    )):
                        # Far timestamps would overflow. A tombstone gets a delete horizon.
                        if not -FAR < item.record.timestamp_delta < FAR or (item.record.value_size < 0 and horizon == FAR):
                            break
                        newest = max(newest, item.record.timestamp_delta)
                        memcpy(into, item.start, item.size)
                        into += item.size
                        kept += 1
                    if number < header.count:
                        item.start = p
                        if not read_record(&p, end, &item.record) or not previous < item.record.offset_delta <= header.delta:
                            break
                        previous = item.record.offset_delta
                        item.size, item.wanted.next_offset = p - item.start, header.base_offset + previous + 1
                        if item.record.key_size >= 0:
                            item.place = self.prepare(item.record.key, item.record.key_size, &item.wanted)
                else:
                    if p == end:
                        left = window[at : at + header.size] if kept == header.count else None
                        if 0 < kept < header.count:
                            copied = scratch[: into - <uint8_t*>PyBytes_AS_STRING(scratch)]
                            left = self.with_records(window[at : at + HEADER_SIZE], copied, kept, newest)
                        rows.append((left, header.size, last_offset, header.count, kept))
                        at += header.size
                        continue
                break
        finally:
            PyBuffer_Release(&view)
        return at, rows
