# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""Produce, Fetch and compaction without the interpreter; optional, and equal to what Python does without it.

The rules are those of kwire/_native.pyx, parts of which are included: integers and records are read by the same code.
"""

include "../../kwire/_native_start.pxi"
include "../../kwire/_native_bytes.pxi"
include "../../kwire/_native_walk.pxi"
include "batches.pxi"
include "produce.pxi"
include "compaction.pxi"
include "fetch.pxi"

#: The versions that are known of each message, for kwire/layouts.py.
LAYOUTS = {
    "ProduceRequest": ((FLEXIBLE_SINCE, TOPIC_IDS_SINCE), NEWEST_PRODUCE),
    "ProduceResponse": ((FLEXIBLE_SINCE, TOPIC_IDS_SINCE), NEWEST_PRODUCE),
    "FetchRequest": (
        (READS_ZSTD_SINCE, PREFERRED_SINCE, FETCH_FLEXIBLE_SINCE, FETCH_IDS_SINCE, REPLICA_STATE_SINCE), NEWEST_FETCH
    ),
    "FetchResponse": ((SESSIONS_SINCE, PREFERRED_SINCE, FETCH_FLEXIBLE_SINCE, FETCH_IDS_SINCE), NEWEST_FETCH),
}
