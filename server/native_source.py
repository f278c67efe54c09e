"""The checksum of the native module's sources: setup.py writes it into the module, and each start compares it."""

from __future__ import annotations

import zlib
from pathlib import Path


def source_in(folder: Path) -> str:
    """The checksum of the sources in a folder; "" if there are none, as in an installed kwire."""
    sources = [*folder.glob("_native.pyx"), *sorted(folder.glob("_native_*.pxi"))]
    return f"{zlib.crc32(b''.join(each.read_bytes() for each in sources)):08x}" if sources else ""


def what_is_wrong(folder: Path, used: str, error: str) -> str:
    """Why a built module is not used, or should not be used; "" if there is no problem, or no module was built.

    Shape: `used` is the checksum in the module in use, else "", and `error` is the reason that none could be imported.
    """
    if used:
        return "" if source_in(folder) in ("", used) else "built from other sources"
    others = [each.name for each in folder.glob("_native.*") if each.suffix in (".so", ".pyd")]
    if others and error.startswith("No module"):
        return f"{others[0]} is for another Python"
    return error if others else ""
