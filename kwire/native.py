"""The native module, if it was built (setup.py) and is not disabled (KWIRE_PURE=1): the same work in fewer steps.

A function here is None if the module is missing. It returns None (or False) for input with unusual parts, which its
caller then handles. Callers look a function up when they need it, so that tests can run both forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Buffer = bytes | bytearray | memoryview

#: What the functions for Produce and Fetch know of each message, by its name: see kwire/layouts.py.
LAYOUTS: dict[str, tuple[tuple[int, ...], int]] | None
#: Examines all records of a decompressed body, as `_scan` of kwire/records/validation.py does.
walk_records: Callable[[Buffer, int], tuple[int, int, int, bool, bool] | None] | None
#: Checks a client's batch: `check_header` of server/log/validator.py.
check_batch: (
    Callable[
        [Buffer, int, int, int, int, bool, bool],
        tuple[int, int, int, int, int, int, int, int, bool] | None,
    ]
    | None
)
#: The keys of a log that is compacted, and what is left of its batches: see server/log/cleaner/offset_map.py.
KeyTable: Callable[..., Any] | None
#: For Spark: `append_record_ends` and `read_fields` of pipeline/segments/decode.py in one; False instead of an error.
read_fields: Callable[[object, object, object], bool] | None
#: Answers plain Produce requests: made once from the objects of the server that it needs. See `plain_produce` of
#: server/handlers/produce_plain.py.
ProducePath: Callable[..., Any] | None
#: A consumer's Fetch, its partitions and its answer: see server/handlers/fetch_plain.py and server/replication/read.py.
take_fetch: Callable[[Buffer, int, int, dict[int, Any], type], tuple[Any, ...] | None] | None
read_partitions: Callable[..., tuple[list[Any], int, bool, list[Any]] | None] | None
write_rows: Callable[[int, list[Any]], tuple[list[Any], list[Any]] | None] | None
asked_by: Callable[[dict[Any, Any]], list[Any]] | None
as_seen: Callable[[list[Any]], bool] | None
#: Decodes messages: see kwire/native_decoder.py.
StructDecoder: Callable[..., Any] | None
#: The checksum of the sources from which the module was built, and the reason that it could not be imported; "" for
#: none.
source = error = ""
try:
    from kwire._native import (
        LAYOUTS,
        KeyTable,
        ProducePath,
        StructDecoder,
        as_seen,
        asked_by,
        check_batch,
        read_fields,
        read_partitions,
        take_fetch,
        walk_records,
        write_rows,
    )
    from kwire._native import SOURCE as source
except ImportError as failure:
    source, error = "", str(failure)
    LAYOUTS = KeyTable = ProducePath = StructDecoder = None
    walk_records = check_batch = read_fields = None
    take_fetch = read_partitions = write_rows = asked_by = as_seen = None


def form() -> str:
    """The form in use: "native" or "pure"."""
    return "pure" if walk_records is None else "native"
