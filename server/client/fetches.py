"""One Fetch in flight to each of several brokers, on connections of their own."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.errors import WireError
from kwire.messages.fetch import FetchRequest

from .answers import version_for
from .brokers import Brokers
from .contact import RETRY_S
from .errors import Unavailable
from .requests import MAX_FETCH_VERSION, Partition
from .wire import Wire
from .words import reason


class FetchInFlight(NamedTuple):
    """A Fetch in flight. Unit: `since` in seconds."""

    positions: dict[Partition, int]
    since: float


class Fetches:
    """The requests in flight, by broker. Unit: `timeout_s` is the time that a broker may take for an answer."""

    def __init__(
        self, brokers: Brokers, timeout_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.asked: dict[int, FetchInFlight] = {}
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._now = now
        self._wires: dict[int, Wire] = {}

    def close(self) -> None:
        """Close the connections."""
        for wire in self._wires.values():
            wire.close()

    def send(self, node: int, request: FetchRequest, positions: dict[Partition, int]) -> None:
        """Send a Fetch for partitions at their positions. Errors: Unavailable."""
        try:
            if node not in self._wires:
                self._wires[node] = self._brokers.connect(node)
            wire = self._wires[node]
            wire.sock.settimeout(self._timeout_s)
            wire.send(request, version_for(wire.versions, request, MAX_FETCH_VERSION))
        except (OSError, WireError) as error:
            raise self._lost(node, reason(error)) from None
        self.asked[node] = FetchInFlight(positions, self._now())

    def ready(self, timeout_s: float) -> tuple[list[int], list[int]]:
        """The brokers whose answers begin to arrive within a time, and those whose answers are overdue."""
        if not self.asked:
            time.sleep(min(timeout_s, RETRY_S))
            return [], []
        # select does not see data that TLS has already read.
        ready = [n for n in self.asked if getattr(self._wires[n].sock, "pending", int)()]
        if not ready:
            socks = {self._wires[node].sock: node for node in self.asked}
            ready = [socks[sock] for sock in select.select(list(socks), [], [], timeout_s)[0]]
        late = self._now() - self._timeout_s
        overdue = [n for n, asked in self.asked.items() if asked.since < late and n not in ready]
        return ready, overdue

    def receive(self, node: int) -> tuple[dict[Partition, int], Any]:
        """The answer of a broker, and the positions that were asked for. Errors: Unavailable."""
        asked = self.asked.pop(node)
        try:
            return asked.positions, self._wires[node].receive()
        except (OSError, WireError) as error:
            raise self._lost(node, reason(error)) from None

    def drop(self, node: int) -> None:
        """Close the connection to a broker."""
        self.asked.pop(node, None)
        wire = self._wires.pop(node, None)
        if wire is not None:
            wire.close()

    def _lost(self, node: int, said: str) -> Unavailable:
        return Unavailable(f"{self._brokers.place(node)}: {said}")
