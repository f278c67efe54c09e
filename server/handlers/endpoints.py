"""Determines the address of a broker for a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ..metadata.endpoint import ENCRYPTED

if TYPE_CHECKING:
    from ..metadata.image import BrokerRegistration, MetadataImage
    from .context import RequestContext


class ClientAddress(NamedTuple):
    """The host and port that the client should connect to."""

    host: str
    port: int


class NodeEndpoint(Protocol):
    """A broker's address in a response; each message declares its own class."""

    node_id: int


E = TypeVar("E", bound=NodeEndpoint)


class Leader(NamedTuple):
    """The leader of a partition; id and epoch are -1 if unknown, address is None if it is unreachable."""

    id: int
    epoch: int
    address: ClientAddress | None
    rack: str | None


def leader_of(ctx: RequestContext, image: MetadataImage, topic: str, partition: int) -> Leader:
    """Return the leader for a client that sent its request to the wrong broker. Source: KIP-951."""
    found = image.partition(topic, partition)
    if found is None:
        return Leader(-1, -1, None, None)
    broker = image.brokers.get(found.leader)
    rack = None if broker is None else broker.rack
    return Leader(found.leader, found.leader_epoch, address_for(ctx, image, found.leader), rack)


def add_endpoint(endpoints: list[E], leader: Leader, endpoint: Callable[..., E]) -> None:
    """Add a leader's address to a response, once, if it has one. Source: KIP-951."""
    if leader.address is not None and all(known.node_id != leader.id for known in endpoints):
        host, port = leader.address
        endpoints.append(endpoint(node_id=leader.id, host=host, port=port, rack=leader.rack))


def address_for(ctx: RequestContext, image: MetadataImage, broker_id: int) -> ClientAddress | None:
    """Return the address of a live broker for this connection's client, on the client's listener.

    Shape: a single broker without advertised.listeners gives the address at which the client
    already reached it, which is right on loopback, in a local network, on several interfaces and
    through tunnels with equal port numbers; brokers of a cluster all give the registered address,
    and so does a listener with TLS, since clients compare the name with the one in the certificate.
    None for a broker that is not alive or has no such listener.
    """
    connection = ctx.connection
    services = ctx.services
    if (
        broker_id == services.node_id
        and not services.advertises
        and connection.security_protocol not in ENCRYPTED
    ):
        return ClientAddress(connection.local_host, connection.local_port)
    broker = image.brokers.get(broker_id)
    return None if broker is None else registered_address(ctx, broker)


def registered_address(ctx: RequestContext, broker: BrokerRegistration) -> ClientAddress | None:
    """Return the address on the client's listener with which a broker is, or was, registered."""
    endpoint = broker.endpoint(ctx.connection.listener)
    return None if endpoint is None else ClientAddress(endpoint.host, endpoint.port)
