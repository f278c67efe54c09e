"""What a handler is given with each request, and what it may give back instead of a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..net.connection_info import ConnectionInfo

if TYPE_CHECKING:
    from kwire.api import ApiKey

    from ..clock import Clock
    from ..config import BrokerConfig
    from ..coordination.cluster import Cluster
    from ..executor import Executor
    from ..log.log_manager import LogManager
    from ..metadata.image import MetadataImage
    from ..metadata.publisher import MetadataPublisher
    from ..replication.replica_manager import ReplicaManager
    from .registry import HandlerTable

__all__ = [
    "NO_REPLY",
    "ConnectionInfo",
    "Encoded",
    "Features",
    "Later",
    "NoReply",
    "RequestContext",
    "Services",
]

T = TypeVar("T")


class Later(Generic[T]):
    """A response that is not ready yet; its connection keeps the reply's place in the order.

    Shape: what `awaitable` gives is the response, or with `finish` what is handed to `finish` on
    the loop, which returns the response (or `NoReply`). No view into the request may live on in
    either: the frame's memory is used again as soon as the handler has returned.
    Errors: an exception of the awaitable or of `finish` is treated as one of the handler's.
    """

    __slots__ = ("awaitable", "finish", "on_disconnect")

    def __init__(
        self,
        awaitable: Awaitable[T],
        finish: Callable[[T], Any] | None = None,
        on_disconnect: Callable[[], object] | None = None,
    ) -> None:
        self.awaitable = awaitable
        self.finish = finish
        self.on_disconnect = on_disconnect


class NoReply:
    """The answer to a request that has none (Produce with acks=0), with a reason to close or not."""

    __slots__ = ("close_reason",)

    def __init__(self, close_reason: str | None = None) -> None:
        self.close_reason = close_reason


#: Nothing is sent and the connection goes on.
NO_REPLY = NoReply()


class Encoded:
    """A response whose body is encoded already, in the version that was asked for."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class Features:
    """Feature levels as ApiVersions shows them.

    Shape: `supported` name -> (min, max level), `finalized` name -> level, `epoch` -1 when unknown.
    Source: KIP-584.
    """

    __slots__ = ("epoch", "finalized", "supported")

    def __init__(
        self,
        supported: dict[str, tuple[int, int]] | None = None,
        finalized: dict[str, int] | None = None,
        epoch: int = 0,
    ) -> None:
        self.supported = supported or {}
        self.finalized = finalized or {}
        self.epoch = epoch

    @classmethod
    def of(cls, ranges: Mapping[str, tuple[int, int]]) -> Features:
        """Features that are all at their highest level."""
        return cls(dict(ranges), {name: high for name, (_, high) in ranges.items()})


class Services:
    """The broker's rooms as handlers reach them; the composition root fills every attribute.

    Errors: AttributeError on one that was not filled, which is a mistake in the composition root
    (or a test that needs one more line).
    """

    node_id: int
    cluster_id: str
    #: Whether clients are told what is registered; if not, the address they came by.
    advertises: bool
    #: "3.9" whenever ZooKeeper coordinates, "4.3" with the embedded store.
    ceiling: str
    features: Features
    config: BrokerConfig
    clock: Clock
    executor: Executor
    handlers: HandlerTable
    #: The current image; call it once in a request and keep the value.
    metadata: Callable[[], MetadataImage]
    publisher: MetadataPublisher
    cluster: Cluster
    log_manager: LogManager
    replica_manager: ReplicaManager
    controller: Any
    group_coordinator: Any
    transaction_coordinator: Any
    #: Asks the coordinator of a transactional id, whichever broker it is.
    partition_verifier: Any
    #: Writes transaction markers to partitions that this broker leads.
    local_markers: Any
    producer_ids: Any
    fetch_sessions: Any
    topics: Any
    configs: Any

    def __init__(self, **rooms: Any) -> None:
        for name, room in rooms.items():
            setattr(self, name, room)


class RequestContext:
    """One request's header, its connection, the time it was taken up, and the broker's services."""

    __slots__ = (
        "api_key",
        "client_id",
        "connection",
        "correlation_id",
        "now_ms",
        "services",
        "version",
    )

    def __init__(
        self,
        api_key: ApiKey | int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
        connection: ConnectionInfo,
        services: Services,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.now_ms = now_ms
        self.connection = connection
        self.services = services

    def later(
        self,
        awaitable: Awaitable[T],
        finish: Callable[[T], Any] | None = None,
        on_disconnect: Callable[[], object] | None = None,
    ) -> Later[T]:
        """Promise the response: `finish(await awaitable)`, or what is awaited when there is none.

        Shape: a future costs least; a coroutine is run as a task. It is not cancelled when the
        peer goes away: `on_disconnect` is called then, for waiting that can be given up.
        """
        return Later(awaitable, finish, on_disconnect)
