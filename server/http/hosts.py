"""The host names under which clients may access this server: the protection against DNS rebinding.

A page in a browser can have its own name resolved to this machine's address, and then read this server's responses as
if they came from the page's own server. Such requests carry the page's name in `Host`, so only names of this server are
accepted. An address cannot be rebound, so all addresses are accepted.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

HOST = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]/\s]+))(?::[0-9]{1,5})?")
#: Allows every name.
ANY = "*"


class AllowedHosts:
    """Checks the `Host` header. Shape: names are not case-sensitive."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = {"localhost"}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Allow one more name."""
        if name:
            self.names.add(name.lower().rstrip("."))

    def allows(self, host: str) -> bool:
        """Whether a request with this `Host` header is answered."""
        if ANY in self.names:
            return True
        match = HOST.fullmatch(host.strip())
        if match is None:
            return False
        name = (match[1] or match[2]).lower().rstrip(".")
        return name in self.names or is_address(name)


def is_address(name: str) -> bool:
    """Whether a host is an IP address in its usual form."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
