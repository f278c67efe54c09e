"""The limits of the network layer, by Kafka's config names, and the counts of connections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..quotas.connections import ConnectionRates
from ..shares import LARGE

if TYPE_CHECKING:
    from ..config import BrokerConfig

DEFAULT_RESPONSE_BYTES = 64 * 1024 * 1024

#: Without a limit, a few hundred connections that send nearly all of a large frame would use up all memory.
DEFAULT_QUEUED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NetLimits:
    """The limits of a listener and each of its connections.

    Unit: as named. The first group are Kafka's configs (`socket.request.max.bytes`, ...), the second kwire's own. A
    `queued_max_request_bytes` of -1, which is no limit in Kafka, means 64 MiB. Buffer sizes of -1 are left to the
    operating system.
    """

    request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = -1
    max_connections: int = 2_147_483_647
    max_connections_per_ip: int = 2_147_483_647
    max_connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    idle_ms: int = 600_000
    send_buffer_bytes: int = 102_400
    receive_buffer_bytes: int = -1
    backlog: int = 50

    queued_max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    max_overlapping: int = 64  # requests of one connection whose replies cannot be sent yet
    max_unsent_bytes: int = 1024 * 1024  # output of one connection before its requests wait
    frame_timeout_ms: int = (
        60_000  # in addition to the time that the frame's size takes at 16 KiB/s
    )
    stall_ms: int = 2_000  # see frame_memory
    max_batch: int = 16  # requests of one connection in one turn of the loop, before other connections get theirs

    @classmethod
    def of(cls, config: BrokerConfig) -> NetLimits:
        """Read the limits from the settings."""
        receive_buffer_bytes = -1  # with 102400, clients would wait for the TCP window to open
        if "socket.receive.buffer.bytes" in config.effective:
            receive_buffer_bytes = config.get_int("socket.receive.buffer.bytes")
        return cls(
            request_max_bytes=config.get_int("socket.request.max.bytes"),
            queued_max_request_bytes=config.get_int("queued.max.request.bytes"),
            queued_max_response_bytes=config.get_int("kwire.queued.max.response.bytes"),
            max_connections=config.get_int("max.connections"),
            max_connections_per_ip=config.get_int("max.connections.per.ip"),
            max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
            idle_ms=config.get_int("connections.max.idle.ms"),
            send_buffer_bytes=config.get_int("socket.send.buffer.bytes"),
            receive_buffer_bytes=receive_buffer_bytes,
            backlog=config.get_int("socket.listen.backlog.size"),
        )


class ConnectionQuotas:
    """Counts the connections of a broker by address. Source: kafka.network.ConnectionQuotas.

    Shape: `most` limits their number in addition to `max.connections`, unless it is None; of these, an address may have a
    share (server/shares.py), so that one cannot keep others out. `rates` limits the rate of
    new connections.
    """

    def __init__(
        self, limits: NetLimits, most: int | None = None, rates: ConnectionRates | None = None
    ) -> None:
        self.limits = limits  # replaced when a setting changes
        self.rates = rates or ConnectionRates()
        self._most = most
        self._by_host: Counter[str] = Counter()
        self.count = 0

    @property
    def full(self) -> bool:
        """Whether accepting has to wait, because no more connections are allowed."""
        return self.count >= self.limits.max_connections or (
            self._most is not None and self.count >= self._most
        )

    @property
    def reason(self) -> str:
        """The limit that has been reached, for the log."""
        if self.count >= self.limits.max_connections:
            return "max.connections"
        return "the process's limit of open files"

    def enter(self, host: str) -> str | None:
        """Count a connection in, or return why it is refused."""
        limit = self.limits.max_connections_per_ip_overrides.get(
            host, self.limits.max_connections_per_ip
        )
        if self._by_host[host] >= limit:
            return f"{host} has {limit} connections (max.connections.per.ip)"
        own = self._by_host[host]
        if self._most is not None and own and own + 1 > LARGE * (self._most - self.count - 1):
            return f"{host} has {own} connections, its share of the process's limit of open files"
        self._by_host[host] += 1
        self.count += 1
        return None

    def leave(self, host: str) -> None:
        """Count a connection out."""
        self.count -= 1
        if self._by_host[host] <= 1:
            del self._by_host[host]
        else:
            self._by_host[host] -= 1
