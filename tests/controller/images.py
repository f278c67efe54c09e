"""Images for tests of the controller's decisions."""

from __future__ import annotations

from collections.abc import Mapping

from server.metadata.endpoint import Endpoint
from server.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
    TopicImage,
)


def topic_id(name: str) -> bytes:
    """A readable topic id."""
    return name.encode()[:16].ljust(16, b"\1")


def broker(broker_id: int, epoch: int | None = None, rack: str | None = None) -> BrokerRegistration:
    """A broker with a listener for clients and one for brokers."""
    return BrokerRegistration(
        broker_id,
        (
            Endpoint("CLIENT", "outside", 9000 + broker_id, "SSL"),
            Endpoint("REPLICA", "inside", 9100 + broker_id),
        ),
        rack,
        100 + broker_id if epoch is None else epoch,
    )


def part(
    replicas: tuple[int, ...],
    leader: int | None = None,
    epoch: int = 0,
    isr: tuple[int, ...] | None = None,
    version: int = 0,
    offline: tuple[int, ...] = (),
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
    recovering: bool = False,
) -> PartitionImage:
    """A partition; its number is its position in the topic."""
    return PartitionImage(
        0,
        replicas[0] if leader is None else leader,
        epoch,
        replicas,
        replicas if isr is None else isr,
        version,
        offline,
        recovering,
        adding,
        removing,
    )


def topic(name: str, *partitions: PartitionImage) -> TopicImage:
    """A topic with these partitions."""
    return TopicImage(
        name, topic_id(name), {n: p._replace(partition=n) for n, p in enumerate(partitions)}
    )


def image(
    brokers: Mapping[int, BrokerRegistration] | tuple[int, ...],
    *topics: TopicImage,
    base: MetadataImage | None = None,
) -> MetadataImage:
    """The next image after `base`, with these brokers and topics added or replaced."""
    if not isinstance(brokers, Mapping):
        brokers = {broker_id: broker(broker_id) for broker_id in brokers}
    return (base or MetadataImage()).edit().put_brokers(brokers).put_topics(topics).build()
