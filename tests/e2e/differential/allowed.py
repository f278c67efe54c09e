"""Where kwire's answer may differ from Apache Kafka 3.9.2's, and why."""

from __future__ import annotations

import re
from typing import NamedTuple


class Allowed(NamedTuple):
    """A difference at fields whose `scenario/label: path` matches the pattern."""

    pattern: str
    reason: str


ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        r"error_message: None \| 'TEXT'",
        "kwire says what was wrong where Apache Kafka gives the code alone.",
    ),
    Allowed(
        r"^produce/.*/codec 5: .*(error_code: -1 \| 76|log_start_offset: -1 \| 0)",
        "A codec nobody knows is UNSUPPORTED_COMPRESSION_TYPE; Apache Kafka fails inside.",
    ),
    Allowed(
        r"^create_topics/.*/assignment (unknown|no) broker: .*"
        r"(error_code: 7 \| 39|topic_id: 'TOPIC-ID' \| b|num_partitions|replication_factor|configs)",
        "Assignments that can never have a leader are refused, as KRaft does; a ZooKeeper broker"
        " creates the topic and lets the request time out.",
    ),
    Allowed(
        r"^incremental_alter_configs/.*/unknown operation: .*error_code: -1 \| 42",
        "INVALID_REQUEST for an operation that is none; Apache Kafka fails inside.",
    ),
    Allowed(
        r"^metadata/.*-v1[0-2]/by (id and name|null): ",
        "Apache Kafka fails such a request as a whole, without naming brokers; kwire answers the"
        " topic's row.",
    ),
    Allowed(
        r"^offset_(commit|fetch)/.*-v0/",
        "Version 0 keeps offsets in ZooKeeper, as consumers of 0.8 did; kwire keeps them with the"
        " group, where every other version finds them.",
    ),
    Allowed(
        r"^describe_configs/.*-v0/.*is_default: False \| True",
        "Apache Kafka no longer fills is_default, which version 0 alone has.",
    ),
    Allowed(
        r"^produce/refused_records-v[0-2]/(empty|cut|two batches|new magic|good after)",
        "Below version 3 Apache Kafka acknowledges a message set that is empty or ends within a"
        " message, and drops that message; kwire refuses it.",
    ),
    Allowed(
        r"^delete_topics/deleted-v6/(one|twice at once|one of two unknown): .*topic_id: b",
        "kwire gives the id of a topic deleted by name, as KRaft does.",
    ),
    Allowed(
        r"^delete_topics/deleted-v6/(neither|by id again): ",
        "An id that is not there is UNKNOWN_TOPIC_ID at once; a ZooKeeper broker still knows the"
        " name of the deleted topic for a while, and may not say of the zero id that it is none.",
    ),
    Allowed(
        r"^init_producer_id/transactional_producers-.*/described: .*start_time_ms: 'NOW' \| -1",
        "After InitProducerId there is no transaction, so it has no start, as the log and 4.3 say;"
        " 3.9 goes on showing that of the last one until it is restarted.",
    ),
    Allowed(
        r"^list_offsets/times_and_ends-v0/twice: ",
        "A partition named twice is refused in every version, not only from version 1 on.",
    ),
)


def is_allowed(difference: str) -> bool:
    """Tell whether a difference, as compare() words it, is one of those."""
    return any(re.search(entry.pattern, difference) for entry in ALLOWED)
