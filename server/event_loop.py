"""Which event loop a broker runs on: uvloop's where it is installed (`kwire[uvloop]`), else asyncio's.

The transports are kwire's own on both; of uvloop they use its readiness callbacks. KWIRE_LOOP=asyncio keeps to asyncio's.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from kwire import native


def uses_uvloop() -> bool:
    """Whether uvloop is installed and not switched off."""
    return os.environ.get("KWIRE_LOOP", "") != "asyncio" and find_spec("uvloop") is not None


def said_at_start() -> str:
    """What a broker of this process runs on, for its log and for `kwire --version`."""
    loop = "uvloop" if uses_uvloop() else "asyncio"
    return f"Python {sys.version.split()[0]}, {loop}, {native.form()}"
