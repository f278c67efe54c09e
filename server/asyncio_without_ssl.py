"""Loads asyncio, and uvloop, without `ssl`, which only their own TLS needs.

The broker encrypts on sockets of its own (net/tls_transport.py), and loads `ssl` when it has a listener with TLS.
asyncio supports interpreters without `ssl`; loading it would cost every broker 4.4 MB and 15 ms at its start.
Import this module before anything that imports asyncio; afterwards it has no effect.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

if "asyncio" not in sys.modules and "ssl" not in sys.modules:
    modules: dict[str, Any] = sys.modules
    modules["ssl"] = None  # `import ssl` raises ImportError
    try:
        import asyncio  # noqa: F401
    finally:
        del modules["ssl"]


class NoTls(Exception):
    """What uvloop takes for each class of `ssl`: nothing is one of these."""


class StandIn(ModuleType):
    """What uvloop takes for `ssl`: it reads the names that its TLS would use when it is imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return -1 if name.isupper() else NoTls  # SSL_ERROR_WANT_READ, say, or SSLContext


def import_uvloop() -> Any:
    """Import uvloop, with its own TLS only if `ssl` is there already."""
    if "ssl" in sys.modules or "uvloop" in sys.modules:
        import uvloop

        return uvloop
    sys.modules["ssl"] = StandIn("ssl")
    try:
        import uvloop
    finally:
        del sys.modules["ssl"]
    return uvloop
