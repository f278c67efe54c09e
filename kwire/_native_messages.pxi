# Decoding of messages: what the functions do that kwire/decoder_writer.py writes.

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF, PyObject, PyTypeObject

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member
    ctypedef object (*allocfunc)(PyTypeObject*, Py_ssize_t)
    ctypedef struct TypeObject "PyTypeObject":
        allocfunc tp_alloc

cdef int MAX_STRING_BYTES = 32767  # kwire/interpreter.py

cdef dict WIDTHS = {"b": 1, "?": 1, "h": 2, "i": 4, "q": 8, "u": 16}


class Unusual(Exception):
    """A message has something that is left to Python."""


cdef struct Value:
    char kind  # see kwire/native_decoder.py
    char element  # of an array's elements
    int width  # of a number
    int element_width
    bint compact
    bint nullable
    int smallest  # the fewest bytes of an element
    Py_ssize_t offset  # of the field in the object


cdef struct Source:
    const uint8_t* start
    const uint8_t* end
    int64_t left  # how many elements its arrays may still have


cdef inline Py_ssize_t slot_of(made, name) except -1:
    member = getattr(made, name)
    if type(member).__name__ != "member_descriptor":
        raise NotImplementedError
    return (<PyMemberDescrObject*><PyObject*>member).d_member.offset


cdef inline void fill(object made, Py_ssize_t offset, object value) noexcept:
    """Set a slot that is empty."""
    Py_INCREF(value)
    (<PyObject**>(<char*><PyObject*>made + offset))[0] = <PyObject*>value


cdef class StructDecoder:
    """Decodes the structs of a class in one version, and messages with `decode`.

    Shape: `fields` are (name, kind, compact, nullable, element, smallest, other) in the order in which they come; `other` decodes
    structs, or is the default of a field that does not come. With `tagged`, tagged fields follow, and any but none are
    unusual. A message with more than `most` elements in its arrays is unusual, too. `otherwise` decodes what is unusual.
    """

    cdef TypeObject* made
    cdef object cls, otherwise
    cdef list others
    cdef Value* fields
    cdef Py_ssize_t tags
    cdef bint tagged, has_records
    cdef int64_t most

    def __cinit__(self, cls, list fields, bint tagged, bint has_records=False, int64_t most=INT64_MAX, otherwise=None):
        cdef Value* value
        self.cls, self.others = cls, []
        self.made = <TypeObject*><PyObject*>cls
        self.tags, self.tagged = slot_of(cls, "unknown_tags"), tagged
        self.has_records, self.most, self.otherwise = has_records, most, otherwise
        self.fields = <Value*>malloc((len(fields) + 1) * sizeof(Value))
        if self.fields == NULL:
            raise MemoryError
        for number, (name, kind, compact, nullable, element, smallest, other) in enumerate(fields):
            value = &self.fields[<int>number]
            value.kind, value.element = <char>ord(kind), <char>ord(element)
            value.width, value.element_width = WIDTHS.get(kind, 0), WIDTHS.get(element, 0)
            value.compact, value.nullable, value.smallest, value.offset = compact, nullable, smallest, slot_of(cls, name)
            self.others.append(other)

    def __dealloc__(self):
        free(self.fields)

    def decode(self, buffer, Py_ssize_t pos, Py_ssize_t end):
        """Return the message at a position and where it ends."""
        cdef Py_buffer data
        cdef Source source
        cdef const uint8_t* p
        view = memoryview(buffer) if self.has_records else None
        PyObject_GetBuffer(buffer, &data, PyBUF_SIMPLE)
        try:
            if not 0 <= pos <= end <= data.len:
                raise Unusual
            source.start = <const uint8_t*>data.buf
            source.end = source.start + end
            source.left = self.most
            p = source.start + pos
            return self.read(&p, &source, view), p - source.start
        except (Unusual, UnicodeDecodeError):
            return self.otherwise(buffer, pos, end)
        finally:
            PyBuffer_Release(&data)

    cdef object read(self, const uint8_t** at, Source* source, view):
        cdef object made = self.made.tp_alloc(<PyTypeObject*>self.made, 0)
        cdef Py_ssize_t number
        cdef Value* field
        for number in range(len(self.others)):
            field = &self.fields[number]
            if field.width:
                fill(made, field.offset, read_number(field.kind, field.width, at, source.end))
                continue
            other = self.others[number]
            fill(made, field.offset, read_value(field.kind, field.width, field.nullable, field, other, at, source, view))
        fill(made, self.tags, None)
        if self.tagged:
            if at[0] >= source.end or at[0][0]:
                raise Unusual
            at[0] += 1
        return made


cdef inline object read_number(char kind, int width, const uint8_t** at, const uint8_t* end):
    """Read a value of so many bytes, whatever it is."""
    cdef const uint8_t* p = at[0]
    if end - p < width:
        raise Unusual
    at[0] += width
    if width == 4 or width == 8:
        return big_endian(p, 4) if width == 4 else big_endian(p, 8)
    if width == 2:
        return big_endian(p, 2)
    if kind == c"b":
        return <int>(<int8_t>p[0])
    return p[0] != 0 if kind == c"?" else PyBytes_FromStringAndSize(<const char*>p, width)


cdef object read_value(char kind, int width, bint nullable, Value* field, other, const uint8_t** at, Source* source, view):
    """Read a value of a field, or of its elements."""
    cdef const uint8_t* p
    cdef int64_t size, number
    if width:
        return read_number(kind, width, at, source.end)
    if kind == c"=":
        return other
    if kind == c"(":
        return other()
    if kind == c"O":
        return (<StructDecoder>other).read(at, source, view)
    if not read_length(at, source.end, field.compact, 2 if kind == c"S" else 4, &size) or size < -nullable:
        raise Unusual
    if size < 0:
        return None
    if kind == c"A":
        if size * field.smallest > source.end - at[0] or size > source.left:
            raise Unusual
        source.left -= size
        elements = PyList_New(size)
        for number in range(size):
            value = read_value(field.element, field.element_width, False, field, other, at, source, view)
            Py_INCREF(value)
            PyList_SET_ITEM(elements, number, value)
        return elements
    p = at[0]
    if size > source.end - p or (kind == c"S" and size > MAX_STRING_BYTES):
        raise Unusual
    at[0] += size
    if kind == c"S":
        return PyUnicode_DecodeUTF8(<const char*>p, size, NULL)
    if kind == c"R":
        return view[p - source.start : p - source.start + size]
    return PyBytes_FromStringAndSize(<const char*>p, size)
