"""The network between brokers and clients, as a broker sees one: it listens, connects, and has streams of bytes.

Data arrives later and in order, sometimes in two pieces. A frame may be lost together with its connection. Between
hosts that are cut off from each other nothing arrives: the data is sent again until it arrives, or until the sender
gives up the connection, which the receiver does not notice. When a process ends, its connections are closed and its
port refuses new ones; when a machine loses power, neither happens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from random import Random
from typing import Any

from server.metadata.endpoint import Endpoint
from server.net.limits import NetLimits
from server.net.network import Address, ConnectionOwner
from server.net.transport import Receiver

from .tasks import OWNER

Owner = tuple[int, int] | None
#: The amount that a sender may have in transit; anything beyond counts as unsent.
WINDOW_BYTES = 64 * 1024
#: The time until something that did not arrive is sent again; doubled each time.
AGAIN_S = 0.2
MAX_AGAIN_S = 2.0
#: How long a sender keeps trying; chosen at random.
PATIENCE_S = (0.5, 5.0, 30.0)
SYN_AGAIN_S = 1.0
#: The fraction of sends that arrive in two parts.
CUT_SHARE = 0.25
#: Sent in place of bytes: the end of the stream, and the end of the whole connection.
FIN, RESET = object(), object()


class Network:
    """The network of all hosts; two hosts in `cut` cannot reach each other, and those in `off` reach no other."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.cut: set[frozenset[int]] = set()
        self.off: set[int] = set()
        self.loss = 0.0
        self.slowest_s = 0.01
        self.acceptors: dict[Address, SimulatedAcceptor] = {}
        self._ends: dict[SimulatedTransport, None] = {}
        self._ports = 50_000

    def reaches(self, one: int, other: int) -> bool:
        """Whether one host can reach the other."""
        return one == other or (
            frozenset((one, other)) not in self.cut
            and one not in self.off
            and other not in self.off
        )

    def delay_s(self) -> float:
        """A random transit time."""
        rng = self.rng
        return rng.random() * self.slowest_s * (20 if rng.random() < 0.01 else 1)

    def host(self, number: int) -> HostNetwork:
        """The network as the programs on one host see it."""
        return HostNetwork(self, number)

    def open(
        self, client: int, acceptor: SimulatedAcceptor, context: Context
    ) -> SimulatedTransport:
        """Make a connection; `acceptor` gets its end of it later."""
        self._ports += 1
        here = SimulatedTransport(self, client, context)
        there = SimulatedTransport(self, acceptor.host, acceptor.context)
        here.pipe, there.pipe = Pipe(self, here, there), Pipe(self, there, here)
        self._ends[here] = self._ends[there] = None
        acceptor.connected(there, (f"10.0.0.{client}", self._ports))
        return here

    def forget(self, end: SimulatedTransport) -> None:
        """Forget an end that was closed."""
        self._ends.pop(end, None)

    def kill(self, owner: Owner, *, power: bool) -> None:
        """End all connections and listeners of a process; with `power` without notice to the peers."""
        for acceptor in [each for each in self.acceptors.values() if each.owner == owner]:
            acceptor.close()
        for end in [each for each in self._ends if each.owner == owner]:
            if power:
                assert end.pipe is not None
                end.pipe.drop()
                end.vanish()
            else:
                end.close()


class HostNetwork:
    """The Network of a broker or client. Source of the contract: `server.net.network.Network`."""

    def __init__(self, network: Network, number: int) -> None:
        self._network = network
        self._number = number

    def listen(self, endpoint: Endpoint, limits: NetLimits) -> SimulatedAcceptor:
        place = endpoint.host, endpoint.port
        if place in self._network.acceptors:
            raise OSError(f"cannot listen on {endpoint.address}: Address already in use")
        acceptor = SimulatedAcceptor(self._network, self._number, place)
        self._network.acceptors[place] = acceptor
        return acceptor

    async def connect(self, endpoint: Endpoint) -> SimulatedTransport:
        network, place = self._network, (endpoint.host, endpoint.port)
        target = int(endpoint.host.removeprefix("broker"))
        await asyncio.sleep(network.delay_s())
        while not network.reaches(self._number, target) or network.rng.random() < network.loss:
            await asyncio.sleep(SYN_AGAIN_S)
        acceptor = network.acceptors.get(place)
        if acceptor is None:
            await asyncio.sleep(network.delay_s())
            raise ConnectionRefusedError(f"nobody listens on {endpoint.address}")
        end = network.open(self._number, acceptor, copy_context())
        try:
            await asyncio.sleep(network.delay_s())
        except asyncio.CancelledError:
            end.close()
            raise
        return end


class SimulatedAcceptor:
    """A bound address. Connections that it accepts belong to the process that bound it."""

    def __init__(self, network: Network, host: int, place: Address) -> None:
        self.host = host
        self.port = place[1]
        self.context = copy_context()
        self.owner: Owner = OWNER.get()
        self._network = network
        self._place = place
        self._program: ConnectionOwner | None = None
        self._waiting: deque[tuple[SimulatedTransport, Address]] = deque()

    def start(self, owner: ConnectionOwner) -> None:
        self._program = owner
        self.resume()

    def resume(self) -> None:
        asyncio.get_running_loop().call_soon(self._accept, context=self.context)

    def connected(self, end: SimulatedTransport, peer: Address) -> None:
        """Accept a connection."""
        self._waiting.append((end, peer))
        self.resume()

    def _accept(self) -> None:
        while self._waiting and self._program is not None and self._program.may_accept():
            end, peer = self._waiting.popleft()
            if not end.closed:
                self._program.accepted(end, (f"10.0.0.{self.host}", self.port), peer)

    def close(self) -> None:
        self._program = None
        if self._network.acceptors.get(self._place) is self:
            del self._network.acceptors[self._place]
        while self._waiting:
            self._waiting.popleft()[0].close()


class Pipe:
    """One direction of a connection."""

    __slots__ = ("_again_s", "_free_at", "_network", "_queue", "_since", "_source", "_target")

    def __init__(
        self, network: Network, source: SimulatedTransport, target: SimulatedTransport
    ) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._queue: deque[tuple[float, Any]] = deque()
        self._free_at = 0.0
        self._again_s = AGAIN_S
        #: Since when nothing has got through, and how long the sender keeps trying.
        self._since: tuple[float, float] | None = None

    def put(self, item: Any) -> None:
        """Send bytes, FIN or RESET."""
        arrives = asyncio.get_running_loop().time() + self._network.delay_s()
        self._free_at = arrives = max(arrives, self._free_at)
        self._queue.append((arrives, item))
        if len(self._queue) == 1:
            self._wait_until(arrives)

    def drop(self) -> None:
        """Lose everything in transit."""
        self._queue.clear()

    def _wait_until(self, when: float) -> None:
        asyncio.get_running_loop().call_at(when, self._due, context=self._target.context)

    def _due(self) -> None:
        queue, network = self._queue, self._network
        if not queue:
            return
        now = asyncio.get_running_loop().time()
        if not network.reaches(self._source.host, self._target.host):
            if self._since is None:
                self._since = now, network.rng.choice(PATIENCE_S)
            since, patience_s = self._since
            if now - since > patience_s:
                queue.clear()
                self._source.fail(TimeoutError("nobody answered"))
                return
            self._wait_until(now + self._again_s)
            self._again_s = min(2 * self._again_s, MAX_AGAIN_S)
            return
        self._since, self._again_s = None, AGAIN_S
        if network.rng.random() < network.loss:
            queue.clear()
            self._source.fail(ConnectionResetError("the connection was lost"))
            self._target.fail(ConnectionResetError("the connection was lost"))
            return
        _, item = queue.popleft()
        if queue:
            self._wait_until(max(now, queue[0][0]))
        self._target.arrive(item)

    @property
    def peer(self) -> SimulatedTransport:
        """The receiving end."""
        return self._target


class SimulatedTransport:
    """One end of a connection. Source of the contract: `server.net.transport.Transport`."""

    __slots__ = (
        "_arrived",
        "_closing",
        "_ended",
        "_network",
        "_reading",
        "_receiver",
        "closed",
        "context",
        "host",
        "owner",
        "pipe",
        "sent_bytes",
        "under_way",
    )

    def __init__(self, network: Network, host: int, context: Context) -> None:
        self.host = host
        self.context = context
        self.owner: Owner = context.get(OWNER)
        self.pipe: Pipe | None = None
        self.closed = False
        #: Bytes that were sent but that the other program has not read yet.
        self.under_way = 0
        self.sent_bytes = 0
        self._network = network
        self._receiver: Receiver | None = None
        self._arrived = bytearray()
        self._ended = False
        self._reading = False
        self._closing = False

    @property
    def unsent_bytes(self) -> int:
        return max(0, self.under_way - WINDOW_BYTES)

    @property
    def unsent_memory(self) -> int:
        return self.unsent_bytes

    def holds_removed_file(self) -> bool:
        return False

    @property
    def taken_bytes(self) -> int:
        return self.sent_bytes - self.unsent_bytes

    # -- the program's side

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.resume_reading()

    def send(self, parts: Sequence[Any]) -> None:
        data = bytearray()
        for part in parts:
            if isinstance(part, bytes | bytearray | memoryview):
                data += part
            else:
                data += part.read()
                part.close()
        if self.closed or not data:
            return
        assert self.pipe is not None
        self.under_way += len(data)
        self.sent_bytes += len(data)
        rng = self._network.rng
        if len(data) > 1 and rng.random() < CUT_SHARE:
            cut = rng.randrange(1, len(data))
            self.pipe.put(data[:cut])
            data = data[cut:]
        self.pipe.put(data)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if self.closed or self._closing or self._reading:
            return
        self._reading = True
        if self._arrived or self._ended:
            asyncio.get_running_loop().call_soon(self._pump, context=self.context)

    def close_when_sent(self) -> None:
        self._closing = True
        self.pause_reading()
        asyncio.get_running_loop().call_soon(self._lose, None, context=self.context)

    def close(self) -> None:
        if not self.closed:
            self.vanish()
            assert self.pipe is not None
            self.pipe.put(FIN)

    # -- the network's side

    def vanish(self) -> None:
        """Close without notice to the other side."""
        self.closed = True
        self._reading = False
        self._arrived.clear()
        self._network.forget(self)

    def fail(self, error: OSError) -> None:
        """Give up the connection, as the system does."""
        if not self.closed:
            self.vanish()
            asyncio.get_running_loop().call_soon(self._tell, error, context=self.context)

    def _lose(self, error: OSError | None) -> None:
        if not self.closed:
            self.close()
            self._tell(error)

    def _tell(self, error: OSError | None) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lost(error)

    def arrive(self, item: Any) -> None:
        """Receive data from the other end."""
        assert self.pipe is not None
        if item is RESET:
            self.fail(ConnectionResetError("the connection was closed by the other side"))
        elif self.closed:
            if item is not FIN:
                self.pipe.put(RESET)
        elif item is FIN:
            self._ended = True
            self._pump()
        else:
            self._arrived += item
            self._pump()

    def _pump(self) -> None:
        """Deliver data that has arrived, as the loop does when a socket is readable."""
        receiver = self._receiver
        while self._arrived and self._reading and receiver is not None:
            shared_block = getattr(receiver, "shared_block", None)
            block = None if shared_block is None or self.unsent_bytes else shared_block()
            if block is not None:
                count = min(len(block.view), len(self._arrived))
                block.view[:count] = self._arrived[:count]
                del self._arrived[:count]
                self._taken(count)
                receiver.received_at_once(block, count)
                continue
            buffer = receiver.get_buffer()
            if buffer is None:
                self.pause_reading()
                return
            count = min(len(buffer), len(self._arrived))
            buffer[:count] = self._arrived[:count]
            buffer.release()
            del self._arrived[:count]
            self._taken(count)
            receiver.received(count)
        if self._ended and self._reading and not self._arrived:
            self._lose(None)

    def _taken(self, count: int) -> None:
        """Tell the sender that there is room again."""
        assert self.pipe is not None
        sender = self.pipe.peer
        before, sender.under_way = sender.under_way, sender.under_way - count
        if before > WINDOW_BYTES >= sender.under_way and sender._receiver is not None:
            drained: Callable[[], None] = sender._receiver.drained
            asyncio.get_running_loop().call_soon(drained, context=sender.context)
