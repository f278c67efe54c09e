"""The definition of a handler: its input with each request, and its possible results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from kwire.api import ApiKey
from kwire.schema import MAX_VERSION, schema_of

from ..net.connection_info import ConnectionInfo
from ..net.dispatcher import Later
from ..security.acl import SUPPORTED_OPERATIONS, SUPPORTED_OPERATIONS_OF_4
from ..turns import Steps, exhaust
from .authorization import AclOperation, ResourceType
from .ceilings import CEILING_3_9
from .refusals import refused

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from ..clock import Clock
    from ..config import BrokerConfig
    from ..controller.auto_topics import AutoTopics
    from ..controller.controller import Controller
    from ..coordination.acls import AclStore
    from ..coordination.cluster import ClusterStore
    from ..coordination.tokens import TokenStore
    from ..coordinator.group.coordinator import GroupCoordinator
    from ..coordinator.share_state.coordinator import ShareCoordinator
    from ..coordinator.share_state.persister import SharePersister
    from ..coordinator.transaction.coordinator import TransactionCoordinator
    from ..coordinator.transaction.marker_writer import TransactionMarkerWriter
    from ..coordinator.transaction.producer_ids import ProducerIds
    from ..executor import Executor
    from ..interbroker.group_support import GroupSupport
    from ..log.log_manager import LogManager
    from ..loggers import BrokerLoggers
    from ..metadata.departed import DepartedBrokers
    from ..metadata.image import MetadataImage
    from ..metadata.publisher import MetadataPublisher
    from ..metadata.topic_partition import TopicPartition
    from ..quotas.clients import ClientQuotas
    from ..replication.fetch_session import FetchSessionCache
    from ..replication.log_dir_moves import LogDirMoves
    from ..replication.replica_manager import ReplicaManager
    from ..share.manager import SharePartitionManager
    from ..telemetry.receiver import Telemetry
    from ..turns import Turns
    from .authorization import Authorizer, Check
    from .ceilings import ApiRange
    from .charge import Charge
    from .denials import Denials

__all__ = [
    "NO_REPLY",
    "ConnectionInfo",
    "Encoded",
    "Features",
    "Handler",
    "Later",
    "NoReply",
    "RequestContext",
    "Services",
]

T = TypeVar("T")
R = TypeVar("R")
RequestT = TypeVar("RequestT")


class NoReply:
    """The answer to a request that gets none (Produce with acks=0); a reason closes the connection."""

    __slots__ = ("close_reason",)

    def __init__(self, close_reason: str | None = None) -> None:
        self.close_reason = close_reason


#: Nothing is sent and the connection stays open.
NO_REPLY = NoReply()


class Encoded:
    """A response whose body is already encoded, in the requested version."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class Features:
    """Feature levels as ApiVersions shows them, now.

    Shape: `supported` name -> (min, max level), `finalized` name -> level, without those at level 0, `epoch` -1 when
    unknown. Source: KIP-584.
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
        """The given features, each at its highest level."""
        return cls(dict(ranges), {name: high for name, (_, high) in ranges.items()})

    def set(self, levels: Mapping[str, int], epoch: int) -> None:
        """Take the levels that are finalized from now on."""
        self.finalized = {name: level for name, level in levels.items() if level}
        self.epoch = epoch


class TransactionVerifier(Protocol):
    """Asks the coordinator of a transactional id, whichever broker that is."""

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, tp: TopicPartition
    ) -> ErrorCode | Awaitable[ErrorCode]:
        """Check that a partition is part of the producer's open transaction."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """The broker's parts that handlers use; the composition root passes all of them at once."""

    node_id: int
    cluster_id: str
    #: Whether clients get the registered addresses; if not, the address that they connected to.
    advertises: bool
    #: "3.9" whenever ZooKeeper coordinates, "4.3" with the embedded store.
    ceiling: str
    features: Features
    config: BrokerConfig
    clock: Clock
    executor: Executor
    #: Shared by all long work; a coroutine that takes long awaits `turns.pause()` between its steps.
    turns: Turns
    #: The content of ApiVersions, by API key.
    api_ranges: Mapping[int, ApiRange]
    #: The current image; call it once in a request and keep the value.
    metadata: Callable[[], MetadataImage]
    publisher: MetadataPublisher
    #: The brokers that have left a moment ago.
    departed: DepartedBrokers
    cluster: ClusterStore
    log_manager: LogManager
    log_dir_moves: LogDirMoves
    replica_manager: ReplicaManager
    controller: Controller
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    share_coordinator: ShareCoordinator
    #: Reads and writes the states of share groups, at whichever broker keeps them.
    share_persister: SharePersister
    partition_verifier: TransactionVerifier
    #: Writes transaction markers to partitions that this broker leads.
    marker_writer: TransactionMarkerWriter
    producer_ids: ProducerIds
    fetch_sessions: FetchSessionCache
    #: The share partitions of partitions that this broker leads, and their members' sessions.
    share_partitions: SharePartitionManager
    topics: AutoTopics
    authorizer: Authorizer
    #: The ACLs, which clients may change; None without an authorizer.
    acls: AclStore | None
    #: The delegation tokens; None without their secret key.
    tokens: TokenStore | None
    quotas: ClientQuotas
    #: Where denied requests are logged; None without an authorizer.
    denials: Denials | None
    #: Takes the metrics that clients push; None if nothing would show them, and then those APIs are not served.
    telemetry: Telemetry | None
    loggers: BrokerLoggers
    #: Whether all brokers of a cluster with ZooKeeper have consumer groups; None without ZooKeeper.
    group_support: GroupSupport | None


class Sight:
    """Whether a client may see a topic; also after the request, of which it keeps nothing.

    Shape: the answers depend on `sees` alone.
    """

    __slots__ = ("_authorizer", "_connection")

    def __init__(self, authorizer: Authorizer, connection: ConnectionInfo) -> None:
        self._authorizer = authorizer
        self._connection = connection

    def __call__(self, name: str) -> bool:
        return self._authorizer.allows(
            self._connection, AclOperation.DESCRIBE, ResourceType.TOPIC, name
        )

    @property
    def sees(self) -> Hashable:
        """The client as authorization knows it, and the version of the ACLs."""
        connection = self._connection
        return connection.principal, connection.client_host, self._authorizer.changes


class RequestContext:
    """One request: its handler, header, connection, the time it was received, and the services.

    Shape: `message` is the decoded request, for use after the handler has returned; None if it
    holds views into the frame, which must not outlive the handler. `began_us` and `handled_us` are
    the times for an observer, 0 without one. `charge` is None while nobody has a quota.
    """

    __slots__ = (
        "began_us",
        "charge",
        "client_id",
        "connection",
        "correlation_id",
        "handled_us",
        "handler",
        "message",
        "now_ms",
        "services",
        "version",
    )

    def __init__(
        self,
        handler: Handler[Any],
        version: int,
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
        connection: ConnectionInfo,
        services: Services,
        message: Any = None,
    ) -> None:
        self.handler = handler
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.now_ms = now_ms
        self.connection = connection
        self.services = services
        self.message = message
        self.began_us = self.handled_us = 0
        self.charge: Charge | None = None

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_denied: bool = True,
    ) -> bool:
        """Whether this connection's principal may do this to a resource.

        Shape: a denial is logged, except with `log_denied` False: where another permission is enough, and where a
        listing leaves out what may not be seen. Source: Action.logIfDenied.
        """
        services = self.services
        if services.authorizer.allows(self.connection, operation, resource_type, name):
            return True
        if log_denied and services.denials is not None:
            request = self.handler.name
            services.denials.log(self.connection, request, operation, resource_type, name)
        return False

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether this connection's principal may do this to at least one resource of the type."""
        services = self.services
        if services.authorizer.allows_any(self.connection, operation, resource_type):
            return True
        if services.denials is not None:
            request = self.handler.name
            services.denials.log(self.connection, request, operation, resource_type, None)
        return False

    def partition_by_authorized(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        log_denied: bool = True,
    ) -> Generator[None, None, tuple[list[str], list[str]]]:
        """Split the names of resources into those on which the operation is allowed, and the rest.

        Shape: in steps; each in the order given. The API decides what happens to the others: a row with the
        error in `DENIED`, or none at all. Source: AuthHelper.partitionSeqByAuthorized.
        """
        allowed: list[str] = []
        denied: list[str] = []
        for name in names:
            yield
            may = self.allows(operation, resource_type, name, log_denied=log_denied)
            (allowed if may else denied).append(name)
        return allowed, denied

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that this connection's principal may do on a resource: a bit for each.

        Source: AuthHelper.authorizedOperations.
        """
        of_3 = self.services.ceiling == CEILING_3_9.name
        supported = SUPPORTED_OPERATIONS if of_3 else SUPPORTED_OPERATIONS_OF_4
        return sum(
            1 << operation
            for operation in supported[resource_type]
            if self.allows(operation, resource_type, name, log_denied=False)
        )

    @overload
    def later(
        self,
        awaitable: Awaitable[R | NoReply],
        finish: None = None,
        on_disconnect: Callable[[], object] | None = None,
    ) -> Later[R]: ...

    @overload
    def later(
        self,
        awaitable: Awaitable[T],
        finish: Callable[[T], Generator[None, None, R | NoReply | Later[R]]],
        on_disconnect: Callable[[], object] | None = None,
    ) -> Later[R]: ...

    @overload
    def later(
        self,
        awaitable: Awaitable[T],
        finish: Callable[[T], R | NoReply] | None = None,
        on_disconnect: Callable[[], object] | None = None,
    ) -> Later[R]: ...

    def later(
        self,
        awaitable: Awaitable[Any],
        finish: Callable[[Any], Any] | None = None,
        on_disconnect: Callable[[], object] | None = None,
    ) -> Later[Any]:
        """Promise the response: `finish(await awaitable)`, or without `finish` the awaited value.

        If it takes long to make, `finish` is a generator function, like a handler.

        Shape: a future costs least; a coroutine is run as a task. It is not cancelled when the peer
        disconnects: `on_disconnect` is called then, to give up a wait.
        """
        return Later(self, awaitable, finish, on_disconnect, self.handler.overlap)


class Handler(Generic[RequestT]):
    """One API as this broker serves it: the function, the versions, and how it shares a connection.

    Shape: calling it calls the function. `min_version` and `max_version` are inclusive.
    `flexible_from` is the first version whose response has the flexible header. `authorize(ctx,
    request)` says whether the request may be handled at all; None if nothing is checked for the
    whole request. `throttled`: the response tells the client how long it is throttled. `overlap`:
    the next request of the same connection may start before this one's reply is ready.
    `in_steps` is what handles a long request; it
    is the same function except where the usual one must be fast. `plain(ctx, frame, body_offset)`
    answers the requests that most are from their bytes, and returns None, with nothing done, for all
    others; it is asked before a request is decoded. It must answer as the function does. `plain_frame(services, frame,
    version, now_ms)` does the same natively, for a whole frame and without a context; it returns (the whole response frame,
    empty if there is none; number of rows), or what is passed to `plain` as `done` if there is an error to be answered.
    """

    __slots__ = (
        "api_key",
        "authorize",
        "flexible_from",
        "function",
        "in_steps",
        "max_version",
        "min_version",
        "name",
        "overlap",
        "plain",
        "plain_frame",
        "request_class",
        "throttled",
    )

    def __init__(
        self,
        request_class: type[RequestT],
        versions: str,
        function: Callable[[RequestContext, RequestT], Any],
        *,
        authorize: Check | None,
        throttled: bool,
        overlap: bool,
    ) -> None:
        self.request_class = request_class
        schema = schema_of(request_class)
        if schema.api_key is None:
            raise TypeError(f"{request_class.__name__} is not a request")
        self.api_key = int(schema.api_key)
        self.name = request_class.__name__.removesuffix("Request")
        self.min_version, self.max_version = parse_versions(versions)
        flexible = schema.flexible
        # ApiVersions responses always have the old header, so that any client can read them.
        never = not flexible or self.api_key == ApiKey.API_VERSIONS
        self.flexible_from = MAX_VERSION + 1 if never else flexible.lowest
        self.function = function
        self.in_steps = function
        self.plain: Callable[..., Any] | None = None
        self.plain_frame: Callable[[Services, memoryview, int, int], Any] | None = None
        self.authorize = authorize
        self.throttled = throttled
        self.overlap = overlap

    def many_rows(
        self, function: Callable[[RequestContext, RequestT], Any]
    ) -> Callable[[RequestContext, RequestT], Any]:
        """Declare the form of the handler, a generator function, for requests that were decoded in turns."""
        self.in_steps = function
        return function

    def __call__(self, ctx: RequestContext, request: RequestT) -> Any:
        return self.function(ctx, request)

    def refuse(self, ctx: RequestContext, request: RequestT | None, error: ErrorCode) -> Any:
        """Return the response that carries one error for the whole request; see refusals.py."""
        return exhaust(self.refuse_in_steps(ctx, request, error))

    def refuse_in_steps(
        self, ctx: RequestContext, request: RequestT | None, error: ErrorCode
    ) -> Steps[Any]:
        """Do the same for a request that may be long."""
        return refused(self.api_key, ctx.version, request, error)

    def __repr__(self) -> str:
        return f"<handler {self.name} {self.min_version}-{self.max_version}>"


#: A handler that takes no more steps than this makes a response that can be encoded immediately.
SHORT_STEPS = 8


def encoded_in_steps(response: R) -> Steps[R]:
    """Return a response that may be long and was not made in steps: a `finish` for `later`."""
    for _ in range(SHORT_STEPS):
        yield
    return response


def parse_versions(versions: str) -> tuple[int, int]:
    """Read "a-b" or "a" as an inclusive pair."""
    first, _, last = versions.partition("-")
    pair = int(first), int(last or first)
    if pair[0] > pair[1] or pair[0] < 0:
        raise ValueError(f"not a version range: {versions!r}")
    return pair
