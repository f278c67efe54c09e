# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""What the hot path does most, without the interpreter; optional, and equal to what Python does without it.

Python is the reference. Each function names the Python function that it mirrors, does only the plain case of it, and
returns None, with nothing done, for everything else: the Python function then does it, or says what is wrong. Bytes of
clients are read through pointers, each step within bounds that are checked before it.
"""

include "_native_start.pxi"
include "_native_bytes.pxi"
include "_native_walk.pxi"
include "_native_columns.pxi"
include "_native_messages.pxi"
