"""A copy of a broker's data directory, as the initial state of a broker in a test; the original is never written.

A directory of Apache Kafka does not contain the metadata of its topics, which are in ZooKeeper or in the log of KRaft.
Their names, numbers of partitions and ids follow from the directories of their partitions. Their settings do not, so
they get those of the broker, which deletes nothing by age or size unless configured to.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kwire.server.config import BrokerConfig
from kwire.server.controller.auto_topics import internal_topic_configs
from kwire.server.coordination import paths
from kwire.server.coordination.cluster import random_id
from kwire.server.coordination.node_file import StoredNodes
from kwire.server.coordination.store import EMBEDDED_STORE, Create, StoreClosed
from kwire.server.coordination.tree import NodeTree
from kwire.server.log.checkpoint import CorruptCheckpoint
from kwire.server.log.file_layer import FileLayer
from kwire.server.log.leader_epoch_cache import LeaderEpochCache
from kwire.server.log.log_directory import CLEAN_SHUTDOWN, LOCK, parse_directory_name
from kwire.server.log.meta_properties import (
    META_PROPERTIES,
    CorruptMetaProperties,
    MetaProperties,
    parse_meta_properties,
    read_topic_id,
)

from .nearest import nearest
from .settings import with_defaults
from .state import State, copy_file, copy_logs, entries, is_snapshot, read_metadata, stored

#: The log of a KRaft quorum, which is not a topic.
KRAFT_LOG = "__cluster_metadata"
#: Producer ids begin above all that a cluster can have assigned: every thousand ids cost it a write of its metadata.
FIRST_PRODUCER_ID = 1 << 40
#: For topics whose settings are not known.
KEEP_ALL = {"log.retention.ms": "-1", "log.retention.bytes": "-1"}

logger = logging.getLogger("kwire.server.testing")


class NoDataDirectory(ValueError):
    """A directory cannot be used as a broker's data; the message says which and why."""


class Taken(NamedTuple):
    """The result of copying a directory: the state of the broker, and the settings that it needs."""

    state: State
    properties: dict[str, str]


def take_directory(source: Path, target: Path, properties: Mapping[str, str]) -> Taken:
    """Copy a data directory of Apache Kafka or kwire to an empty directory. Errors: NoDataDirectory, ConfigError, OSError.

    Shape: `properties` are settings of the broker. Metadata that kwire keeps in its directories are taken over; otherwise topics are derived from the partitions that there are.
    """
    layer = FileLayer()
    meta = check(source, layer)
    needed = {"node.id": str(meta.broker_id)}
    metadata = None
    if not is_snapshot(source):
        needed = KEEP_ALL | needed
        config = BrokerConfig(with_defaults({**properties, "log.dirs": str(target)}))
        metadata = stored(derived(source, layer, meta, config))
    copy_logs(source, target, link=False)
    if (source / CLEAN_SHUTDOWN).exists():
        copy_file(str(source / CLEAN_SHUTDOWN), str(target / CLEAN_SHUTDOWN))
    return Taken(State(metadata or metadata_of(source, target)), needed)


def check(source: Path, layer: FileLayer) -> MetaProperties:
    """Whose data they are. Errors: NoDataDirectory."""
    if not source.is_dir():
        if source.exists():
            raise NoDataDirectory(f"{source} is a file, where a data directory should be")
        others = [each.name for each in source.parent.glob("*/")] if source.parent.is_dir() else []
        known = nearest(source.name, others)
        raise NoDataDirectory(f"{source} is not there, where a data directory should be{known}")
    try:
        meta = parse_meta_properties(
            (source / META_PROPERTIES).read_bytes(), str(source / META_PROPERTIES)
        )
    except FileNotFoundError:
        raise NoDataDirectory(
            f"{source} is not the data directory of a broker: it has no {META_PROPERTIES}"
        ) from None
    except CorruptMetaProperties as error:
        raise NoDataDirectory(str(error)) from None
    if meta.broker_id is None:
        raise NoDataDirectory(f"{source / META_PROPERTIES} has no broker id")
    if layer.is_locked(str(source / LOCK)):
        raise NoDataDirectory(
            f"a broker is running on {source}; stop it, or fork it if it is one of kwire.testing"
        )
    return meta


def metadata_of(source: Path, target: Path) -> StoredNodes:
    """The metadata in the file of a kwire broker, read from a copy. Errors: NoDataDirectory, OSError."""
    copies = []
    for suffix in ("", "-wal"):
        path = source / (EMBEDDED_STORE + suffix)
        if path.exists():
            copies.append(target / path.name)
            copy_file(str(path), str(copies[-1]))
    try:
        return read_metadata(copies[0])
    except StoreClosed as error:
        said = str(error).replace(str(target), str(source))
        raise NoDataDirectory(said) from None
    finally:
        for copy in copies:
            copy.unlink(missing_ok=True)


def derived(
    directory: Path, layer: FileLayer, meta: MetaProperties, config: BrokerConfig
) -> NodeTree:
    """The metadata of a cluster of one broker with the partitions that are in a directory. Errors: NoDataDirectory."""
    assert meta.broker_id is not None
    partitions: dict[str, dict[int, Path]] = {}
    for entry in entries(directory):
        found = parse_directory_name(entry.name) if entry.is_dir() else None
        if found is None or found.topic == KRAFT_LOG:
            continue
        partitions.setdefault(found.topic, {})[found.partition] = directory / entry.name
    tree = NodeTree(1 << 32)
    now_ms = 0
    blocks = paths.ProducerIdBlock(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID)
    data = {paths.PRODUCER_ID_BLOCK: paths.encode_producer_id_block(blocks, meta.broker_id)}
    if meta.cluster_id is not None:
        data[paths.CLUSTER_ID] = paths.encode_cluster_id(meta.cluster_id)
    wanted = paths.with_parents([*paths.PERSISTENT_PATHS, *data])
    tree.apply([Create(path, data.get(path)) for path in wanted], 0, now_ms)
    for topic, there in sorted(partitions.items()):
        tree.apply(nodes_of(topic, there, layer, meta.broker_id, config), 0, now_ms)
    return tree


def nodes_of(
    topic: str, there: dict[int, Path], layer: FileLayer, broker_id: int, config: BrokerConfig
) -> list[Create]:
    """The nodes of a topic, given the directories of its partitions by their numbers. Errors: NoDataDirectory."""
    numbers = range(max(there) + 1)
    missing = [number for number in numbers if number not in there]
    if missing:
        logger.warning(
            "%s has no partition %s in this directory; they start empty",
            topic,
            ", ".join(map(str, missing)),
        )
    configs = internal_topic_configs(topic, config)
    if not configs:
        logger.warning("%s: its settings are not known; it has those of the broker", topic)
    assignment = paths.TopicAssignment(
        topic_id_of(topic, there, layer),
        {number: paths.ReplicaAssignment((broker_id,)) for number in numbers},
    )
    nodes = [
        Create(paths.config_path("topics", topic), paths.encode_config(configs)),
        Create(paths.topic_path(topic), paths.encode_topic(assignment)),
        Create(paths.partitions_path(topic)),
    ]
    for number in numbers:
        epoch = latest_epoch(there[number], layer) if number in there else 0
        state = paths.LeaderAndIsr(broker_id, epoch, (broker_id,), 0)
        nodes.append(Create(paths.partition_path(topic, number)))
        nodes.append(Create(paths.state_path(topic, number), paths.encode_state(state)))
    return nodes


def topic_id_of(topic: str, there: dict[int, Path], layer: FileLayer) -> bytes:
    """The id of a topic, a new one if there was none. Errors: NoDataDirectory if partitions disagree."""
    try:
        ids = {number: read_topic_id(layer, str(path)) for number, path in there.items()}
    except CorruptMetaProperties as error:
        raise NoDataDirectory(str(error)) from None
    known = {each for each in ids.values() if each is not None}
    if len(known) > 1:
        raise NoDataDirectory(
            f"the partitions of {topic} have different topic ids: they are of topics that had this name one after another"
        )
    topic_id: bytes = known.pop() if known else random_id()
    return topic_id


def latest_epoch(directory: Path, layer: FileLayer) -> int:
    """An epoch that no leader of a partition has had yet. Errors: NoDataDirectory."""
    cache = LeaderEpochCache(layer, str(directory))
    try:
        cache.load()
    except CorruptCheckpoint as error:
        raise NoDataDirectory(str(error)) from None
    latest: int = cache.latest
    return latest + 1
