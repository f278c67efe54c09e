"""Loads asyncio without `ssl`, which only asyncio's own TLS needs.

The broker encrypts on sockets of its own (net/tls_transport.py), and loads `ssl` when it has a listener with TLS.
asyncio supports interpreters without `ssl`; loading it would cost every broker 4.4 MB and 15 ms at its start.
Import this module before anything that imports asyncio; afterwards it has no effect.
"""

from __future__ import annotations

import sys
from typing import Any

if "asyncio" not in sys.modules and "ssl" not in sys.modules:
    modules: dict[str, Any] = sys.modules
    modules["ssl"] = None  # `import ssl` raises ImportError
    try:
        import asyncio  # noqa: F401
    finally:
        del modules["ssl"]
