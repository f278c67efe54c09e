"""Records of internal topics as JSON, for `kwire dump-log`, in the form of Apache Kafka's tool.

    key: {"type":"1","data":{...}} payload: {"version":"3","data":{...}}         of coordinators
    payload: {"type":"TOPIC_RECORD","version":0,"data":{...}}                    of a KRaft cluster's metadata

Names are Kafka's. Bytes are base64, except subscriptions and assignments of classic groups' members.
Source: CoordinatorRecordMessageParser, GroupMetadataMessageFormatter, ClusterMetadataLogMessageParser.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

from kwire.codec import decode
from kwire.errors import CorruptRecord, WireError
from kwire.messages.internal import TOPICS, decode_key, decode_value, number_of, topic_messages
from kwire.messages.internal.cluster_metadata_frames import decode_frame
from kwire.messages.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kwire.messages.internal.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kwire.records.control import ControlType, control_type
from kwire.records.record import Record
from kwire.schema import Struct, schema_of
from kwire.types import Array, Uuid, uuid_to_str

from ..metadata.internal_topics import CLUSTER_METADATA_TOPIC

#: Fields whose bytes are another message, in groups of the protocol type `consumer`.
INSIDE: dict[str, type[Any]] = {
    "subscription": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}
INSIDE_VERSIONS = 3


def decoder_of(topic: str | None) -> Callable[[Record], str | None] | None:
    """The function that converts a topic's records to text; None for topics with user data.

    Shape: the function returns None for a record that it does not know.
    """
    if topic == CLUSTER_METADATA_TOPIC:
        return metadata_text
    if topic not in TOPICS:
        return None
    keys, values = topic_messages(topic), topic_messages(topic, "coordinator-value")

    def text_of(record: Record) -> str | None:
        if record.key is None:
            return None
        try:
            key_type = number_of(record.key)
            key = decode_key(record.key, keys)
            if key is None:
                return None
            said = f"key: {compact({'type': str(key_type), 'data': as_json(key)})}"
            if record.value is None:
                return f"{said} payload: <DELETE>"
            version = number_of(record.value)
            value: Any = decode_value(values[key_type], record.value)
        except (KeyError, WireError):
            return None
        return f"{said} payload: {compact({'version': str(version), 'data': as_json(value)})}"

    return text_of


#: The tool's names for the control records of a KRaft log, and the messages in their values.
CONTROL: dict[ControlType, tuple[str, type[Any]]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange: ", LeaderChangeMessage),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader ", SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter ", SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: ("KRaftVersion ", KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: ("KRaftVoters ", VotersRecord),
}


def metadata_text(record: Record) -> str | None:
    """The text of a record of __cluster_metadata; None for an unknown record."""
    if record.value is None:
        return None
    try:
        if record.key is not None:
            word, cls = CONTROL[control_type(record.key)]
            # These messages contain their version in their first field.
            version = int.from_bytes(record.value[:2], "big")
            return word + compact(json_of(decode(cls, record.value, version), version))
        message, version = decode_frame(record.value)
    except (KeyError, WireError, CorruptRecord):
        return None
    words = re.findall("[A-Z][a-z]*", type(message).__name__)
    data = {
        "type": "_".join(words).upper(),
        "version": version,
        "data": json_of(message, version),
    }
    return f"payload: {compact(data)}"


def json_of(message: Any, version: int) -> dict[str, Any]:
    """A message with Kafka's names and the fields of its version; tagged fields only if they differ from their default.

    Source: JsonConverterGenerator.
    """
    found = {}
    for each in schema_of(type(message)).fields:
        value = getattr(message, each.name)
        if version not in each.versions:
            continue
        if version in each.tagged and value == each.make_default():
            continue
        found[camel(each.name)] = plain(value, each.type, version)
    return found


def plain(value: Any, type_: Any, version: int) -> Any:
    """A value for JSON. Shape: ids are base64 for URLs, other bytes plain base64."""
    if isinstance(type_, Array) and value is not None:
        return [plain(each, type_.element, version) for each in value]
    if isinstance(value, Struct):
        return json_of(value, version)
    if isinstance(value, bytes | memoryview):
        return uuid_to_str(bytes(value)) if type_ is Uuid else base64.b64encode(value).decode()
    return value


def compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True)


def as_json(message: Any, *, classic: bool = False) -> dict[str, Any]:
    """A message with Kafka's names. Shape: `classic` is for members of a group of consumers."""
    classic = classic or getattr(message, "protocol_type", None) == "consumer"
    return {
        camel(each.name): value_of(each.name, getattr(message, each.name), classic)
        for each in schema_of(type(message)).fields
    }


def value_of(name: str, value: Any, classic: bool) -> Any:
    if isinstance(value, bytes | memoryview):
        if classic and name in INSIDE and value:
            version = min(int.from_bytes(bytes(value[:2]), "big"), INSIDE_VERSIONS)
            try:
                return as_json(decode(INSIDE[name], bytes(value), version, 2))
            except WireError:
                pass
        return base64.b64encode(value).decode()
    if isinstance(value, Struct):
        return as_json(value, classic=classic)
    if isinstance(value, list):
        return [value_of(name, each, classic) for each in value]
    return value


def camel(name: str) -> str:
    """A name in Kafka's JSON: commitTimestamp for commit_timestamp."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
