"""The opaque bytes of classic members: subscriptions and assignments.

Shape: int16 version, then the message in that version. Source: ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error

from kwire.codec import decode, encode
from kwire.errors import ErrorCode, WireError
from kwire.messages.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

from ....metadata.image import MetadataImage
from ..modern.members import Partitions
from ..modern.order import topics_in_order
from ..modern.refusal import GroupRefusal

HIGHEST_VERSION = 3

_INT16 = Struct(">h")


class Malformed(ValueError):
    """Raised for bytes that do not follow the format."""


def version_of(data: bytes) -> int:
    """The version that a member understands.

    Errors: Malformed.
    """
    version: int
    try:
        (version,) = _INT16.unpack_from(data)
    except struct_error:
        raise Malformed("no version") from None
    if version < 0:
        raise Malformed(f"version {version}")
    return min(version, HIGHEST_VERSION)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """The subscription of a member.

    Errors: Malformed.
    """
    try:
        return decode(ConsumerProtocolSubscription, data, version_of(data), 2)
    except WireError as error:
        raise Malformed(str(error)) from None


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """The assignment of a member.

    Errors: Malformed.
    """
    try:
        return decode(ConsumerProtocolAssignment, data, version_of(data), 2)
    except WireError as error:
        raise Malformed(str(error)) from None


def subscription_of(protocols: Iterable[tuple[str, bytes]]) -> ConsumerProtocolSubscription:
    """The subscription of a member, from the first of its protocols.

    Errors: a GroupRefusal with UNKNOWN_SERVER_ERROR.
    """
    try:
        _, metadata = next(iter(protocols))
        return read_subscription(metadata)
    except Malformed:
        raise GroupRefusal(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from None


def assignment_bytes(partitions: Partitions, metadata: bytes, image: MetadataImage) -> bytes:
    """An assignment in the version of the member's subscription, with topics in Apache Kafka's order.

    Errors: Malformed.
    """
    version = version_of(metadata)
    rows = [
        TopicPartition(
            topic=image.topics_by_id[topic_id].name, partitions=sorted(partitions[topic_id])
        )
        for topic_id in topics_in_order(partitions)
        if topic_id in image.topics_by_id
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=rows)
    return _INT16.pack(version) + encode(message, version)


def by_id(rows: Iterable[TopicPartition], image: MetadataImage) -> Partitions:
    """The partitions of topics that exist, by topic id."""
    return {
        image.topics[row.topic].topic_id: frozenset(row.partitions)
        for row in rows
        if row.topic in image.topics
    }
