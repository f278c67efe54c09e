"""Imports asyncio, and uvloop, without `ssl`, which only their own TLS needs.

The broker encrypts on its own sockets (net/tls_transport.py), and imports `ssl` when it has a listener with TLS.
asyncio supports interpreters without `ssl`; importing it would cost every broker 4.4 MB and 15 ms at startup. Import
this module before anything that imports asyncio; afterwards it has no effect.
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
    """Stands for each class of `ssl` in uvloop: no object is an instance of it."""


class StandIn(ModuleType):
    """Stands for the module `ssl` in uvloop, which reads the names that its TLS would use on import."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return -1 if name.isupper() else NoTls  # for example SSL_ERROR_WANT_READ or SSLContext


def import_uvloop() -> Any:
    """Import uvloop, with its own TLS only if `ssl` is already imported."""
    if "ssl" in sys.modules or "uvloop" in sys.modules:
        import uvloop

        return uvloop
    sys.modules["ssl"] = StandIn("ssl")
    try:
        import uvloop
    finally:
        del sys.modules["ssl"]
    return uvloop
