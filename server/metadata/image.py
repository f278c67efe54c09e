"""The broker's view of the cluster: an immutable image, and cheap steps from one image to the next.

A request takes the current image once and answers from it. An image never changes; a change makes the next image, which
shares everything unchanged and knows its differences (`changes_since`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .endpoint import Endpoint

NO_LEADER = -1
NO_EPOCH = -1
#: As leader epoch of a StopReplica: higher than any other. Source:
#: LeaderAndIsr.EPOCH_DURING_DELETE.
EPOCH_DURING_DELETE = -2
#: The entity whose configs are the defaults of its type.
DEFAULT_ENTITY = "<default>"
TOPICS = "topics"
BROKERS = "brokers"
USERS = "users"
CLIENT_METRICS = "client-metrics"
GROUPS = "groups"

EMPTY: Mapping[Any, Any] = MappingProxyType({})


class BrokerRegistration(NamedTuple):
    """A live broker.

    Shape: `epoch` is its node's czxid; `features` maps name -> (min, max); `console` is the HOST:PORT of its console,
    empty for none, and known only to readers of the broker's node.
    """

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    features: Mapping[str, tuple[int, int]] = EMPTY
    console: str = ""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener by its name."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


class PartitionImage(NamedTuple):
    """One partition.

    Shape: `replicas` in order of preference; `leader` -1 means none; `partition_epoch` is the
    version of the state node; `recovering` marks a leader elected uncleanly that has not recovered
    yet; during a reassignment `adding` and `removing` are parts of `replicas`.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    offline: tuple[int, ...] = ()
    recovering: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicImage(NamedTuple):
    """One topic with its partitions by number, in ascending order."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage]


class ImageDelta(NamedTuple):
    """The difference between an image and an earlier one.

    Shape: `changed` are topics that are new or have a changed partition; `deleted` maps removed
    topics to their last state; a topic deleted and created again (with another id) is in both.
    `configs` are (entity type, entity name).
    """

    changed: frozenset[str] = frozenset()
    deleted: Mapping[str, TopicImage] = EMPTY
    configs: frozenset[tuple[str, str]] = frozenset()
    brokers: bool = False
    controller: bool = False
    features: bool = False


class MetadataImage:
    """Everything from which a broker answers metadata requests; `MetadataImage()` is empty.

    Shape: `configs` maps entity type -> entity name -> config; entity names are those in the paths below /config, users
    and clients sanitized ("alice/clients/app"). `features` maps name -> finalized level, `features_epoch` is -1 when
    unknown. `version` counts the images of this process. A published image must not be modified. `answers` caches
    encoded answers that depend only on the image and on their keys; the code that adds them limits them, and they are
    dropped with the image.
    """

    __slots__ = (
        "answers",
        "answers_being_made",
        "brokers",
        "cluster_id",
        "configs",
        "controller_id",
        "delta",
        "features",
        "features_epoch",
        "topics",
        "topics_by_id",
        "version",
    )

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = -1
        self.brokers: Mapping[int, BrokerRegistration] = EMPTY
        self.topics: Mapping[str, TopicImage] = EMPTY
        self.topics_by_id: Mapping[bytes, TopicImage] = EMPTY
        self.configs: Mapping[str, Mapping[str, Mapping[str, str]]] = EMPTY
        self.features: Mapping[str, int] = EMPTY
        self.features_epoch = -1
        self.version = 0
        self.delta = ImageDelta()
        self.answers: dict[Any, bytes] = {}
        self.answers_being_made: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return (
            f"MetadataImage(version={self.version}, controller_id={self.controller_id},"
            f" brokers={list(self.brokers)}, topics={len(self.topics)})"
        )

    # Queries

    def topic(self, name: str) -> TopicImage | None:
        """The topic with this name."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic with this id."""
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """One partition, None when the topic or the partition is unknown."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def controller(self) -> BrokerRegistration | None:
        """The controller's registration; None if there is none or it is not alive."""
        return self.brokers.get(self.controller_id)

    def config(self, entity_type: str, name: str) -> Mapping[str, str]:
        """The dynamic config of an entity, empty if it has none."""
        entities: Mapping[str, Mapping[str, str]] = self.configs.get(entity_type, EMPTY)
        return entities.get(name, EMPTY)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """A topic's overrides."""
        return self.config(TOPICS, name)

    def broker_config(self, broker_id: int) -> Mapping[str, str]:
        """One broker's dynamic config, without the dynamic defaults."""
        return self.config(BROKERS, str(broker_id))

    def default_broker_config(self) -> Mapping[str, str]:
        """The dynamic config of every broker without its own."""
        return self.config(BROKERS, DEFAULT_ENTITY)

    def offline_replicas(self, partition: PartitionImage) -> tuple[int, ...]:
        """Replicas that are on a failed disk or whose broker is not alive."""
        return tuple(
            replica
            for replica in partition.replicas
            if replica in partition.offline or replica not in self.brokers
        )

    def changes_since(self, earlier: MetadataImage) -> ImageDelta:
        """The differences from `earlier`: stored if that is the previous image, else computed."""
        if self.version == earlier.version + 1:
            return self.delta
        if self.version == earlier.version:
            return ImageDelta()
        return compare(earlier, self)

    # Making the next image

    def edit(self) -> ImageEditor:
        """Begin the next image."""
        return ImageEditor(self)

    def with_brokers(self, brokers: Mapping[int, BrokerRegistration]) -> MetadataImage:
        """The same with these live brokers."""
        return self.edit().put_brokers(brokers).build()

    def with_topics(self, topics: Iterable[TopicImage]) -> MetadataImage:
        """The same with these topics added or replaced."""
        return self.edit().put_topics(topics).build()

    def without_topics(self, names: Iterable[str]) -> MetadataImage:
        """The same without these topics."""
        return self.edit().remove_topics(names).build()

    def with_controller(self, controller_id: int) -> MetadataImage:
        """The same with this controller, -1 for none."""
        return self.edit().put_controller(controller_id).build()

    def with_config(self, entity_type: str, name: str, config: Mapping[str, str]) -> MetadataImage:
        """The same with this config of one entity."""
        return self.edit().put_config(entity_type, name, config).build()


class ImageEditor:
    """Builds the next image: copies a table when it first changes it."""

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._values: dict[str, Any] = {}
        self._topics: dict[str, TopicImage] | None = None
        self._by_id: dict[bytes, TopicImage] = {}
        self._configs: dict[str, dict[str, Mapping[str, str]]] = {}
        self._touched: set[str] = set()
        self._touched_configs: set[tuple[str, str]] = set()

    def put_cluster_id(self, cluster_id: str) -> ImageEditor:
        """Set the cluster id."""
        self._values["cluster_id"] = cluster_id
        return self

    def put_controller(self, controller_id: int) -> ImageEditor:
        """Set the controller."""
        self._values["controller_id"] = controller_id
        return self

    def put_brokers(self, brokers: Mapping[int, BrokerRegistration]) -> ImageEditor:
        """Replace the live brokers."""
        self._values["brokers"] = dict(sorted(brokers.items()))
        return self

    def put_features(self, features: Mapping[str, int], epoch: int) -> ImageEditor:
        """Replace the finalized features."""
        self._values["features"] = dict(features)
        self._values["features_epoch"] = epoch
        return self

    def _topic_tables(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._base.topics)
            self._by_id = dict(self._base.topics_by_id)
        return self._topics

    def topic(self, name: str) -> TopicImage | None:
        """The topic as edited so far."""
        return (self._base.topics if self._topics is None else self._topics).get(name)

    def put_topics(self, topics: Iterable[TopicImage]) -> ImageEditor:
        """Add topics, or replace those with the same name."""
        table = self._topic_tables()
        for topic in topics:
            before = table.get(topic.name)
            if before is not None and before.topic_id != topic.topic_id:
                self._by_id.pop(before.topic_id, None)
            table[topic.name] = topic
            self._by_id[topic.topic_id] = topic
            self._touched.add(topic.name)
        return self

    def put_partitions(self, name: str, partitions: Iterable[PartitionImage]) -> ImageEditor:
        """Add partitions to an existing topic, or replace those with the same number."""
        topic = self._topic_tables()[name]
        merged = dict(topic.partitions)
        merged.update((partition.partition, partition) for partition in partitions)
        return self.put_topics([topic._replace(partitions=sorted_partitions(merged))])

    def remove_topics(self, names: Iterable[str]) -> ImageEditor:
        """Remove topics; unknown ones are ignored."""
        table = self._topic_tables()
        for name in names:
            topic = table.pop(name, None)
            if topic is not None:
                self._by_id.pop(topic.topic_id, None)
                self._touched.add(name)
        return self

    def put_config(self, entity_type: str, name: str, config: Mapping[str, str]) -> ImageEditor:
        """Replace the config of an entity; an empty one removes it."""
        table = self._configs.get(entity_type)
        if table is None:
            table = self._configs[entity_type] = dict(self._base.configs.get(entity_type, EMPTY))
        if config:
            table[name] = dict(config)
        else:
            table.pop(name, None)
        self._touched_configs.add((entity_type, name))
        return self

    def build(self) -> MetadataImage:
        """The next image, or the base itself if nothing differs."""
        base = self._base
        values = self._values
        if self._topics is not None:
            values["topics"] = self._topics
            values["topics_by_id"] = self._by_id
        if self._configs:
            values["configs"] = {**base.configs, **self._configs}
        after = MetadataImage()
        for name in MetadataImage.__slots__:
            setattr(after, name, values.get(name, getattr(base, name)))
        after.version = base.version + 1
        after.answers = {}
        after.answers_being_made = {}
        after.delta = compare(base, after, self._touched, self._touched_configs)
        return after if any(after.delta) or after.cluster_id != base.cluster_id else base


def compare(
    before: MetadataImage,
    after: MetadataImage,
    topics: Iterable[str] | None = None,
    configs: Iterable[tuple[str, str]] | None = None,
) -> ImageDelta:
    """The differences between two images; `topics` and `configs` limit the search."""
    if topics is None:
        topics = {*before.topics, *after.topics}
    if configs is None:
        configs = {
            (entity_type, name)
            for image in (before, after)
            for entity_type, entities in image.configs.items()
            for name in entities
        }
    changed: set[str] = set()
    deleted: dict[str, TopicImage] = {}
    for name in topics:
        old, new = before.topics.get(name), after.topics.get(name)
        if old == new:
            continue
        if old is not None and (new is None or new.topic_id != old.topic_id):
            deleted[name] = old
        if new is not None:
            changed.add(name)
    return ImageDelta(
        changed=frozenset(changed),
        deleted=deleted,
        configs=frozenset(key for key in configs if before.config(*key) != after.config(*key)),
        brokers=before.brokers != after.brokers,
        controller=before.controller_id != after.controller_id,
        features=(before.features, before.features_epoch) != (after.features, after.features_epoch),
    )


def sorted_partitions(partitions: Mapping[int, PartitionImage]) -> Mapping[int, PartitionImage]:
    """Partitions in ascending order."""
    return {number: partitions[number] for number in sorted(partitions)}
