"""The seam between a broker and the network: who listens, who connects, and nothing of how.

`sockets.py` has the real one. The simulation's is in memory.
"""

from __future__ import annotations

from typing import Protocol

from ..metadata.endpoint import Endpoint
from .limits import NetLimits
from .transport import Transport

#: A host, in numbers, and a port.
Address = tuple[str, int]


class ConnectionOwner(Protocol):
    """Who takes what an acceptor accepts."""

    def may_accept(self) -> bool:
        """Whether one more connection may be taken; if not, accepting stops until `resume`."""
        ...

    def accepted(self, transport: Transport, local: Address, peer: Address) -> None:
        """A connection has been accepted; it is not read before `Transport.start`."""
        ...

    def cannot_accept(self, error: OSError) -> None:
        """The system refuses to hand out a connection; it is asked again later."""
        ...


class Acceptor(Protocol):
    """A bound address."""

    #: The one asked for, or the free one that was found for 0.
    port: int

    def start(self, owner: ConnectionOwner) -> None:
        """Accept connections; until then they wait."""
        ...

    def resume(self) -> None:
        """Accept again after `may_accept` said no."""
        ...

    def close(self) -> None:
        """Accept no more and free the address; connections go on."""
        ...


class Network(Protocol):
    """Transports to and from peers."""

    def listen(self, endpoint: Endpoint, limits: NetLimits) -> Acceptor:
        """Bind an address. Errors: OSError when it cannot be had, with the address in its words."""
        ...

    async def connect(self, endpoint: Endpoint) -> Transport:
        """Connect to an address; there is no bound on the time but the caller's.

        Errors: ConnectionRefusedError if a host is there and says that nobody listens, at each of its
        addresses; another OSError if it cannot be reached.
        """
        ...
