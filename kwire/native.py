"""The native module where it was built (setup.py) and is not switched off (KWIRE_PURE=1): the same work in fewer steps.

A function here is None where the module is not there, or returns None for what is not plain; then its user does the work
itself. Users look a function up when they need it, so that tests can run both forms.
"""

from __future__ import annotations

from collections.abc import Callable

Buffer = bytes | bytearray | memoryview

#: Looks at all records of a decompressed body, as `_scan` of kwire/records/validation.py.
walk_records: Callable[[Buffer, int], tuple[int, int, int, bool, bool] | None] | None
try:
    from kwire._native import walk_records
except ImportError:
    walk_records = None


def form() -> str:
    """Which form runs: "native" or "pure"."""
    return "pure" if walk_records is None else "native"
