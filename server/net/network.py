"""The seam between a broker and the network: listening and connecting, without the implementation.

`sockets.py` has the real network. The simulation has its own, in memory.
"""

from __future__ import annotations

from typing import Protocol

from ..metadata.endpoint import Endpoint
from .limits import NetLimits
from .transport import Transport

#: A numeric host address, and a port.
Address = tuple[str, int]


class ConnectionOwner(Protocol):
    """The receiver of the connections that an acceptor accepts."""

    def may_accept(self) -> bool:
        """Whether one more connection may be taken; if not, accepting stops until `resume`."""
        ...

    def accepted(self, transport: Transport, local: Address, peer: Address) -> None:
        """A connection has been accepted; it is not read before `Transport.start`."""
        ...

    def cannot_accept(self, error: OSError) -> None:
        """The system could not accept a connection; the acceptor tries again later."""
        ...


class Acceptor(Protocol):
    """A bound address."""

    #: The requested port, or the free port that was chosen for 0.
    port: int

    def start(self, owner: ConnectionOwner) -> None:
        """Accept connections; until then they wait."""
        ...

    def resume(self) -> None:
        """Accept again after `may_accept` said no."""
        ...

    def close(self) -> None:
        """Stop accepting and free the address; existing connections continue."""
        ...


class Network(Protocol):
    """Transports to and from peers."""

    def listen(self, endpoint: Endpoint, limits: NetLimits) -> Acceptor:
        """Bind an address. Errors: OSError if that fails; its message names the address."""
        ...

    async def connect(self, endpoint: Endpoint) -> Transport:
        """Connect to an address; only the caller limits the time.

        Errors: ConnectionRefusedError if the host refuses the connection at each of its addresses; another
        OSError if it cannot be reached.
        """
        ...
