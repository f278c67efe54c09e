# What each native module begins with: kwire/_native.pyx and server/native/_native.pyx.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdlib cimport free, getenv, malloc
from libc.string cimport memcpy

cdef extern from *:
    """
    #ifndef KWIRE_SOURCE
    #define KWIRE_SOURCE ""
    #endif
    """
    const char* KWIRE_SOURCE

if getenv("KWIRE_PURE") != NULL and getenv("KWIRE_PURE")[0] == c"1":
    raise ImportError("switched off by KWIRE_PURE=1")

#: The checksum of the sources that this was built from: server/native/source.py.
SOURCE = KWIRE_SOURCE.decode()
