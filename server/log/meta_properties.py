"""`meta.properties` of a log directory, and `partition.metadata` of a partition directory.

meta.properties is a Java properties file. Version 0 (ZooKeeper): `version=0`, `broker.id`,
`cluster.id`. Version 1 (KRaft): `version=1`, `node.id`, `cluster.id`, `directory.id`. Version 0 is
written; both are read, unknown keys are kept.

partition.metadata, without a newline at its end: `version: 0\\ntopic_id: <base64url uuid>`.
Source: MetaPropertiesEnsemble, PartitionMetadataFile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kwire.types import uuid_from_str, uuid_to_str

from ..integers import parse_integer
from .file_layer import FileLayer

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
#: The version in directories of brokers and controllers of a KRaft cluster.
KRAFT_VERSION = 1


class CorruptMetaProperties(Exception):
    """A meta.properties or partition.metadata file cannot be read."""


@dataclass(slots=True)
class MetaProperties:
    """The owner of a log directory; None for fields that the file lacks."""

    broker_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None
    version: int = 0
    other: dict[str, str] = field(default_factory=dict)


def parse_meta_properties(data: bytes, path: str = META_PROPERTIES) -> MetaProperties:
    """Read version 0 or 1. Errors: CorruptMetaProperties."""
    values: dict[str, str] = {}
    for line in data.decode("latin-1").splitlines():
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise CorruptMetaProperties(f"{path}: no '=' in line {text[:60]!r}")
        values[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    try:
        text = values.pop("version", "0")
        version = parse_integer(text, 32)
        if version is None or version not in (0, 1):
            raise CorruptMetaProperties(f"{path}: unknown version {text[:60]}")
        key = "broker.id" if version == 0 else "node.id"
        number = values.pop(key, None)
        broker_id = None if number is None else parse_integer(number, 32)
        if number is not None and (broker_id is None or broker_id < 0):
            raise CorruptMetaProperties(f"{path}: {key}={number[:60]} is not a broker id")
        return MetaProperties(
            broker_id,
            values.pop("cluster.id", None),
            values.pop("directory.id", None),
            version,
            values,
        )
    except ValueError as e:
        raise CorruptMetaProperties(f"{path}: {e}") from e


def format_meta_properties(meta: MetaProperties) -> bytes:
    """The file for these properties, in their original version."""
    values = {"version": str(meta.version)}
    if meta.broker_id is not None:
        values["broker.id" if meta.version == 0 else "node.id"] = str(meta.broker_id)
    if meta.cluster_id is not None:
        values["cluster.id"] = meta.cluster_id
    if meta.directory_id is not None:
        values["directory.id"] = meta.directory_id
    values |= meta.other
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode("latin-1")


def read_topic_id(layer: FileLayer, directory: str) -> bytes | None:
    """The topic id in a partition directory, None without one. Errors: CorruptMetaProperties."""
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        data = layer.read_file(path)
    except FileNotFoundError:
        return None
    lines = dict(
        line.split(": ", 1) for line in data.decode("latin-1").splitlines() if ": " in line
    )
    try:
        if lines.get("version") != "0":
            raise CorruptMetaProperties(f"{path}: unknown version {lines.get('version')}")
        topic_id = uuid_from_str(lines.get("topic_id", ""))
    except ValueError as e:
        raise CorruptMetaProperties(f"{path}: {e}") from e
    return topic_id


def write_topic_id(layer: FileLayer, directory: str, topic_id: bytes) -> None:
    """Write partition.metadata; if a crash loses it, it is restored from the cluster's metadata."""
    text = f"version: 0\ntopic_id: {uuid_to_str(topic_id)}"
    layer.write_file(f"{directory}/{PARTITION_METADATA}", text.encode())
