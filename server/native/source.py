"""The checksum of the native modules' sources: setup.py writes it into the modules, and each start compares it."""

from __future__ import annotations

import zlib
from pathlib import Path

PATTERNS = ("kwire/_native*.p[xy][ix]", "server/native/*.p[xy][ix]")


def sources_in(root: Path) -> list[Path]:
    """The sources of both modules, which share some; none in an installed kwire."""
    found = [each for pattern in PATTERNS for each in sorted(root.glob(pattern))]
    return [each for each in found if each.suffix != ".pyi"]


def source_in(root: Path) -> str:
    """The checksum of the sources in a checkout; "" if there are none, as in an installed kwire."""
    sources = sources_in(root)
    return f"{zlib.crc32(b''.join(each.read_bytes() for each in sources)):08x}" if sources else ""


def what_is_wrong(root: Path, folder: Path, used: str, error: str) -> str:
    """Why a built module is not used, or should not be used; "" if there is no problem, or no module was built.

    Shape: the module is in `folder`; `used` is the checksum in the module in use, else "", and `error` is the reason that
    none could be imported.
    """
    if used:
        return "" if source_in(root) in ("", used) else "built from other sources"
    others = [each.name for each in folder.glob("_native.*") if each.suffix in (".so", ".pyd")]
    if others and error.startswith("No module"):
        return f"{others[0]} is for another Python"
    return error if others else ""
