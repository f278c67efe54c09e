"""The fields in which kwire's answers may differ from those of Apache Kafka 3.9.2, with the reasons."""

from __future__ import annotations

import re
from typing import NamedTuple


class Allowed(NamedTuple):
    """A difference at fields whose `scenario/label: path` matches the pattern."""

    pattern: str
    reason: str


ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        r"^produce/.*/codec 5: .*(error_code: -1 \| 76|log_start_offset: -1 \| 0)",
        "A codec nobody knows is UNSUPPORTED_COMPRESSION_TYPE; Apache Kafka fails inside.",
    ),
    Allowed(
        r"^create_topics/.*/assignment unknown broker: .*"
        r"(error_code: 7 \| 0|num_partitions|replication_factor|configs)",
        "A topic that nobody can lead yet is answered when it is made; Apache Kafka lets the request"
        " time out.",
    ),
    Allowed(
        r"^create_topics/.*/assignment no broker: .*(error_code: 7 \| 39|error_message: None"
        r"|topic_id: 'TOPIC-ID' \| b|num_partitions|replication_factor|configs)",
        "A partition without replicas can never be led; a ZooKeeper broker creates the topic and lets"
        " the request time out.",
    ),
    Allowed(
        r"^metadata/.*-v12/by null: ",
        "A topic with neither name nor id is refused in its row; Apache Kafka fails inside.",
    ),
    Allowed(
        r"^incremental_alter_configs/.*/unknown operation: .*(error_code: -1 \| 42|error_message)",
        "INVALID_REQUEST for an operation that is none; Apache Kafka fails inside.",
    ),
    Allowed(
        r"^offset_(commit|fetch)/.*-v0/",
        "Version 0 keeps offsets in ZooKeeper, as consumers of 0.8 did; kwire keeps them with the"
        " group, where every other version finds them.",
    ),
    Allowed(
        r"^produce/refused_records-v[0-2]/(cut|two batches|new magic|good after)",
        "Below version 3 Apache Kafka acknowledges a message set that ends within a message, and drops"
        " that message; kwire refuses it.",
    ),
    Allowed(
        r"^delete_topics/deleted-v6/by id again: ",
        "An id that is not there is UNKNOWN_TOPIC_ID at once; a ZooKeeper broker still knows the"
        " name of the deleted topic for a while.",
    ),
)


def is_allowed(difference: str) -> bool:
    """Tell whether a difference, in the words of compare(), is one of those."""
    return any(re.search(entry.pattern, difference) for entry in ALLOWED)
