"""The two checksums of record batches: CRC-32 (magic 0 and 1) and CRC-32C (magic 2)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import cast

Buffer = bytes | bytearray | memoryview
Checksum = Callable[..., int]
"""checksum(buffer, value=0), where value is the checksum of the preceding bytes."""


def _load_crc32c() -> Checksum:
    # The package's __init__ reads its own version through importlib.metadata, which pulls in
    # email, argparse and zipfile: 35 ms and 4 MB at start-up for one C function. The extension
    # module alone takes under 1 ms.
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return cast("Checksum", module.crc32c)
    from crc32c import crc32c as packaged

    return cast("Checksum", packaged)


crc32c: Checksum = _load_crc32c()
"""CRC-32C (Castagnoli) of a buffer, computed by the processor's instruction if it has one."""

crc32: Checksum = zlib.crc32
"""CRC-32 (zlib's) of a buffer."""
