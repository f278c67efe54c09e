# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""What the hot path does most, without the interpreter; optional, and equal to what Python does without it.

Python is the reference. Each function names the Python function that it mirrors, does only the plain case of it, and
returns None, with nothing done, for everything else: the Python function then does it, or says what is wrong. Bytes of
clients are read through pointers, each step within bounds that are checked before it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport getenv
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

#: The checksum of the sources that this was built from: server/native_source.py.
SOURCE = KWIRE_SOURCE.decode()

include "_native_bytes.pxi"
include "_native_walk.pxi"
include "_native_batches.pxi"
include "_native_produce.pxi"
include "_native_compaction.pxi"
include "_native_columns.pxi"
include "_native_fetch.pxi"
include "_native_messages.pxi"

#: The versions that are known of each message, for kwire/layouts.py.
LAYOUTS = {
    "ProduceRequest": ((FLEXIBLE_SINCE, TOPIC_IDS_SINCE), NEWEST_PRODUCE),
    "ProduceResponse": ((FLEXIBLE_SINCE, TOPIC_IDS_SINCE), NEWEST_PRODUCE),
    "FetchRequest": (
        (READS_ZSTD_SINCE, PREFERRED_SINCE, FETCH_FLEXIBLE_SINCE, FETCH_IDS_SINCE, REPLICA_STATE_SINCE), NEWEST_FETCH
    ),
    "FetchResponse": ((SESSIONS_SINCE, PREFERRED_SINCE, FETCH_FLEXIBLE_SINCE, FETCH_IDS_SINCE), NEWEST_FETCH),
}
