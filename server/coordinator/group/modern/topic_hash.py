"""The hash of the topics that a group reads, which changes when the topics do.

It is the 64-bit XXH3 over the id, name, partitions and racks of each topic, and then over the hashes of all topics by
name.
Source: Utils.computeTopicHash, computeGroupHash; KIP-1101. Strings are hashed as hash4j does: UTF-16, little endian,
followed by the number of units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

from ....metadata.image import BrokerRegistration, MetadataImage, TopicImage

_MAGIC = b"\0"
_INT32 = Struct("<i")
_INT64 = Struct("<q")


class TopicHashes:
    """The hashes of topics, cached as long as the topics stay the same."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[TopicImage, Mapping[int, BrokerRegistration], int]] = {}
        self._topics_known: Mapping[str, TopicImage] = {}
        self._topics: Mapping[str, TopicImage] = {}
        self._generation = 0

    def generation(self, image: MetadataImage) -> int:
        """A number that grows whenever there are new topics."""
        if image.topics is not self._topics:
            if image.topics.keys() - self._topics.keys():
                self._generation += 1
            self._topics = image.topics
        return self._generation

    def of_group(self, names: Iterable[str], image: MetadataImage) -> int:
        """The hash of those topics that exist; 0 if none does.

        Shape: a signed 64-bit number.
        """
        if image.topics is not self._topics_known:
            self._topics_known = image.topics
            for name in [each for each in self.known if each not in image.topics]:
                del self.known[name]
        found = (self.of_topic(name, image) for name in sorted(names))
        hashes = [each for each in found if each is not None]
        return _xxh3(b"".join(map(_INT64.pack, hashes))) if hashes else 0

    def of_topic(self, name: str, image: MetadataImage) -> int | None:
        """The hash of one topic; None if it does not exist."""
        topic = image.topics.get(name)
        if topic is None:
            return None
        known = self.known.get(name)
        if known is None or known[0] is not topic or known[1] is not image.brokers:
            known = self.known[name] = topic, image.brokers, topic_hash(topic, image.brokers)
        return known[2]


def topic_hash(topic: TopicImage, brokers: Mapping[int, BrokerRegistration]) -> int:
    """The hash of one topic."""
    partitions = topic.partitions
    parts = [
        _MAGIC,
        topic.topic_id[7::-1],  # two numbers, little endian like all others
        topic.topic_id[:7:-1],
        _string(topic.name),
        _INT32.pack(len(partitions)),
    ]
    racks = {broker_id: broker.rack for broker_id, broker in brokers.items() if broker.rack}
    for number in range(len(partitions)):
        parts.append(_INT32.pack(number))
        if racks and number in partitions:
            found = sorted(racks[each] for each in partitions[number].replicas if each in racks)
            for rack in found:
                parts += (_INT32.pack(len(rack)), _string(rack))
    return _xxh3(b"".join(parts))


def _string(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT32.pack(len(units) // 2)


def _xxh3(data: bytes) -> int:
    import xxhash

    value = xxhash.xxh3_64_intdigest(data)
    return value - (1 << 64) if value >> 63 else value
