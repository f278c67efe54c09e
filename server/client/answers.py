"""Reads what most clients need from responses: brokers, leaders, offsets, errors, versions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.schema import schema_of

from .errors import Unavailable
from .requests import Partition

COMING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

#: By API key: the lowest and highest version that a broker serves.
Versions = Mapping[int, tuple[int, int]]


class Placed(NamedTuple):
    """A partition in Metadata."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def versions_in(response: Any) -> dict[int, tuple[int, int]]:
    """The versions in a response to ApiVersions."""
    return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


def version_for(versions: Versions, request: object, max_version: int, min_version: int = 0) -> int:
    """The highest version of a request that both sides know. Errors: Unavailable, also if that version is too low."""
    schema = schema_of(type(request))
    key = schema.api_key
    assert key is not None
    lowest, highest = versions.get(key, (0, -1))
    version = min(highest, schema.versions.highest, max_version)
    if version < max(lowest, schema.versions.lowest, min_version):
        name = ApiKey(key).name.title().replace("_", "")
        raise Unavailable(f"the broker does not serve {name} as this command needs it")
    return version


def addresses_in(metadata: Any) -> dict[int, tuple[str, int]]:
    """The addresses of the brokers in Metadata, by id."""
    return {row.node_id: (row.host, row.port) for row in metadata.brokers}


def partitions_of(topic: Any) -> dict[int, Placed]:
    """Partitions by number, of a topic of Metadata's response."""
    return {
        row.partition_index: Placed(row.leader_id, tuple(row.replica_nodes), tuple(row.isr_nodes))
        for row in topic.partitions
    }


def leaders_of(topic: Any) -> dict[int, int]:
    """The leader of each partition of a topic of Metadata's response; -1 for none."""
    return {row.partition_index: row.leader_id for row in topic.partitions}


def offsets_in(response: Any) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Offsets and errors by partition, in a response to ListOffsets. Shape: -1 is no offset."""
    found: dict[Partition, int] = {}
    errors: dict[Partition, int] = {}
    for topic in response.topics:
        for row in topic.partitions:
            tp = (topic.name, row.partition_index)
            if row.error_code:
                errors[tp] = row.error_code
            else:
                found[tp] = row.offset
    return found, errors


def errors_of(response: Any) -> list[int]:
    """The error codes of a response, of its first rows, and of the partitions of the first row."""
    found = [response]
    for name in ("groups", "results", "responses", "transaction_states", "topics"):
        rows = getattr(response, name, None)
        if rows:
            found += [*rows, *(getattr(rows[0], "partitions", None) or ())]
            break
    return [getattr(row, "error_code", 0) for row in found]


def coordinator_is_coming(response: Any) -> bool:
    """Whether a response, or one of its rows, says that a coordinator will be available soon."""
    return any(error in COMING for error in errors_of(response))
