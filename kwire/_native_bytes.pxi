# Integers in the bytes of clients: of fixed size, and of variable length (read_varint and read_varlong of
# kwire/records/record.py).

cdef inline int64_t big_endian(const uint8_t* p, int size) noexcept nogil:
    """The signed integer of so many bytes, 2, 4 or 8."""
    cdef uint64_t value = 0
    cdef int each
    for each in range(size):
        value = value << 8 | p[each]
    return <int64_t>(value << (64 - 8 * size)) >> (64 - 8 * size)  # extends the sign


cdef inline void put(uint8_t* p, int64_t value, int size) noexcept nogil:
    """Write an integer in so many bytes."""
    cdef uint64_t rest = <uint64_t>value
    cdef int each
    for each in range(size - 1, -1, -1):
        p[each] = <uint8_t>rest
        rest >>= 8


cdef inline bint read_bits(const uint8_t** at, const uint8_t* end, int last_shift, uint64_t* bits) noexcept nogil:
    """Read seven bits from each byte up to one below 0x80, and go behind it; false where the bytes end, or it does not come."""
    cdef const uint8_t* p = at[0]
    cdef uint64_t raw = 0
    cdef int shift = 0
    while p < end and shift <= last_shift:
        raw |= <uint64_t>(p[0] & 0x7F) << shift
        if p[0] < 0x80:
            bits[0] = raw
            at[0] = p + 1
            return True
        p += 1
        shift += 7
    return False


cdef inline bint read_varint(const uint8_t** at, const uint8_t* end, int32_t* value) noexcept nogil:
    """Read a zig-zag integer of at most 32 bits, as `read_bits`."""
    cdef uint64_t raw
    if not read_bits(at, end, 28, &raw):
        return False
    value[0] = <int32_t>(<uint32_t>raw >> 1 ^ (0 - (<uint32_t>raw & 1)))
    return True


cdef inline bint read_varlong(const uint8_t** at, const uint8_t* end, int64_t* value) noexcept nogil:
    """Read a zig-zag integer of at most 64 bits, as `read_bits`."""
    cdef uint64_t raw
    if not read_bits(at, end, 63, &raw):
        return False
    value[0] = <int64_t>(raw >> 1 ^ (0 - (raw & 1)))
    return True


cdef inline bint skip(const uint8_t** at, const uint8_t* end, int32_t size) noexcept nogil:
    """Go behind so many bytes, none if negative; false where there are fewer."""
    if size > 0:
        if size > end - at[0]:
            return False
        at[0] += size
    return True


cdef inline bint read_length(const uint8_t** at, const uint8_t* end, bint compact, int width, int64_t* value) noexcept nogil:
    """Read a length or count of `width` bytes, or a compact one, -1 for null; false where the bytes end, or it does not."""
    cdef uint64_t raw
    if compact:
        if not read_bits(at, end, 28, &raw):
            return False
        value[0] = <int64_t>raw - 1
        return True
    if end - at[0] < width:
        return False
    value[0] = big_endian(at[0], width)
    at[0] += width
    return True
