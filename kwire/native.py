"""The native module, if it was built (setup.py) and is not disabled (KWIRE_PURE=1): the same work in fewer steps.

A function here is None if the module is missing. It returns None (or False) for input with unusual parts, which its
caller then handles. Callers look a function up when they need it, so that tests can run both forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Buffer = bytes | bytearray | memoryview

#: Examines all records of a decompressed body, as `_scan` of kwire/records/validation.py does.
walk_records: Callable[[Buffer, int], tuple[int, int, int, bool, bool] | None] | None
#: For Spark: `append_record_ends` and `read_fields` of pipeline/segments/decode.py in one; False instead of an error.
read_fields: Callable[[object, object, object], bool] | None
#: Decodes messages: see kwire/native_decoder.py.
StructDecoder: Callable[..., Any] | None
#: The checksum of the sources from which the module was built, and the reason that it could not be imported; "" for
#: none.
source = error = ""
try:
    from kwire._native import SOURCE as source
    from kwire._native import StructDecoder, read_fields, walk_records
except ImportError as failure:
    source, error = "", str(failure)
    StructDecoder = walk_records = read_fields = None


def form() -> str:
    """The form in use: "native" or "pure"."""
    return "pure" if walk_records is None else "native"
