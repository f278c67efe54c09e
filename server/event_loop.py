"""The choice of a broker's event loop: uvloop if it is installed (`kwire[uvloop]`), else asyncio's.

Both use kwire's own transports; with uvloop, these use its readiness callbacks. KWIRE_LOOP=asyncio selects asyncio's
loop.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from . import native


def uses_uvloop() -> bool:
    """Whether uvloop is installed and not disabled."""
    return os.environ.get("KWIRE_LOOP", "") != "asyncio" and find_spec("uvloop") is not None


def said_at_start() -> str:
    """The Python version, loop and native module of this process, for the log and for `kwire --version`."""
    loop = "uvloop" if uses_uvloop() else "asyncio"
    return f"Python {sys.version.split()[0]}, {loop}, {form_and_why()}"


def form_and_why() -> str:
    """Whether the native module is used, and what is wrong with a module that was built."""
    wrong = native.wrong()
    return f"{native.form()} ({wrong})" if wrong else native.form()
