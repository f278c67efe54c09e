"""The native forms of Produce, Fetch and compaction, if they were built (setup.py) and are not disabled (KWIRE_PURE=1).

The rules are those of kwire/native.py, which has what the wire library does natively. Each name is None if the module is
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kwire import native as wire

from .source import what_is_wrong

Buffer = bytes | bytearray | memoryview

#: What the functions for Produce and Fetch know of each message, by its name: see kwire/layouts.py.
LAYOUTS: dict[str, tuple[tuple[int, ...], int]] | None
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
#: Answers plain Produce requests: made once from the objects of the server that it needs. See `plain_produce` of
#: server/handlers/produce_plain.py.
ProducePath: Callable[..., Any] | None
#: A consumer's Fetch, its partitions and its answer: see server/handlers/fetch_plain.py and server/replication/read.py.
take_fetch: Callable[[Buffer, int, int, dict[int, Any], type], tuple[Any, ...] | None] | None
read_partitions: Callable[..., tuple[list[Any], int, bool, list[Any]] | None] | None
write_rows: Callable[[int, list[Any]], tuple[list[Any], list[Any]] | None] | None
asked_by: Callable[[dict[Any, Any]], list[Any]] | None
as_seen: Callable[[list[Any]], bool] | None
#: As in kwire/native.py.
source = error = ""
try:
    from ._native import (
        LAYOUTS,
        KeyTable,
        ProducePath,
        as_seen,
        asked_by,
        check_batch,
        read_partitions,
        take_fetch,
        write_rows,
    )
    from ._native import SOURCE as source
except ImportError as failure:
    source, error = "", str(failure)
    LAYOUTS = KeyTable = ProducePath = check_batch = None
    take_fetch = read_partitions = write_rows = asked_by = as_seen = None


def form() -> str:
    """The form in use: "native", with both native modules, or "pure"."""
    return "pure" if check_batch is None else wire.form()


def wrong() -> str:
    """What is wrong with the native modules that were built; "" if nothing is."""
    folder = Path(wire.__file__).parent
    return what_is_wrong(folder.parent, folder, wire.source, wire.error) or what_is_wrong(
        folder.parent, Path(__file__).parent, source, error
    )
