"""The topics that the broker uses internally. Source: org.apache.kafka.common.internals.Topic."""

from __future__ import annotations

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset(
    {GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC}
)
#: The topic with the metadata of a KRaft cluster, which neither clients nor replicas of kwire read.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
